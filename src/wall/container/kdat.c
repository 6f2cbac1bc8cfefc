/*
 * What CRIU knows of the kernel. Finding it out costs it 40 ms, and makes it try things in the namespaces that it is
 * in: so it is done once after each start of the machine, in namespaces that are thrown away, and not in a box. What is
 * true depends on its rights: once for saving and once for loading.
 *
 * It is kept beside den-init in the state directory, behind a line that says for what it holds. CRIU trusts it, so
 * nothing that ever read a box's memory writes it.
 */
#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "criu.h"
#include "fd.h"
#include "idmap.h"
#include "mem.h"

#define KDAT_MAX (64U << 10)

static const unsigned namespaces = CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS;

static void hold(int go)
{
	struct ifreq lo = { .ifr_name = "lo", .ifr_flags = IFF_UP | IFF_RUNNING };
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	char c;

	/* both ends were ours: the writer is the keeper alone */
	if (read(go, &c, 1) != 1 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
		mount("tmpfs", "/tmp", "tmpfs", 0, "mode=1777,size=1m") < 0 || fd < 0 || ioctl(fd, SIOCSIFFLAGS, &lo) < 0)
		_exit(1);
	(void)!write(go, "r", 1);
	(void)!read(go, &c, 1); /* until nobody is there */
	_exit(0);
}

/* A process in namespaces of its own, whose /tmp is empty. */
static pid_t start_hold(const struct plan *inside, int *talk, struct den_err *err)
{
	unsigned flags = namespaces | (inside ? CLONE_NEWUSER : 0);
	int pair[2];
	pid_t pid;
	char c;

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
		return den_fail_sys(err, errno, "socketpair");
	pid = (pid_t)syscall(SYS_clone, flags | SIGCHLD, NULL, NULL, NULL, NULL);
	if (pid == 0) {
		close(pair[0]);
		hold(pair[1]);
	}
	close(pair[1]);
	*talk = pair[0];
	if (pid < 0)
		return den_fail_sys(err, errno, "make namespaces");
	if ((inside && idmap_write(pid, inside, err) < 0) || fd_write_all(*talk, "g", 1, err) < 0)
		c = 0;
	else if (read(*talk, &c, 1) != 1)
		c = (char)den_fail(err, DEN_INTERNAL, 0, "make namespaces");
	if (c == 'r')
		return pid;
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	return -1;
}

static int ask_criu(const struct plan *inside, int kdat, struct den_err *err)
{
	auto_fd talk = -1, pidfd = -1;
	auto_buf answer = { 0 };
	struct criu c = { 0 };
	pid_t pid = start_hold(inside, &talk, err);
	int r = -1;

	if (pid < 0)
		return -1;
	pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
	if (pidfd >= 0) {
		struct criu_start how = { .box = pidfd, .inside = inside != NULL, .enter = namespaces, .group = -1, .hide = -1, .mounts = -1,
			.images = -1, .init = -1, .watches = -1, .kdat = kdat };

		r = criu_start(&how, &c, err);
	}
	if (r == 0)
		r = criu_call(&c, CRIU_FEATURE_CHECK, NULL, NULL, NULL, &answer, err);
	criu_end(&c);
	fd_close(&talk);
	while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		;
	return r;
}

static int header(char *out, size_t cap, struct den_err *err)
{
	char boot[40], version[24];

	if (criu_version(version, err) < 0 ||
		file_read_at(AT_FDCWD, "/proc/sys/kernel/random/boot_id", boot, sizeof(boot), err) < 0)
		return -1;
	snprintf(out, cap, "criu %s %s\n", version, boot);
	return 0;
}

int criu_kdat(const struct plan *p, bool inside, struct den_err *err)
{
	const char *slash = strrchr(p->init_path, '/');
	auto_fd fd = memfd_create("kdat", MFD_CLOEXEC), dir = -1, kept = -1;
	const char *name = inside ? "criu-load" : "criu-save";
	auto_free char *text = NULL;
	auto_buf b = { 0 };
	char head[96], path[4096];
	size_t n = 0;

	snprintf(path, sizeof(path), "%.*s", slash ? (int)(slash - p->init_path) : 0, p->init_path);
	dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0 || dir < 0)
		return den_fail_sys(err, errno, "CRIU's knowledge of the kernel");
	if (header(head, sizeof(head), err) < 0)
		return -1;
	kept = openat(dir, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	if (kept >= 0 && fd_read_all(kept, KDAT_MAX, &text, &n, err) == 0 && n > strlen(head) &&
		!memcmp(text, head, strlen(head)))
		return fd_write_all(fd, text + strlen(head), n - strlen(head), err) < 0 ? -1 : fd_take(&fd);
	if (ask_criu(inside ? p : NULL, fd, err) < 0)
		return den_wrap(err, "what CRIU needs of the kernel");
	free(mem_take(&text));
	if (lseek(fd, 0, SEEK_SET) < 0 || fd_read_all(fd, KDAT_MAX, &text, &n, err) < 0)
		return -1;
	buf_addstr(&b, head);
	buf_add(&b, text, n);
	(void)file_replace_at(dir, name, b.p, b.len, 0600, err); /* else it is done again */
	return fd_take(&fd);
}
