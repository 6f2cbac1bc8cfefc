/* Files: each call is an exec of a function that init has built in (wire/fsop.h). */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fsop.h"
#include "lib.h"
#include "mem.h"
#include "strv.h"

#define CHUNK (64U << 10)
#define STDERR_MAX 4096

struct job {
	den_sink sink;		/* stdout goes there, or ... */
	den_entry_fn entry;	/* ... its records here */
	den_source source;	/* stdin comes from there */
	void *user;
	struct buf records, complaint;
	bool failed;		/* a callback of the caller's said no: err has why */
	struct den_err err;
	bool ended, bad_exec;
	uint64_t n_seen; /* pieces of output, for tick_ms */
	struct den_exec_result result;
};

static void entry_out(struct job *j, const struct fs_entry *e)
{
	struct den_entry p = {
		.path = e->path ? e->path : "",
		.type = fs_type_str[e->type],
		.target = e->target,
		.user = e->user,
		.group = e->group,
		.mode = (uint32_t)e->mode,
		.uid = (uint32_t)e->uid,
		.gid = (uint32_t)e->gid,
		.size = e->size,
		.ino = e->ino,
		.nlink = e->nlink,
		.mtime_ns = e->mtime_ns,
		.event = fs_event_str[e->event],
		.real = e->real,
		.link = e->link,
		.link_mode = (uint32_t)e->link_mode,
		.xattrs = (const char *const *)e->xattrs,
	};

	if (j->entry(&p, j->user, &j->err) < 0)
		j->failed = true;
}

static void on_records(struct job *j, const void *data, size_t n)
{
	size_t at = 0;

	buf_add(&j->records, data, n);
	while (!j->failed) {
		struct fs_entry e;
		size_t used;
		int r = fs_entry_get(j->records.p + at, j->records.len - at, &e, &used, &j->err);

		if (r < 0)
			j->failed = true;
		if (r <= 0)
			break;
		at += used;
		entry_out(j, &e);
		fs_entry_free(&e);
	}
	buf_consume(&j->records, at);
}

static void on_output(struct den_exec *x, int stream, const void *data, size_t n, void *user)
{
	struct job *j = user;

	(void)x;
	j->n_seen++;
	if (j->failed)
		return;
	if (stream == 2) {
		buf_add(&j->complaint, data,
			MIN(n, STDERR_MAX - MIN(j->complaint.len, (size_t)STDERR_MAX)));
	} else if (j->sink) {
		if (j->sink(data, n, j->user, &j->err) < 0)
			j->failed = true;
	} else if (j->entry) {
		on_records(j, data, n);
	}
}

static void on_ended(
	struct den_exec *x, const struct den_exec_result *r, const struct den_err *err, void *user)
{
	struct job *j = user;

	(void)x;
	j->ended = true;
	if (r)
		j->result = *r;
	if (err) {
		j->bad_exec = true;
		j->err = *err;
	}
}

static const struct den_exec_ops job_ops = { .output = on_output, .ended = on_ended };

/* Feeds stdin as there is room, and listens meanwhile. -1: the caller's source failed. */
static int feed(struct den_box *box, struct den_exec *x, struct job *j, struct den_err *err)
{
	auto_free char *buf = mem_alloc(CHUNK);

	while (!j->ended && !j->failed) {
		ssize_t n = j->source(buf, CHUNK, j->user, err), sent = 0;

		if (n < 0)
			return -1;
		if (n == 0)
			return j->ended ? 0 : den_exec_close_stdin(x, err);
		while (sent < n && !j->ended && !j->failed) {
			ssize_t w = den_exec_write(x, buf + sent, (size_t)(n - sent), err);

			if (w < 0)
				return j->ended ? 0 : -1;
			sent += w;
			if (box_step(box, sent < n ? -1 : 0, err) < 0)
				return -1;
		}
	}
	return 0;
}

static int verdict(struct job *j, struct den_err *err)
{
	if (j->failed || j->bad_exec) {
		*err = j->err;
		return -1;
	}
	if (j->result.exited && j->result.status == 0)
		return 0;
	if (j->result.exited && j->complaint.len)
		return wire_get_err(j->complaint.p, j->complaint.len, err);
	if (!strcmp(j->result.reason, "stop"))
		return den_fail(err, DEN_CONFLICT, 0, "the box was stopped meanwhile");
	return den_fail(err, DEN_INTERNAL, 0, "the operation ended with %s %d%s%s",
		j->result.exited ? "status" : "signal", j->result.status,
		j->result.reason[0] ? ", limit: " : "", j->result.reason);
}

/* The caller hears from time to time that nothing happened. */
static int step_or_tick(struct den_box *box, uint32_t tick_ms, struct job *j, struct den_err *err)
{
	static const struct den_entry tick = { .path = "", .type = "unknown", .event = "tick" };
	uint64_t seen = j->n_seen;

	if (box_step(box, (int)MIN(tick_ms, 3600000U), err) < 0)
		return -1;
	if (j->n_seen == seen && !j->ended && !j->failed && j->entry(&tick, j->user, &j->err) < 0)
		j->failed = true;
	return 0;
}

static int run(struct den_box *box, char **argv, const struct den_file_opt *opt, struct job *j,
	struct den_err *err)
{
	struct den_err unheard;
	struct exec_spec s = { .argv = argv,
		.flags = EXEC_BUILTIN | EXEC_FORGET | EXEC_KILL_ON_CLOSE,
		.user = opt ? (char *)opt->user : NULL,
		.credit = WIRE_WINDOW,
		.keep = WIRE_WINDOW };
	struct den_exec *x;
	int r;

	err = err ? err : &unheard;
	if (opt && opt->size != sizeof(*opt))
		return den_fail(err, DEN_INVALID, 0, "den_file_opt.size is not set");
	if (j->source || (j->entry && !strcmp(argv[0], "watch")))
		s.flags |= EXEC_STDIN;
	r = exec_start_raw(box, &s, &job_ops, j, &x, err);
	if (r < 0)
		return -1;
	if (j->source)
		r = feed(box, x, j, err);
	while (r == 0 && !j->ended && !j->failed)
		r = opt && opt->tick_ms && j->entry ? step_or_tick(box, opt->tick_ms, j, err) : box_step(box, -1, err);
	den_exec_unref(x); /* ends it, should it still run: detaching a file operation kills it */
	if (r == 0)
		r = verdict(j, err);
	buf_free(&j->records);
	buf_free(&j->complaint);
	return r;
}

static const char *flag_text(char out[static 8], const char *letters, const bool *set)
{
	size_t n = 0;

	for (size_t i = 0; letters[i]; i++)
		if (set[i])
			out[n++] = letters[i];
	out[n] = '\0';
	return out;
}
#define FLAGS(out, letters, ...) ((char *)flag_text(out, letters, (const bool[]){ __VA_ARGS__ }))

static const struct den_file_opt none = { .size = sizeof(none) };

static char *mode_of(const struct den_file_opt *o)
{
	return (char *)(o->mode ? o->mode : "");
}

int den_file_read(struct den_box *box, const char *path, const struct den_file_opt *opt,
	den_sink sink, void *user, struct den_err *err)
{
	const struct den_file_opt *o = opt ? opt : &none;
	struct job j = { .sink = sink, .user = user };
	char off[24], len[24];

	snprintf(off, sizeof(off), "%llu", (unsigned long long)o->offset);
	snprintf(len, sizeof(len), "%llu", (unsigned long long)o->length);
	return run(box,
		(char *[]){ (char *)"read", (char *)path, off, o->length ? len : (char *)"", NULL },
		opt, &j, err);
}

int den_file_write(struct den_box *box, const char *path, const struct den_file_opt *opt,
	den_source source, void *user, struct den_err *err)
{
	const struct den_file_opt *o = opt ? opt : &none;
	struct job j = { .source = source, .user = user };
	auto_strv argv = NULL;
	char f[8];

	strv_add(&argv, "write");
	strv_add(&argv, path);
	strv_add(&argv, mode_of(o));
	strv_add(&argv, FLAGS(f, "ap", o->atomic, o->parents));
	if (o->xattr_prefix)
		strv_add(&argv, o->xattr_prefix);
	for (size_t i = 0; o->xattr_prefix && o->xattrs && o->xattrs[i]; i++)
		strv_add(&argv, o->xattrs[i]);
	return run(box, argv, opt, &j, err);
}

int den_file_stat(struct den_box *box, const char *path, const struct den_file_opt *opt,
	den_entry_fn fn, void *user, struct den_err *err)
{
	const struct den_file_opt *o = opt ? opt : &none;
	struct job j = { .entry = fn, .user = user };
	char f[8];

	return run(box,
		(char *[]){ (char *)"stat", (char *)path, FLAGS(f, "l", o->no_follow),
			(char *)o->xattr_prefix, NULL },
		opt, &j, err);
}

int den_file_list(struct den_box *box, const char *path, unsigned depth,
	const struct den_file_opt *opt, den_entry_fn fn, void *user, struct den_err *err)
{
	const struct den_file_opt *o = opt ? opt : &none;
	struct job j = { .entry = fn, .user = user };
	char d[16], f[8];
	char *flags = FLAGS(f, "f", o->follow_entries);

	snprintf(d, sizeof(d), "%u", depth ? depth : 1);
	return run(box,
		(char *[]){ (char *)"list", (char *)path, d, o->follow_entries || o->xattr_prefix ? flags : NULL,
			(char *)o->xattr_prefix, NULL },
		opt, &j, err);
}

int den_file_mkdir(
	struct den_box *box, const char *path, const struct den_file_opt *opt, struct den_err *err)
{
	const struct den_file_opt *o = opt ? opt : &none;
	struct job j = { 0 };
	char f[8];

	return run(box,
		(char *[]){ (char *)"mkdir", (char *)path, mode_of(o), FLAGS(f, "p", o->parents),
			NULL },
		opt, &j, err);
}

int den_file_move(struct den_box *box, const char *from, const char *to,
	const struct den_file_opt *opt, struct den_err *err)
{
	const struct den_file_opt *o = opt ? opt : &none;
	struct job j = { 0 };
	char f[8];

	return run(box, (char *[]){ (char *)"move", (char *)from, (char *)to,
		FLAGS(f, "np", o->no_replace, o->parents), NULL }, opt, &j, err);
}

int den_file_remove(
	struct den_box *box, const char *path, const struct den_file_opt *opt, struct den_err *err)
{
	const struct den_file_opt *o = opt ? opt : &none;
	struct job j = { 0 };
	char f[8];

	return run(box, (char *[]){ (char *)"remove", (char *)path,
		FLAGS(f, "rf", o->recursive, o->missing_ok), NULL }, opt, &j, err);
}

int den_file_chmod(struct den_box *box, const char *path, const char *mode,
	const struct den_file_opt *opt, struct den_err *err)
{
	const struct den_file_opt *o = opt ? opt : &none;
	struct job j = { 0 };
	char f[8];

	return run(box,
		(char *[]){ (char *)"chmod", (char *)path, (char *)mode,
			FLAGS(f, "r", o->recursive), NULL },
		opt, &j, err);
}

int den_file_chown(struct den_box *box, const char *path, const char *owner,
	const struct den_file_opt *opt, struct den_err *err)
{
	const struct den_file_opt *o = opt ? opt : &none;
	struct job j = { 0 };
	char f[8];

	return run(box, (char *[]){ (char *)"chown", (char *)path, (char *)owner,
		FLAGS(f, "rl", o->recursive, o->no_follow), NULL }, opt, &j, err);
}

int den_file_watch(struct den_box *box, const char *path, const struct den_file_opt *opt,
	den_entry_fn fn, void *user, struct den_err *err)
{
	const struct den_file_opt *o = opt ? opt : &none;
	struct job j = { .entry = fn, .user = user };
	char f[8];

	return run(box,
		(char *[]){ (char *)"watch", (char *)path, FLAGS(f, "r", o->recursive), NULL }, opt,
		&j, err);
}

int den_tar_out(struct den_box *box, const char *path, const struct den_file_opt *opt,
	den_sink sink, void *user, struct den_err *err)
{
	const struct den_file_opt *o = opt ? opt : &none;
	struct job j = { .sink = sink, .user = user };
	char f[8];

	return run(box,
		(char *[]){ (char *)"tarout", (char *)path, FLAGS(f, "c", o->contents), NULL }, opt,
		&j, err);
}

/* The caller's source, and what init says. */
struct layer {
	den_source source;
	void *user;
	struct buf said;
};

static ssize_t layer_source(void *buf, size_t cap, void *user, struct den_err *err)
{
	struct layer *l = user;

	return l->source(buf, cap, l->user, err);
}

static int layer_said(const void *data, size_t n, void *user, struct den_err *err)
{
	struct layer *l = user;

	(void)err;
	buf_add(&l->said, data, MIN(n, 64 - MIN(l->said.len, (size_t)64)));
	return 0;
}

int files_apply_layer(
	struct den_box *box, den_source source, void *user, uint64_t *ret_lost, struct den_err *err)
{
	struct den_file_opt opt = { .size = sizeof(opt), .user = "root" };
	struct layer l = { .source = source, .user = user };
	struct job j = { .source = layer_source, .sink = layer_said, .user = &l };
	int r = run(
		box, (char *[]){ (char *)"tarin", (char *)"/", (char *)"w", NULL }, &opt, &j, err);

	if (r == 0)
		*ret_lost = l.said.len ? strtoull(buf_str(&l.said), NULL, 10) : 0;
	buf_free(&l.said);
	return r;
}

int den_tar_in(struct den_box *box, const char *path, const struct den_file_opt *opt,
	den_source source, void *user, struct den_err *err)
{
	const struct den_file_opt *o = opt ? opt : &none;
	struct job j = { .source = source, .user = user };
	char f[8];

	return run(box,
		(char *[]){ (char *)"tarin", (char *)path, FLAGS(f, "p", o->parents), NULL }, opt,
		&j, err);
}
