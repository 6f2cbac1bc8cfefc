#include "criu.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "criu_fds.h"
#include "enter.h"
#include "fd.h"
#include "mem.h"
#include "pb.h"

#define RUNTIME_DIR "/usr/local/lib/den/runtime"
#define ANSWER_MAX (64U << 10)
/* For one step; a box of many gigabytes takes its time. One that saves must not be ended in the middle, for the sake of
 * the processes that it has in its hands; one that loads may, and a process that died on it would let it wait for ever. */
#define SAVE_PATIENCE_MS (600 * 1000)
#define LOAD_PATIENCE_MS (60 * 1000)
#define HERE "/proc/self/fd/4" /* CRIU_FD_RUNTIME */

extern const char den_criu_shim[], den_criu_shim_end[];

int criu_runtime(struct den_err *err)
{
	const char *base = getenv("DEN_RUNTIME");
	char path[4096];
	int fd;

	snprintf(path, sizeof(path), "%s/criu", base && base[0] == '/' ? base : RUNTIME_DIR);
	fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0 && errno != ENOENT && errno != ENOTDIR)
		return den_fail_sys(err, errno, "open '%s'", path);
	if (fd < 0 || faccessat(fd, "criu", X_OK, 0) < 0 || faccessat(fd, "ld.so", X_OK, 0) < 0) {
		fd_close(&fd);
		return den_fail(err, DEN_UNSUPPORTED, 0,
			"running programs are saved with CRIU 4.2 or newer, which is not in '%s'; run 'scripts/runtime.sh criu' "
			"of den's sources",
			path);
	}
	return fd;
}

int criu_version(char out[static 24], struct den_err *err)
{
	auto_fd dir = criu_runtime(err);
	int major = 0, minor = 0;

	if (dir < 0)
		return -1;
	if (file_read_at(dir, "version", out, 24, err) < 0)
		return den_wrap(err, "CRIU");
	if (sscanf(out, "%d.%d", &major, &minor) != 2 || major < 4 || (major == 4 && minor < 2))
		return den_fail(err, DEN_UNSUPPORTED, 0,
			"CRIU %s is too old, it must be 4.2 or newer; run 'scripts/runtime.sh criu' of den's sources", out);
	return 0;
}

/* ---- starting ---- */

static int shim_fd(struct den_err *err)
{
	auto_fd fd = memfd_create("den-criu", MFD_CLOEXEC);
	size_t n = (size_t)(den_criu_shim_end - den_criu_shim);

	if (fd < 0)
		return den_fail_sys(err, errno, "memory for CRIU");
	if (fd_write_all(fd, den_criu_shim, n, err) < 0)
		return -1;
	return fd_take(&fd);
}

/* Rights over the host that saving needs: to look into processes and into what only root may. Dropped from the
 * bounding set, so that its exec takes the others away. */
static void drop_rights(void)
{
	static const int kept[] = { 1 /* DAC_OVERRIDE */, 2 /* DAC_READ_SEARCH */, 5 /* KILL */, 6 /* SETGID */, 7 /* SETUID */, 12 /* NET_ADMIN */,
		13 /* NET_RAW */, 18 /* SYS_CHROOT */, 19 /* SYS_PTRACE */, 21 /* SYS_ADMIN */, 24 /* SYS_RESOURCE */,
		40 /* CHECKPOINT_RESTORE */ };

	for (int cap = 0; cap < 64; cap++) {
		bool keep = false;

		for (size_t i = 0; i < ARRAY_SIZE(kept); i++)
			keep |= kept[i] == cap;
		if (!keep)
			prctl(PR_CAPBSET_DROP, cap, 0, 0, 0);
	}
}

/* Nothing is allocated here. */
static void child(const struct criu_start *s, int rpc, int runtime, int shim, int log)
{
	char enter[48], libs[] = "CRIU_LIBS_DIR=/proc/self/fd/5", bind_now[] = "LD_BIND_NOW=1";
	char keep[] = CRIU_ENV_KEEP "=1", dies[] = CRIU_ENV_DIES "=1", hide[] = CRIU_ENV_HIDE "=1";
	char *env[6] = { enter, libs, bind_now }, **more = env + 3;
	char *argv[] = { (char *)"criu", (char *)"--inhibit-cache", (char *)"--library-path", (char *)HERE "/lib",
		(char *)"--preload", (char *)"/proc/self/fd/8", (char *)HERE "/criu", (char *)"--no-default-config",
		(char *)"swrk", (char *)"3", NULL };
	int fds[] = { rpc, runtime, s->images, s->kdat, s->mounts >= 0 ? s->mounts : s->box, shim, s->init, s->watches, s->hide };
	unsigned late = s->mounts >= 0 ? CLONE_NEWNS : s->enter; /* what criu_shim.c enters */
	int null = open("/dev/null", O_RDWR);

	/* One that saves must not die with the keeper: it has to let go of what it looks into. It sees at its next step
	 * that nobody is there. Of one that loads, nothing is worth keeping. */
	if (s->keep || s->inside)
		*more++ = s->inside ? dies : keep;
	if (s->hide >= 0)
		*more = hide;
	/* its exec makes it one that can be looked into again: by then nothing of ours is in it */
	if (s->inside && enter_as_root(s->box, s->enter & ~late) < 0)
		_exit(CRIU_EXIT_ENTER);
	for (size_t i = 0; i < ARRAY_SIZE(fds); i++)
		if (fds[i] >= 0 && (fds[i] = fcntl(fds[i], F_DUPFD, 32)) < 0)
			_exit(1);
	log = fcntl(log, F_DUPFD, 32);
	dup2(null, 0);
	dup2(null, 1);
	dup2(log, 2);
	for (size_t i = 0; i < ARRAY_SIZE(fds); i++) {
		close(CRIU_FD_RPC + (int)i);
		if (fds[i] >= 0 && dup2(fds[i], CRIU_FD_RPC + (int)i) < 0)
			_exit(1);
	}
	fd_close_from(CRIU_FDS_END);
	for (int sig = 1; sig < 32; sig++)
		signal(sig, SIG_DFL);
	if (s->cpus)
		sched_setaffinity(0, sizeof(*s->cpus), s->cpus);
	if (!s->inside) /* while it saves nothing of the box runs: others can wait these milliseconds */
		setpriority(PRIO_PROCESS, 0, -15);
	setsid();
	/* What is loaded has its session keyring from here: not the keeper's keys. */
	syscall(SYS_keyctl, 1 /* KEYCTL_JOIN_SESSION_KEYRING */, NULL, 0, 0, 0);
	umask(077);
	if (!s->inside)
		drop_rights();
	snprintf(enter, sizeof(enter), CRIU_ENV_ENTER "=%u", late);
	execve(HERE "/ld.so", argv, env);
	_exit(127);
}

static pid_t clone_into(int group, int *pidfd)
{
	struct clone_args a = { .flags = CLONE_PIDFD, .pidfd = (uint64_t)(uintptr_t)pidfd, .exit_signal = SIGCHLD };

	if (group >= 0) {
		a.flags |= CLONE_INTO_CGROUP;
		a.cgroup = (uint64_t)group;
	}
	return (pid_t)syscall(SYS_clone3, &a, sizeof(a));
}

/* The process is born in the box's pid namespace; we are not: only what is forked from here on, until it is undone. */
static int children_in(int box, int *ret_own, struct den_err *err)
{
	auto_fd own = open("/proc/self/ns/pid", O_RDONLY | O_CLOEXEC);

	if (own < 0 || setns(box, CLONE_NEWPID) < 0)
		return den_fail_sys(err, errno, "enter the box's pid namespace");
	*ret_own = fd_take(&own);
	return 0;
}

int criu_start(const struct criu_start *s, struct criu *ret, struct den_err *err)
{
	auto_fd runtime = criu_runtime(err), shim = -1, log = -1, mine = -1, theirs = -1, pidfd = -1, own = -1;
	int pair[2];
	pid_t pid;

	if (runtime < 0)
		return -1;
	shim = shim_fd(err);
	log = getenv("DEN_CRIU_DEBUG") ? dup(2) : memfd_create("criu-log", MFD_CLOEXEC);
	if (shim < 0)
		return -1;
	if (log < 0 || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return den_fail_sys(err, errno, "start CRIU");
	mine = pair[0];
	theirs = pair[1];
	if (s->pids && children_in(s->box, &own, err) < 0)
		return -1;
	pid = clone_into(s->group, &pidfd);
	if (pid == 0) {
		for (int i = 0; i < s->n_groups; i++)
			if (write(s->groups[i], "0", 1) != 1)
				_exit(CRIU_EXIT_ENTER);
		child(s, theirs, runtime, shim, log);
	}
	if (own >= 0 && setns(own, CLONE_NEWPID) < 0)
		abort(); /* its own one is always allowed */
	if (pid < 0)
		return den_fail_sys(err, errno, "start CRIU");
	*ret = (struct criu){ .pid = pid, .pidfd = fd_take(&pidfd), .rpc = fd_take(&mine), .log = fd_take(&log),
		.patience_ms = s->inside ? LOAD_PATIENCE_MS : SAVE_PATIENCE_MS };
	return 0;
}

void criu_end(struct criu *c)
{
	struct pollfd p = { .fd = c->pidfd, .events = POLLIN };

	if (c->pid <= 0)
		return;
	fd_close(&c->rpc); /* it is done, and sees that nobody is there any more */
	if (poll(&p, 1, 2000) == 0)
		syscall(SYS_pidfd_send_signal, c->pidfd, SIGKILL, NULL, 0);
	while (waitpid(c->pid, NULL, 0) < 0 && errno == EINTR)
		;
	fd_close(&c->pidfd);
	fd_close(&c->log);
	c->pid = 0;
}

/* ---- speaking ---- */

/* What CRIU said first of what went wrong: the rest follows from it. */
static void log_reason(const struct criu *c, char *out, size_t cap)
{
	auto_free char *text = NULL;
	const char *p;

	out[0] = '\0';
	if (lseek(c->log, 0, SEEK_SET) < 0 || fd_read_all(c->log, 1 << 20, &text, NULL, NULL) < 0)
		return;
	for (p = text; (p = strstr(p, "Error (")); p++) {
		const char *say = strstr(p, "): ");

		/* of these two it goes on without */
		if (say && strncmp(say, "): rlimit:", 10) && strncmp(say, "): tun:", 7))
			break;
	}
	p = p ? strstr(p, "): ") : NULL;
	if (!p)
		return;
	snprintf(out, cap, "%.*s", (int)MIN(strcspn(p + 3, "\n"), 160), p + 3);
	for (char *s = out; *s; s++) /* it may quote what a box made up */
		if ((unsigned char)*s < ' ' || (unsigned char)*s == 127)
			*s = '?';
}

static int gone(struct criu *c, struct den_err *err)
{
	char why[176];
	siginfo_t si = { 0 };

	log_reason(c, why, sizeof(why));
	(void)waitid(P_PIDFD, (id_t)c->pidfd, &si, WEXITED | WNOWAIT);
	if (si.si_code == CLD_EXITED && si.si_status == CRIU_EXIT_ENTER)
		return den_fail(err, DEN_INTERNAL, 0, "CRIU could not enter the box");
	if (si.si_code == CLD_EXITED && si.si_status == 127)
		return den_fail(err, DEN_UNSUPPORTED, 0,
			"CRIU cannot be started; run 'scripts/runtime.sh criu' of den's sources");
	return den_fail(err, DEN_INTERNAL, 0, "CRIU ended (%s %d)%s%s", si.si_code == CLD_EXITED ? "status" : "signal",
		si.si_status, why[0] ? ": " : "", why);
}

static int receive(struct criu *c, struct buf *ret, struct den_err *err)
{
	struct pollfd p = { .fd = c->rpc, .events = POLLIN };
	ssize_t n;
	int r;

	do
		r = poll(&p, 1, c->patience_ms);
	while (r < 0 && errno == EINTR);
	if (r == 0)
		return den_fail(err, DEN_TIMEOUT, 0, "CRIU did not answer within %d s", c->patience_ms / 1000);
	ret->len = 0;
	buf_reserve(ret, ANSWER_MAX);
	n = recv(c->rpc, ret->p, ANSWER_MAX, 0);
	if (n <= 0)
		return gone(c, err);
	ret->len = (size_t)n;
	return 0;
}

static int transmit(struct criu *c, const struct buf *b, struct den_err *err)
{
	if (send(c->rpc, b->p, b->len, MSG_NOSIGNAL) != (ssize_t)b->len)
		return gone(c, err);
	return 0;
}

static int notified(struct criu *c, const struct buf *answer, criu_step step, void *user, struct den_err *err)
{
	auto_buf b = { 0 };
	struct pb_field note, script;
	char name[32] = "";
	int r;

	if (!pb_find_bytes(answer->p, answer->len, 5, &note))
		return den_fail(err, DEN_INTERNAL, 0, "CRIU says something unknown");
	if (pb_find_bytes(note.p, note.n, 1, &script))
		snprintf(name, sizeof(name), "%.*s", (int)MIN(script.n, sizeof(name) - 1), (const char *)script.p);
	r = step ? step(name, (pid_t)pb_find_u64(note.p, note.n, 2, 0), user, err) : 0;
	pb_put_u64(&b, 1, CRIU_NOTIFY);
	pb_put_u64(&b, 3, r == 0);
	if (transmit(c, &b, r == 0 ? err : NULL) < 0)
		return -1;
	return r;
}

void criu_options(struct buf *b)
{
	pb_put_u64(b, CRIU_OPT_IMAGES_FD, (uint64_t)-1);
	pb_put_str(b, CRIU_OPT_IMAGES, "/proc/self/fd/5");
	pb_put_u64(b, CRIU_OPT_LOG_LEVEL, getenv("DEN_CRIU_DEBUG") ? 4 : 1);
	pb_put_u64(b, CRIU_OPT_TO_STDERR, 1);
	pb_put_u64(b, CRIU_OPT_NOTIFY, 1);
	pb_put_u64(b, CRIU_OPT_TCP, 1);
	pb_put_u64(b, CRIU_OPT_FILE_LOCKS, 1);
	pb_put_u64(b, CRIU_OPT_NO_RWX_CHECK, 1);
	pb_put_u64(b, CRIU_OPT_CGROUPS, CRIU_CGROUPS_IGNORE);
	pb_put_u64(b, CRIU_OPT_NETWORK_LOCK, CRIU_LOCK_SKIP);
}

int criu_call(struct criu *c, enum criu_req type, const struct buf *opts, criu_step step, void *user,
	struct buf *answer, struct den_err *err)
{
	auto_buf b = { 0 };
	bool failed = false;

	pb_put_u64(&b, 1, type);
	if (opts)
		pb_put_bytes(&b, 2, opts->p, opts->len);
	if (type == CRIU_FEATURE_CHECK)
		pb_put_bytes(&b, 5, "", 0); /* none in particular */
	if (transmit(c, &b, err) < 0)
		return -1;
	for (;;) {
		char why[176];

		if (receive(c, answer, failed ? NULL : err) < 0)
			return -1;
		if (pb_find_u64(answer->p, answer->len, 1, 0) == CRIU_NOTIFY) {
			/* one who refused a step waits for the end: until then all is not yet as it was */
			if (notified(c, answer, failed ? NULL : step, user, failed ? NULL : err) < 0)
				failed = true;
			continue;
		}
		if (failed)
			return -1;
		if (pb_find_u64(answer->p, answer->len, 2, 0))
			return 0;
		log_reason(c, why, sizeof(why));
		return den_fail(err, DEN_UNSUPPORTED, 0, "CRIU: %s",
			why[0] ? why : "it failed without saying why");
	}
}
