/*
 * Starting a program in the box.
 *
 * fork(), not vfork(): until it is the program, the child can be stopped by whoever is root in the
 * box, and init must not wait for it. How it went comes over a pipe instead, which execve() closes.
 * init is small and the rings are not copied, so this costs little.
 */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "buf.h"
#include "fd.h"
#include "fs_run.h"
#include "init.h"
#include "strv.h"
#include "users.h"

#define DEFAULT_PATH "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
#define EXIT_FS_FAILED 1
#define CHILD_REPORT_FD 3 /* in the child, in place of the listening socket */

struct launch {
	const struct exec_spec *spec;
	const struct user *user;
	char **argv, **env;
	const char *cwd;
	const char *path; /* PATH to search */
	int stdio[3], cgroup_fd;
	bool tty;
	bool one_id; /* of the host's: what a kernel that knows more lets another user write has no owner */
	/* where it failed, and errno */
	const char *step;
	int sys;
};

/* ---- in the child ---- */

static int child_ids(struct launch *l)
{
	const struct user *u = l->user;

	if (l->one_id && (u->uid || u->gid)) {
		errno = EINVAL; /* as it is where the host's kernel is asked */
		return -1;
	}
	/* Where the box has a single id, groups cannot be set; root needs none. */
	if (setgroups((size_t)u->n_groups, u->groups) < 0 && !(errno == EPERM && u->uid == 0))
		return -1;
	if (setresgid(u->gid, u->gid, u->gid) < 0)
		return -1;
	return setresuid(u->uid, u->uid, u->uid);
}

static int child_limits(const struct launch *l)
{
	if (l->spec->nofile) {
		struct rlimit r = { l->spec->nofile, l->spec->nofile };

		if (setrlimit(RLIMIT_NOFILE, &r) < 0)
			return -1;
	}
	if (l->spec->cpu_ms && l->cgroup_fd < 0) { /* per process: the best without a cgroup */
		struct rlimit r = { (l->spec->cpu_ms + 999) / 1000,
			(l->spec->cpu_ms + 999) / 1000 + 5 };

		if (setrlimit(RLIMIT_CPU, &r) < 0)
			return -1;
	}
	return 0;
}

static int child_stdio(const struct launch *l)
{
	for (int i = 0; i < 3; i++)
		if (dup2(l->stdio[i], i) < 0) /* they are all above 2: no clash */
			return -1;
	return l->tty ? ioctl(0, TIOCSCTTY, 0) : 0;
}

static void child_signals(void)
{
	sigset_t none;

	sigemptyset(&none); /* init leaves every signal at its default, and blocks all */
	sigprocmask(SIG_SETMASK, &none, NULL);
}

static int child_prepare(struct launch *l)
{
	setsid();
	l->step = "cgroup";
	if (l->cgroup_fd >= 0 && write(l->cgroup_fd, "0", 1) != 1)
		return -1;
	l->step = "stdio";
	if (child_stdio(l) < 0)
		return -1;
	l->step = "limits";
	if (child_limits(l) < 0)
		return -1;
	if (l->spec->flags & EXEC_SUBREAPER)
		prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
	l->step = "user";
	if (child_ids(l) < 0)
		return -1;
	l->step = "cwd";
	if (chdir(l->cwd) < 0)
		return -1;
	child_signals();
	umask(022);
	return 0;
}

static void try_exec(struct launch *l, const char *file)
{
	execve(file, l->argv, l->env);
	if (errno == ENOEXEC) { /* a script without "#!", as shells run it */
		/* argv has a spare place in front, see make_argv() */
		char *script = l->argv[0];

		l->argv[0] = (char *)file;
		l->argv[-1] = (char *)"sh";
		execve("/bin/sh", l->argv - 1, l->env);
		l->argv[0] = script;
		errno = ENOEXEC;
	}
}

static int child_exec(struct launch *l)
{
	const char *name = l->argv[0];
	char file[4096];
	int worst = ENOENT;

	l->step = "exec";
	if (strchr(name, '/')) {
		try_exec(l, name);
		return -1;
	}
	for (const char *p = l->path; *name; p++) {
		size_t n = strcspn(p, ":");

		if (n + strlen(name) + 2 <= sizeof(file)) {
			memcpy(file, p, n);
			file[n] = '/';
			strcpy(file + n + (n > 0), name);
			try_exec(l, file);
			/* found, but not to be run: that is the better answer */
			if (errno != ENOENT && errno != ENOTDIR)
				worst = errno;
		}
		p += n;
		if (!*p)
			break;
	}
	errno = worst;
	return -1;
}

/* ---- in init ---- */

static char **make_env(const struct exec_spec *spec, const struct user *u)
{
	char **env = NULL;
	auto_buf b = { 0 };
	const struct {
		const char *name, *value;
	} base[] = { { "PATH", DEFAULT_PATH }, { "HOME", u->home }, { "USER", u->name },
		{ "LOGNAME", u->name }, { "SHELL", u->shell } };

	for (size_t i = 0; i < ARRAY_SIZE(base); i++) {
		if (!base[i].value[0])
			continue;
		b.len = 0;
		buf_addf(&b, "%s=%s", base[i].name, base[i].value);
		strv_add(&env, buf_str(&b));
	}
	for (size_t i = 0; spec->env && spec->env[i]; i++)
		strv_env_put(&env, spec->env[i]);
	return env;
}

static int open_pty(struct exec *x, const struct user *u, struct launch *l, struct den_err *err)
{
	struct winsize size = { .ws_row = (unsigned short)x->spec.rows,
		.ws_col = (unsigned short)x->spec.cols };
	auto_fd master = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC | O_NONBLOCK);
	auto_fd input = -1;
	int zero = 0, slave;

	if (master < 0)
		return den_fail_sys(err, errno, "open a terminal");
	if (ioctl(master, TIOCSPTLCK, &zero) < 0)
		return den_fail_sys(err, errno, "unlock terminal");
	slave = ioctl(master, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);
	if (slave < 0 && errno == ENOTTY) { /* the sentry's kernel does not know that yet */
		char path[32];
		unsigned n = 0;

		if (ioctl(master, TIOCGPTN, &n) == 0) {
			snprintf(path, sizeof(path), "/dev/pts/%u", n);
			slave = open(path, O_RDWR | O_NOCTTY | O_CLOEXEC);
		}
	}
	if (slave < 0)
		return den_fail_sys(err, errno, "open terminal");
	if (x->spec.rows && x->spec.cols)
		ioctl(master, TIOCSWINSZ, &size);
	(void)!fchown(slave, u->uid, (gid_t)-1);
	l->stdio[0] = l->stdio[1] = l->stdio[2] = slave;
	l->tty = true;
	input = fcntl(master, F_DUPFD_CLOEXEC, 3);
	if (input < 0) {
		close(slave);
		return den_fail_sys(err, errno, "open terminal");
	}
	x->in.fd = fd_take(&input);
	x->out[0].src.fd = fd_take(&master);
	x->n_out = 1;
	return 0;
}

static int open_pipes(struct exec *x, struct launch *l, struct den_err *err)
{
	int p[2];

	for (int i = 0; i < 2; i++) {
		if (pipe2(p, O_CLOEXEC) < 0)
			return den_fail_sys(err, errno, "pipe");
		x->out[i].src.fd = p[0];
		l->stdio[i + 1] = p[1];
		x->n_out = i + 1;
		fd_set_nonblock(p[0], true);
	}
	if (!(x->spec.flags & EXEC_STDIN)) {
		l->stdio[0] = open("/dev/null", O_RDONLY | O_CLOEXEC);
	} else if (pipe2(p, O_CLOEXEC) == 0) {
		l->stdio[0] = p[0];
		x->in.fd = p[1];
		fd_set_nonblock(p[1], true);
	}
	return l->stdio[0] < 0 ? den_fail_sys(err, errno, "stdin") : 0;
}

static void close_child_side(struct launch *l)
{
	for (int i = 0; i < 3; i++)
		if (l->stdio[i] >= 0 && (i == 0 || l->stdio[i] != l->stdio[0]))
			close(l->stdio[i]);
}

static int explain(const struct launch *l, struct den_err *err)
{
	const char *name = l->spec->argv[0];

	if (!strcmp(l->step, "cwd"))
		return den_fail(err, l->sys == ENOENT ? DEN_NOT_FOUND : DEN_DENIED, 0,
			"cwd '%.150s': %s", l->cwd, strerror(l->sys));
	if (!strcmp(l->step, "user"))
		return den_fail(err, DEN_UNSUPPORTED, l->sys,
			"user '%.60s': this box has no such id (it was made without an id range, "
			"see 'den "
			"doctor')",
			l->user->name);
	if (strcmp(l->step, "exec"))
		return den_fail_sys(err, l->sys, "start '%.100s': %s", name, l->step);
	if (l->sys == ENOENT || l->sys == ENOTDIR)
		return den_fail(err, DEN_NOT_FOUND, ENOENT, "'%.150s'", name);
	if (l->sys == EAGAIN || l->sys == ENOMEM || l->sys == E2BIG)
		return den_fail(err, DEN_LIMIT, l->sys, "'%.150s'", name);
	return den_fail(err, DEN_DENIED, l->sys, "'%.150s'", name);
}

/* The child: becomes the program, or reports why not. */
static void run_program(struct launch *l, int report)
{
	struct den_err err = { 0 };

	l->step = "report";
	if (dup3(report, CHILD_REPORT_FD, O_CLOEXEC) >= 0 && child_prepare(l) == 0) {
		fd_close_from(CHILD_REPORT_FD + 1);
		child_exec(l);
		report = CHILD_REPORT_FD;
	}
	l->sys = errno;
	explain(l, &err);
	(void)!write(report, &err, sizeof(err)); /* below PIPE_BUF: whole, and at once */
	_exit(127);
}

/* pid, or -1 with l->step and l->sys set. */
static pid_t start_program(struct launch *l, int *ret_report)
{
	int p[2];
	pid_t pid;

	l->step = "fork";
	if (pipe2(p, O_CLOEXEC | O_NONBLOCK) < 0) {
		l->sys = errno;
		return -1;
	}
	pid = fork();
	if (pid == 0)
		run_program(l, p[1]);
	l->sys = errno;
	close(p[1]); /* at once: no later child may hold it open */
	if (pid < 0)
		close(p[0]);
	else
		*ret_report = p[0];
	return pid;
}

static void run_builtin(struct launch *l)
{
	auto_buf b = { 0 };
	struct den_err err;

	if (child_prepare(l) < 0)
		explain((l->sys = errno, l), &err);
	else {
		fd_close_from(3);
		signal(SIGPIPE, SIG_IGN); /* a reader that went is an error, not a death */
		if (fs_run(l->spec->argv, &err) == 0)
			_exit(0);
	}
	wire_put_err(&b, &err);
	(void)!write(2, b.p, b.len);
	_exit(EXIT_FS_FAILED);
}

static pid_t start_builtin(struct launch *l)
{
	pid_t pid = fork();

	if (pid == 0)
		run_builtin(l);
	if (pid < 0) {
		l->step = "fork";
		l->sys = errno;
	}
	return pid;
}

/* argv with a spare place in front of it, for "sh script". Only the vector is owned. */
static char **make_argv(char *const *argv)
{
	size_t n = strv_len(argv);
	char **v = mem_alloc((n + 2) * sizeof(*v));

	v[0] = NULL;
	memcpy(v + 1, argv, (n + 1) * sizeof(*v));
	return v;
}

int exec_spawn(struct exec *x, int cgroup_fd, struct den_err *err)
{
	struct user user;
	auto_strv env = NULL;
	auto_free char **argv = make_argv(x->spec.argv);
	struct launch l = { .spec = &x->spec, .user = &user, .stdio = { -1, -1, -1 },
		.cgroup_fd = cgroup_fd, .argv = argv + 1, .one_id = x->init->one_id };
	pid_t pid;
	int r;

	if (user_lookup(x->spec.user ? x->spec.user : "root", &user, err) < 0)
		return -1;
	l.env = env = make_env(&x->spec, &user);
	l.cwd = x->spec.cwd ? x->spec.cwd : user.home;
	if (!x->spec.cwd && access(l.cwd, X_OK) < 0)
		l.cwd = "/"; /* a user whose home is not there starts in / */
	l.path = strv_env_get(env, "PATH") ?: DEFAULT_PATH;
	r = x->spec.flags & EXEC_TTY ? open_pty(x, &user, &l, err) : open_pipes(x, &l, err);
	if (r < 0) {
		close_child_side(&l);
		return -1;
	}
	pid = x->spec.flags & EXEC_BUILTIN ? start_builtin(&l) : start_program(&l, &x->report.fd);
	close_child_side(&l);
	if (pid < 0)
		return explain(&l, err);
	x->pid = pid;
	return 0;
}
