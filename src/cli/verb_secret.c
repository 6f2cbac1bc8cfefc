/* den secret set, rotate, ls, rm */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <termios.h>
#include <unistd.h>

#include "cli.h"
#include "fd.h"
#include "mem.h"
#include "table.h"
#include "verbs.h"

#define VALUE_MAX (64U << 10)
#define LINE_MAX_TTY 4095 /* the terminal's line editor drops what is longer */

/* ---- the value: from a file, a pipe or a person, never from the command line ---- */

struct value {
	char *p;
	size_t len;
};

static void value_free(struct value *v)
{
	if (v->p)
		explicit_bzero(v->p, v->len);
	free(v->p);
}
#define auto_value __attribute__((cleanup(value_free))) struct value

static volatile sig_atomic_t interrupted;

static void on_signal(int sig)
{
	interrupted = sig; /* read() ends with EINTR */
}

static ssize_t line_read(char *buf, size_t cap)
{
	static const int sigs[] = { SIGINT, SIGTERM, SIGHUP, SIGQUIT };
	struct sigaction sa = { .sa_handler = on_signal }, old[ARRAY_SIZE(sigs)];
	ssize_t n;

	for (size_t i = 0; i < ARRAY_SIZE(sigs); i++)
		sigaction(sigs[i], &sa, &old[i]);
	do
		n = read(STDIN_FILENO, buf, cap);
	while (n < 0 && errno == EINTR && !interrupted);
	for (size_t i = 0; i < ARRAY_SIZE(sigs); i++)
		sigaction(sigs[i], &old[i], NULL);
	return n;
}

/* Not shown while it is typed; the terminal is as before when we leave, however we do. */
static int value_prompt(const char *name, struct value *ret, struct den_err *err)
{
	struct termios saved, hidden;
	auto_buf text = { 0 };
	ssize_t n;

	if (tcgetattr(STDIN_FILENO, &saved) < 0)
		return den_fail_sys(err, errno, "terminal");
	hidden = saved;
	hidden.c_lflag &= ~(tcflag_t)(ECHO | ECHOE | ECHOK | ECHONL);
	hidden.c_lflag |= ICANON | ISIG;
	buf_addf(&text, "value of %s (not shown): ", name);
	(void)fd_write_all(STDERR_FILENO, text.p, text.len, NULL);
	ret->p = mem_zalloc(LINE_MAX_TTY + 2);
	tcsetattr(STDIN_FILENO, TCSAFLUSH, &hidden);
	n = line_read(ret->p, LINE_MAX_TTY + 1);
	tcsetattr(STDIN_FILENO, TCSANOW, &saved);
	(void)!write(STDERR_FILENO, "\n", 1);
	if (interrupted) {
		explicit_bzero(ret->p, LINE_MAX_TTY + 2);
		raise(interrupted);
	}
	if (n < 0)
		return den_fail_sys(err, errno, "read from the terminal");
	ret->len = (size_t)n;
	if (ret->len >= LINE_MAX_TTY)
		return den_fail(err, DEN_LIMIT, 0,
			"a terminal takes lines of at most %d bytes; use --file", LINE_MAX_TTY - 1);
	return 0;
}

static int value_read(const struct args *a, struct value *ret, struct den_err *err)
{
	bool stdin_asked = !a->file || !strcmp(a->file, "-");
	auto_fd fd = -1;

	if (stdin_asked && isatty(STDIN_FILENO)) {
		if (value_prompt(a->words[0], ret, err) < 0)
			return -1;
	} else {
		fd = stdin_asked ? dup(STDIN_FILENO) : open(a->file, O_RDONLY | O_CLOEXEC);
		if (fd < 0)
			return den_fail_sys(err, errno, "open '%.100s'",
				stdin_asked ? "standard input" : a->file);
		if (fd_read_all(fd, VALUE_MAX + 1, &ret->p, &ret->len, err) < 0)
			return den_wrap(err, "value of at most 64 KiB");
	}
	/* what an editor or echo put there is not part of it */
	if (ret->len && ret->p[ret->len - 1] == '\n')
		ret->p[--ret->len] = '\0';
	if (!ret->len)
		return den_fail(err, DEN_INVALID, 0, "the value is empty: nothing came from %s",
			stdin_asked ? "standard input" : a->file);
	return 0;
}

static int put(const struct args *a, bool rotate)
{
	auto_session s = { 0 };
	auto_value v = { 0 };
	struct den_err err = { 0 };
	int r;

	if (a->n_words > 1) {
		den_fail(&err, DEN_INVALID, 0,
			"the value does not go on the command line, where every user of this "
			"machine can read it");
		return cli_fail(a, &err, "pipe it in, give --file FILE, or be asked for it");
	}
	if (cli_open(a, &s.den, &err) < 0 || value_read(a, &v, &err) < 0)
		return cli_fail(a, &err, NULL);
	r = rotate ? den_secret_rotate(s.den, a->words[0], v.p, v.len, &err)
		   : den_secret_set(s.den, a->words[0], v.p, v.len, &err);
	return r < 0 ? cli_fail(a, &err, NULL) : 0;
}

static int secret_set(const struct args *a)
{
	return put(a, false);
}

static int secret_rotate(const struct args *a)
{
	return put(a, true);
}

static const struct option_def value_options[] = {
	{ "file", 'f', OPT_TEXT, offsetof(struct args, file), "FILE",
		"take the value from FILE (-: standard input)" },
	{ 0 },
};

static const struct verb verb_secret_set = {
	.name = "set",
	.words = "NAME",
	.summary = "keep a secret, or give it another value",
	.help = "The value comes from standard input, from a file, or is asked for without being\n"
		"shown; one newline at its end is not part of it. It has at most 64 KiB, and no\n"
		"line breaks: it will stand in a header. Boxes that have a grant of it use the "
		"new\n"
		"value from then on.\n"
		"\n"
		"Examples:\n"
		"  den secret set API_KEY               asks for it\n"
		"  pass show api | den secret set API_KEY\n"
		"  den secret set API_KEY --file key.txt\n",
	.options = { value_options },
	.min_words = 1,
	.max_words = 2,
	.complete = "-",
	.run = secret_set,
};

static const struct verb verb_secret_rotate = {
	.name = "rotate",
	.words = "NAME",
	.summary = "give a secret that is there another value",
	.help = "As 'den secret set', but a misspelled name is an error.\n"
		"\n"
		"Examples:\n"
		"  den secret rotate API_KEY --file new-key.txt\n",
	.options = { value_options },
	.min_words = 1,
	.max_words = 2,
	.complete = "-",
	.run = secret_rotate,
};

/* ---- ls, rm ---- */

static int list_json(const struct args *a, const struct den_secret *list, size_t n)
{
	struct json j = { 0 };

	json_open(&j, NULL, '[');
	for (size_t i = 0; i < n; i++) {
		json_open(&j, NULL, '{');
		json_str(&j, "name", list[i].name);
		json_time(&j, "created", list[i].created_ms);
		json_time(&j, "changed", list[i].changed_ms);
		json_str(&j, "damaged", list[i].damaged);
		json_close(&j, '}');
	}
	json_close(&j, ']');
	return cli_print_json(a, &j);
}

static int list_text(const struct args *a, const struct den_secret *list, size_t n)
{
	static const char *const heads[] = { "NAME", ">AGE", ">CHANGED", "STATE" };
	auto_table t = { .cols = ARRAY_SIZE(heads), .heads = heads };
	auto_buf out = { 0 };

	for (size_t i = 0; i < n; i++) {
		if (a->quiet) {
			buf_addf(&out, "%s\n", list[i].name);
			continue;
		}
		table_cell(&t, list[i].name);
		if (list[i].damaged) {
			table_cell(&t, NULL);
			table_cell(&t, NULL);
			table_cell(&t, "damaged: set it again");
			continue;
		}
		table_age(&t, list[i].created_ms);
		table_age(&t, list[i].changed_ms);
		table_cell(&t, "sealed");
	}
	if (!a->quiet)
		table_print(&t, &out);
	return cli_print(a, &out);
}

static int secret_ls(const struct args *a)
{
	auto_session s = { 0 };
	struct den_secret *list = NULL;
	struct den_err err = { 0 };
	size_t n = 0;
	int status;

	if (cli_open(a, &s.den, &err) < 0 || den_secret_list(s.den, &list, &n, &err) < 0)
		return cli_fail(a, &err, NULL);
	status = a->json && !a->quiet ? list_json(a, list, n) : list_text(a, list, n);
	den_secrets_free(list, n);
	return status;
}

static const struct verb verb_secret_ls = {
	.name = "ls",
	.summary = "list the secrets; never their values",
	.help = "With --quiet only their names, one a line.\n"
		"\n"
		"Examples:\n"
		"  den secret ls\n"
		"  den secret ls --json | jq -r '.[].name'\n",
	.complete = "-",
	.run = secret_ls,
};

static int secret_rm(const struct args *a)
{
	auto_session s = { 0 };
	struct den_err err = { 0 };
	int first = 0;

	if (cli_open(a, &s.den, &err) < 0)
		return cli_fail(a, &err, NULL);
	for (int i = 0; i < a->n_words; i++) {
		if (den_secret_remove(s.den, a->words[i], &err) < 0) {
			int status = cli_fail(a, &err,
				err.code == DEN_NOT_FOUND ? "'den secret ls' lists them" : NULL);

			first = first ? first : status;
		}
	}
	return first;
}

static const struct verb verb_secret_rm = {
	.name = "rm",
	.words = "NAME...",
	.summary = "forget secrets",
	.help = "Boxes that have a grant of one can use it no longer.\n"
		"\n"
		"Examples:\n"
		"  den secret rm API_KEY\n",
	.min_words = 1,
	.max_words = -1,
	.complete = "-",
	.run = secret_rm,
};

static const struct verb *const secret_verbs[] = {
	&verb_secret_set,
	&verb_secret_rotate,
	&verb_secret_ls,
	&verb_secret_rm,
	NULL,
};

const struct verb verb_secret = {
	.name = "secret",
	.words = "...",
	.summary = "keep secrets that boxes use and never see",
	.help = "A secret is sealed on the host. A box that has a grant of it holds a "
		"placeholder,\n"
		"and the gate puts the value in its place on the way to the granted host alone.\n"
		"Nothing prints a value.\n"
		"\n"
		"Examples:\n"
		"  den secret set API_KEY        asks for the value\n"
		"  den secret ls\n",
	.subs = secret_verbs,
};
