/* Boxes that are built before somebody asks for them: making, counting and taking them. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fd.h"
#include "lib.h"
#include "mem.h"
#include "place.h"
#include "shape.h"

#define CLAIM_TRIES 3 /* what was taken and does not want to be claimed; then a box is made */

/* ---- taking one ---- */

static bool hex_ok(const char *s)
{
	return strlen(s) == 64 && strspn(s, "0123456789abcdef") == 64;
}

static int nothing_ready(struct den_err *err)
{
	return den_fail(err, DEN_NOT_FOUND, 0, "no box of that shape is ready");
}

/* The mark is gone for everybody else when unlinkat() says so to us. */
static int take_one(
	struct den *d, int dir, const struct box_id *id, int *ret_fd, struct den_err *err)
{
	auto_fd box = -1;

	if (unlinkat(dir, id->s, 0) < 0)
		return -1;
	return place_box(d->fd, id, &box, err) < 0
		       ? -1
		       : place_connect(box, PLACE_KEEPER_SOCK, ret_fd, err);
}

int ready_take(
	struct den *d, const char *shape, int *ret_fd, struct box_id *ret_id, struct den_err *err)
{
	char path[96];
	struct dirent *de;
	struct box_id id;
	int fd, r = -1;
	DIR *dir;

	if (!hex_ok(shape))
		return den_fail(err, DEN_INVALID, 0, "'%.80s' is no shape", shape);
	if (den_need_state(d, false, err) < 0)
		return -1;
	snprintf(path, sizeof(path), PLACE_READY "/%s", shape);
	fd = openat(d->fd, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	dir = fd < 0 ? NULL : fdopendir(fd);
	if (!dir) {
		fd_close(&fd);
		return nothing_ready(err);
	}
	while (r < 0 && (de = readdir(dir)))
		if (box_id_parse(de->d_name, &id, NULL) == 0)
			r = take_one(d, fd, &id, ret_fd, err);
	closedir(dir);
	if (r < 0)
		return nothing_ready(err);
	if (ret_id)
		*ret_id = id;
	return 0;
}

static int take(
	struct den *d, const char *shape, int *ret_fd, struct box_id *ret_id, struct den_err *err)
{
	char text[80];
	bool started;

	if (!d->dial)
		return ready_take(d, shape, ret_fd, ret_id, err);
	snprintf(text, sizeof(text), READY_DIAL "%s", shape);
	return d->dial(text, d->dial_user, ret_fd, &started, err);
}

/* Its keeper died in the middle of it. If it had become ours by then nobody would ever know: it goes. */
static void forget(struct den *d, const struct box_id *id)
{
	struct den_box *box;
	struct den_err ignored;

	if (!id->s[0] || den_box_open(d, id->s, &box, &ignored) < 0)
		return;
	(void)den_box_delete(box, true, &ignored);
	den_box_close(box);
}

/* 1: claimed; 0: not this one; -1: none */
static int claim_one(struct den *d, const char *shape, const struct buf *req, struct den_box **ret)
{
	struct den_box *box;
	struct box_id id = { { 0 } };
	auto_buf out = { 0 };
	struct den_err err;
	int fd;

	if (take(d, shape, &fd, &id, &err) < 0)
		return -1;
	box = box_new(d, &err);
	if (!box) {
		close(fd);
		return -1;
	}
	if (box_take_conn(box, fd, &err) == 0 && box_ask(box, WM_CLAIM, req, 0, &out, &err) == 0 &&
		read_id(&out, &box->id, &err) == 0) {
		*ret = box;
		return 1;
	}
	den_box_close(box);
	if (err.sys == EPIPE)
		forget(d, &id);
	/* one that is of no use any more says so; what is asked for may be wrong, too, and then no other helps */
	return err.sys == EPIPE || err.code == DEN_NOT_FOUND ? 0 : -1;
}

bool ready_claim(struct den *d, const struct buf *req, struct den_box **ret)
{
	struct box_spec s = { 0 };
	struct shape shape;
	struct den_err err;
	bool fits;
	int r = 0;

	if (box_spec_get(req->p, req->len, &s, &err) < 0)
		return false; /* the ordinary way says why */
	fits = shape_of(&s, &shape, NULL);
	box_spec_free(&s);
	for (int i = 0; fits && r == 0 && i < CLAIM_TRIES; i++)
		r = claim_one(d, shape.hex, req, ret);
	return r > 0;
}

/* ---- making and counting them ---- */

int den_ready_make(struct den *d, const struct den_box_spec *spec, struct den_err *err)
{
	auto_buf req = { 0 }, out = { 0 };
	struct den_err unheard;
	struct den_box *box;
	int fd, r = -1;

	err = err ? err : &unheard;
	if (spec_from(spec, NULL, false, &req, err) < 0)
		return -1;
	box = box_new(d, err);
	if (!box)
		return -1;
	if (clerk_spawn(d, &fd, &box->keeper, err) == 0 && box_take_conn(box, fd, err) == 0 &&
		box_ask(box, WM_READY, &req, 0, &out, err) == 0)
		r = read_id(&out, &box->id, err); /* the clerk is its keeper now, and stays */
	den_box_close(box);
	return r;
}

/* Of the records, those of this shape. */
static int records_like(
	const struct buf *all, const struct shape *want, struct buf *out, struct den_err *err)
{
	struct wire_reader rd = wire_reader(all->p, all->len);
	struct wire_value v;
	int r;

	while ((r = wire_next(&rd, &v, err)) > 0) {
		struct box_info i = { 0 };
		struct shape got;

		if (v.tag != F_RECORD || box_info_get(v.p, v.len, &i, NULL) < 0)
			continue;
		if (shape_of(&i.spec, &got, NULL) && !strcmp(got.hex, want->hex))
			wire_put_bytes(out, F_RECORD, v.p, v.len);
		box_info_free(&i);
	}
	return r;
}

static int shape_like(const struct den_box_spec *like, struct shape *ret, struct den_err *err)
{
	auto_buf req = { 0 };
	struct box_spec s = { 0 };
	bool fits;

	if (spec_from(like, NULL, false, &req, err) < 0 ||
		box_spec_get(req.p, req.len, &s, err) < 0)
		return -1;
	fits = shape_of(&s, ret, NULL);
	box_spec_free(&s);
	return fits ? 0 : den_fail(err, DEN_UNSUPPORTED, 0, "no box can be ready for that");
}

int den_ready_list(struct den *d, const struct den_box_spec *like, struct den_box_info **ret,
	size_t *n, struct den_err *err)
{
	auto_buf out = { 0 }, some = { 0 };
	struct den_err unheard;
	struct shape shape;

	err = err ? err : &unheard;
	if ((like && shape_like(like, &shape, err) < 0) ||
		clerk_ask(d, WM_READY_LIST, NULL, WM_READY_LIST, &out, err) < 0 ||
		(like && records_like(&out, &shape, &some, err) < 0))
		return -1;
	return infos_read(like ? &some : &out, ret, n, err);
}

int den_ready_drop(struct den *d, const char *id, struct den_err *err)
{
	struct den_box *box;
	int r;

	if (den_box_open(d, id, &box, err) < 0)
		return -1;
	r = den_box_delete(box, true, err);
	den_box_close(box);
	return r;
}
