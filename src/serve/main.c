/*
 * den-serve: the engine behind HTTP.
 *
 * Reading order: this file (the start, as two tables), launcher.h (the half that keeps its rights), guard.c (what
 * the other half gives up), pick.c (which dialect), route.h and http.h (a request), boxes.h, auth.h, db.h.
 *
 *   den serve -> den-serve ──fork──> server: no rights, no files but STATE/serve, parses what strangers send
 *                    └ launcher: starts keepers, single-threaded, parses nothing
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <pwd.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "boxes.h"
#include "clock.h"
#include "db.h"
#include "engine.h"
#include "fd.h"
#include "guard.h"
#include "keys.h"
#include "key_verb.h"
#include "launcher.h"
#include "log.h"
#include "mem.h"
#include "parse.h"
#include "parts.h"
#include "pick.h"
#include "place.h"
#include "program.h"
#include "serve.h"
#include "settings.h"
#include "sockets.h"
#include "systemd.h"
#include "tls.h"
#include "warm.h"

#define GRACE_MS 10000
#define LOCK_TRIES 100 /* of 20 ms: a server that is ending may still have it */

struct serve_settings serve;

struct start {
	struct settings s;
	char *state, *own, *den;
	int state_fd, own_fd, lock_fd;
	uid_t uid;
	gid_t gid;
	struct sockets sockets;
	char *cert, *key;
	int pair[2]; /* launcher, server */
	pid_t parent;
	bool alone;
	char first_key[KEY_TEXT];
};

struct stage {
	const char *name;
	int (*run)(struct start *st, struct den_err *err);
};

/* ---- before there are two of us ---- */

static int stage_state(struct start *st, struct den_err *err)
{
	auto_buf own = { 0 };

	if (place_state(st->s.state, &st->state, err) < 0 || place_open(st->state, true, &st->state_fd, err) < 0)
		return -1;
	buf_addf(&own, "%s/serve", st->state);
	st->own = mem_strdup(buf_str(&own));
	st->den = st->s.den ? mem_strdup(st->s.den) : program_find("den", DEN_BIN);
	return st->den ? 0 : den_fail(err, DEN_NOT_FOUND, 0, "the den program is not in " DEN_BIN "; give --den PATH");
}

/* Beside serve/, not in it: the server cannot take it away. */
static int stage_lock(struct start *st, struct den_err *err)
{
	st->lock_fd = openat(st->state_fd, "serve.lock", O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (st->lock_fd < 0)
		return den_fail_sys(err, errno, "%s/serve.lock", st->state);
	for (int i = 0; flock(st->lock_fd, LOCK_EX | LOCK_NB) < 0; i++) {
		if (errno != EWOULDBLOCK)
			return den_fail_sys(err, errno, "%s/serve.lock", st->state);
		if (i == LOCK_TRIES)
			return den_fail(err, DEN_CONFLICT, 0,
				"another den serve has the state directory '%s'; stop it, or give --state DIR", st->state);
		nanosleep(&(struct timespec){ .tv_nsec = 20 * NS_PER_MS }, NULL);
	}
	return 0;
}

static int user_find(const char *name, uid_t *uid, gid_t *gid, struct den_err *err)
{
	const struct passwd *pw = getpwnam(name);
	uint64_t number;

	if (!pw && parse_u64(name, 1, UINT32_MAX - 1, &number, NULL) < 0)
		return den_fail(err, DEN_NOT_FOUND, 0, "there is no user '%.60s' (--user)", name);
	if (pw && !pw->pw_uid)
		return den_fail(err, DEN_INVALID, 0, "--user is who the server becomes to have no rights: not root");
	*uid = pw ? pw->pw_uid : (uid_t)number;
	*gid = pw ? pw->pw_gid : (gid_t)number;
	return 0;
}

/* Who the server becomes: the user that was asked for, or whose STATE/serve is already, or the account that a
 * package made for it, or an id that nothing else has. */
static int stage_owner(struct start *st, struct den_err *err)
{
	struct stat sb;
	bool made;

	st->uid = geteuid();
	st->gid = getegid();
	made = mkdirat(st->state_fd, "serve", 0700) == 0;
	st->own_fd = openat(st->state_fd, "serve", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (st->own_fd < 0 || fstat(st->own_fd, &sb) < 0)
		return den_fail_sys(err, errno, "%s", st->own);
	if (st->uid != 0) {
		if (sb.st_uid == st->uid)
			return 0;
		return den_fail(err, DEN_DENIED, 0, "'%s' belongs to another user; remove it or give --state DIR", st->own);
	}
	if (st->s.user) {
		if (user_find(st->s.user, &st->uid, &st->gid, err) < 0)
			return -1;
	} else if (!made && sb.st_uid) {
		st->uid = sb.st_uid;
		st->gid = sb.st_gid;
	} else if (user_find("den-serve", &st->uid, &st->gid, err) < 0) {
		st->uid = st->gid = GUARD_UID;
	}
	if (sb.st_uid && sb.st_uid != st->uid)
		return den_fail(err, DEN_CONFLICT, 0, "'%s' belongs to user %u; leave out --user, or 'chown -R %u %s'", st->own,
			(unsigned)sb.st_uid, (unsigned)st->uid, st->own);
	if (!sb.st_uid && fchown(st->own_fd, st->uid, st->gid) < 0)
		return den_fail_sys(err, errno, "give '%s' to user %u", st->own, (unsigned)st->uid);
	return 0;
}

static int stage_listen(struct start *st, struct den_err *err)
{
	return sockets_open(&st->s, &st->sockets, err);
}

static int stage_certificate(struct start *st, struct den_err *err)
{
	if (st->s.tls_cert)
		return tls_load(st->s.tls_cert, st->s.tls_key, &st->cert, &st->key, err);
	if (st->s.tls_self_signed)
		return tls_self_signed(st->state_fd, st->sockets.name, &st->cert, &st->key, err);
	return 0;
}

static int stage_settings(struct start *st, struct den_err *err)
{
	(void)err;
	serve = (struct serve_settings){ .state = st->state, .own = ".", .listen = st->sockets.where,
		.domain = st->sockets.domain, .url = st->sockets.url, .tls = st->cert, .e2b_template = "base",
		.prices = st->s.prices };
	return 0;
}

/* ---- the server ---- */

static int stage_files(struct start *st, struct den_err *err)
{
	http_prepare();
	if (guard_files(st->own, &st->alone, err) < 0)
		return -1;
	if (!st->alone)
		log_line("warn", "guard", "no user namespaces here: the server sees the files that its user can");
	return 0;
}

static int stage_rights(struct start *st, struct den_err *err)
{
	return guard_rights(st->uid, st->gid, st->parent, err);
}

static int stage_limits(struct start *st, struct den_err *err)
{
	(void)st;
	umask(077);
	return guard_limits(err);
}

static int stage_calls(struct start *st, struct den_err *err)
{
	(void)st;
	return guard_calls(err);
}

static int stage_database(struct start *st, struct den_err *err)
{
	(void)st;
	return db_open("serve.db", err) < 0 ? -1 : auth_start(err);
}

static int stage_launcher(struct start *st, struct den_err *err)
{
	return launch_start(st->pair[1], err);
}

static int stage_keys(struct start *st, struct den_err *err)
{
	return keys_first(st->first_key, err);
}

static int stage_parts(struct start *st, struct den_err *err)
{
	warm_set(st->s.warm, st->s.n_warm);
	return parts_start(err);
}

static struct den *thread_den(void)
{
	struct den_err err;
	struct den *d = NULL;

	if (serve_den(&d, &err) < 0)
		log_line("error", "den", "%s", err.msg);
	return d;
}

static const char *not_ready(void)
{
	return boxes_ready() ? NULL : "the boxes have not been read yet";
}

static void box_gauges(struct buf *b)
{
	static const char *const states[] = { "running", "paused", "stopped" };
	size_t n[3];

	boxes_count(n);
	buf_addstr(b, "# HELP den_boxes Boxes by state.\n# TYPE den_boxes gauge\n");
	for (size_t i = 0; i < ARRAY_SIZE(states); i++)
		buf_addf(b, "den_boxes{state=\"%s\"} %zu\n", states[i], n[i]);
	warm_gauges(b);
}

static int stage_http(struct start *st, struct den_err *err)
{
	struct http_options o = {
		.listen = st->sockets.listen,
		.n_listen = st->sockets.n,
		.tls_cert = st->cert,
		.tls_key = st->key,
		.pick = pick,
		.den_make = thread_den,
		.ready = not_ready,
		.gauges = box_gauges,
		.workers = (unsigned)st->s.workers,
	};

	return http_start(&o, err);
}

static int stage_ready(struct start *st, struct den_err *err)
{
	if (!st->s.no_templates)
		parts_templates();
	return launch_ready(st->first_key, err);
}

/* ---- the order ---- */

static const struct stage before[] = {
	{ "state", stage_state },
	{ "lock", stage_lock },		      /* before anything is changed */
	{ "owner", stage_owner },
	{ "listen", stage_listen },	      /* as root: ports below 1024 */
	{ "certificate", stage_certificate }, /* as root: the key's file is nobody else's to read */
	{ "settings", stage_settings },
};	/* then fork(): from here on the parent is the launcher */

static const struct stage server[] = {
	{ "files", stage_files },	/* after all that is read by name */
	{ "rights", stage_rights },	/* after files, the last user of capabilities */
	{ "limits", stage_limits },
	{ "calls", stage_calls },	/* before the first thread, and before the first byte from anybody */
	{ "database", stage_database },
	{ "launcher", stage_launcher },
	{ "keys", stage_keys },
	{ "parts", stage_parts },	/* before http: they have the tables and threads that handlers use */
	{ "http", stage_http },
	{ "ready", stage_ready },
};

static const struct stage key_stages[] = {
	{ "state", stage_state },
	{ "owner", stage_owner },
	{ "files", stage_files }, /* the database belongs to the server's user: it is opened as that user */
	{ "rights", stage_rights },
	{ "limits", stage_limits },
	{ "database", stage_database },
};

static int stages_run(const struct stage *stages, size_t n, struct start *st, struct den_err *err)
{
	for (size_t i = 0; i < n; i++)
		if (stages[i].run(st, err) < 0)
			return den_wrap(err, "%s", stages[i].name);
	return 0;
}

/* ---- running ---- */

/* The terminal that it was started from is its starter's: it could be typed into, and read. */
static void leave_terminal(void)
{
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);
	int out = isatty(STDERR_FILENO) ? open("/proc/self/fd/2", O_WRONLY | O_NOCTTY | O_CLOEXEC) : -1;

	setsid();
	if (null >= 0 && dup2(null, STDIN_FILENO) == STDIN_FILENO && dup2(null, STDOUT_FILENO) == STDOUT_FILENO)
		close(null);
	if (out >= 0 && dup2(out, STDERR_FILENO) == STDERR_FILENO)
		close(out);
}

static int server_main(struct start *st)
{
	struct den_err err;
	sigset_t set;
	int sig;

	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigprocmask(SIG_BLOCK, &set, NULL); /* threads have it blocked, too */
	signal(SIGINT, SIG_IGN);	    /* of a terminal: the launcher says when */
	signal(SIGHUP, SIG_IGN);
	signal(SIGPIPE, SIG_IGN);
	if (stages_run(server, ARRAY_SIZE(server), st, &err) < 0) {
		log_line("error", "start", "%s", err.msg);
		return err_exit_status(err.code);
	}
	while (sigwait(&set, &sig) != 0)
		;
	log_line("info", "stop", "ending; boxes go on");
	http_stop(st->s.grace_ms ? (unsigned)st->s.grace_ms : GRACE_MS);
	parts_stop();
	db_close();
	return 0;
}

static int serve_main(struct start *st, struct den_err *err)
{
	auto_buf page = { 0 };
	pid_t pid;

	if (stages_run(before, ARRAY_SIZE(before), st, err) < 0)
		return -1;
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, st->pair) < 0)
		return den_fail_sys(err, errno, "socketpair");
	st->parent = getpid();
	pid = fork();
	if (pid < 0)
		return den_fail_sys(err, errno, "fork");
	if (pid == 0) {
		close(st->pair[0]);
		close(st->state_fd);
		close(st->own_fd);
		leave_terminal();
		_exit(server_main(st));
	}
	close(st->pair[1]);
	sockets_close(&st->sockets);
	if (st->key)
		explicit_bzero(st->key, strlen(st->key));
	buf_addf(&page, "%s/ui/", serve.url);
	return launcher_run(&(struct launcher_options){ .fd = st->pair[0], .server = pid, .state = st->state,
		.den = st->den, .url = serve.url, .page = buf_str(&page) });
}

static int print_routes(void)
{
	static const char *const auth[] = { "none", "key", "box", "admin" };

	for (const struct dialect *const *d = dialects; *d; d++)
		for (size_t i = 0; i < (*d)->n; i++) {
			const struct route *r = &(*d)->routes[i];

			printf("%s %s %s %s %s\n", (*d)->name, r->method, r->path, auth[r->auth], r->scope ? r->scope : "-");
		}
	return 0;
}

static void fill_standard_fds(void)
{
	for (int fd = 0; fd <= 2; fd++)
		if (fcntl(fd, F_GETFD) < 0 && errno == EBADF)
			(void)!open("/dev/null", O_RDWR);
}

int main(int argc, char **argv)
{
	struct start st = { .state_fd = -1, .own_fd = -1, .lock_fd = -1 };
	struct den_err err;
	int r;

	fill_standard_fds();
	fd_close_from(3 + systemd_count()); /* what else the caller had open is neither the server's nor any keeper's */
	if (settings_parse(argc, argv, &st.s, &err) < 0) {
		fprintf(stderr, "den: %s\n", err.msg);
		return err_exit_status(err.code);
	}
	if (st.s.help) {
		fprintf(stderr, "den-serve is started by 'den serve', see den(1)\n");
		return 0;
	}
	if (st.s.routes)
		return print_routes();
	log_set_text(st.s.log ? !strcmp(st.s.log, "text") : isatty(STDERR_FILENO));
	json_object_seed(0); /* while there is a file to take chance from */
	if (st.s.verb) {
		r = stages_run(key_stages, ARRAY_SIZE(key_stages), &st, &err);
		return r < 0 ? key_fail(&st.s, &err) : key_verb(&st.s);
	}
	r = serve_main(&st, &err);
	if (r >= 0)
		return r;
	if (log_is_text())
		fprintf(stderr, "den: serve: %s\n", err.msg);
	else
		log_line("error", "start", "%s", err.msg);
	return err_exit_status(err.code);
}
