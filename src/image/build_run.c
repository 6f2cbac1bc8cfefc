/* RUN */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "build_parts.h"
#include "buf.h"
#include "mem.h"
#include "strv.h"

#define TAIL_MAX 4096

/* One command on its way through a box. */
struct running {
	const struct work *w;
	char **argv, **env;
	const char *script; /* a heredoc with "#!": a file for as long as it runs */
	bool ended, lost;
	struct den_exec_result result;
	struct den_err err;
	struct buf tail; /* what it printed last, for --quiet */
};

static const char script_path[] = "/.den-build-script";

static void on_output(struct den_exec *e, int stream, const void *data, size_t n, void *user)
{
	struct running *r = user;

	(void)e, (void)stream;
	if (!r->w->quiet) {
		if (r->w->output)
			r->w->output(data, n, r->w->user);
		return;
	}
	buf_add(&r->tail, data, n);
	if (r->tail.len > TAIL_MAX)
		buf_consume(&r->tail, r->tail.len - TAIL_MAX);
}

static void on_ended(struct den_exec *e, const struct den_exec_result *result,
	const struct den_err *err, void *user)
{
	struct running *r = user;

	(void)e;
	r->ended = true;
	if (result)
		r->result = *result;
	r->lost = err != NULL;
	if (err)
		r->err = *err;
}

static const struct den_exec_ops run_ops = { .output = on_output, .ended = on_ended };

/* Until it ended; a signal to us ends it, and all it started. */
static int wait_for(struct running *r, struct den_box *box, struct den_exec *e, struct den_err *err)
{
	while (!r->ended) {
		struct pollfd p[2] = { { den_poll_fd(box), POLLIN, 0 },
			{ interrupt_fd(), POLLIN, 0 } };

		if (poll(p, 2, -1) < 0 && errno != EINTR)
			return den_fail_sys(err, errno, "poll");
		if (interrupt_check(err) < 0) {
			(void)den_exec_signal(e, SIGKILL, DEN_SCOPE_TREE, NULL);
			return -1;
		}
		if (den_dispatch(box, 0, err) < 0)
			return -1;
	}
	return 0;
}

static int verdict(struct running *r, struct den_err *err)
{
	if (r->lost) {
		*err = r->err;
		return -1;
	}
	if (r->result.exited && r->result.status == 0)
		return 0;
	if (r->tail.len && r->w->output)
		r->w->output(r->tail.p, r->tail.len, r->w->user);
	return den_fail(err, DEN_CONFLICT, 0, "the command ended with %s %d%s%s",
		r->result.exited ? "status" : "signal", r->result.status,
		r->result.reason[0] ? ", limit: " : "", r->result.reason);
}

struct text_source {
	const char *p;
	size_t left;
};

static ssize_t text_read(void *buf, size_t cap, void *user, struct den_err *err)
{
	struct text_source *t = user;
	size_t n = MIN(cap, t->left);

	(void)err;
	memcpy(buf, t->p, n);
	t->p += n;
	t->left -= n;
	return (ssize_t)n;
}

static int script_put(struct den_box *box, const char *text, struct den_err *err)
{
	const struct den_file_opt opt = { .size = sizeof(opt), .mode = "0755" };
	struct text_source t = { text, strlen(text) };

	return den_file_write(box, script_path, &opt, text_read, &t, err);
}

static int run_in_box(
	struct build *b, struct state *s, struct den_box *box, void *user, struct den_err *err)
{
	struct running *r = user;
	struct den_exec_opt opt = { .size = sizeof(opt),
		.argv = (const char *const *)r->argv,
		.env = (const char *const *)r->env,
		.cwd = s->workdir ? s->workdir : "/",
		.user = s->user ? s->user : "0",
		.flags = DEN_EXEC_KILL_ON_CLOSE };
	struct den_exec *e;
	int status;

	(void)b;
	if (r->script && script_put(box, r->script, err) < 0)
		return -1;
	if (den_exec_start(box, &opt, &run_ops, r, &e, err) < 0)
		return -1;
	status = wait_for(r, box, e, err);
	den_exec_unref(e);
	if (status == 0)
		status = verdict(r, err);
	if (status == 0 && r->script)
		status = den_file_remove(box, script_path, NULL, err);
	return status;
}

/* A heredoc that is all there is, is the script; else the shell reads it itself. */
static void command_make(const struct state *s, const struct df_step *step, struct running *r)
{
	auto_buf text = { 0 };

	if (step->list) {
		r->argv = strv_copy((const char *const *)step->list);
		return;
	}
	if (step->n_docs == 1 && !strcmp(step->text, step->docs[0].word)) {
		buf_addstr(&text, step->docs[0].text);
		if (!strncmp(step->docs[0].text, "#!", 2)) {
			r->script = step->docs[0].text;
			strv_add(&r->argv, script_path);
			return;
		}
	} else {
		buf_addstr(&text, step->text);
		for (size_t i = 0; i < step->n_docs; i++)
			buf_addf(&text, "\n%s%s", step->docs[i].text, step->docs[i].name);
	}
	r->argv = strv_copy((const char *const *)s->shell);
	if (!r->argv) {
		strv_add(&r->argv, "/bin/sh");
		strv_add(&r->argv, "-c");
	}
	strv_add(&r->argv, buf_str(&text));
}

int build_run(struct build *b, struct state *s, const struct df_step *step, struct den_err *err)
{
	const char *net = df_flag(step, "network");
	struct running r = { .w = b->w };
	struct sha256 key;
	int status;

	if (net && strcmp(net, "none") && strcmp(net, "default"))
		return den_fail(
			err, DEN_UNSUPPORTED, 0, "--network=%.40s: a build has no network", net);
	command_make(s, step, &r);
	/* ARG is seen by commands, and ENV goes over it */
	r.env = strv_copy((const char *const *)s->args);
	for (char **e = s->env; e && *e; e++)
		strv_env_put(&r.env, *e);
	key_begin(&key, s, "run");
	key_texts(&key, r.argv);
	key_text(&key, r.script);
	key_texts(&key, r.env);
	key_text(&key, s->user);
	key_text(&key, s->workdir);
	status = build_files(b, s, &key, run_in_box, &r, err);
	strv_free(r.argv);
	strv_free(r.env);
	buf_free(&r.tail);
	return status;
}
