/*
 * GET /files: the bytes of a file.
 *
 * A small file is read before anything is said of it, so it costs one call of libden and its length is known. Of a
 * larger one the length is looked up then, and the rest follows in a stream.
 */
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <zlib.h>

#include "envd.h"
#include "mem.h"
#include "parse.h"

#define SMALL (256U << 10)
#define TYPE "application/octet-stream" /* never what the box says: a page of its making must not run here */
#define GZIP_LEVEL 1

/* ---- for whom, and what went wrong ---- */

int files_who(struct req *r, struct envd *e, const char *username, struct person *ret, struct den_err *err)
{
	if (username && strlen(username) > 63)
		return e2b_error(r, 401, "invalid username: it has more than 63 characters"), 1;
	if (person_get(e, username ? username : "", ret, err) == 0)
		return 0;
	if (envd_gone(r, e))
		return 1;
	if (err->code != DEN_NOT_FOUND)
		return -1;
	return e2b_error(r, 401, "%s", err->msg), 1;
}

int files_failed(struct req *r, const struct envd *e, const char *path, const struct den_err *why)
{
	if (why->code == DEN_NOT_FOUND && why->sys)
		return e2b_error(r, 404, "path '%s' does not exist", path);
	if (why->sys == EISDIR)
		return e2b_error(r, 400, "path '%s' is a directory", path);
	if (why->sys == ENOSPC || why->sys == EDQUOT)
		return e2b_error(r, 507, "not enough disk space available");
	if (envd_gone(r, e))
		return 0;
	return e2b_error(r, http_status(why->code), "%s", why->msg);
}

/* ---- how ---- */

/* What Accept-Encoding says of a coding: its weight in thousandths, -1: nothing. *others: it names another one, too */
static int coding_weight(const char *header, const char *coding, bool *others)
{
	int weight = -1;
	size_t len = strlen(coding);

	for (const char *p = header + strspn(header, " \t,"); *p; p += strspn(p, " \t,")) {
		size_t n = strcspn(p, ",; \t"), all = strcspn(p, ",");
		const char *q = memmem(p, all, "q=", 2);
		int w = q ? (int)(strtod(q + 2, NULL) * 1000) : 1000;

		if (n == len && !strncasecmp(p, coding, n))
			weight = w;
		else if (w > 0 && !(n == 8 && !strncasecmp(p, "identity", 8)))
			*others = true;
		p += all;
	}
	return weight;
}

/*
 * HTTP libraries ask for "gzip, deflate, br" by themselves, where nobody thought of it and the network is not what
 * is slow. Who names gzip alone means it. -1: neither is wanted
 */
static int choose_gzip(const char *header)
{
	bool others = false, ignored;
	int gzip, identity, any;

	if (!header)
		return 0;
	gzip = coding_weight(header, "gzip", &others);
	identity = coding_weight(header, "identity", &ignored);
	any = coding_weight(header, "*", &ignored);
	if (identity == 0 || (identity < 0 && any == 0))
		return gzip > 0 || (gzip < 0 && any > 0) ? 1 : -1;
	return gzip > 0 && !others && gzip >= identity;
}

/* "bytes=A-B", "bytes=A-", "bytes=-N". 1: *from, *to (of a file of size); 0: it is none that we serve; -1: there
 * is nothing in it */
static int range_read(const char *text, uint64_t size, uint64_t *from, uint64_t *to)
{
	char a[24], b[24];
	uint64_t x, y = UINT64_MAX;
	const char *dash;

	if (!text || strncasecmp(text, "bytes=", 6) || !(dash = strchr(text += 6, '-')))
		return 0;
	if ((size_t)(dash - text) >= sizeof(a) || strlen(dash + 1) >= sizeof(b))
		return 0;
	snprintf(a, sizeof(a), "%.*s", (int)(dash - text), text);
	snprintf(b, sizeof(b), "%s", dash + 1);
	if (*b && parse_u64(b, 0, INT64_MAX, &y, NULL) < 0)
		return 0;
	if (!*a) { /* the last y */
		if (!*b)
			return 0;
		if (!y || !size)
			return -1;
		*from = size - MIN(y, size);
		*to = size - 1;
		return 1;
	}
	if (parse_u64(a, 0, INT64_MAX, &x, NULL) < 0 || y < x)
		return 0;
	if (x >= size)
		return -1;
	*from = x;
	*to = MIN(y, size - 1);
	return 1;
}

static void name_set(struct req *r, const char *path)
{
	const char *name = strrchr(path, '/') + 1;
	auto_buf b = { 0 };

	buf_addstr(&b, "attachment; filename*=UTF-8''");
	for (const unsigned char *p = (const unsigned char *)name; *p; p++) {
		if (*p < 128 && (isalnum(*p) || strchr("._-~", *p)))
			buf_addf(&b, "%c", *p);
		else
			buf_addf(&b, "%%%02X", *p);
	}
	req_set(r, "Content-Disposition", buf_str(&b));
	req_set(r, "X-Content-Type-Options", "nosniff");
	req_set(r, "Vary", "Accept-Encoding");
}

/* ---- the bytes ---- */

struct download {
	struct req *r;
	struct envd *e;
	const char *path;
	const char *user; /* NULL: root */
	struct buf small;
	uint64_t left; /* of what was promised */
	bool zipped;
	z_stream z;
};

static int small_sink(const void *data, size_t n, void *user, struct den_err *err)
{
	struct download *d = user;

	(void)err;
	buf_add(&d->small, data, n);
	return 0;
}

static int zip(struct download *d, const void *p, size_t n, int flush, struct buf *out, struct den_err *err)
{
	d->z.next_in = (Bytef *)p;
	d->z.avail_in = (uInt)n;
	do {
		buf_reserve(out, 64 << 10);
		d->z.next_out = (Bytef *)out->p + out->len;
		d->z.avail_out = (uInt)(out->cap - out->len - 1);
		if (deflate(&d->z, flush) == Z_STREAM_ERROR)
			return den_fail(err, DEN_INTERNAL, 0, "gzip");
		out->len = (size_t)((char *)d->z.next_out - out->p);
	} while (!d->z.avail_out || d->z.avail_in);
	return 0;
}

static int stream_sink(const void *data, size_t n, void *user, struct den_err *err)
{
	struct download *d = user;
	auto_buf out = { 0 };

	n = (size_t)MIN((uint64_t)n, d->left);
	d->left -= n;
	if (!d->zipped)
		return req_write(d->r, data, n, err);
	if (zip(d, data, n, Z_NO_FLUSH, &out, err) < 0)
		return -1;
	return out.len ? req_write(d->r, out.p, out.len, err) : 0;
}

/* As he may; else as root may, which is what E2B's agent would. */
static int read_part(struct download *d, const struct person *p, uint64_t from, uint64_t n, den_sink sink,
	struct den_err *err)
{
	struct den_file_opt opt = { .size = sizeof(opt), .user = d->user, .offset = from, .length = n };
	int r = den_file_read(d->e->box, d->path, &opt, sink, d, err);

	if (r == 0 || err->code != DEN_DENIED || d->user != p->name || req_begun(d->r))
		return r;
	d->user = opt.user = NULL;
	d->small.len = 0;
	return den_file_read(d->e->box, d->path, &opt, sink, d, err);
}

static int size_fn(const struct den_entry *entry, void *user, struct den_err *err)
{
	(void)err;
	*(uint64_t *)user = strcmp(entry->type, "directory") ? entry->size : UINT64_MAX;
	return 0;
}

static int reply_small(struct download *d, struct den_err *err)
{
	auto_buf out = { 0 };

	if (!d->zipped || !d->small.len) /* an empty one has a length of 0, which clients look for */
		return req_reply(d->r, 200, TYPE, d->small.p ? d->small.p : "", d->small.len);
	if (zip(d, d->small.p, d->small.len, Z_FINISH, &out, err) < 0)
		return -1;
	req_set(d->r, "Content-Encoding", "gzip");
	return req_reply(d->r, 200, TYPE, out.p, out.len);
}

/* Once begun, a failure cuts the answer short, which the client sees. */
static int reply_large(struct download *d, const struct person *p, uint64_t size, struct den_err *err)
{
	auto_buf out = { 0 };
	size_t first = MIN(d->small.len, (size_t)size);

	if (d->zipped)
		req_set(d->r, "Content-Encoding", "gzip");
	d->left = size;
	if (req_begin(d->r, 200, TYPE, d->zipped ? -1 : (int64_t)size, err) < 0 ||
		stream_sink(d->small.p, first, d, err) < 0)
		return -1;
	buf_free(&d->small);
	if (d->left && read_part(d, p, first, d->left, stream_sink, err) < 0)
		return -1;
	if (d->left)
		return den_fail(err, DEN_CONFLICT, 0, "the file became shorter while it was read");
	if (d->zipped && (zip(d, NULL, 0, Z_FINISH, &out, err) < 0 || req_write(d->r, out.p, out.len, err) < 0))
		return -1;
	req_end(d->r);
	return 0;
}

static int reply_range(struct download *d, const struct person *p, const char *range, struct den_err *err)
{
	uint64_t size = 0, from, to;
	char text[80];
	int got;

	if (den_file_stat(d->e->box, d->path, NULL, size_fn, &size, err) < 0)
		return files_failed(d->r, d->e, d->path, err);
	if (size == UINT64_MAX)
		return e2b_error(d->r, 400, "path '%s' is a directory", d->path);
	got = range_read(range, size, &from, &to);
	if (got < 0) {
		snprintf(text, sizeof(text), "bytes */%llu", (unsigned long long)size);
		req_set(d->r, "Content-Range", text);
		return e2b_error(d->r, 416, "range '%s' is not in the file", range);
	}
	snprintf(text, sizeof(text), "bytes %llu-%llu/%llu", (unsigned long long)from, (unsigned long long)to,
		(unsigned long long)size);
	req_set(d->r, "Content-Range", text);
	d->left = to - from + 1;
	d->user = NULL; /* whether he may was never the question */
	if (req_begin(d->r, 206, TYPE, (int64_t)d->left, err) < 0 ||
		read_part(d, p, from, d->left, stream_sink, err) < 0)
		return -1;
	if (d->left)
		return den_fail(err, DEN_CONFLICT, 0, "the file became shorter while it was read");
	req_end(d->r);
	return 0;
}

static int reply_whole(struct download *d, const struct person *p, struct den_err *err)
{
	uint64_t size = 0;

	if (read_part(d, p, 0, SMALL + 1, small_sink, err) < 0)
		return files_failed(d->r, d->e, d->path, err);
	if (d->small.len <= SMALL)
		return reply_small(d, err);
	if (den_file_stat(d->e->box, d->path, NULL, size_fn, &size, err) < 0)
		return files_failed(d->r, d->e, d->path, err);
	return reply_large(d, p, size, err);
}

int files_get(struct req *r, struct den_err *err)
{
	auto_envd e = { 0 };
	auto_free char *path = NULL;
	struct download d = { .r = r, .e = &e };
	const char *range = req_header(r, "Range");
	struct person p;
	uint64_t from, to;
	int got = envd_enter(r, "read", &e, err), gzip;

	if (!got)
		got = files_who(r, &e, req_query(r, "username"), &p, err);
	if (got)
		return got < 0 ? -1 : 0;
	gzip = choose_gzip(req_header(r, "Accept-Encoding"));
	if (gzip < 0)
		return e2b_error(r, 406, "only gzip and identity are served");
	if (person_path(&p, req_query(r, "path") ?: "", &path, err) < 0)
		return e2b_error(r, 400, "%s", err->msg);
	d.path = path;
	d.user = p.name;
	if (gzip && deflateInit2(&d.z, GZIP_LEVEL, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) != Z_OK)
		return den_fail(err, DEN_INTERNAL, 0, "gzip");
	d.zipped = gzip;
	name_set(r, path);
	req_set(r, "Accept-Ranges", "bytes");
	got = !gzip && range && range_read(range, INT64_MAX, &from, &to) ? reply_range(&d, &p, range, err) :
									    reply_whole(&d, &p, err);
	if (gzip)
		deflateEnd(&d.z);
	buf_free(&d.small);
	return got;
}
