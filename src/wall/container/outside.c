/* What init holds from outside of the box, made again for one that had to let go of it. */
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <linux/mount.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cgroup.h"
#include "fd.h"
#include "memory.h"

/* In a child that is in the box's mount namespace: the file that is seen as /proc/meminfo, through a mount of it that can
 * be written. `fds` is /proc/self/fd of the host's. */
static int open_meminfo(int fds)
{
	struct mount_attr rw = { .attr_clr = MOUNT_ATTR_RDONLY };
	auto_fd mnt = (int)syscall(SYS_open_tree, AT_FDCWD, "/proc/meminfo", OPEN_TREE_CLONE | O_CLOEXEC);
	char name[16];

	if (mnt < 0 || syscall(SYS_mount_setattr, mnt, "", AT_EMPTY_PATH, &rw, sizeof(rw)) < 0)
		return -1;
	snprintf(name, sizeof(name), "%d", mnt);
	return openat(fds, name, O_RDWR | O_CLOEXEC);
}

/* The child has our descriptors, not a copy of them: what it opens is ours. */
static int meminfo_of(int box)
{
	auto_fd fds = open("/proc/self/fd", O_PATH | O_DIRECTORY | O_CLOEXEC), said = -1, say = -1;
	int pair[2], fd = -1;
	pid_t pid;

	if (fds < 0 || pipe2(pair, O_CLOEXEC) < 0)
		return -1;
	said = pair[0];
	say = pair[1];
	pid = (pid_t)syscall(SYS_clone, CLONE_FILES | SIGCHLD, NULL, NULL, NULL, NULL);
	if (pid == 0) {
		if (setns(box, CLONE_NEWNS) == 0)
			fd = open_meminfo(fds);
		_exit(write(say, &fd, sizeof(fd)) != (ssize_t)sizeof(fd));
	}
	while (pid > 0 && waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		;
	fd_close(&say); /* not before: it is the child's, too */
	return pid > 0 && read(said, &fd, sizeof(fd)) == (ssize_t)sizeof(fd) ? fd : -1;
}

int container_outside(struct wall_box *b, int ret[2], struct den_err *err)
{
	char path[64];
	struct statfs fs;

	(void)err;
	ret[0] = -1;
	ret[1] = b->cg ? cgroup_memory_fd(b->cg) : -1;
	/* a box without a limit has the kernel's own */
	snprintf(path, sizeof(path), "/proc/%d/root/proc/meminfo", (int)b->pid);
	if (statfs(path, &fs) == 0 && fs.f_type != PROC_SUPER_MAGIC)
		ret[0] = meminfo_of(b->pidfd);
	return 0;
}
