/*
 * What a verb is, and what verbs share: opening, failing, printing.
 *
 * Exit status: a verb that runs a program leaves with that program's, every other with 0 or
 * cli_exit_code() of what went wrong. One line on stderr says it.
 */
#pragma once

#include "buf.h"
#include "den.h"
#include "err.h"
#include "json.h"
#include "options.h"

enum {
	EXIT_OWN = 125, /* den's own failure in a verb that runs a program */
	EXIT_NOT_RUNNABLE = 126,
	EXIT_NO_PROGRAM = 127,
	EXIT_SIGNAL = 128, /* plus the signal's number */
};

struct verb {
	const char *name;
	const char *words; /* what stands after the options, for usage lines */
	const char *summary; /* one line, no full stop */
	const char *help; /* what to know, and examples; ends with a newline */
	const struct option_def
		*options[OPTION_TABLES]; /* besides options_global; NULL-terminated */
	int min_words, max_words; /* max -1: any number */
	int command; /* from this word on (counted from 1) it is a command, with options of
				     its own; 0: no word is */
	bool program; /* runs one, so its status is den's */
	/* What each word is, for completion; the last letter goes for all that follow:
	 * b box, e exec of the box, r checkpoint of it, p BOX:PATH or path, f host file,
	 * t template, v verb, w the word "warm", - anything */
	const char *complete;
	int (*run)(const struct args *a); /* gives the exit status */
	const struct verb *const *subs; /* verbs below it, NULL-terminated; then run is NULL */
};

extern const struct verb *const verbs[]; /* NULL-terminated; verbs.c */
const struct verb *verb_find(const struct verb *const *list, const char *name);

/* main.c */
int cli_main(int argc, char **argv);
/* What becomes a keeper in a forked child (den_options.keeper); NULL: den is executed for it. */
extern int (*cli_keeper)(const char *state, const char *id);
/* Parses the words after the verb's name; checks how many words there are. For tests, too. */
int verb_parse(const struct verb *v, int argc, char **argv, struct args *a, struct den_err *err);

/* help.c: both give an exit status */
int help_all(const struct args *a, bool asked);
int help_verb(const struct args *a, const struct verb *parent, const struct verb *v);

/* common.c */
int cli_exit_code(enum den_code code);
/* Tells the failure on stderr, with a hint (or NULL) about what to do; gives the exit status. */
int cli_fail(const struct args *a, const struct den_err *err, const char *hint);
/* "den: ..." on stderr, unless --quiet. */
void cli_note(const struct args *a, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* The same, also with --quiet. */
void cli_warn(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* Writes to stdout; gives 0 or an exit status (141 when the reader went). */
int cli_write(const struct args *a, const void *data, size_t n);
/* Writes b to stdout and empties it; gives the same. */
int cli_print(const struct args *a, struct buf *b);
/* The same for a finished JSON value, and a newline. */
int cli_print_json(const struct args *a, struct json *j);
bool cli_color(const struct args *a);
int cli_open(const struct args *a, struct den **ret, struct den_err *err);

/* A state directory and one of its boxes. */
struct session {
	struct den *den;
	struct den_box *box;
};
/* Opens both; gives 0, or the exit status of a failure that it told. */
int session_open(struct session *s, const struct args *a, const char *ref);
void session_close(struct session *s);
#define auto_session __attribute__((cleanup(session_close))) struct session

/* Does fn for each word. All are tried; gives the exit status of the first that failed. fn returns
 * -1 with *err set, and the hint (or NULL) is told with it, or the exit status of what it told
 * itself. */
typedef int (*word_fn)(struct den *d, const char *word, const struct args *a, struct den_err *err);
int cli_each_word(const struct args *a, word_fn fn, const char *hint);
/* The same for each box that the words name. */
typedef int (*box_fn)(
	struct den_box *box, const char *ref, const struct args *a, struct den_err *err);
int cli_each_box(const struct args *a, box_fn fn);
