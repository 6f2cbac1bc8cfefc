/* Programs on disk: full checkpoints, pausing to disk, hibernating, forks with programs. */
#include <errno.h>
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

static char *from_of(const struct den_box *box, uint64_t number)
{
	char from[64];

	snprintf(from, sizeof(from), "%s@%llu", box->id.s, (unsigned long long)number);
	return mem_strdup(from);
}

/* "ID@N" of a full checkpoint, made if need be. */
static int full_point(struct den_box *box, const char *ref, char **ret_from,
	struct den_saved **saved, struct den_err *err)
{
	auto_buf req = { 0 };
	struct den_saved *s;

	wire_put_str(&req, F_REF, ref);
	if (save_ask(box, WM_FORK_POINT, &req, &s, err) < 0)
		return -1;
	*ret_from = from_of(box, s->number);
	*saved = s;
	box->forks = true;
	return 0;
}

/* The box lends its memory to the fork that is made meanwhile. */
struct borrowing {
	struct den_box *box, *fork;
	const struct den_box_spec *over;
	int result; /* 1: nothing was lent */
	struct den_err err;
};

static void borrow(const struct buf *part, void *user)
{
	struct borrowing *b = user;
	auto_free char *from = from_of(b->box, wire_find_u64(part->p, part->len, F_NUMBER, 0));

	b->result = box_fork_in(b->fork, from, true, b->over, &b->err);
	if (b->result < 0) /* nobody will come for it */
		conn_send(&b->box->conn, WM_LENT, 0, NULL, 0);
}

/* Of what runs now, and one only: 0, 1: all is in images, and nothing has been made of them; -1. */
static int fork_lent(struct den_box *box, struct den_box *fork, const struct den_box_spec *over, struct den_saved **saved,
	struct den_err *err)
{
	struct borrowing b = { .box = box, .fork = fork, .over = over, .result = 1 };
	auto_buf req = { 0 }, out = { 0 };
	int r;

	wire_put_u64(&req, F_FLAGS, SAVE_FULL | SAVE_LEND);
	r = box_ask_between(box, WM_FORK_POINT, &req, WM_LENT, borrow, &b, &out, err);
	if (b.result < 0) {
		*err = b.err;
		return -1;
	}
	/* A fork that is there is there, whatever became of the other since: who asks for that one hears of it. If it was its
	 * keeper that died, the box is still held, and the next one lets it go. */
	if (r < 0 && b.result == 0) {
		(void)box_ask(box, WM_HELLO, NULL, 0, NULL, err);
		*saved = mem_new(struct den_saved);
	} else if (r < 0 || saved_read(&out, saved, err) < 0)
		return -1;
	return b.result;
}

int den_box_fork_point(struct den_box *box, struct den_saved **ret, struct den_err *err)
{
	auto_free char *from = NULL;

	return full_point(box, "now", &from, ret, err);
}

static int fork_now(struct den_box *box, const struct den_box_spec *over, struct den_box **ret, struct den_saved **saved,
	struct den_err *err)
{
	struct den_box *fork = NULL;
	auto_buf req = { 0 };
	int r;

	/* its keeper gets ready while the other's is busy */
	if (box_expect(box->d, &fork, err) < 0)
		return -1;
	wire_put_str(&req, F_ID, box->id.s);
	conn_send_buf(&fork->conn, WM_EXPECT, 0, &req);
	r = fork_lent(box, fork, over, saved, err);
	if (r > 0) {
		auto_free char *from = from_of(box, (*saved)->number);

		r = box_fork_in(fork, from, true, over, err);
	}
	if (r == 0)
		*ret = fork;
	else
		den_box_close(fork);
	return r;
}

/* Of what has been saved, or is first. */
static int fork_saved(struct den_box *box, const char *ref, const struct den_box_spec *over, struct den_box **ret,
	struct den_saved **saved, struct den_err *err)
{
	auto_free char *from = NULL;

	return full_point(box, ref, &from, saved, err) < 0 ? -1 : box_create_from(box->d, from, true, over, ret, err);
}

int den_box_fork_full(struct den_box *box, const char *ref, const struct den_box_spec *over,
	struct den_box **ret, struct den_saved **saved, struct den_err *err)
{
	bool now = !ref || !*ref || !strcmp(ref, "now");
	struct den_saved *s = NULL;
	struct den_err unheard;
	int r = -1;

	err = err ? err : &unheard;
	if (box_fork_check(over, err) < 0)
		return -1;
	if (now)
		r = fork_now(box, over, ret, &s, err);
	/* ESTALE: it took too long for those who were held. Then from a copy */
	if (!now || (r < 0 && err->sys == ESTALE)) {
		den_saved_free(s);
		s = NULL;
		r = fork_saved(box, ref, over, ret, &s, err);
	}
	if (r == 0 && saved)
		*saved = mem_take(&s);
	den_saved_free(s);
	return r;
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
