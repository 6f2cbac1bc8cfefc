/*
 * What the gate gives up, in stages. Each says what must not happen before it.
 *
 *   files   no file system: a new, empty root in a mount namespace of its own. Not before the program
 *           has read all it will ever read by name.
 *   rights  another user (as root), no capability, no new ones, no dumps. After files, which needs them.
 *   limits  memory and descriptors.
 *   calls   the seccomp filter: what is not needed to speak on sockets is not there. Last, and before
 *           the first byte from anybody.
 */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "fd.h"
#include "filter.h"
#include "gate.h"

#define NOBODY 65534
#define MEMORY_MAX (768UL << 20)
#define FILES_MAX 65536

/* An ordinary user needs a user namespace to mount anything, and one id in it to own it. */
static int own_namespace(bool root, struct den_err *err)
{
	char map[32];

	snprintf(map, sizeof(map), "0 %u 1", (unsigned)geteuid());
	if (unshare(CLONE_NEWNS | (root ? 0 : CLONE_NEWUSER)) < 0)
		return den_fail_sys(err, errno, "mount namespace");
	return root ? 0 : file_write_at(AT_FDCWD, "/proc/self/uid_map", map, err);
}

static int empty_root(bool root, struct den_err *err)
{
	if (own_namespace(root, err) < 0)
		return -1;
	if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
		mount("tmpfs", "/tmp", "tmpfs", MS_NOSUID | MS_NODEV | MS_NOEXEC, "size=4k,nr_inodes=2,mode=0555") < 0 ||
		chdir("/tmp") < 0 || syscall(SYS_pivot_root, ".", ".") < 0 || umount2(".", MNT_DETACH) < 0 ||
		chdir("/") < 0 || mount(NULL, "/", NULL, MS_REMOUNT | MS_RDONLY | MS_BIND, NULL) < 0)
		return den_fail_sys(err, errno, "empty root");
	return 0;
}

static int give_up_rights(bool root, struct den_err *err)
{
	struct __user_cap_header_struct h = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct d[2] = { 0 };

	if (root && (setgroups(0, NULL) < 0 || setresgid(NOBODY, NOBODY, NOBODY) < 0 ||
		setresuid(NOBODY, NOBODY, NOBODY) < 0))
		return den_fail_sys(err, errno, "become nobody");
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || syscall(SYS_capset, &h, d) < 0)
		return den_fail_sys(err, errno, "give up rights");
	prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
	return 0;
}

static void limit(int what, rlim_t to)
{
	struct rlimit l;

	if (getrlimit(what, &l) == 0 && l.rlim_max > to)
		l.rlim_max = to;
	l.rlim_cur = l.rlim_max;
	setrlimit(what, &l);
}

int guard_files(struct den_err *err)
{
	bool root = geteuid() == 0;

	limit(RLIMIT_CORE, 0);
	limit(RLIMIT_FSIZE, 0);
	limit(RLIMIT_NOFILE, FILES_MAX);
	if (empty_root(root, err) < 0 || give_up_rights(root, err) < 0)
		return -1;
	limit(RLIMIT_NPROC, 0);
	limit(RLIMIT_AS, MEMORY_MAX);
	return 0;
}

/* ---- calls ---- */

/* Allowed with any arguments. What each is for: */
static const int plain[] = {
	/* sockets and pipes */
	SYS_read, SYS_write, SYS_readv, SYS_writev, SYS_recvfrom, SYS_sendto, SYS_recvmsg, SYS_sendmsg,
	SYS_accept4, SYS_connect, SYS_bind, SYS_shutdown, SYS_getsockopt, SYS_setsockopt, SYS_getsockname,
	SYS_getpeername, SYS_close, SYS_splice, SYS_pipe2, SYS_fcntl, SYS_sendmmsg, SYS_recvmmsg,
	/* the bundle of certificates, which is a descriptor */
	SYS_pread64,
	/* waiting */
	SYS_epoll_wait, SYS_epoll_pwait, SYS_epoll_ctl, SYS_poll, SYS_ppoll,
	/* memory; mmap and mprotect are checked below */
	SYS_munmap, SYS_mremap, SYS_brk, SYS_madvise, SYS_futex,
	/* time, chance, and the end */
	SYS_clock_gettime, SYS_gettimeofday, SYS_time, SYS_getrandom, SYS_getpid, SYS_gettid, SYS_rt_sigreturn,
	SYS_rt_sigprocmask, SYS_exit, SYS_exit_group, SYS_restart_syscall,
};

/* Libraries try these and do without: they get an error, not death. */
static const int refused[] = {
	SYS_open, SYS_openat, SYS_access, SYS_faccessat, SYS_readlink, SYS_stat, SYS_newfstatat, SYS_fstat,
	SYS_lstat, SYS_getuid, SYS_geteuid, SYS_getgid, SYS_getegid, SYS_uname, SYS_sysinfo, SYS_ioctl,
	SYS_sched_yield, SYS_lseek, SYS_getdents64, SYS_getcwd, SYS_prctl, SYS_sched_getaffinity,
};

int guard_calls(struct den_err *err)
{
	struct filter p;

	filter_begin(&p);
	filter_no_exec(&p);
	/* Internet sockets alone: no unix, netlink, packet or vsock. */
	filter_first_arg(&p, SYS_socket, AF_INET, AF_INET6, SECCOMP_RET_ERRNO | EAFNOSUPPORT);
	filter_rules(&p, plain, ARRAY_SIZE(plain), SECCOMP_RET_ALLOW);
	filter_rules(&p, refused, ARRAY_SIZE(refused), SECCOMP_RET_ERRNO | EACCES);
	return filter_load(&p, SECCOMP_RET_KILL_PROCESS, err);
}
