/*
 * POST /files: multipart/form-data with any number of files, or the bytes of one; gzipped if its header says so.
 * Nothing is held: what comes from the client goes to the box, as fast as the box takes it.
 */
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <zlib.h>

#include "envd.h"
#include "mem.h"
#include "multipart.h"
#include "strv.h"

#define INPUT (64U << 10)
#define METADATA_MAX 4096
#define COMPOSE_MAX 1000
#define COMPOSE_PART (1U << 20)

struct upload {
	struct req *r;
	struct envd *e;
	struct person who;
	char **metadata; /* "user.e2b.K=V" */
	struct json done; /* the answer so far */
	/* the body, decoded */
	bool zipped;
	bool started; /* a member of the gzip stream is under way */
	z_stream z;
	char *raw;    /* INPUT bytes, compressed */
	/* its parts */
	struct multipart m;
	char *in; /* INPUT bytes, decoded */
	const char *p;
	size_t n;
	const char *data; /* of the part under way, not yet given */
	size_t len;
	bool over; /* it has no more */
};

/* ---- the body ---- */

static ssize_t unzip(struct upload *u, void *buf, size_t cap, struct den_err *err)
{
	u->z.next_out = buf;
	u->z.avail_out = (uInt)cap;
	while (u->z.avail_out == cap) {
		int r;

		if (!u->z.avail_in) {
			ssize_t n = req_read(u->r, u->raw, INPUT, err);

			if (n < 0)
				return -1;
			if (n == 0)
				return u->started ? den_fail(err, DEN_INVALID, 0, "the gzip stream was cut short") : 0;
			u->z.next_in = (Bytef *)u->raw;
			u->z.avail_in = (uInt)n;
		}
		u->started = true;
		r = inflate(&u->z, Z_NO_FLUSH);
		if (r == Z_STREAM_END) {
			u->started = false; /* another may follow */
			inflateReset(&u->z);
		} else if (r != Z_OK && r != Z_BUF_ERROR) {
			return den_fail(
				err, DEN_INVALID, 0, "the body is not gzip: %s", u->z.msg ? u->z.msg : "damaged");
		}
	}
	return (ssize_t)(cap - u->z.avail_out);
}

static ssize_t body_source(void *buf, size_t cap, void *user, struct den_err *err)
{
	struct upload *u = user;

	return u->zipped ? unzip(u, buf, cap, err) : req_read(u->r, buf, cap, err);
}

/* The next event of the multipart body. */
static int part_next(struct upload *u, struct den_err *err)
{
	for (;;) {
		int ev = multipart_next(&u->m, &u->p, &u->n, err);
		ssize_t n;

		if (ev != MULTIPART_MORE)
			return ev;
		n = body_source(u->in, INPUT, u, err);
		if (n < 0)
			return -1;
		if (n == 0)
			return den_fail(err, DEN_INVALID, 0, "the multipart body was cut short");
		u->p = u->in;
		u->n = (size_t)n;
	}
}

static ssize_t part_source(void *buf, size_t cap, void *user, struct den_err *err)
{
	struct upload *u = user;
	size_t done = 0;

	/* what is there already goes together; only for the first byte is the client waited for */
	while (done < cap && !u->over && (u->len || u->n || !done)) {
		size_t part;

		if (!u->len) {
			int ev = part_next(u, err);

			if (ev < 0)
				return -1;
			u->over = ev != MULTIPART_DATA; /* its end: nothing else can follow */
			if (u->over)
				break;
			u->data = u->m.data;
			u->len = u->m.len;
		}
		part = MIN(cap - done, u->len);
		memcpy((char *)buf + done, u->data, part);
		u->data += part;
		u->len -= part;
		done += part;
	}
	return (ssize_t)done;
}

/* ---- one file ---- */

static int write_one(struct upload *u, const char *path, den_source source, void *user, struct den_err *err)
{
	const struct den_file_opt opt = { .size = sizeof(opt), .parents = true, .xattr_prefix = ENVD_XATTR,
		.xattrs = (const char *const *)u->metadata };

	return as_person_write(u->e, &u->who, path, &opt, source, user, err);
}

static void done_put(struct upload *u, const char *path)
{
	json_open(&u->done, NULL, '{');
	json_str(&u->done, "name", strrchr(path, '/') + 1);
	json_str(&u->done, "path", path);
	json_str(&u->done, "type", "file");
	if (u->metadata) {
		json_open(&u->done, "metadata", '{');
		for (size_t i = 0; u->metadata[i]; i++) {
			const char *key = u->metadata[i] + sizeof(ENVD_XATTR) - 1, *eq = strchr(key, '=');

			json_member(&u->done, key, (size_t)(eq - key), eq + 1);
		}
		json_close(&u->done, '}');
	}
	json_close(&u->done, '}');
}

/* 0; 1: it went wrong, and that is answered */
static int file_put(struct upload *u, const char *asked, den_source source, struct den_err *err)
{
	auto_free char *path = NULL;

	if (!asked || !*asked)
		return e2b_error(u->r, 400, "path is required, or a filename of the part"), 1;
	if (person_path(&u->who, asked, &path, err) < 0)
		return e2b_error(u->r, 400, "%s", err->msg), 1;
	if (!path[1])
		return e2b_error(u->r, 400, "path '/' is a directory"), 1;
	if (write_one(u, path, source, u, err) < 0)
		return files_failed(u->r, u->e, path, err), 1;
	done_put(u, path);
	return 0;
}

/* ---- the call ---- */

struct metadata {
	char **list;
	size_t bytes;
	bool bad;
};

static void metadata_add(const char *name, const char *value, void *user)
{
	static const char prefix[] = "X-Metadata-";
	struct metadata *m = user;
	auto_free char *known = NULL;
	auto_buf b = { 0 };
	size_t key;

	if (strncasecmp(name, prefix, sizeof(prefix) - 1) || !name[sizeof(prefix) - 1])
		return;
	name += sizeof(prefix) - 1;
	buf_addstr(&b, ENVD_XATTR);
	for (const char *p = name; *p; p++)
		buf_addf(&b, "%c", tolower((unsigned char)*p));
	key = b.len;
	known = mem_strdup(buf_str(&b));
	if (strv_env_get(m->list, known))
		return; /* the first counts */
	buf_addstr(&b, "=");
	for (const unsigned char *p = (const unsigned char *)value; *p; p++)
		m->bad |= *p < ' ' || *p > '~';
	m->bad |= key > 255 || strchr(name, '=');
	buf_addstr(&b, value);
	m->bytes += b.len;
	strv_add(&m->list, buf_str(&b));
}

static int metadata_read(struct upload *u)
{
	struct metadata m = { 0 };

	req_each_header(u->r, metadata_add, &m);
	u->metadata = m.list;
	if (m.bad)
		return e2b_error(u->r, 400, "metadata is printable ASCII, and its keys have no '='"), 1;
	if (m.bytes > METADATA_MAX)
		return e2b_error(u->r, 400, "metadata has more than %d bytes", METADATA_MAX), 1;
	return 0;
}

static int body_begin(struct upload *u, struct den_err *err)
{
	const char *coding = req_header(u->r, "Content-Encoding");

	if (!coding || !*coding || !strcasecmp(coding, "identity"))
		return 0;
	if (strcasecmp(coding, "gzip"))
		return e2b_error(u->r, 400, "unsupported Content-Encoding: %.60s", coding), 1;
	if (inflateInit2(&u->z, 15 + 16) != Z_OK)
		return den_fail(err, DEN_INTERNAL, 0, "gzip");
	u->raw = mem_alloc(INPUT);
	u->zipped = true;
	return 0;
}

static int parts_put(struct upload *u, const char *path, struct den_err *err)
{
	int ev, got;

	u->in = mem_alloc(INPUT);
	while ((ev = part_next(u, err)) >= 0 && ev != MULTIPART_END) {
		if (ev != MULTIPART_PART || strcmp(u->m.name, "file"))
			continue; /* parts of other names are passed over */
		u->len = 0;
		u->over = false;
		got = file_put(u, path && *path ? path : u->m.filename, part_source, err);
		if (got)
			return got;
	}
	return ev < 0 ? -1 : 0;
}

static int upload_run(struct upload *u, struct den_err *err)
{
	const char *type = req_header(u->r, "Content-Type"), *path = req_query(u->r, "path");
	int got = body_begin(u, err);

	if (!got)
		got = metadata_read(u);
	if (got)
		return got;
	json_open(&u->done, NULL, '[');
	if (type && !strncasecmp(type, "multipart/", 10)) {
		if (multipart_init(&u->m, type, err) < 0)
			return e2b_error(u->r, 400, "%s", err->msg), 1;
		got = parts_put(u, path, err);
		if (got < 0 && (err->code == DEN_INVALID || err->code == DEN_LIMIT))
			return e2b_error(u->r, 400, "%s", err->msg), 1;
	} else if (type && !strncasecmp(type, "application/octet-stream", 24)) {
		got = file_put(u, path, body_source, err);
	} else {
		return e2b_error(u->r, 400, "unsupported Content-Type: send multipart/form-data or "
			"application/octet-stream"), 1;
	}
	json_close(&u->done, ']');
	return got;
}

int files_post(struct req *r, struct den_err *err)
{
	auto_envd e = { 0 };
	struct upload u = { .r = r, .e = &e };
	int got = envd_enter(r, "write", &e, err);

	if (!got)
		got = files_who(r, &e, req_query(r, "username"), &u.who, err);
	if (!got)
		got = upload_run(&u, err);
	if (!got)
		got = req_reply(r, 200, "application/json", u.done.b.p, u.done.b.len);
	if (u.zipped)
		inflateEnd(&u.z);
	multipart_free(&u.m);
	strv_free(u.metadata);
	buf_free(&u.done.b);
	free(u.raw);
	free(u.in);
	return got < 0 ? -1 : 0;
}

/* ---- POST /files/compose: several files become one, and go ---- */

struct compose {
	struct envd from; /* a second connection: the first is busy writing */
	char **paths;
	size_t i;
	uint64_t offset;
	struct buf part;
	size_t at;
};

static int compose_sink(const void *data, size_t n, void *user, struct den_err *err)
{
	(void)err;
	buf_add(user, data, n);
	return 0;
}

static ssize_t compose_source(void *buf, size_t cap, void *user, struct den_err *err)
{
	struct compose *c = user;

	while (c->at == c->part.len) {
		struct den_file_opt opt = { .size = sizeof(opt), .offset = c->offset, .length = COMPOSE_PART };

		if (!c->paths[c->i])
			return 0;
		c->part.len = c->at = 0;
		if (den_file_read(c->from.box, c->paths[c->i], &opt, compose_sink, &c->part, err) < 0)
			return -1;
		c->offset += c->part.len;
		if (c->part.len < COMPOSE_PART) {
			c->i++;
			c->offset = 0;
		}
	}
	cap = MIN(cap, c->part.len - c->at);
	memcpy(buf, c->part.p + c->at, cap);
	c->at += cap;
	return (ssize_t)cap;
}

static int is_file(const struct den_entry *entry, void *user, struct den_err *err)
{
	(void)err;
	*(bool *)user = !strcmp(entry->type, "file");
	return 0;
}

/* The paths to put together; 0, 1 or -1 as envd_enter() */
static int compose_read(struct req *r, struct envd *e, const struct person *p, const json_t *args, const char *to,
	struct compose *c, struct den_err *err)
{
	const json_t *list = json_object_get(args, "source_paths"), *one;
	size_t i;

	if (!json_array_size(list) || json_array_size(list) > COMPOSE_MAX)
		return e2b_error(r, 400, "source_paths has 1 to %d paths", COMPOSE_MAX), 1;
	json_array_foreach(list, i, one) {
		auto_free char *path = NULL;
		bool file = false;

		if (!json_is_string(one) || person_path(p, json_string_value(one), &path, err) < 0)
			return e2b_error(r, 400, "source_paths are paths"), 1;
		if (!strcmp(path, to))
			return e2b_error(r, 400, "source path '%s' cannot be the same as destination", path), 1;
		if (den_file_stat(e->box, path, NULL, is_file, &file, err) < 0)
			return files_failed(r, e, path, err), 1;
		if (!file)
			return e2b_error(r, 400, "source path is not a regular file: %s", path), 1;
		strv_add(&c->paths, path);
	}
	return 0;
}

static int compose_run(struct req *r, struct envd *e, const struct person *p, const char *to, struct compose *c,
	struct den_err *err)
{
	struct den_file_opt opt = { .size = sizeof(opt), .atomic = true };
	struct json j = { 0 };

	if (as_person_parents(e, p, to, err) < 0 || den_file_write(e->box, to, &opt, compose_source, c, err) < 0 ||
		as_person_chown(e, p, to, err) < 0)
		return files_failed(r, e, to, err);
	for (size_t i = 0; c->paths[i]; i++)
		(void)den_file_remove(e->box, c->paths[i], NULL, err); /* they are in the new one by now */
	json_open(&j, NULL, '{');
	json_str(&j, "name", strrchr(to, '/') + 1);
	json_str(&j, "path", to);
	json_str(&j, "type", "file");
	json_close(&j, '}');
	return rpc_reply(r, &j);
}

int files_compose(struct req *r, struct den_err *err)
{
	auto_envd e = { 0 };
	auto_json *args = NULL;
	auto_free char *to = NULL;
	struct compose c = { 0 };
	struct person p;
	const char *dest;
	int got = envd_enter(r, NULL, &e, err);

	if (got)
		return got < 0 ? -1 : 0;
	if (req_json(r, &args, err) < 0)
		return -1;
	got = files_who(r, &e, json_string_value(json_object_get(args, "username")), &p, err);
	if (got)
		return got < 0 ? -1 : 0;
	dest = json_string_value(json_object_get(args, "destination"));
	if (!dest || !*dest || person_path(&p, dest, &to, err) < 0 || !to[1])
		return e2b_error(r, 400, "destination is required");
	got = compose_read(r, &e, &p, args, to, &c, err);
	if (!got) {
		got = envd_enter(r, NULL, &c.from, err);
		if (!got)
			got = compose_run(r, &e, &p, to, &c, err);
	}
	envd_leave(&c.from);
	strv_free(c.paths);
	buf_free(&c.part);
	return got < 0 ? -1 : 0;
}
