/* Programs on disk: full checkpoints, pausing to disk, hibernating, forks with programs. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib.h"
#include "mem.h"
#include "strv.h"

void den_saved_free(struct den_saved *s)
{
	if (!s)
		return;
	strv_free((char **)s->lost);
	free(s);
}

static int saved_read(const struct buf *answer, struct den_saved **ret, struct den_err *err)
{
	struct wire_reader rd = wire_reader(answer->p, answer->len);
	struct den_saved *s = mem_new(struct den_saved);
	char **lost = NULL;
	struct wire_value v;
	int r;

	while ((r = wire_next(&rd, &v, err)) > 0) {
		auto_free char *text = NULL;

		if (v.tag == F_NUMBER)
			r = wire_u64(&v, UINT64_MAX, &s->number, err);
		else if (v.tag == F_SIZE)
			r = wire_u64(&v, UINT64_MAX, &s->memory, err);
		else if (v.tag == F_FROZEN_US)
			r = wire_u64(&v, UINT64_MAX, &s->frozen_us, err);
		else if (v.tag == F_UNSAVED && (r = wire_str(&v, 4096, &text, err)) == 0)
			strv_add(&lost, text);
		if (r < 0)
			break;
	}
	s->lost = (const char *const *)lost;
	if (r < 0) {
		den_saved_free(s);
		return -1;
	}
	*ret = s;
	return 0;
}

static int save_ask(struct den_box *box, uint8_t type, struct buf *req, struct den_saved **ret,
	struct den_err *err)
{
	auto_buf out = { 0 };

	wire_put_u64(req, F_FLAGS, SAVE_FULL);
	if (box_ask(box, type, req, 0, &out, err) < 0)
		return -1;
	return ret ? saved_read(&out, ret, err) : 0;
}

int den_checkpoint_full(
	struct den_box *box, const char *message, struct den_saved **ret, struct den_err *err)
{
	auto_buf req = { 0 };

	wire_put_str(&req, F_MSG, message);
	return save_ask(box, WM_CHECKPOINT, &req, ret, err);
}

int den_box_pause_disk(struct den_box *box, struct den_saved **ret, struct den_err *err)
{
	auto_buf req = { 0 };

	return save_ask(box, WM_PAUSE, &req, ret, err);
}

int den_box_hibernate(struct den_box *box, struct den_err *err)
{
	return box_ask(box, WM_HIBERNATE, NULL, 0, NULL, err);
}

int den_rollback_disk(
	struct den_box *box, const char *ref, uint64_t *ret_before, struct den_err *err)
{
	auto_buf req = { 0 }, out = { 0 };

	wire_put_str(&req, F_REF, ref);
	wire_put_u64(&req, F_FLAGS, ROLLBACK_DISK);
	if (box_ask(box, WM_ROLLBACK, &req, 0, &out, err) < 0)
		return -1;
	if (ret_before)
		*ret_before = wire_find_u64(out.p, out.len, F_NUMBER, 0);
	return 0;
}

/* "ID@N" of a full checkpoint, made if need be. */
static int full_point(struct den_box *box, const char *ref, char **ret_from,
	struct den_saved **saved, struct den_err *err)
{
	auto_buf req = { 0 };
	struct den_saved *s;
	char from[64];

	wire_put_str(&req, F_REF, ref);
	if (save_ask(box, WM_FORK_POINT, &req, &s, err) < 0)
		return -1;
	snprintf(from, sizeof(from), "%s@%llu", box->id.s, (unsigned long long)s->number);
	*ret_from = mem_strdup(from);
	*saved = s;
	return 0;
}

int den_box_fork_full(struct den_box *box, const char *ref, const struct den_box_spec *over,
	struct den_box **ret, struct den_saved **saved, struct den_err *err)
{
	auto_free char *from = NULL;
	struct den_saved *s;

	if (box_fork_check(over, err) < 0 || full_point(box, ref, &from, &s, err) < 0)
		return -1;
	if (box_create_from(box->d, from, true, over, ret, err) < 0) {
		den_saved_free(s);
		return -1;
	}
	if (saved)
		*saved = s;
	else
		den_saved_free(s);
	return 0;
}

/* The seed that the name had before. What fails here is left to gc. */
static void seed_drop(struct den *d, const char *id)
{
	struct den_box *box;
	struct den_err ignored;

	if (den_box_open(d, id, &box, &ignored) < 0)
		return;
	(void)den_box_delete(box, true, &ignored);
	den_box_close(box);
}

int den_template_bake(struct den_box *box, const char *ref, const char *name, struct den_err *err)
{
	return den_template_bake_as(box, ref, name, 0, err);
}

int den_template_bake_as(struct den_box *box, const char *ref, const char *name, unsigned flags, struct den_err *err)
{
	auto_buf req = { 0 }, out = { 0 };
	struct wire_reader rd;
	struct wire_value v;
	auto_free char *from = NULL;
	struct den_saved *s;

	if (full_point(box, ref, &from, &s, err) < 0)
		return -1;
	den_saved_free(s);
	wire_put_str(&req, F_NAME, name);
	wire_put_str(&req, F_FROM, from);
	wire_put_u64(&req, F_FLAGS, flags);
	if (clerk_ask(box->d, WM_BAKE, &req, 0, &out, err) < 0)
		return -1;
	rd = wire_reader(out.p, out.len);
	while (wire_next(&rd, &v, err) > 0) {
		auto_free char *id = NULL;

		if (v.tag == F_RECORD && wire_str(&v, 64, &id, err) == 0)
			seed_drop(box->d, id);
	}
	return 0;
}

int den_template_unbake(struct den *d, const char *name, struct den_err *err)
{
	auto_buf req = { 0 };

	wire_put_str(&req, F_NAME, name);
	wire_put_u64(&req, F_FLAGS, 2);
	return clerk_ask(d, WM_TEMPLATE_REMOVE, &req, 0, NULL, err);
}
