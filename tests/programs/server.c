/*
 * A server in small, for tests: libden with connections that somebody else makes (den_options.dial), as a guest,
 * and without a state directory of its own. Here the somebody is dial() below.
 *
 *   server [--host] COMMAND ...     --host: not a guest
 *
 *   id REF                          its id
 *   create [KEY=VALUE]...           name template mount publish policy policy-name owner label ttl; prints the id
 *   fork REF [KEY=VALUE]...         the same
 *   info REF                        owner, labels, turn, state: one a line
 *   run REF ARG...                  a program; its output, then "status N"
 *   live REF EXEC [--slow MS]       follows, and feeds it from stdin; "lost N" and "status N" on stderr
 *   size REF EXEC ROWS COLS         resizes
 *   write REF PATH PREFIX [K=V]...  standard input; PREFIX "-": none, with "@" before it: atomically
 *   stat REF PATH PREFIX            as "list" prints an entry; with "@": the link itself
 *   list REF PATH PREFIX            a line for each entry; with "@": links are followed
 *   lease REF MS                    expires in so long
 *   policy REF JSON, save NAME JSON, port REF PORT, pool [BYTES], gc, doctor, list-all, issuer [URL], rotate, jwks,
 *   secret NAME VALUE
 *
 * Fails with status 1 and "CODE: message" on stderr.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "den.h"
#include "wire.h"

static bool guest = true;
static unsigned dialled;

/* ---- what a launcher does ---- */

static int start_keeper(const char *id, int *ret_fd)
{
	const char *exe = getenv("DEN"), *state = getenv("DEN_STATE");
	int sv[2];
	pid_t pid;

	if (!exe || !state || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sv) < 0)
		return -1;
	pid = fork();
	if (pid == 0) {
		if (fork())
			_exit(0);
		if (dup2(sv[1], 3) < 0 || (sv[1] == 3 && fcntl(3, F_SETFD, 0) < 0))
			_exit(127);
		execl(exe, "den", "__keeper", state, id, NULL);
		_exit(127);
	}
	close(sv[1]);
	while (pid > 0 && waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		;
	*ret_fd = sv[0];
	return pid < 0 ? -1 : 0;
}

static int connect_keeper(const char *id)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	char path[512];
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), dir;

	snprintf(path, sizeof(path), "%s/boxes/%s", getenv("DEN_STATE"), id);
	dir = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	snprintf(a.sun_path, sizeof(a.sun_path), "/proc/self/fd/%d/keeper.sock", dir);
	if (fd >= 0 && dir >= 0 && connect(fd, (struct sockaddr *)&a, sizeof(a)) == 0) {
		close(dir);
		return fd;
	}
	close(fd);
	close(dir);
	return -1;
}

static int dial(const char *id, void *user, int *ret_fd, bool *ret_started, struct den_err *err)
{
	struct buf b = { 0 };
	int fd = id ? connect_keeper(id) : -1;

	(void)user;
	dialled++;
	*ret_started = fd < 0 && id;
	if (fd < 0 && start_keeper(id, &fd) < 0)
		return den_fail(err, DEN_INTERNAL, errno, "start a keeper");
	wire_frame_put(&b, WM_GUEST, 0, NULL, 0);
	if (guest && write(fd, b.p, b.len) != (ssize_t)b.len)
		return den_fail(err, DEN_CONFLICT, EPIPE, "greet");
	buf_free(&b);
	*ret_fd = fd;
	return 0;
}

/* ---- boxes ---- */

static int64_t from_now(const char *ms)
{
	struct timespec t;

	clock_gettime(CLOCK_REALTIME, &t);
	return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000 + atoll(ms);
}

struct wish {
	struct den_box_spec spec;
	struct den_mount mount;
	const char *labels[16], *publish[2];
	size_t n_labels;
};

static void wish_read(struct wish *w, char **argv)
{
	w->spec.size = sizeof(w->spec);
	for (; *argv; argv++) {
		char *eq = strchr(*argv, '='), *v = eq ? eq + 1 : *argv;
		size_t n = eq ? (size_t)(eq - *argv) : strlen(*argv);

#define IS(key) (n == strlen(key) && !strncmp(*argv, key, n))
		if (IS("name"))
			w->spec.name = v;
		else if (IS("template"))
			w->spec.template_name = v;
		else if (IS("policy"))
			w->spec.policy = v;
		else if (IS("policy-name"))
			w->spec.policy_name = v;
		else if (IS("owner"))
			w->spec.owner = v;
		else if (IS("ttl"))
			w->spec.expires_ms = from_now(v);
		else if (IS("label") && w->n_labels < 15)
			w->labels[w->n_labels++] = v;
		else if (IS("publish"))
			w->publish[0] = v;
		else if (IS("mount"))
			w->mount = (struct den_mount){ .host = v, .box = "/mnt" };
#undef IS
	}
	if (w->n_labels)
		w->spec.labels = w->labels;
	if (w->publish[0])
		w->spec.publish = w->publish;
	if (w->mount.host) {
		w->spec.mounts = &w->mount;
		w->spec.n_mounts = 1;
	}
}

static int cmd_create(struct den *d, struct den_box *box, char **argv, struct den_err *err)
{
	struct den_box *made = NULL;
	struct wish w = { 0 };

	wish_read(&w, argv);
	if (box ? den_box_fork_as(box, NULL, &w.spec, &made, err) : den_box_create(d, &w.spec, &made, err))
		return -1;
	printf("%s\n", den_box_id(made));
	den_box_close(made);
	return 0;
}

static int cmd_id(struct den *d, struct den_box *box, char **argv, struct den_err *err)
{
	(void)d, (void)argv, (void)err;
	printf("%s\n", den_box_id(box));
	return 0;
}

static int cmd_info(struct den *d, struct den_box *box, char **argv, struct den_err *err)
{
	struct den_box_info *i;

	(void)d, (void)argv;
	if (den_box_info(box, &i, err) < 0)
		return -1;
	printf("owner %s\nstate %s\nturn %llu\n", i->owner ? i->owner : "-", i->state, (unsigned long long)i->turn);
	for (size_t n = 0; i->labels && i->labels[n]; n++)
		printf("label %s\n", i->labels[n]);
	den_box_infos_free(i, 1);
	return 0;
}

static int cmd_lease(struct den *d, struct den_box *box, char **argv, struct den_err *err)
{
	struct den_lease l = { .size = sizeof(l), .expires_ms = from_now(argv[0] ? argv[0] : "1000"),
		.idle_ms = DEN_IDLE_KEEP };

	(void)d;
	return den_box_lease(box, &l, err);
}

/* ---- programs ---- */

static unsigned slow_ms;

static void on_output(struct den_exec *e, int stream, const void *data, size_t n, void *user)
{
	(void)e, (void)user;
	fwrite(data, 1, n, stream == 1 ? stdout : stderr);
	fflush(stdout);
	if (slow_ms)
		usleep(slow_ms * 1000);
}
static const struct den_exec_ops ops = { .output = on_output };

static int cmd_run(struct den *d, struct den_box *box, char **argv, struct den_err *err)
{
	struct den_exec_opt opt = { .size = sizeof(opt), .argv = (const char *const *)argv };
	struct den_exec_result r;
	struct den_exec *e;

	(void)d;
	if (den_exec_start(box, &opt, &ops, NULL, &e, err) < 0 || den_exec_wait(e, &r, err) < 0)
		return -1;
	printf("status %d\n", r.status);
	den_exec_unref(e);
	return 0;
}

struct follower {
	bool ended;
	struct den_exec_result result;
	struct den_err err;
};

static void on_ended(struct den_exec *e, const struct den_exec_result *r, const struct den_err *err, void *user)
{
	struct follower *f = user;

	(void)e;
	f->ended = true;
	if (r)
		f->result = *r;
	if (err)
		f->err = *err;
}

static void on_started(struct den_exec *e, pid_t pid, void *user)
{
	(void)e, (void)user;
	fprintf(stderr, "started %d\n", (int)pid);
}
static const struct den_exec_ops live_ops = { .started = on_started, .output = on_output, .ended = on_ended };

static int feed(struct den_exec *e, bool *open, struct den_err *err)
{
	char buf[4096];
	ssize_t n = read(0, buf, sizeof(buf));

	if (n <= 0) { /* it goes on reading what others write */
		*open = false;
		return 0;
	}
	return den_exec_write(e, buf, (size_t)n, err) < 0 ? -1 : 0;
}

static int cmd_live(struct den *d, struct den_box *box, char **argv, struct den_err *err)
{
	struct follower f = { 0 };
	struct den_exec *e;
	bool open = true;

	(void)d;
	if (argv[1] && !strcmp(argv[1], "--slow"))
		slow_ms = (unsigned)atoi(argv[2]);
	if (den_exec_attach_live(box, argv[0], &live_ops, &f, &e, err) < 0)
		return -1;
	while (!f.ended) {
		struct pollfd p[2] = { { .fd = den_poll_fd(box), .events = POLLIN },
			{ .fd = open ? 0 : -1, .events = POLLIN } };

		if (poll(p, 2, 200) < 0 && errno != EINTR)
			return den_fail(err, DEN_INTERNAL, errno, "poll");
		if (p[1].revents && feed(e, &open, err) < 0)
			return -1;
		if (!f.ended && den_dispatch(box, 0, err) < 0)
			return -1;
	}
	fprintf(stderr, "lost %llu\nstatus %d\n", (unsigned long long)den_exec_lost(e), f.result.status);
	den_exec_unref(e);
	if (f.err.code) {
		*err = f.err;
		return -1;
	}
	return 0;
}

static int cmd_size(struct den *d, struct den_box *box, char **argv, struct den_err *err)
{
	struct follower f = { 0 };
	struct den_exec *e;

	(void)d;
	if (den_exec_attach_live(box, argv[0], &live_ops, &f, &e, err) < 0 ||
		den_exec_resize(e, (uint16_t)atoi(argv[1]), (uint16_t)atoi(argv[2]), err) < 0)
		return -1;
	for (int i = 0; i < 5 && !f.ended; i++)
		if (den_dispatch(box, 50, err) < 0)
			return -1;
	den_exec_unref(e);
	return 0;
}

/* ---- files ---- */

static ssize_t from_stdin(void *buf, size_t cap, void *user, struct den_err *err)
{
	(void)user, (void)err;
	return read(0, buf, cap);
}

static int print_entry(const struct den_entry *e, void *user, struct den_err *err)
{
	(void)user, (void)err;
	printf("%s %s%s mode=%o size=%llu real=%s target=%s", e->path, e->link ? "link+" : "", e->type, e->mode,
		(unsigned long long)e->size, e->real ? e->real : "-", e->target ? e->target : "-");
	for (size_t i = 0; e->xattrs && e->xattrs[i]; i++)
		printf(" [%s]", e->xattrs[i]);
	printf("\n");
	return 0;
}

/* "-": none; "@" before it: the flag. */
static bool prefix_of(const char *text, struct den_file_opt *opt)
{
	bool flag = text[0] == '@';

	text += flag;
	opt->xattr_prefix = strcmp(text, "-") ? text : NULL;
	return flag;
}

static int cmd_write(struct den *d, struct den_box *box, char **argv, struct den_err *err)
{
	struct den_file_opt opt = { .size = sizeof(opt) };

	(void)d;
	opt.atomic = prefix_of(argv[1], &opt);
	opt.xattrs = (const char *const *)argv + 2;
	return den_file_write(box, argv[0], &opt, from_stdin, NULL, err);
}

static int cmd_stat(struct den *d, struct den_box *box, char **argv, struct den_err *err)
{
	struct den_file_opt opt = { .size = sizeof(opt) };

	(void)d;
	opt.no_follow = prefix_of(argv[1], &opt);
	return den_file_stat(box, argv[0], &opt, print_entry, NULL, err);
}

static int cmd_list(struct den *d, struct den_box *box, char **argv, struct den_err *err)
{
	struct den_file_opt opt = { .size = sizeof(opt) };

	(void)d;
	opt.follow_entries = prefix_of(argv[1], &opt);
	return den_file_list(box, argv[0], 1, &opt, print_entry, NULL, err);
}

/* ---- the rest ---- */

static int cmd_policy(struct den *d, struct den_box *box, char **argv, struct den_err *err)
{
	(void)d;
	return den_policy_set(box, argv[0], NULL, DEN_ANY_GENERATION, NULL, NULL, err);
}

static int cmd_save(struct den *d, struct den_box *box, char **argv, struct den_err *err)
{
	(void)box;
	return den_policy_save(d, argv[0], argv[1], err);
}

static int cmd_port(struct den *d, struct den_box *box, char **argv, struct den_err *err)
{
	(void)d;
	return den_port(box, (uint16_t)atoi(argv[0]), 0, false, NULL, err);
}

static int cmd_pool(struct den *d, struct den_box *box, char **argv, struct den_err *err)
{
	struct den_pool_info i = { .size = sizeof(i) };

	(void)box;
	return den_pool(d, NULL, argv[0] ? strtoull(argv[0], NULL, 10) : 0, &i, err);
}

static int cmd_gc(struct den *d, struct den_box *box, char **argv, struct den_err *err)
{
	struct den_finding *f;
	size_t n;

	(void)box, (void)argv;
	if (den_gc(d, &f, &n, err) < 0)
		return -1;
	den_findings_free(f, n);
	return 0;
}

static int cmd_doctor(struct den *d, struct den_box *box, char **argv, struct den_err *err)
{
	struct den_finding *f;
	size_t n;

	(void)box, (void)argv;
	if (den_doctor(d, &f, &n, err) < 0)
		return -1;
	den_findings_free(f, n);
	return 0;
}

static int cmd_list_all(struct den *d, struct den_box *box, char **argv, struct den_err *err)
{
	struct den_box_info *i;
	size_t n;

	(void)box, (void)argv;
	if (den_list(d, &i, &n, err) < 0)
		return -1;
	for (size_t k = 0; k < n; k++)
		printf("%s %s\n", i[k].id, i[k].state);
	den_box_infos_free(i, n);
	return 0;
}

static int cmd_issuer(struct den *d, struct den_box *box, char **argv, struct den_err *err)
{
	(void)box;
	return den_ident_issuer(d, argv[0], NULL, err);
}

static int cmd_rotate(struct den *d, struct den_box *box, char **argv, struct den_err *err)
{
	(void)box, (void)argv;
	return den_ident_rotate(d, NULL, NULL, err);
}

static int cmd_jwks(struct den *d, struct den_box *box, char **argv, struct den_err *err)
{
	char *text = NULL;

	(void)box, (void)argv;
	if (den_ident_jwks(d, &text, err) < 0)
		return -1;
	free(text);
	return 0;
}

static int cmd_secret(struct den *d, struct den_box *box, char **argv, struct den_err *err)
{
	(void)box;
	return den_secret_set(d, argv[0], argv[1], strlen(argv[1]), err);
}

static const struct {
	const char *name;
	bool box; /* the first word is one */
	int words; /* at least so many after that */
	int (*run)(struct den *d, struct den_box *box, char **argv, struct den_err *err);
} commands[] = {
	{ "id", true, 0, cmd_id },	     { "create", false, 0, cmd_create },    { "fork", true, 0, cmd_create },
	{ "info", true, 0, cmd_info },	     { "run", true, 1, cmd_run },	    { "live", true, 1, cmd_live },
	{ "size", true, 3, cmd_size },	     { "write", true, 2, cmd_write },	    { "stat", true, 2, cmd_stat },
	{ "list", true, 2, cmd_list },	     { "lease", true, 1, cmd_lease },	    { "policy", true, 1, cmd_policy },
	{ "save", false, 2, cmd_save },	     { "port", true, 1, cmd_port },	    { "pool", false, 0, cmd_pool },
	{ "gc", false, 0, cmd_gc },	     { "doctor", false, 0, cmd_doctor },    { "list-all", false, 0, cmd_list_all },
	{ "issuer", false, 0, cmd_issuer },  { "rotate", false, 0, cmd_rotate },    { "jwks", false, 0, cmd_jwks },
	{ "secret", false, 2, cmd_secret },
};

static int run(struct den *d, char **argv, int argc, struct den_err *err)
{
	for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++) {
		struct den_box *box = NULL;
		int r;

		if (argc < 1 || strcmp(argv[0], commands[i].name))
			continue;
		if (argc < 1 + commands[i].box + commands[i].words)
			return den_fail(err, DEN_INVALID, 0, "%s needs more words", argv[0]);
		if (commands[i].box && den_box_open(d, argv[1], &box, err) < 0)
			return -1;
		r = commands[i].run(d, box, argv + 1 + commands[i].box, err);
		den_box_close(box);
		return r;
	}
	return den_fail(err, DEN_INVALID, 0, "no such command");
}

int main(int argc, char **argv)
{
	struct den_options opt = { .size = sizeof(opt), .state = "/no/such/place", .exe = "/no/such/program",
		.dial = dial };
	struct den_err err = { 0 };
	struct den *d;
	int r;

	signal(SIGPIPE, SIG_IGN); /* a keeper may die between connect and the first frame; the library tries again */
	argv++, argc--;
	if (argc && !strcmp(*argv, "--host")) {
		guest = false;
		argv++, argc--;
	}
	r = den_open(&opt, &d, &err);
	if (r == 0) {
		r = run(d, argv, argc, &err);
		den_close(d);
	}
	if (r < 0)
		fprintf(stderr, "%s: %s\n", den_code_str(err.code), err.msg);
	return r < 0;
}
