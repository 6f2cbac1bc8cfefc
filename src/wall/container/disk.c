#include "disk.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <linux/loop.h>
#include <linux/mount.h>
#include <poll.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "fd.h"

#define DISK_FILE "disk.img"
#define HOLD_MS 5000
#define DISK_FREE_TRIES 200 /* of 10 ms */
#define DISK_MIN (16ULL << 20) /* with a journal: it must survive a power cut */

static int make_fs(const char *path, struct den_err *err)
{
	static const char *const tools[] = { "/sbin/mke2fs", "/usr/sbin/mke2fs" };
	char *argv[] = { NULL, (char *)"-q", (char *)"-F", (char *)"-t", (char *)"ext4",
		(char *)"-m", (char *)"0", (char *)"-O", (char *)"^resize_inode", (char *)"-E",
		(char *)"lazy_itable_init=1,nodiscard,root_owner=0:0", (char *)path, NULL };
	char *env[] = { (char *)"PATH=/usr/sbin:/usr/bin:/sbin:/bin", NULL };
	posix_spawn_file_actions_t fa;
	pid_t pid;
	int status = 0, r;

	argv[0] = (char *)(access(tools[0], X_OK) == 0 ? tools[0] : tools[1]);
	posix_spawn_file_actions_init(&fa);
	posix_spawn_file_actions_addopen(&fa, 1, "/dev/null", O_WRONLY, 0);
	posix_spawn_file_actions_addopen(&fa, 2, "/dev/null", O_WRONLY, 0);
	r = posix_spawn(&pid, argv[0], &fa, NULL, argv, env);
	posix_spawn_file_actions_destroy(&fa);
	if (r)
		return den_fail(err, DEN_UNSUPPORTED, r, "--disk needs mke2fs (package e2fsprogs)");
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	return status ? den_fail(err, DEN_INTERNAL, 0, "mke2fs failed (status %d)",
				WEXITSTATUS(status))
		      : 0;
}

int disk_make(const struct plan *p, struct den_err *err)
{
	char path[64];
	auto_fd fd = -1;

	if (p->spec->disk < DISK_MIN)
		return den_fail(err, DEN_INVALID, 0, "--disk must be at least 16M");
	fd = openat(p->fsfd, DISK_FILE, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0 && errno == EEXIST)
		return 0;
	if (fd < 0 || ftruncate(fd, (off_t)p->spec->disk) < 0)
		return den_fail_sys(
			err, errno, "make disk of %llu bytes", (unsigned long long)p->spec->disk);
	/* mke2fs opens it itself */
	snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)getpid(), fd);
	if (make_fs(path, err) < 0) {
		unlinkat(p->fsfd, DISK_FILE, 0);
		return -1;
	}
	return 0;
}

/* A loop device that goes by itself when its last user does. */
static int loop_open(int file, uint32_t flags, char *path, size_t cap, struct den_err *err)
{
	auto_fd control = open("/dev/loop-control", O_RDWR | O_CLOEXEC);

	if (control < 0)
		return den_fail(err, DEN_UNSUPPORTED, errno, "--disk needs loop devices");
	for (int tries = 0; tries < 64; tries++) { /* others take devices at the same time */
		struct loop_config c = { .fd = (uint32_t)file,
			.info.lo_flags = LO_FLAGS_AUTOCLEAR | flags };
		int n = ioctl(control, LOOP_CTL_GET_FREE), fd;

		if (n < 0)
			return den_fail_sys(err, errno, "get a loop device");
		snprintf(path, cap, "/dev/loop%d", n);
		fd = open(path, (flags & LO_FLAGS_READ_ONLY ? O_RDONLY : O_RDWR) | O_CLOEXEC);
		if (fd < 0 && errno == ENOENT) { /* no udev here: make the node as it would */
			mknod(path, S_IFBLK | 0660, (dev_t)(7 << 8 | n));
			fd = open(path, O_RDWR | O_CLOEXEC);
		}
		if (fd < 0)
			return den_fail_sys(err, errno, "open '%s'", path);
		if (ioctl(fd, LOOP_CONFIGURE, &c) == 0)
			return fd;
		close(fd);
		if (errno != EBUSY)
			return den_fail_sys(err, errno, "set up '%s'", path);
	}
	return den_fail(err, DEN_LIMIT, 0, "no free loop device");
}

/* The device that the file is behind; -1: it is not mounted. By /sys, not by counting up nodes:
 * where there is no udev, /dev has gaps. */
static int loop_find(int file, char *path, size_t cap)
{
	DIR *d = opendir("/sys/block");
	struct dirent *de;
	struct stat st;
	int found = -1;

	while (d && found < 0 && fstat(file, &st) == 0 && (de = readdir(d))) {
		struct loop_info64 info;
		char bound[300];
		int n, fd;

		if (sscanf(de->d_name, "loop%d", &n) != 1)
			continue;
		snprintf(bound, sizeof(bound), "/sys/block/%.200s/loop", de->d_name);
		if (access(bound, F_OK) < 0)
			continue;
		snprintf(path, cap, "/dev/loop%d", n);
		fd = open(path, O_RDONLY | O_CLOEXEC);
		if (fd < 0 && errno == ENOENT) {
			mknod(path, S_IFBLK | 0660, makedev(7, (unsigned)n));
			fd = open(path, O_RDONLY | O_CLOEXEC);
		}
		if (fd >= 0 && ioctl(fd, LOOP_GET_STATUS64, &info) == 0 &&
			info.lo_inode == st.st_ino && info.lo_device == st.st_dev)
			found = fd;
		else
			fd_close(&fd);
	}
	if (d)
		closedir(d);
	return found;
}

static int mount_device(const char *path, struct den_err *err)
{
	auto_fd fs = (int)syscall(SYS_fsopen, "ext4", FSOPEN_CLOEXEC);
	int mnt;

	/* noinit_itable: what nobody wrote must not change by itself */
	if (fs < 0 || syscall(SYS_fsconfig, fs, FSCONFIG_SET_STRING, "source", path, 0) < 0 ||
		syscall(SYS_fsconfig, fs, FSCONFIG_SET_FLAG, "noinit_itable", NULL, 0) < 0 ||
		syscall(SYS_fsconfig, fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0)
		return den_fail_sys(err, errno, "mount disk");
	mnt = (int)syscall(SYS_fsmount, fs, FSMOUNT_CLOEXEC, MOUNT_ATTR_NODEV);
	return mnt < 0 ? den_fail_sys(err, errno, "mount disk") : mnt;
}

/*
 * FIFREEZE waits, deaf to all signals, for whoever is in the middle of a write; a box can be that
 * for ever (splice() from an empty pipe). And who dies with a file system held leaves it held. So a
 * process of its own holds it, that has nothing but the two descriptors: it lets go when told, or
 * when we are gone.
 */
static struct {
	pid_t pid;
	int fd; /* 0: none */
} holder;

static void holder_run(int fs, int talk)
{
	char c = 'h';

	prctl(PR_SET_NAME, "den-hold", 0, 0, 0);
	if (dup2(fs, 3) < 0 || dup2(talk, 4) < 0)
		_exit(1);
	fd_close_from(5);
	if (ioctl(3, FIFREEZE, 0) < 0 && errno != EBUSY)
		_exit(1);
	(void)!send(4, &c, 1, MSG_NOSIGNAL);
	while (read(4, &c, 1) < 0 && errno == EINTR)
		;
	ioctl(3, FITHAW, 0);
	_exit(0);
}

static int disk_hold(int fs, struct den_err *err)
{
	int pair[2], a, b;
	struct pollfd p;
	char c = 0;

	/* out of the way of 3 and 4, which the holder uses */
	a = fcntl(fs, F_DUPFD_CLOEXEC, 10);
	if (a < 0 || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
		return den_fail_sys(err, errno, "hold the disk still");
	b = fcntl(pair[1], F_DUPFD_CLOEXEC, 10);
	close(pair[1]);
	holder.pid = fork();
	if (holder.pid == 0)
		holder_run(a, b);
	close(a);
	close(b);
	p = (struct pollfd){ .fd = pair[0], .events = POLLIN };
	if (holder.pid > 0 && poll(&p, 1, HOLD_MS) == 1 && read(pair[0], &c, 1) == 1) {
		holder.fd = pair[0];
		return 0;
	}
	close(pair[0]); /* when it gets the disk after all, it lets go at once */
	return den_fail(err, DEN_TIMEOUT, 0,
		"a process of the box is in the middle of a write for more than 5 s");
}

static int disk_release(void)
{
	if (!holder.fd)
		return 0;
	fd_close(&holder.fd);
	while (waitpid(holder.pid, NULL, 0) < 0 && errno == EINTR)
		;
	holder.fd = 0;
	holder.pid = 0;
	return 0;
}

int disk_settle(int fsfd, enum wall_settle how, struct den_err *err)
{
	auto_fd file = openat(fsfd, DISK_FILE, O_RDONLY | O_NOFOLLOW | O_CLOEXEC), loop = -1,
		mnt = -1, fd = -1;
	char path[32];

	if (how == SETTLE_GO)
		return disk_release();
	if (holder.pid > 0 && waitpid(holder.pid, NULL, WNOHANG) == holder.pid)
		holder.pid = 0; /* one that came too late */
	if (file < 0)
		return errno == ENOENT ? 0 : den_fail_sys(err, errno, "open disk");
	loop = loop_find(file, path, sizeof(path));
	if (loop < 0)
		return 0;
	if (holder.pid > 0)
		return den_fail(err, DEN_TIMEOUT, 0,
			"a process of the box is still in the middle of a write");
	mnt = mount_device(path, err);
	if (mnt < 0)
		return -1;
	fd = openat(mnt, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC); /* mnt itself is only a path */
	if (fd < 0 || (how == SETTLE_FLUSH && syncfs(fd) < 0))
		return den_fail_sys(err, errno, "flush the disk");
	return how == SETTLE_HOLD ? disk_hold(fd, err) : 0;
}

int wall_open_disk(int *fd, struct den_err *err)
{
	auto_fd file = openat(*fd, DISK_FILE, O_RDONLY | O_NOFOLLOW | O_CLOEXEC), loop = -1,
		fs = -1;
	char path[32];
	int mnt;

	if (file < 0)
		return errno == ENOENT ? 0 : den_fail_sys(err, errno, "open disk");
	loop = loop_open(file, LO_FLAGS_READ_ONLY, path, sizeof(path), err);
	if (loop < 0)
		return -1;
	fs = (int)syscall(SYS_fsopen, "ext4", FSOPEN_CLOEXEC);
	/* it was held still when the snapshot was taken: its journal has nothing to say */
	if (fs < 0 || syscall(SYS_fsconfig, fs, FSCONFIG_SET_STRING, "source", path, 0) < 0 ||
		syscall(SYS_fsconfig, fs, FSCONFIG_SET_FLAG, "ro", NULL, 0) < 0 ||
		syscall(SYS_fsconfig, fs, FSCONFIG_SET_FLAG, "noload", NULL, 0) < 0 ||
		syscall(SYS_fsconfig, fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0)
		return den_fail_sys(err, errno, "look into the disk");
	mnt = (int)syscall(SYS_fsmount, fs, FSMOUNT_CLOEXEC,
		MOUNT_ATTR_NODEV | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC | MOUNT_ATTR_RDONLY);
	if (mnt < 0)
		return den_fail_sys(err, errno, "look into the disk");
	fd_close(fd);
	*fd = openat(mnt, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	close(mnt);
	return *fd < 0 ? den_fail_sys(err, errno, "look into the disk") : 0;
}

static int make_dirs(int fd, size_t n_trees, struct den_err *err)
{
	for (size_t t = 0; t < n_trees; t++) {
		char path[32];

		snprintf(path, sizeof(path), "u%zu", t);
		/* whatever the umask: the first is the box's /, which others than root go through. What is there is the box's. */
		if (mkdirat(fd, path, 0755) == 0 ? fchmodat(fd, path, 0755, 0) < 0 : errno != EEXIST)
			return den_fail_sys(err, errno, "prepare disk");
		snprintf(path, sizeof(path), "w%zu", t);
		if (mkdirat(fd, path, 0700) < 0 && errno != EEXIST)
			return den_fail_sys(err, errno, "prepare disk");
	}
	return 0;
}

int disk_mount(const struct plan *p, struct den_err *err)
{
	char path[32];
	auto_fd file = openat(p->fsfd, DISK_FILE, O_RDWR | O_CLOEXEC);
	auto_fd loop = -1, mnt = -1;

	if (file < 0)
		return den_fail_sys(err, errno, "open disk");
	/* a second device behind the same file would be a second file system that knows nothing of
	 * the first */
	for (int tries = 0; (loop = loop_find(file, path, sizeof(path))) >= 0; tries++) {
		fd_close(&loop);
		if (tries == DISK_FREE_TRIES)
			return den_fail(
				err, DEN_CONFLICT, EBUSY, "the box's disk is still mounted");
		nanosleep(&(struct timespec){ .tv_nsec = 10 * 1000000L }, NULL);
	}
	loop = loop_open(file, 0, path, sizeof(path), err);
	if (loop < 0)
		return -1;
	mnt = mount_device(path, err);
	if (mnt < 0)
		return -1;
	if (make_dirs(mnt, p->n_trees, err) < 0)
		return -1;
	return fd_take(&mnt);
}
