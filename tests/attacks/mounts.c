/*
 * Changing the mounts and namespaces that the wall is made of: directly, and from user namespaces of
 * our own, where we hold every capability again. A namespace of our own is no harm in itself; what
 * counts is that nothing of the host comes within reach through it.
 */
#include "attack.h"

#include <fcntl.h>
#include <linux/mount.h>
#include <linux/sched.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#define NAMESPACES (CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWCGROUP)

#ifndef SYS_mount_setattr
#define SYS_mount_setattr 442
#endif

static int file_write(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC), r;

	if (fd < 0)
		return -1;
	r = write(fd, text, strlen(text));
	close(fd);
	return r < 0 ? -1 : 0;
}

/* In all new namespaces, with every capability over them. Says whether we got there. */
static bool nested(void)
{
	uid_t uid = geteuid();
	gid_t gid = getegid();
	char map[64];

	if (unshare(CLONE_NEWUSER) < 0)
		return false;
	file_write("/proc/self/setgroups", "deny");
	snprintf(map, sizeof(map), "0 %u 1", uid);
	if (file_write("/proc/self/uid_map", map) < 0)
		return false;
	snprintf(map, sizeof(map), "0 %u 1", gid);
	file_write("/proc/self/gid_map", map);
	return unshare(NAMESPACES) == 0;
}

static long refuse(void)
{
	errno = EPERM;
	return -1;
}

/* 0 when the path can be read and gives something, -1 when it is masked */
static long leaks(const char *path)
{
	char b[16];
	int fd = open(path, O_RDONLY | O_NONBLOCK);
	ssize_t n = fd < 0 ? -1 : read(fd, b, sizeof(b));

	return n > 0 ? 0 : refuse();
}

static long writable(const char *path)
{
	return open(path, O_WRONLY) >= 0 ? 0 : refuse();
}

static long unmask(const char *path, long (*harm)(const char *))
{
	umount2(path, MNT_DETACH);
	syscall(SYS_mount, "none", path, NULL, MS_REMOUNT | MS_BIND, NULL);
	syscall(SYS_mount, NULL, path, NULL, MS_REMOUNT, NULL);
	return harm(path);
}

static long kcore_direct(void) { return unmask("/proc/kcore", leaks); }
static long keys_direct(void) { return unmask("/proc/keys", leaks); }
static long core_pattern_direct(void) { return unmask("/proc/sys", leaks) < 0 ? writable("/proc/sys/kernel/core_pattern") : 0; }
static long sysrq_direct(void) { return unmask("/proc/sysrq-trigger", writable); }
static long kcore_nested(void) { return nested() ? kcore_direct() : refuse(); }
static long core_pattern_nested(void) { return nested() ? core_pattern_direct() : refuse(); }
static long sysrq_nested(void) { return nested() ? sysrq_direct() : refuse(); }

/* Unmounting all of /proc may show an older one below it. */
static long proc_below(void)
{
	if (umount2("/proc", MNT_DETACH) < 0)
		return refuse();
	return leaks("/proc/kcore") == 0 || writable("/proc/sys/kernel/core_pattern") == 0 ? 0 : refuse();
}
static long proc_below_nested(void) { return nested() ? proc_below() : refuse(); }

/* A second, unmasked proc or sysfs. */
static long fresh(const char *type, const char *file, long (*harm)(const char *))
{
	char dir[64], path[128];

	snprintf(dir, sizeof(dir), "/tmp/fresh.%d", getpid());
	mkdir(dir, 0700);
	if (mount("none", dir, type, 0, NULL) < 0) {
		rmdir(dir);
		return refuse();
	}
	snprintf(path, sizeof(path), "%s/%s", dir, file);
	return harm(path);
}

static long in_child(long (*f)(void))
{
	int status;
	pid_t pid = fork(); /* the first process of a new pid namespace may mount its proc */

	if (pid == 0)
		_exit(f() >= 0 ? 1 : 0);
	waitpid(pid, &status, 0);
	return WIFEXITED(status) && WEXITSTATUS(status) == 1 ? 0 : refuse();
}

static long new_proc(void) { return fresh("proc", "sys/kernel/core_pattern", writable) == 0 ? 0 : fresh("proc", "kcore", leaks); }
static long new_sys(void) { return fresh("sysfs", "kernel/uevent_helper", writable); }
static long new_cgroup(void) { return fresh("cgroup2", "cgroup.procs", writable); }
static long new_debugfs(void) { return fresh("debugfs", ".", leaks) == 0 ? 0 : fresh("debugfs", "sched/debug", leaks); }
static long new_cgroup1(void)
{
	char dir[64], path[96];

	snprintf(dir, sizeof(dir), "/tmp/cg.%d", getpid());
	mkdir(dir, 0700);
	if (mount("none", dir, "cgroup", 0, "devices") < 0 && mount("none", dir, "cgroup", 0, "memory") < 0
		&& mount("none", dir, "cgroup", 0, "none,name=den-attack") < 0)
		return refuse();
	snprintf(path, sizeof(path), "%s/release_agent", dir);
	return writable(path);
}
static long new_binfmt(void) { return fresh("binfmt_misc", "register", writable); }
static long new_disk(void)
{
	mkdir("/tmp/disk", 0700);
	return mount("/dev/vda", "/tmp/disk", "ext4", MS_RDONLY, NULL) == 0 ? 0 : refuse();
}
static long new_proc_nested(void) { return nested() ? in_child(new_proc) : refuse(); }
static long new_sys_nested(void) { return nested() ? in_child(new_sys) : refuse(); }
static long new_cgroup_nested(void) { return nested() ? in_child(new_cgroup) : refuse(); }
static long new_cgroup1_nested(void) { return nested() ? in_child(new_cgroup1) : refuse(); }
static long new_binfmt_nested(void) { return nested() ? in_child(new_binfmt) : refuse(); }

/* /attacks is a read-only mount of a host directory: it must not become writable. */
static long host_remount(void)
{
	struct mount_attr attr = { .attr_clr = MOUNT_ATTR_RDONLY };
	int fd;

	mount(NULL, "/attacks", NULL, MS_REMOUNT | MS_BIND, NULL);
	mount("none", "/attacks", NULL, MS_REMOUNT, NULL);
	syscall(SYS_mount_setattr, AT_FDCWD, "/attacks", 0, &attr, sizeof(attr));
	fd = open("/attacks/planted", O_WRONLY | O_CREAT, 0755);
	return fd >= 0 ? 0 : refuse();
}
static long host_remount_nested(void) { return nested() ? host_remount() : refuse(); }

static long host_clone(void)
{
	struct mount_attr attr = { .attr_clr = MOUNT_ATTR_RDONLY };
	int tree = syscall(SYS_open_tree, AT_FDCWD, "/attacks", OPEN_TREE_CLONE), fd;

	if (tree < 0)
		return refuse();
	syscall(SYS_mount_setattr, tree, "", AT_EMPTY_PATH, &attr, sizeof(attr));
	fd = openat(tree, "planted", O_WRONLY | O_CREAT, 0755);
	return fd >= 0 ? 0 : refuse();
}
static long host_clone_nested(void) { return nested() ? host_clone() : refuse(); }

/* Peeling the box's root off to see what it was pivoted from. */
static long root_peel(void)
{
	struct stat a, b;

	if (stat("/", &a) < 0)
		return refuse();
	for (int i = 0; i < 4 && umount2("/", MNT_DETACH) == 0; i++)
		;
	if (chdir("/..") < 0 || stat(".", &b) < 0)
		return refuse();
	return a.st_dev == b.st_dev && a.st_ino == b.st_ino ? refuse() : 0;
}
static long root_peel_nested(void) { return nested() ? root_peel() : refuse(); }

/* The classic way out of a chroot: a working directory above the root. */
static long chroot_out(void)
{
	struct stat a, b;

	if (stat("/", &a) < 0)
		return refuse();
	mkdir("/tmp/jail", 0700);
	if (chroot("/tmp/jail") < 0)
		return refuse();
	for (int i = 0; i < 64; i++)
		if (chdir("..") < 0)
			break;
	if (stat(".", &b) < 0)
		return refuse();
	return a.st_dev == b.st_dev && a.st_ino == b.st_ino ? refuse() : 0;
}
static long chroot_out_nested(void) { return nested() ? chroot_out() : refuse(); }

static long join_init(void)
{
	static const char *const ns[] = { "user", "mnt", "pid", "net", "ipc", "uts", "cgroup" };
	char path[64], mine[64], a[64] = "", b[64] = "";

	for (size_t i = 0; i < sizeof(ns) / sizeof(ns[0]); i++) {
		int fd;

		snprintf(path, sizeof(path), "/proc/1/ns/%s", ns[i]);
		snprintf(mine, sizeof(mine), "/proc/self/ns/%s", ns[i]);
		memset(a, 0, sizeof(a));
		memset(b, 0, sizeof(b));
		if (readlink(path, a, sizeof(a) - 1) < 0 || readlink(mine, b, sizeof(b) - 1) < 0)
			continue;
		if (!strcmp(a, b))
			continue; /* init's are the box's: joining them gains nothing */
		fd = open(path, O_RDONLY);
		if (fd >= 0 && setns(fd, 0) == 0)
			return 0;
	}
	return refuse();
}

/* Calls that a filter should stop at the door: none of them is needed in a box. */
static long call_mount(void) { return mount("none", "/tmp", "tmpfs", 0, NULL); }
static long call_bind(void) { return mount("/usr", "/tmp", NULL, MS_BIND, NULL); }
static long call_umount(void) { return umount2("/proc", MNT_DETACH); }
static long call_pivot(void) { return syscall(SYS_pivot_root, "/tmp", "/tmp"); }
static long call_open_tree(void) { return syscall(SYS_open_tree, AT_FDCWD, "/usr", OPEN_TREE_CLONE); }
static long call_move_mount(void) { return syscall(SYS_move_mount, AT_FDCWD, "/proc", AT_FDCWD, "/tmp", 0); }
static long call_fsopen(void) { return syscall(SYS_fsopen, "tmpfs", 0); }
static long call_fspick(void) { return syscall(SYS_fspick, AT_FDCWD, "/", 0); }
static long call_mount_setattr(void)
{
	struct mount_attr attr = { .attr_set = MOUNT_ATTR_NOEXEC };

	return syscall(SYS_mount_setattr, AT_FDCWD, "/proc", 0, &attr, sizeof(attr));
}
static long call_unshare_mnt(void) { return unshare(CLONE_NEWNS); }

static const struct attack attacks[] = {
	{ "mount", call_mount },
	{ "bind mount", call_bind },
	{ "umount2 of /proc", call_umount },
	{ "pivot_root", call_pivot },
	{ "open_tree", call_open_tree },
	{ "move_mount", call_move_mount },
	{ "fsopen", call_fsopen },
	{ "fspick", call_fspick },
	{ "mount_setattr", call_mount_setattr },
	{ "unshare of mounts", call_unshare_mnt },
	{ "uncover /proc/kcore", kcore_direct },
	{ "uncover /proc/kcore, nested", kcore_nested },
	{ "uncover /proc/keys", keys_direct },
	{ "write core_pattern", core_pattern_direct },
	{ "write core_pattern, nested", core_pattern_nested },
	{ "write sysrq-trigger", sysrq_direct, .own = true },
	{ "write sysrq-trigger, nested", sysrq_nested, .own = true },
	{ "see below /proc", proc_below },
	{ "see below /proc, nested", proc_below_nested },
	{ "a second proc", new_proc },
	{ "a second proc, nested", new_proc_nested },
	{ "a second sysfs", new_sys },
	{ "a second sysfs, nested", new_sys_nested },
	{ "cgroup2", new_cgroup },
	{ "cgroup2, nested", new_cgroup_nested },
	{ "cgroup release_agent", new_cgroup1 },
	{ "cgroup release_agent, nested", new_cgroup1_nested },
	{ "debugfs", new_debugfs },
	{ "binfmt_misc", new_binfmt },
	{ "binfmt_misc, nested", new_binfmt_nested },
	{ "mount of the host's disk", new_disk },
	{ "write to a read-only host mount", host_remount },
	{ "write to a read-only host mount, nested", host_remount_nested },
	{ "write to a clone of a read-only host mount", host_clone },
	{ "write to a clone of a read-only host mount, nested", host_clone_nested },
	{ "peel off the root", root_peel },
	{ "peel off the root, nested", root_peel_nested },
	{ "leave by chroot", chroot_out, .own = true },
	{ "leave by chroot, nested", chroot_out_nested, .own = true },
	{ "join other namespaces through /proc/1/ns", join_init },
};

int main(void)
{
	return attack_all(attacks, sizeof(attacks) / sizeof(attacks[0]));
}
