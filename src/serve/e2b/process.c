/* process.Process: programs in the box. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "envd.h"
#include "mem.h"
#include "strv.h"

#define ENDED_KEPT_MS 30000 /* so long an ended process can still be connected to */
#define ARGS_MAX 4096
#define GRACE_MS 1 /* a deadline does not ask */

/* ---- which one ---- */

int process_ref(const json_t *args, char **ret, struct den_err *err)
{
	const json_t *p = json_object_get(args, "process");
	const char *tag = json_string_value(json_object_get(p, "tag"));
	char text[24];
	uint64_t pid;

	if (rpc_u64(json_object_get(p, "pid"), 1 << 30, &pid) && pid) {
		snprintf(text, sizeof(text), "%llu", (unsigned long long)pid);
		*ret = mem_strdup(text);
		return 0;
	}
	if (!tag || !*tag)
		return den_fail(err, DEN_INVALID, 0, "process is selected by pid or tag");
	*ret = mem_strdup(tag);
	return 0;
}

/* ---- List ---- */

static void process_put(struct json *j, const struct den_exec_info *x)
{
	json_open(j, NULL, '{');
	json_open(j, "config", '{');
	json_str(j, "cmd", x->argv && x->argv[0] ? x->argv[0] : "");
	json_open(j, "args", '[');
	for (size_t i = 1; x->argv && x->argv[0] && x->argv[i]; i++)
		json_str(j, NULL, x->argv[i]);
	json_close(j, ']');
	json_open(j, "envs", '{');
	json_close(j, '}');
	if (x->cwd)
		json_str(j, "cwd", x->cwd);
	json_close(j, '}');
	json_i64(j, "pid", x->pid);
	if (x->tag)
		json_str(j, "tag", x->tag);
	json_close(j, '}');
}

int process_list(struct req *r, struct den_err *err)
{
	auto_envd e = { 0 };
	auto_json *args = NULL;
	struct json j = { 0 };
	struct den_ps *ps;
	int got = rpc_enter(r, &e, &args, err);

	if (got)
		return got < 0 ? -1 : 0;
	if (den_box_ps(e.box, &ps, err) < 0)
		return rpc_failed(r, &e, err);
	json_open(&j, NULL, '{');
	json_open(&j, "processes", '[');
	for (size_t i = 0; i < ps->n_execs; i++)
		if (ps->execs[i].running)
			process_put(&j, &ps->execs[i]);
	json_close(&j, ']');
	json_close(&j, '}');
	den_ps_free(ps);
	return rpc_reply(r, &j);
}

/* ---- Start ---- */

struct start {
	char **argv, **env;
	char *cwd; /* absolute; NULL: the box's */
	const char *tag;
	char user[64];
	unsigned flags;
	uint16_t rows, cols;
};

static void start_free(struct start *s)
{
	strv_free(s->argv);
	strv_free(s->env);
	free(s->cwd);
}

int process_size(const json_t *pty, uint16_t *rows, uint16_t *cols, struct den_err *err)
{
	const json_t *size = json_object_get(pty, "size");
	uint64_t r = 0, c = 0;

	if (!rpc_u64(json_object_get(size, "rows"), UINT16_MAX, &r) ||
		!rpc_u64(json_object_get(size, "cols"), UINT16_MAX, &c))
		return den_fail(err, DEN_INVALID, 0, "pty.size has rows and cols");
	*rows = (uint16_t)r;
	*cols = (uint16_t)c;
	return 0;
}

static int read_argv(const json_t *config, struct start *s, struct den_err *err)
{
	const json_t *args = json_object_get(config, "args"), *arg;
	const char *cmd = json_string_value(json_object_get(config, "cmd"));
	size_t i;

	if (!cmd || !*cmd)
		return den_fail(err, DEN_INVALID, 0, "process.cmd is missing");
	if (json_array_size(args) > ARGS_MAX)
		return den_fail(err, DEN_LIMIT, 0, "more than %d arguments", ARGS_MAX);
	strv_add(&s->argv, cmd);
	json_array_foreach(args, i, arg) {
		if (!json_is_string(arg))
			return den_fail(err, DEN_INVALID, 0, "process.args are strings");
		strv_add(&s->argv, json_string_value(arg));
	}
	return 0;
}

static int read_env(const json_t *config, const char *id, struct start *s, struct den_err *err)
{
	json_t *envs = json_object_get(config, "envs"), *value;
	const char *key;

	e2b_env(id, &s->env);
	json_object_foreach(envs, key, value) {
		auto_buf b = { 0 };

		if (!json_is_string(value) || !*key || strchr(key, '='))
			return den_fail(
				err, DEN_INVALID, 0, "process.envs: '%.60s' is not a variable with a text", key);
		buf_addstr(&b, key);
		buf_addstr(&b, "=");
		buf_addstr(&b, json_string_value(value));
		strv_env_put(&s->env, buf_str(&b));
	}
	return 0;
}

static int read_start(struct req *r, struct envd *e, const json_t *args, struct start *s, struct den_err *err)
{
	const json_t *config = json_object_get(args, "process"), *pty = json_object_get(args, "pty");
	const char *cwd = json_string_value(json_object_get(config, "cwd"));
	struct person p;

	if (envd_username(r, s->user, err) < 0 || read_argv(config, s, err) < 0 || read_env(config, e->id, s, err) < 0)
		return -1;
	s->tag = json_string_value(json_object_get(args, "tag"));
	if (s->tag && (!*s->tag || strlen(s->tag) > 255))
		return den_fail(err, DEN_INVALID, 0, "a tag has 1 to 255 characters");
	if (json_is_object(pty)) {
		s->flags = DEN_EXEC_TTY | DEN_EXEC_STDIN;
		if (process_size(pty, &s->rows, &s->cols, err) < 0)
			return -1;
	} else if (!json_is_false(json_object_get(args, "stdin"))) {
		s->flags = DEN_EXEC_STDIN;
	}
	if (!cwd || !*cwd)
		return 0;
	if (*cwd == '/') { /* needs nobody's home */
		s->cwd = mem_strdup(cwd);
		return 0;
	}
	return person_get(e, s->user, &p, err) < 0 ? -1 : person_path(&p, cwd, &s->cwd, err);
}

static int seen(const struct den_entry *entry, void *user, struct den_err *err)
{
	(void)err;
	*(bool *)user = !strcmp(entry->type, "directory");
	return 0;
}

/* Why it did not start, in envd's words. libden says only that something was not found; what, is looked up now,
 * when it no longer matters how long that takes. */
static int start_failed(struct rpc *s, const struct start *st, const struct den_err *why)
{
	struct den_err err;
	struct person p;
	bool dir = false;

	if (envd_gone(s->r, s->e))
		return 0;
	if (person_get(s->e, st->user, &p, &err) < 0 && err.code == DEN_NOT_FOUND)
		return rpc_stream_refuse(s, CONNECT_UNAUTHENTICATED, "%s", err.msg);
	if (st->cwd && den_file_stat(s->e->box, st->cwd, NULL, seen, &dir, &err) < 0)
		dir = err.code != DEN_NOT_FOUND;
	if (st->cwd && !dir)
		return rpc_stream_refuse(s, CONNECT_INVALID_ARGUMENT, "cwd '%s' does not exist", st->cwd);
	if (why->code == DEN_NOT_FOUND || why->code == DEN_DENIED)
		return rpc_stream_refuse(s, CONNECT_INVALID_ARGUMENT, "error starting process: %s", why->msg);
	return rpc_stream_failed(s, why);
}

static int start_run(struct rpc *s, const struct start *st, struct den_err *err)
{
	struct follow f = { .s = s, .pty = st->flags & DEN_EXEC_TTY, .ours = true };
	struct den_exec_opt opt = {
		.size = sizeof(opt),
		.argv = (const char *const *)st->argv,
		.env = (const char *const *)st->env,
		.cwd = st->cwd,
		.user = *st->user ? st->user : NULL,
		.tag = st->tag,
		.flags = st->flags,
		.rows = st->rows,
		.cols = st->cols,
		.timeout_ms = s->timeout,
		.grace_ms = GRACE_MS,
	};

	if (den_exec_start(s->e->box, &opt, &follow_ops, &f, &f.x, err) < 0)
		return start_failed(s, st, err);
	follow_run(&f);
	den_exec_unref(f.x);
	if (f.failed && !s->gone && !s->over)
		return f.started ? rpc_stream_failed(s, &f.err) : start_failed(s, st, &f.err);
	return 0;
}

int process_start(struct req *r, struct den_err *err)
{
	auto_envd e = { 0 };
	auto_json *args = NULL;
	auto_rpc s = { 0 };
	struct start st = { 0 };
	int got = rpc_stream_enter(r, &e, &s, &args, err);

	if (got)
		return got < 0 ? -1 : 0;
	if (read_start(r, &e, args, &st, err) == 0)
		got = start_run(&s, &st, err);
	else if (err->code == DEN_NOT_FOUND && !envd_gone(r, &e))
		got = rpc_stream_refuse(&s, CONNECT_UNAUTHENTICATED, "%s", err->msg);
	else
		got = rpc_stream_failed(&s, err);
	start_free(&st);
	return got;
}

/* ---- Connect ---- */

/* Is it there, and not long dead? */
static int connect_find(struct envd *e, const char *ref, bool *ret_tty, struct den_err *err)
{
	struct den_ps *ps;
	const struct den_exec_info *found = NULL;
	uint64_t pid = strtoull(ref, NULL, 10);
	bool number = !ref[strspn(ref, "0123456789")];

	if (den_box_ps(e->box, &ps, err) < 0)
		return -1;
	for (size_t i = 0; i < ps->n_execs; i++) {
		const struct den_exec_info *x = &ps->execs[i];
		bool fits = number ? (uint64_t)x->pid == pid : x->tag && !strcmp(x->tag, ref);

		fits = fits && (x->running || clock_wall_ms() - x->ended_ms < ENDED_KEPT_MS);
		if (fits && (!found || !found->running))
			found = x;
	}
	if (found)
		*ret_tty = found->tty;
	den_ps_free(ps);
	return found ? 0 : den_fail(err, DEN_NOT_FOUND, 0, "process with %s %s not found", number ? "pid" : "tag", ref);
}

int process_connect(struct req *r, struct den_err *err)
{
	auto_envd e = { 0 };
	auto_json *args = NULL;
	auto_rpc s = { 0 };
	auto_free char *ref = NULL;
	struct follow f = { .s = &s };
	int got = rpc_stream_enter(r, &e, &s, &args, err);

	if (got)
		return got < 0 ? -1 : 0;
	if (process_ref(args, &ref, err) < 0 || connect_find(&e, ref, &f.pty, err) < 0 ||
		den_exec_attach_live(e.box, ref, &follow_ops, &f, &f.x, err) < 0)
		return rpc_stream_failed(&s, err);
	follow_run(&f);
	den_exec_unref(f.x);
	return f.failed && !s.gone && !s.over ? rpc_stream_failed(&s, &f.err) : 0;
}
