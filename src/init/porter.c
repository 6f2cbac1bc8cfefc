/*
 * den-init as the porter of a box with a kernel of its own: process 1 of the box's namespaces on the host,
 * below which runsc, its sentry and its gofer are. The sentry cannot listen for the host, so the porter does,
 * and hands each keeper's connection in; and it is what the keeper watches and kills.
 *
 *   descriptors   3  the socket on which keepers connect
 *                 4  the door: connections go through it to the real init (main.c), as descriptors
 *                 5  where a failed start is reported; closed when it went well
 *                 6  what the keeper asks for
 *                 7  the other end of it, which a keeper takes from here when it needs it
 *   argv          2  pid of the runsc that starts the box
 *                 3  number of the stage, for the report
 *                 4  "host" (tests only) or "own": whose network; for a keeper that adopts the box
 *
 * It holds nothing worth taking. The keeper believes it as little as it believes init.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "clock.h"
#include "fd.h"
#include "init.h"
#include "porter.h"

#ifndef MOVE_MOUNT_F_EMPTY_PATH
#define MOVE_MOUNT_F_EMPTY_PATH 4
#endif


static int old_root; /* the tree that the wall's stages made */

/* The same as the wall's struct launch_msg. */
struct report {
	int step;
	struct den_err err;
};

/* runsc says in one line what it could not do; what may follow is where in its source that was. */
static void its_words(char *out, size_t cap)
{
	char text[4096], *line;
	auto_fd fd = openat(old_root, "err", O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	ssize_t n;

	out[0] = '\0';
	if (fd < 0)
		return;
	n = read(fd, text, sizeof(text) - 1);
	text[n > 0 ? n : 0] = '\0';
	line = text + strspn(text, "\n");
	line[strcspn(line, "\n")] = '\0';
	snprintf(out, cap, "%s", line);
}

static int wait_for(pid_t pid)
{
	int status;
	pid_t got;

	do
		got = waitpid(-1, &status, 0);
	while (got != pid && (got > 0 || errno == EINTR));
	return got == pid ? status : -1;
}

static pid_t sandbox_pid(void)
{
	char text[32];

	return file_read_at(AT_FDCWD, "/s/pid", text, sizeof(text), NULL) == 0 ? (pid_t)atoi(text) : 0;
}

static void report(const char *step, int status)
{
	struct report r = { .step = atoi(step) };
	char words[200];

	its_words(words, sizeof(words));
	den_fail(&r.err, DEN_INTERNAL, 0, "runsc ended with status %d: %s",
		WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), words);
	(void)!write(PORTER_REPORT, &r, sizeof(r));
}

static void hand_in(int fd)
{
	char c = 'k';
	struct iovec v = { &c, 1 };
	union {
		char bytes[CMSG_SPACE(sizeof(int))];
		struct cmsghdr align;
	} u;
	struct msghdr m = { .msg_iov = &v, .msg_iovlen = 1, .msg_control = u.bytes, .msg_controllen = sizeof(u.bytes) };
	struct cmsghdr *h = CMSG_FIRSTHDR(&m);

	h->cmsg_level = SOL_SOCKET;
	h->cmsg_type = SCM_RIGHTS;
	h->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(h), &fd, sizeof(fd));
	(void)!sendmsg(PORTER_DOOR, &m, MSG_NOSIGNAL | MSG_DONTWAIT);
	close(fd);
}

/* ---- what the keeper asks for ---- */

static void exec_runsc(const char *const *argv, int images)
{
	static const char *const env[] = { "PATH=/", NULL };
	sigset_t none;
	int null, says;

	if (fchdir(old_root) < 0 || chroot(".") < 0)
		_exit(127);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	if (images >= 0) { /* seen by this process and its children alone */
		if (unshare(CLONE_NEWNS) < 0 || (mkdir("/saved", 0700) < 0 && errno != EEXIST) ||
			syscall(SYS_move_mount, images, "", AT_FDCWD, "/saved", MOVE_MOUNT_F_EMPTY_PATH) < 0)
			_exit(errno < 100 ? 128 + errno : 126);
	}
	null = open("/dev/null", O_RDWR);
	says = open("/err", O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_NONBLOCK, 0600);
	dup2(null, 0);
	dup2(null, 1);
	dup2(says, 2);
	fd_close_from(3);
	execve("/runsc", (char *const *)argv, (char *const *)env);
	_exit(127);
}

/* Until it ends, or its time is up. */
static int await_end(pid_t pid, int64_t until, struct porter_answer *a)
{
	auto_fd fd = (int)syscall(SYS_pidfd_open, pid, 0);
	struct pollfd p = { .fd = fd, .events = POLLIN };
	int64_t left = (until - clock_mono_ns()) / NS_PER_MS;

	if (fd >= 0 && poll(&p, 1, (int)MAX(left, 0)) == 0) {
		kill(pid, SIGKILL);
		snprintf(a->words, sizeof(a->words), "it did not come to an end in time, and was ended");
	}
	return wait_for(pid);
}

static void run_runsc(const char *const *argv, int images, int64_t until, struct porter_answer *a)
{
	pid_t pid = fork();

	if (pid == 0)
		exec_runsc(argv, images);
	a->status = pid < 0 ? -1 : await_end(pid, until, a);
	if (WIFEXITED(a->status) && WEXITSTATUS(a->status) > 128 && images >= 0)
		snprintf(a->words, sizeof(a->words), "the images cannot be mounted: %s",
			strerror(WEXITSTATUS(a->status) - 128));
	else if (a->status && !a->words[0])
		its_words(a->words, sizeof(a->words));
}

/*
 * The sentry's own socket takes the same words from anybody that it takes from runsc: half a hundred milliseconds less
 * than starting one. Where it is not, or does not understand, runsc is started.
 */
static int connect_sentry(void)
{
	struct sockaddr_un to = { .sun_family = AF_UNIX, .sun_path = "s/runsc-box.sock" };
	auto_fd fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	int r;

	if (fd < 0 || fchdir(old_root) < 0)
		return -1;
	r = connect(fd, (struct sockaddr *)&to, sizeof(to));
	if (chdir("/") < 0)
		_exit(1);
	return r < 0 ? -1 : fd_take(&fd);
}

/* -1: nobody there who understands; 1: asked, and no answer. */
static int ask_sentry(const char *method, int64_t until)
{
	static const char yes[] = "{\"success\":true";
	char text[128], answer[512];
	auto_fd fd = connect_sentry();
	struct pollfd p = { .fd = fd, .events = POLLIN };
	size_t got = 0;
	int n = snprintf(text, sizeof(text), "{\"method\":\"containerManager.%s\",\"arg\":null}", method);

	if (fd < 0 || send(fd, text, (size_t)n, MSG_NOSIGNAL) != n)
		return -1;
	while (got < sizeof(yes) - 1) {
		int64_t left = (until - clock_mono_ns()) / NS_PER_MS;
		ssize_t r = left > 0 && poll(&p, 1, (int)left) > 0 ? recv(fd, answer + got, sizeof(answer) - got, 0) : 0;

		if (r <= 0)
			return 1;
		got += (size_t)r;
	}
	return memcmp(answer, yes, sizeof(yes) - 1) ? -1 : 0;
}

static enum { HELD_NOT, HELD, HELD_PERHAPS } held; /* by its own kernel */

static void hold(bool on, int64_t until, struct porter_answer *a)
{
	static const char *const pause[] = { "runsc", "--root=/s", "--log=/log", "pause", "box", NULL };
	static const char *const resume[] = { "runsc", "--root=/s", "--log=/log", "resume", "box", NULL };
	int r;

	if (held == (on ? HELD : HELD_NOT))
		return;
	r = ask_sentry(on ? "Pause" : "Resume", until);
	if (r > 0) {
		a->status = -1;
		snprintf(a->words, sizeof(a->words), "the sentry gives no answer");
	} else if (r < 0) {
		run_runsc(on ? pause : resume, -1, until, a);
	}
	held = a->status ? HELD_PERHAPS : on ? HELD : HELD_NOT;
}

static void on_ask(void)
{
	static const char *const save[] = { "runsc", "--root=/s", "--log=/log", "checkpoint", "--image-path=/saved",
		"--compression=none", "--leave-running", "box", NULL };
	struct porter_answer a = { 0 };
	struct porter_ask q = { 0 };
	int fd = receive_fd(PORTER_CTL, &q, sizeof(q));
	int64_t until = clock_mono_ns() + (int64_t)q.limit_ms * NS_PER_MS;

	a.number = q.number;
	if (q.what == 'P' || q.what == 'R')
		hold(q.what == 'P', until, &a);
	else if (q.what == 'S' && fd >= 0)
		run_runsc(save, fd, until, &a);
	else if (q.what == 'D' && fd >= 0)
		dup3(fd, PORTER_DOOR, O_CLOEXEC);
	if (fd >= 0)
		close(fd);
	(void)!send(PORTER_CTL, &a, sizeof(a), MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* Everybody's end but the sandbox's is of no interest. */
static void reap(pid_t sandbox)
{
	pid_t pid;

	while ((pid = waitpid(-1, NULL, WNOHANG)) > 0)
		if (pid == sandbox)
			_exit(0);
	if (pid < 0 && errno == ECHILD)
		_exit(0);
}

int porter_main(int argc, char **argv)
{
	struct pollfd p[] = { { .fd = PORTER_LISTEN, .events = POLLIN }, { .events = POLLIN },
		{ .fd = PORTER_CTL, .events = POLLIN } };
	sigset_t chld;
	pid_t sandbox;
	int status;

	prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
	prctl(PR_SET_NAME, "den-porter", 0, 0, 0);
	for (int fd = PORTER_LISTEN; fd <= PORTER_CTL_OTHER; fd++)
		fcntl(fd, F_SETFD, FD_CLOEXEC);
	sigfillset(&chld);
	sigprocmask(SIG_SETMASK, &chld, NULL);
	/* The box's root is where the host looks for it; what runsc needs stays within reach. */
	old_root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (argc < 4 || old_root < 0)
		return 1;
	status = wait_for((pid_t)atoi(argv[2]));
	if (status) {
		report(argv[3], status);
		return 1;
	}
	sandbox = sandbox_pid();
	(void)umount2("/images", MNT_DETACH); /* what was loaded may be removed now */
	if (chroot("/r") < 0 || chdir("/") < 0)
		return 1;
	close(PORTER_REPORT);
	sigemptyset(&chld);
	sigaddset(&chld, SIGCHLD);
	p[1].fd = signalfd(-1, &chld, SFD_CLOEXEC | SFD_NONBLOCK);
	for (;;) {
		struct signalfd_siginfo si;

		reap(sandbox);
		if (poll(p, ARRAY_SIZE(p), -1) < 0 && errno != EINTR)
			return 1;
		while (read(p[1].fd, &si, sizeof(si)) == (ssize_t)sizeof(si))
			;
		if (p[0].revents & POLLIN) {
			int fd = accept4(PORTER_LISTEN, NULL, NULL, SOCK_CLOEXEC);

			if (fd >= 0)
				hand_in(fd);
		}
		if (p[2].revents & POLLIN)
			on_ask();
	}
}
