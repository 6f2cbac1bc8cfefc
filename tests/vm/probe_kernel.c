/* Time namespaces, seccomp, Landlock, kernel mounts, newer system calls. */
#include "probe.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/landlock.h>
#include <linux/mount.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static void ns_name(const char *which, char ret[64])
{
	char path[64];
	ssize_t n;

	snprintf(path, sizeof(path), "/proc/self/ns/%s", which);
	n = TRY(readlink(path, ret, 63));
	ret[n] = 0;
}

/* Started again as "probe timens OLD": did exec bring us into the new time namespace? */
int timens_after_exec(const char *old)
{
	char now[64], children[64];
	struct timespec ts;

	ns_name("time", now);
	ns_name("time_for_children", children);
	clock_gettime(CLOCK_BOOTTIME, &ts);
	errno = 0;
	answer(strcmp(now, old) != 0 && ts.tv_sec > 1000000, "%s; boottime %ld s",
	       strcmp(now, old) ? "in the new one" : strcmp(children, old) ? "still in the old one" : "?",
	       (long)ts.tv_sec);
}

static void timens_unshare(char old[64])
{
	int go;
	pid_t pid;

	ns_name("time", old);
	pid = enter(CLONE_NEWUSER, -1, &go);
	if (pid != 0) {
		map_ids(pid);
		follow(pid, go);
	}
	TRY(unshare(CLONE_NEWTIME));
	put("/proc/self/timens_offsets", "boottime 100000000 0\n");
}

void ask_timens_exec(void)
{
	char old[64];

	timens_unshare(old);
	TRY(execl("/proc/self/exe", "probe", "timens", old, (char *)NULL));
}

void ask_timens_vfork(void)
{
	char old[64];
	int status;
	pid_t pid;

	timens_unshare(old);
	pid = vfork();
	if (pid == 0) {
		execl("/proc/self/exe", "probe", "timens", old, (char *)NULL);
		_exit(99);
	}
	if (pid < 0)
		answer(false, "vfork after unshare");
	TRY(waitpid(pid, &status, 0));
	_exit(WEXITSTATUS(status));
}

void ask_timens_fork(void)
{
	char old[64];
	int status;
	pid_t pid;

	timens_unshare(old);
	pid = TRY(fork());
	if (pid == 0)
		timens_after_exec(old);
	TRY(waitpid(pid, &status, 0));
	_exit(WEXITSTATUS(status));
}

/* 0x80 lies in the exit signal's byte of clone(), but clone3() takes it. */
void ask_timens_clone3(void)
{
	char old[64], now[64];
	int go;
	pid_t pid;

	ns_name("time", old);
	pid = enter(CLONE_NEWUSER | CLONE_NEWTIME, -1, &go);
	if (pid == 0) {
		ns_name("time", now);
		if (strcmp(now, old) == 0)
			answer(false, "the child is still in the old one");
		int fd = open("/proc/self/timens_offsets", O_WRONLY);
		bool set = write(fd, "boottime 100000000 0\n", 21) > 0;
		answer(true, "in the new one; offsets can%s be set", set ? "" : "not");
	}
	map_ids(pid);
	follow(pid, go);
}

static int seccomp_deny_getpid(unsigned flags)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getppid, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | 77),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog prog = { .len = sizeof(code) / sizeof(*code), .filter = code };

	return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &prog);
}

void ask_seccomp(void)
{
	int go;
	pid_t pid = enter(CLONE_NEWUSER, -1, &go);

	if (pid == 0) {
		TRY(seccomp_deny_getpid(0));
		errno = 0;
		long got = syscall(SYS_getppid);
		int why = errno;
		errno = 0;
		answer(got < 0 && why == 77 && prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 0,
		       "filter without no_new_privs in a user namespace");
	}
	map_ids(pid);
	follow(pid, go);
}

void ask_seccomp_notify(void)
{
	int go;
	pid_t pid = enter(CLONE_NEWUSER, -1, &go);

	if (pid == 0) {
		TRY(seccomp_deny_getpid(SECCOMP_FILTER_FLAG_NEW_LISTENER |
					(1u << 5) /* WAIT_KILLABLE_RECV */));
		answer(true, "listener with WAIT_KILLABLE_RECV");
	}
	map_ids(pid);
	follow(pid, go);
}

void ask_landlock(void)
{
	int abi = TRY(syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION));

	answer(abi >= 1, "ABI %d", abi);
}

void ask_proc_mount(void)
{
	int go;
	pid_t pid = enter(ALL_NS, -1, &go);

	if (pid == 0) {
		TRY(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL));
		mkdir(at("proc"), 0755);
		TRY(mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL));
		TRY(mount("sysfs", "/sys", "sysfs", MS_NOSUID | MS_NODEV | MS_NOEXEC | MS_RDONLY, NULL));
		TRY(mount("mq", "/dev/mqueue", "mqueue", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL));
		TRY(mount("pts", "/dev/pts", "devpts", MS_NOSUID | MS_NOEXEC, "newinstance,ptmxmode=666"));
		answer(true, "proc sysfs mqueue devpts");
	}
	map_ids(pid);
	follow(pid, go);
}

void ask_cgroup2_mount(void)
{
	int go;
	pid_t pid = enter(ALL_NS | CLONE_NEWCGROUP, -1, &go);

	if (pid == 0) {
		TRY(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL));
		/* Not over /sys/fs/cgroup: the same file system twice in one place is EBUSY. */
		TRY(mount("t", "/tmp", "tmpfs", 0, NULL));
		TRY(mkdir("/tmp/cg", 0755));
		TRY(mount("cg", "/tmp/cg", "cgroup2", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL));
		answer(true, "cgroup2 in its own namespace");
	}
	map_ids(pid);
	follow(pid, go);
}

void ask_fsopen_overlay(void)
{
	int go;
	pid_t pid;

	mkdir(at("l1"), 0755);
	mkdir(at("l2"), 0755);
	pid = enter(CLONE_NEWUSER | CLONE_NEWNS, -1, &go);
	if (pid == 0) {
		int fd = TRY(syscall(SYS_fsopen, "overlay", 0));
		TRY(syscall(SYS_fsconfig, fd, FSCONFIG_SET_STRING, "lowerdir+", at("l1"), 0));
		TRY(syscall(SYS_fsconfig, fd, FSCONFIG_SET_STRING, "lowerdir+", at("l2"), 0));
		TRY(syscall(SYS_fsconfig, fd, FSCONFIG_CMD_CREATE, NULL, NULL, 0));
		answer(true, "fsconfig lowerdir+");
	}
	map_ids(pid);
	follow(pid, go);
}

void ask_detached_exec(void)
{
	int fd = TRY(memfd_create("x", 0x0008u /* MFD_NOEXEC_SEAL */ | MFD_CLOEXEC));

	answer(fd >= 0, "MFD_NOEXEC_SEAL");
}

void ask_openat2(void)
{
	struct { unsigned long long flags, mode, resolve; } how = { O_PATH, 0, 0x10 | 0x04 };
	int root = TRY(open("/", O_PATH));
	int fd = TRY(syscall(SYS_openat2, root, "usr/bin", &how, sizeof(how)));

	answer(fd >= 0, "RESOLVE_IN_ROOT|NO_SYMLINKS");
}

void ask_pidfd(void)
{
	int self = TRY(syscall(SYS_pidfd_open, getpid(), 0));
	struct statfs fs;

	TRY(fstatfs(self, &fs));
	errno = 0;
	answer(fs.f_type == 0x50494446, "pidfs: a pidfd's inode is unique");
}

void ask_peerpidfd(void)
{
	int sv[2], pidfd;
	socklen_t len = sizeof(pidfd);

	TRY(socketpair(AF_UNIX, SOCK_STREAM, 0, sv));
	TRY(getsockopt(sv[0], SOL_SOCKET, 77 /* SO_PEERPIDFD */, &pidfd, &len));
	answer(true, "SO_PEERPIDFD");
}

void ask_fchmodat2(void)
{
	TRY(syscall(452, AT_FDCWD, scratch, 0755, AT_SYMLINK_NOFOLLOW));
	answer(true, "fchmodat2");
}

void ask_statmount(void)
{
	errno = 0;
	answer(syscall(457, NULL, NULL, 0, 0) >= 0 || errno != ENOSYS, "statmount");
}

void ask_close_range(void)
{
	TRY(syscall(SYS_close_range, 100, ~0u, 4 /* CLOEXEC */));
	answer(true, "close_range(CLOEXEC)");
}

void ask_mknod_userns(void)
{
	int go;
	pid_t pid = enter(CLONE_NEWUSER | CLONE_NEWNS, -1, &go);

	if (pid == 0) {
		TRY(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL));
		TRY(mount("t", scratch, "tmpfs", 0, NULL));
		TRY(mknod(at("whiteout"), S_IFCHR, makedev(0, 0)));
		if (mknod(at("null"), S_IFCHR | 0666, makedev(1, 3)) == 0)
			answer(false, "a real device node could be made");
		answer(errno == EPERM, "0:0 (a whiteout) yes, 1:3 refused");
	}
	map_ids(pid);
	follow(pid, go);
}
