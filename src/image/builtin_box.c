/* A recipe at work: its scripts run in a box. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "apt_sources.h"
#include "buf.h"
#include "builtin_parts.h"
#include "json_in.h"
#include "mem.h"
#include "strv.h"

#define PLACE "/tmp/.den-builtin"
#define TAIL_MAX 4096
#define LINE_MAX_BYTES 1024
#define SAID_MAX 256

/* One script: "need X", "warn X" and "account root" are for us, the rest is talk. */
struct script {
	const struct work *w;
	struct buf line, tail;
	char **needs, **warns;
	bool ended, lost, root;
	struct den_exec_result result;
	struct den_err err;
};

static void talk(struct script *s, const void *data, size_t n)
{
	if (!s->w->quiet && s->w->output) {
		s->w->output(data, n, s->w->user);
		return;
	}
	buf_add(&s->tail, data, n);
	if (s->tail.len > TAIL_MAX)
		buf_consume(&s->tail, s->tail.len - TAIL_MAX);
}

static void line_take(struct script *s)
{
	const char *text = buf_str(&s->line);
	char ***into = !strncmp(text, "need ", 5)   ? &s->needs
		       : !strncmp(text, "warn ", 5) ? &s->warns
						    : NULL;

	if (!strcmp(text, "account root")) {
		s->root = true;
	} else if (!into) {
		buf_add(&s->line, "\n", 1);
		talk(s, s->line.p, s->line.len);
	} else if (strv_len(*into) < SAID_MAX) {
		strv_add(into, text + 5);
	}
	s->line.len = 0;
}

static void on_output(struct den_exec *e, int stream, const void *data, size_t n, void *user)
{
	struct script *s = user;
	const char *p = data;

	(void)e;
	if (stream != 1) {
		talk(s, data, n);
		return;
	}
	for (size_t i = 0; i < n; i++) {
		if (p[i] == '\n')
			line_take(s);
		else if (p[i] && s->line.len < LINE_MAX_BYTES)
			buf_add(&s->line, p + i, 1);
	}
}

static void on_ended(struct den_exec *e, const struct den_exec_result *result,
	const struct den_err *err, void *user)
{
	struct script *s = user;

	(void)e;
	s->ended = true;
	if (result)
		s->result = *result;
	s->lost = err != NULL;
	if (err)
		s->err = *err;
}

static const struct den_exec_ops script_ops = { .output = on_output, .ended = on_ended };

static int script_wait(
	struct script *s, struct den_box *box, struct den_exec *e, struct den_err *err)
{
	while (!s->ended) {
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

static int script_verdict(struct script *s, const char *name, struct den_err *err)
{
	if (s->lost) {
		*err = s->err;
		return -1;
	}
	if (s->result.exited && s->result.status == 0)
		return 0;
	if (s->tail.len && s->w->output)
		s->w->output(s->tail.p, s->tail.len, s->w->user);
	return den_fail(err, DEN_CONFLICT, 0, "%s ended with %s %d", name,
		s->result.exited ? "status" : "signal", s->result.status);
}

/* sh PLACE/builtin/NAME VERB WORD... as root; verb may be NULL. */
static int script_run(struct script *s, struct den_box *box, const char *name, const char *verb,
	char *const *words, struct den_err *err)
{
	auto_strv argv = NULL;
	struct den_exec_opt opt = {
		.size = sizeof(opt), .cwd = "/", .user = "0", .flags = DEN_EXEC_KILL_ON_CLOSE
	};
	auto_buf path = { 0 };
	struct den_exec *e;
	int r;

	buf_addf(&path, PLACE "/builtin/%s", name);
	strv_add(&argv, "/bin/sh");
	strv_add(&argv, buf_str(&path));
	if (verb)
		strv_add(&argv, verb);
	for (; words && *words; words++)
		strv_add(&argv, *words);
	opt.argv = (const char *const *)argv;
	s->ended = false;
	if (den_exec_start(box, &opt, &script_ops, s, &e, err) < 0)
		return -1;
	r = script_wait(s, box, e, err);
	den_exec_unref(e);
	return r < 0 ? -1 : script_verdict(s, name, err);
}

/* ---- packages -------------------------------------------------------------------------------- */

/* "deb.example" of "http://deb.example:8080/debian", with its port if it has one. */
static char *uri_host(const char *uri)
{
	const char *at = strstr(uri, "://");
	size_t n;

	if (strncmp(uri, "http", 4) || !at)
		return NULL;
	at += 3;
	n = strcspn(at, "/");
	if (memchr(at, '@', n)) {
		n -= (size_t)(strchr(at, '@') + 1 - at);
		at = strchr(at, '@') + 1;
	}
	return n ? mem_strndup(at, n) : NULL;
}

/* The registries that all know, and the mirrors that this machine's own packages come from. */
static int policy_make(char **ret, struct den_err *err)
{
	auto_json policy = json_pack("{s:[s]}", "presets", "registries");
	json_t *allow = json_array();
	struct apt_sources sources = { 0 };

	json_object_set_new(policy, "allow", allow);
	if (apt_sources_load("/etc/apt", &sources, NULL) == 0) {
		for (size_t i = 0; i < sources.n; i++) {
			auto_free char *host = uri_host(sources.list[i].uri);

			if (host)
				json_array_append_new(allow, json_string(host));
		}
		apt_sources_free(&sources);
	}
	*ret = json_dumps(policy, JSON_COMPACT);
	return *ret ? 0 : den_fail(err, DEN_INTERNAL, 0, "the policy cannot be written as JSON");
}

static void names_join(struct buf *b, char *const *names)
{
	for (; names && *names; names++)
		buf_addf(b, "%s%s", b->len ? " " : "", *names);
}

/* The box has a way out only as long as this lasts. */
static int packages_install(
	struct script *s, struct den_box *box, char *const *names, struct den_err *err)
{
	auto_free char *policy = NULL;
	auto_buf list = { 0 };

	names_join(&list, names);
	work_note(s->w, "installing %s", buf_str(&list));
	if (policy_make(&policy, err) < 0 ||
		den_policy_set(box, policy, NULL, DEN_ANY_GENERATION, NULL, NULL, err) < 0)
		return den_wrap(err, "let the box reach the package mirrors");
	if (script_run(s, box, "install.sh", NULL, names, err) < 0) {
		if (err->code != DEN_CONFLICT || interrupt_signal())
			return -1;
		return den_fail(err, DEN_UNSUPPORTED, 0,
			"these packages could not be installed in a box: %.90s; install them on "
			"this "
			"machine with apt-get, boxes use its own, and try again",
			buf_str(&list));
	}
	return den_policy_set(box, "{}", NULL, DEN_ANY_GENERATION, NULL, NULL, err);
}

/* ---- all of it ------------------------------------------------------------------------------- */

static ssize_t tar_read(void *buf, size_t cap, void *user, struct den_err *err)
{
	size_t *done = user;
	size_t n = MIN(cap, (size_t)(den_builtin_tar_end - den_builtin_tar) - *done);

	(void)err;
	memcpy(buf, den_builtin_tar + *done, n);
	*done += n;
	return (ssize_t)n;
}

static int files_put(struct den_box *box, struct den_err *err)
{
	const struct den_file_opt opt = { .size = sizeof(opt), .parents = true };
	size_t done = 0;

	if (den_file_mkdir(box, PLACE, &opt, err) < 0)
		return -1;
	return den_tar_in(box, PLACE, &opt, tar_read, &done, err);
}

static int steps(struct script *s, const struct recipe *r, struct den_box *box, char *const *words,
	char *const *packages, struct den_err *err)
{
	const struct den_file_opt all = { .size = sizeof(all), .recursive = true };

	if (files_put(box, err) < 0)
		return den_wrap(err, "put the recipe into the box");
	if (script_run(s, box, r->script, "need", words, err) < 0)
		return -1;
	for (; packages && *packages; packages++)
		strv_add(&s->needs, *packages);
	if (s->needs && packages_install(s, box, s->needs, err) < 0)
		return -1;
	if (script_run(s, box, r->script, "apply", words, err) < 0)
		return -1;
	return den_file_remove(box, PLACE, &all, err);
}

int recipe_run(const struct work *w, const struct recipe *r, struct den_box *box,
	char *const *words, char *const *packages, char ***warnings, bool *root,
	struct den_err *err)
{
	struct script s = { .w = w };
	int status = steps(&s, r, box, words, packages, err);

	for (char **p = s.warns; status == 0 && p && *p; p++)
		strv_add(warnings, *p);
	*root = s.root;
	buf_free(&s.line);
	buf_free(&s.tail);
	strv_free(s.needs);
	strv_free(s.warns);
	return status;
}
