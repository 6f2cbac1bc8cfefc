/*
 * The command line becomes a struct args here. Options are tables, and there is one parser: a verb
 * lists the tables it takes. Nothing here opens, asks or prints anything, so it can be fuzzed.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "err.h"

enum option_kind {
	OPT_FLAG, /* bool: being there makes it true */
	OPT_BOOL, /* bool: --x, --x=true, --x=false */
	OPT_TEXT, /* const char * */
	OPT_LIST, /* char **: may be given many times */
	OPT_COUNT, /* uint64_t, at least 1 */
	OPT_NUMBER, /* uint64_t */
	OPT_SIZE, /* uint64_t, bytes */
	OPT_DURATION, /* uint64_t, milliseconds */
	OPT_GRACE, /* the same, 0 allowed */
	OPT_CPUS, /* uint64_t, thousandths */
	OPT_SIGNAL, /* int */
};

struct option_def {
	const char *name; /* NULL ends a table */
	char letter; /* 0: none */
	enum option_kind kind;
	size_t field; /* offset in struct args */
	const char *arg; /* what its value is called; NULL: takes none */
	const char *help; /* one line */
	const char *not_with; /* names of options that it contradicts, separated by spaces */
};

/* What was asked for. Text points into argv; 0 and NULL mean that it was not given. */
struct args {
	/* every verb */
	const char *state;
	bool help, version, json, quiet, no_color;
	/* a box */
	const char *name, *template_name, *wall, *net, *hostname, *user, *workdir;
	char **env, **env_files, **mounts;
	uint64_t cpus, memory, pids, disk, nofile, max_runtime;
	bool reseed;
	bool rm; /* true unless --rm=false */
	/* an exec */
	const char *tag;
	bool tty, no_tty, detach, no_stdin;
	uint64_t timeout, cpu_time, grace, max_output, keep;
	int signal;
	bool group, tree;
	/* files */
	const char *mode;
	bool recursive, parents, atomic, no_replace, no_follow;
	uint64_t depth, offset, length;
	/* history */
	const char *history, *message, *into, *from, *to, *kind;
	char **paths;
	uint64_t count, limit, keep_time, size;
	bool text, tar, name_only, exit_code, ours, theirs, remove, all;
	/* templates */
	const char *ref, *platform, *compress, *file, *target, *packages, *variant, *auth, *ca, *with;
	char **build_args;
	uint64_t max_size;
	bool docker, no_cache, cache, plain_http, password_stdin, full;
	/* secrets and identity */
	const char *audience, *alg, *issuer;
	/* the network */
	char **allow, **deny, **presets, **secrets, **audiences, **drop, **trust;
	const char *policy, *srt_settings;
	uint64_t net_rate, net_bytes, net_conns;
	bool proxy_env, clear;
	/* how long a box stays */
	const char *ttl, *idle, *on_expire, *on_idle;
	char **labels;
	const char *idle_pause;
	bool extend;
	bool to_disk; /* pause: programs go there; rollback: files alone */
	/* the server and its keys */
	char **listen, **scopes, **prices;
	const char *socket, *domain, *url, *tls_cert, *tls_key, *log, *org, *currency;
	uint64_t quota_boxes, rate, workers;
	bool tls_self_signed, no_templates;
	char **warm;
	bool stay, none;
	/* the rest */
	bool force, follow, once;
	uint64_t interval;

	char **words; /* what is not an option, NULL-terminated; points into argv */
	int n_words;
	bool program; /* the verb runs a program: den's own failures leave with 125 */
	struct option_seen *seen;
	size_t n_seen;
};

#define OPTION_TABLES 8 /* at most so many tables in a verb, and a NULL */

/**
 * options_parse() - read options and words
 * @tables:	NULL-terminated
 * @command_at: the word of this number and all after it are taken as they are: they are a command;
 *		-1: options may stand anywhere
 * @a:		zeroed before the first call (args_init()); a second call adds to it. Free it with
 *		args_free(), also on failure.
 *
 * Ends early, with success, at --help.
 */
int options_parse(const struct option_def *const *tables, int command_at, int argc, char **argv,
	struct args *a, struct den_err *err);
void args_init(struct args *a);
void args_free(struct args *a);
/* Whether the option was given at all; name without the dashes. */
bool args_given(const struct args *a, const char *name);

extern const struct option_def options_global[]; /* every verb takes them */
extern const struct option_def options_box[]; /* run, create */
extern const struct option_def options_net[]; /* run, create, fork, policy set */
extern const struct option_def options_lease[]; /* run, create, fork, lease */
extern const struct option_def options_label[]; /* run, create, fork */
extern const struct option_def options_env[]; /* run, create, exec: environment, user, place */
extern const struct option_def options_exec[]; /* run, exec */
