#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli.h"
#include "fd.h"
#include "mem.h"

int cli_exit_code(enum den_code code)
{
	return err_exit_status(code);
}

static void fail_json(const struct den_err *err, const char *hint)
{
	struct json j = { 0 };

	json_open(&j, NULL, '{');
	json_open(&j, "error", '{');
	json_str(&j, "code", den_code_str(err->code));
	json_str(&j, "message", err->msg);
	if (hint)
		json_str(&j, "hint", hint);
	json_close(&j, '}');
	json_close(&j, '}');
	buf_addstr(&j.b, "\n");
	(void)fd_write_all(STDERR_FILENO, j.b.p, j.b.len, NULL);
	buf_free(&j.b);
}

int cli_fail(const struct args *a, const struct den_err *err, const char *hint)
{
	auto_buf b = { 0 };

	if (a->json) {
		fail_json(err, hint);
	} else {
		/* a message may quote what a box made */
		buf_addstr(&b, "den: ");
		text_printable(&b, err->msg, strlen(err->msg));
		buf_addstr(&b, "\n");
		if (hint)
			buf_addf(&b, "     %s\n", hint);
		(void)fd_write_all(STDERR_FILENO, b.p, b.len, NULL);
	}
	return a->program ? EXIT_OWN : cli_exit_code(err->code);
}

static void say(const char *fmt, va_list ap)
{
	auto_buf b = { 0 };
	char text[512];

	vsnprintf(text, sizeof(text), fmt, ap);
	buf_addstr(&b, "den: ");
	text_printable(&b, text, strlen(text));
	buf_addstr(&b, "\n");
	(void)fd_write_all(STDERR_FILENO, b.p, b.len, NULL);
}

void cli_warn(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	say(fmt, ap);
	va_end(ap);
}

void cli_note(const struct args *a, const char *fmt, ...)
{
	va_list ap;

	if (a->quiet)
		return;
	va_start(ap, fmt);
	say(fmt, ap);
	va_end(ap);
}

int cli_write(const struct args *a, const void *data, size_t n)
{
	const char *p = data;
	struct den_err err;

	while (n) {
		ssize_t r = write(STDOUT_FILENO, p, n);

		if (r >= 0) {
			p += r;
			n -= (size_t)r;
		} else if (errno == EAGAIN) { /* somebody made a shared terminal non-blocking */
			poll(&(struct pollfd){ .fd = STDOUT_FILENO, .events = POLLOUT }, 1, -1);
		} else if (errno == EPIPE) {
			return EXIT_SIGNAL + SIGPIPE;
		} else if (errno != EINTR) {
			den_fail_sys(&err, errno, "write to standard output");
			return cli_fail(a, &err, NULL);
		}
	}
	return 0;
}

int cli_print(const struct args *a, struct buf *b)
{
	int status = cli_write(a, b->p, b->len);

	b->len = 0;
	return status;
}

int cli_print_json(const struct args *a, struct json *j)
{
	int status;

	buf_addstr(&j->b, "\n");
	status = cli_print(a, &j->b);
	buf_free(&j->b);
	*j = (struct json){ 0 };
	return status;
}

bool cli_color(const struct args *a)
{
	const char *term = getenv("TERM"), *no = getenv("NO_COLOR");

	return !a->no_color && !(no && *no) && isatty(STDOUT_FILENO) && term &&
	       strcmp(term, "dumb");
}

int (*cli_keeper)(const char *state, const char *id);

static void show_progress(const char *text, void *user)
{
	cli_note(user, "%s", text);
}

int cli_open(const struct args *a, struct den **ret, struct den_err *err)
{
	struct den_options opt = { .size = sizeof(opt), .state = a->state, .own_keepers = true,
		.keeper = cli_keeper,
		.progress = show_progress, .progress_user = (void *)a };

	return den_open(&opt, ret, err);
}

int session_open(struct session *s, const struct args *a, const char *ref)
{
	struct den_err err = { 0 };

	if (cli_open(a, &s->den, &err) < 0 || den_box_open(s->den, ref, &s->box, &err) < 0)
		return cli_fail(a, &err, NULL);
	return 0;
}

void session_close(struct session *s)
{
	den_box_close(s->box);
	den_close(s->den);
}

/* One of the two functions is there. */
static int each(const struct args *a, word_fn on_word, box_fn on_box, const char *hint)
{
	struct den *d = NULL;
	struct den_err err = { 0 };
	int first = 0;

	if (cli_open(a, &d, &err) < 0)
		return cli_fail(a, &err, NULL);
	for (int i = 0; i < a->n_words; i++) {
		struct den_box *box = NULL;
		int r;

		if (on_word)
			r = on_word(d, a->words[i], a, &err);
		else if ((r = den_box_open(d, a->words[i], &box, &err)) == 0)
			r = on_box(box, a->words[i], a, &err);
		if (r < 0)
			r = cli_fail(a, &err, hint);
		first = first ? first : r;
		den_box_close(box);
	}
	den_close(d);
	return first;
}

int cli_each_word(const struct args *a, word_fn fn, const char *hint)
{
	return each(a, fn, NULL, hint);
}

int cli_each_box(const struct args *a, box_fn fn)
{
	return each(a, NULL, fn, NULL);
}
