/*
 * The pool's image: a sparse file, a loop device, a mount that only our mount namespace has.
 *
 * Each process that opens the pool mounts the same device; btrfs gives all of them the same file
 * system. The loop device clears itself when the last of these mounts is gone. What may meet:
 *   - two that set it up: not, both hold pool.lock.
 *   - one that opens while the last user leaves. The device is still ours: we hold it open then and
 *     mount it, perhaps after the old mount's end (EBUSY, tried again). It is being cleared: it
 *     says so (ENXIO); all was written by then, a new device may take the file.
 * The device is told by the inode of its file, never by a path.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/btrfs.h>
#include <linux/btrfs_tree.h>
#include <linux/loop.h>
#include <linux/mount.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "fd.h"
#include "mem.h"
#include "pool_kinds.h"

#define OLD_MS_REC 16384 /* <sys/mount.h> and <linux/mount.h> cannot be had together everywhere */
#define OLD_MS_SLAVE (1 << 19)
#define MOUNT_TRIES 300
#define MOUNT_PAUSE_MS 10
#define LOOP_TRIES 64

/* ---- making ---- */

static const char *mkfs_path(void)
{
	static const char *const tools[] = { "/usr/sbin/mkfs.btrfs", "/sbin/mkfs.btrfs",
		"/usr/bin/mkfs.btrfs" };

	for (size_t i = 0; i < ARRAY_SIZE(tools); i++)
		if (access(tools[i], X_OK) == 0)
			return tools[i];
	return NULL;
}

int pool_image_probe(struct den_err *err)
{
	auto_fd control = -1, fs = -1;

	if (!mkfs_path())
		return den_fail(
			err, DEN_UNSUPPORTED, 0, "mkfs.btrfs is missing (package btrfs-progs)");
	control = open("/dev/loop-control", O_RDWR | O_CLOEXEC);
	if (control < 0)
		return den_fail(err, DEN_UNSUPPORTED, errno, "loop devices");
	fs = (int)syscall(
		SYS_fsopen, "btrfs", FSOPEN_CLOEXEC); /* loads the module where it is one */
	if (fs < 0)
		return den_fail(err, DEN_UNSUPPORTED, errno, "the kernel's btrfs");
	return 0;
}

static int mkfs_run(int file, struct den_err *err)
{
	char path[64];
	char *argv[] = { (char *)mkfs_path(), (char *)"-q", (char *)"-f", (char *)"-K",
		(char *)"-m", (char *)"single", (char *)"-d", (char *)"single", (char *)"-L",
		(char *)"den-pool", path, NULL };
	char *env[] = { (char *)"PATH=/usr/sbin:/usr/bin:/sbin:/bin", NULL };
	posix_spawn_file_actions_t fa;
	posix_spawnattr_t attr;
	sigset_t none;
	pid_t pid;
	int status = 0, r;

	/* By our descriptor: no path that somebody could turn elsewhere. */
	snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)getpid(), file);
	posix_spawn_file_actions_init(&fa);
	posix_spawnattr_init(&attr);
	posix_spawn_file_actions_addopen(&fa, 0, "/dev/null", O_RDONLY, 0);
	posix_spawn_file_actions_addopen(&fa, 1, "/dev/null", O_WRONLY, 0);
	posix_spawn_file_actions_addopen(&fa, 2, "/dev/null", O_WRONLY, 0);
	sigemptyset(&none); /* keepers block what they wait for */
	posix_spawnattr_setsigmask(&attr, &none);
	posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGMASK);
	r = posix_spawn(&pid, argv[0], &fa, &attr, argv, env);
	posix_spawnattr_destroy(&attr);
	posix_spawn_file_actions_destroy(&fa);
	if (r)
		return den_fail(err, DEN_UNSUPPORTED, r, "run mkfs.btrfs");
	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			return den_fail_sys(err, errno, "wait for mkfs.btrfs");
	if (status)
		return den_fail(
			err, DEN_INTERNAL, 0, "mkfs.btrfs failed (status %d)", WEXITSTATUS(status));
	return 0;
}

int pool_image_make(int statefd, uint64_t size, struct den_err *err)
{
	static const char name[] = POOL_IMAGE ".new";
	auto_fd fd = -1;

	if (unlinkat(statefd, name, 0) < 0 && errno != ENOENT)
		return den_fail_sys(err, errno, "remove '%s'", name);
	fd = openat(statefd, name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0)
		return den_fail_sys(err, errno, "create '%s'", name);
	if (ftruncate(fd, (off_t)size) < 0)
		den_fail_sys(err, errno, "make an image of %llu bytes", (unsigned long long)size);
	else if (mkfs_run(fd, err) == 0) {
		if (fsync(fd) == 0 && renameat(statefd, name, statefd, POOL_IMAGE) == 0 &&
			fsync(statefd) == 0)
			return 0;
		den_fail_sys(err, errno, "make '" POOL_IMAGE "'");
	}
	unlinkat(statefd, name, 0);
	return -1;
}

/* ---- the loop device ---- */

struct loop {
	int fd;
	int n;
	char path[32];
};

static int loop_node_open(struct loop *l, int n)
{
	l->n = n;
	snprintf(l->path, sizeof(l->path), "/dev/loop%d", n);
	l->fd = open(l->path, O_RDWR | O_CLOEXEC);
	if (l->fd < 0 && errno == ENOENT) { /* no udev here: make the node as it would */
		mknod(l->path, S_IFBLK | 0660, makedev(7, (unsigned)n));
		l->fd = open(l->path, O_RDWR | O_CLOEXEC);
	}
	return l->fd;
}

/* 1: opened, it is behind this file; held open, it stays so. 0: another's, nobody's, or going. */
static int loop_is(struct loop *l, int n, const struct stat *img)
{
	struct loop_info64 info;

	if (loop_node_open(l, n) < 0)
		return 0;
	if (ioctl(l->fd, LOOP_GET_STATUS64, &info) == 0 && info.lo_inode == img->st_ino &&
		info.lo_device == img->st_dev)
		return 1;
	fd_close(&l->fd);
	return 0;
}

/* 1: found; 0: the file has no loop device. */
static int loop_find(struct loop *l, int lock, const struct stat *img, struct den_err *err)
{
	char hint[16] = "";
	struct dirent *de;
	int found = 0;
	DIR *d;

	if (pread(lock, hint, sizeof(hint) - 1, 0) > 0 && loop_is(l, atoi(hint), img))
		return 1;
	d = opendir("/sys/block");
	if (!d)
		return den_fail_sys(err, errno, "look for loop devices in /sys/block");
	while (!found && (de = readdir(d))) {
		char bound[300];
		int n;

		if (sscanf(de->d_name, "loop%d", &n) != 1)
			continue;
		snprintf(bound, sizeof(bound), "/sys/block/%.200s/loop", de->d_name);
		if (access(bound, F_OK) == 0)
			found = loop_is(l, n, img);
	}
	closedir(d);
	return found;
}

static int loop_bind(struct loop *l, int file, struct den_err *err)
{
	auto_fd control = open("/dev/loop-control", O_RDWR | O_CLOEXEC);

	if (control < 0)
		return den_fail(err, DEN_UNSUPPORTED, errno, "loop devices");
	for (int tries = 0; tries < LOOP_TRIES;
		tries++) { /* others take devices at the same time */
		/* Direct: what is cached in the pool need not be cached once more below it. */
		struct loop_config c = { .fd = (uint32_t)file,
			.block_size = 4096,
			.info.lo_flags = LO_FLAGS_AUTOCLEAR | LO_FLAGS_DIRECT_IO };
		int n = ioctl(control, LOOP_CTL_GET_FREE);

		if (n < 0)
			return den_fail_sys(err, errno, "get a loop device");
		if (loop_node_open(l, n) < 0)
			return den_fail_sys(err, errno, "open '%s'", l->path);
		if (ioctl(l->fd, LOOP_CONFIGURE, &c) == 0)
			return 0;
		fd_close(&l->fd);
		if (errno != EBUSY)
			return den_fail_sys(err, errno, "set up '%s'", l->path);
	}
	return den_fail(err, DEN_LIMIT, 0, "no free loop device");
}

static int loop_get(struct loop *l, int lock, int file, struct den_err *err)
{
	char hint[16];
	struct stat st;
	int r;

	if (fstat(file, &st) < 0)
		return den_fail_sys(err, errno, "'" POOL_IMAGE "'");
	r = loop_find(l, lock, &st, err);
	if (r)
		return r < 0 ? -1 : 0;
	if (loop_bind(l, file, err) < 0)
		return -1;
	r = snprintf(hint, sizeof(hint), "%d\n", l->n);
	if (pwrite(lock, hint, (size_t)r, 0) != r || ftruncate(lock, r) < 0)
		return 0; /* the next one looks through all devices */
	return 0;
}

/* ---- mounting ---- */

/* A mount of it that is nowhere yet. -1: errno. */
static int fs_mount(const char *device, bool readonly)
{
	auto_fd fs = (int)syscall(SYS_fsopen, "btrfs", FSOPEN_CLOEXEC);

	/* Freed blocks go back to the host later, in the background: at once would be part of each
	 * commit, and so of each checkpoint. */
	if (fs < 0 || syscall(SYS_fsconfig, fs, FSCONFIG_SET_STRING, "source", device, 0) < 0 ||
		(syscall(SYS_fsconfig, fs, FSCONFIG_SET_STRING, "discard", "async", 0) < 0 &&
			errno != EINVAL) ||
		(readonly && syscall(SYS_fsconfig, fs, FSCONFIG_SET_FLAG, "ro", NULL, 0) < 0) ||
		syscall(SYS_fsconfig, fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0)
		return -1;
	/* Setuid programs of boxes work; device nodes need none: whiteouts are never opened. */
	return (int)syscall(
		SYS_fsmount, fs, FSMOUNT_CLOEXEC,
		MOUNT_ATTR_NODEV | MOUNT_ATTR_NOATIME | (readonly ? MOUNT_ATTR_RDONLY : 0U));
}

static int image_mount(int statefd, int lock, struct den_err *err)
{
	auto_fd file = openat(statefd, POOL_IMAGE, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
	int mnt = -1, sys = 0;

	if (file < 0 && errno == ENOENT)
		return den_fail(err, DEN_NOT_FOUND, 0,
			"'" POOL_IMAGE
			"' is gone, and with it all boxes with a history; remove '" POOL_CONF
			"' to begin anew");
	if (file < 0)
		return den_fail_sys(err, errno, "open '" POOL_IMAGE "'");
	for (int tries = 0; tries < MOUNT_TRIES; tries++) {
		struct loop l = { .fd = -1 };

		if (loop_get(&l, lock, file, err) < 0)
			return -1;
		mnt = fs_mount(l.path, false);
		sys = errno;
		/* A failure of its disk stopped it, and boxes still hold it like that: it can be
		 * looked at, and they can be stopped and deleted. With the last of them it goes,
		 * and is whole after that. */
		if (mnt < 0 && (sys == EINVAL || sys == EROFS))
			mnt = fs_mount(l.path, true);
		fd_close(&l.fd); /* the mount keeps it */
		if (mnt >= 0)
			return mnt;
		if (sys != EBUSY && sys != ENXIO && sys != EEXIST)
			break;
		/* The file system's former life has not quite ended. No event tells when it has. */
		nanosleep(&(struct timespec){ .tv_nsec = MOUNT_PAUSE_MS * 1000000L }, NULL);
	}
	if (sys == ENODEV)
		return den_fail(err, DEN_UNSUPPORTED, 0, "this kernel has no btrfs");
	if (sys == EEXIST)
		return den_fail(
			err, DEN_CONFLICT, sys, "mount '" POOL_IMAGE "': a copy of it is mounted");
	return den_fail_sys(err, sys, "mount '" POOL_IMAGE "'");
}

/* Mounted by an ancestor or by the host's administrator: where the parent's device ends and a
 * btrfs's root begins. */
static bool is_mounted(int statefd, int poolfd)
{
	struct stat above, st;

	return fstat(statefd, &above) == 0 && fstat(poolfd, &st) == 0 &&
	       above.st_dev != st.st_dev && st.st_ino == BTRFS_FIRST_FREE_OBJECTID &&
	       pool_is_btrfs(poolfd);
}

/* The state directory as this process's mount namespace has it: the caller's descriptor may be from
 * before, and leads to mounts that are not ours. */
static int state_reopen(int statefd, const char *state_path, struct den_err *err)
{
	auto_fd fd = open(state_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct stat a, b;

	if (fd < 0 || fstat(fd, &a) < 0 || fstat(statefd, &b) < 0)
		return den_fail_sys(err, errno, "open '%.150s'", state_path);
	if (a.st_dev != b.st_dev || a.st_ino != b.st_ino)
		return den_fail(err, DEN_CONFLICT, 0,
			"'%.150s' is not the state directory any more", state_path);
	return fd_take(&fd);
}

int pool_image_mount(struct pool *p, const char *state_path, int lock, struct den_err *err)
{
	auto_fd state = state_reopen(p->statefd, state_path, err), mnt = -1, pool = -1;

	if (state < 0)
		return -1;
	if (mkdirat(state, POOL_DIR, 0700) < 0 && errno != EEXIST)
		return den_fail_sys(err, errno, "make '%s'", p->path);
	pool = openat(state, POOL_DIR, POOL_OPEN_DIR);
	if (pool >= 0 && is_mounted(state, pool)) {
		p->fd = fd_take(&pool);
		return 0;
	}
	mnt = image_mount(state, lock, err);
	if (mnt < 0)
		return -1;
	/* Slave: what the host mounts and unmounts later reaches us, what we do does not reach the
	 * host. */
	if (unshare(CLONE_NEWNS) < 0 ||
		syscall(SYS_mount, NULL, "/", NULL, OLD_MS_SLAVE | OLD_MS_REC, NULL) < 0)
		return den_fail_sys(err, errno, "mount namespace");
	fd_close(&state);
	state = state_reopen(p->statefd, state_path, err);
	if (state < 0)
		return -1;
	if (syscall(SYS_move_mount, mnt, "", state, POOL_DIR, MOVE_MOUNT_F_EMPTY_PATH) < 0)
		return den_fail_sys(err, errno, "mount at '%.150s'", p->path);
	p->mounter = getpid();
	p->fd = openat(state, POOL_DIR, POOL_OPEN_DIR);
	if (p->fd < 0)
		return den_fail_sys(err, errno, "open '%.150s'", p->path);
	(void)pool_room_keep(p);
	return 0;
}

int pool_image_resize(struct pool *p, int lock, uint64_t size, struct den_err *err)
{
	struct btrfs_ioctl_vol_args args = { .name = "1:max" };
	auto_fd file = openat(p->statefd, POOL_IMAGE, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
	struct loop l = { .fd = -1 };
	int r = 0;

	if (file < 0 || ftruncate(file, (off_t)size) < 0 || fsync(file) < 0)
		return den_fail_sys(err, errno, "grow '" POOL_IMAGE "'");
	if (loop_get(&l, lock, file, err) < 0)
		return -1;
	if (ioctl(l.fd, LOOP_SET_CAPACITY, 0) < 0)
		r = den_fail_sys(err, errno, "grow '%s'", l.path);
	else if (ioctl(p->fd, BTRFS_IOC_RESIZE, &args) < 0)
		r = den_fail_sys(err, errno, "grow the file system");
	fd_close(&l.fd);
	return r;
}
