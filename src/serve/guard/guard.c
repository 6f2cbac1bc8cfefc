/*
 * What the server gives up, in stages. Each says what must not happen before it.
 *
 *   files   a new root with nothing in it but STATE/serve; no network but the sockets that were handed over, no
 *           abstract sockets of the host. Not before certificates were read and addresses bound.
 *   rights  another user (as root), no capability, no new ones, no dumps. After files, which needs them.
 *   limits  descriptors up, dumps off.
 *   calls   the seccomp filter. Before the first thread, so that all have it, and before the first byte from
 *           anybody. The database is opened behind it.
 *
 * What is left to somebody who takes the server over: its database, the sockets it has, and what launcher.h
 * lists. No program can be started, no other file opened, no connection made: those into a box come connected.
 * Sockets that were accepted are the host's own, so what would turn one into a connection to the host's services
 * (connect() after a disconnect, MSG_FASTOPEN) is refused, and of ioctl() all that is not listed (TIOCSTI).
 */
#include "guard.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "fd.h"
#include "filter.h"
#include "mem.h"

#define FILES_MAX (1 << 20)

/* ---- files ---- */

/* An ordinary user needs a user namespace to mount anything; there it stays who it is. */
static int own_user(uid_t uid, gid_t gid, struct den_err *err)
{
	char map[48];

	snprintf(map, sizeof(map), "%u %u 1", (unsigned)uid, (unsigned)uid);
	if (file_write_at(AT_FDCWD, "/proc/self/uid_map", map, err) < 0 ||
		file_write_at(AT_FDCWD, "/proc/self/setgroups", "deny", err) < 0)
		return -1;
	snprintf(map, sizeof(map), "%u %u 1", (unsigned)gid, (unsigned)gid);
	return file_write_at(AT_FDCWD, "/proc/self/gid_map", map, err);
}

static int own_namespaces(bool *ret_alone, struct den_err *err)
{
	int flags = CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS;
	bool root = geteuid() == 0;
	uid_t uid = geteuid();
	gid_t gid = getegid();

	*ret_alone = unshare(flags | (root ? 0 : CLONE_NEWUSER)) == 0;
	if (*ret_alone)
		return root ? 0 : own_user(uid, gid, err);
	if (root)
		return den_fail_sys(err, errno, "namespaces");
	return 0;
}

int guard_files(const char *own, bool *ret_alone, struct den_err *err)
{
	const unsigned long safe = MS_NOSUID | MS_NODEV | MS_NOEXEC;

	if (own_namespaces(ret_alone, err) < 0)
		return -1;
	if (chdir(own) < 0)
		return den_fail_sys(err, errno, "'%s'", own);
	if (!*ret_alone)
		return 0;
	if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0) {
		/* some hosts let an ordinary user have namespaces and mount nothing in them */
		*ret_alone = false;
		return geteuid() == 0 ? den_fail_sys(err, errno, "mount namespace") : 0;
	}
	/* "." is the directory also when the mount above hides it */
	if (mount("tmpfs", "/tmp", "tmpfs", safe, "size=16k,nr_inodes=4,mode=0755") < 0 ||
		mkdir("/tmp/serve", 0755) < 0 || mount(".", "/tmp/serve", NULL, MS_BIND, NULL) < 0 ||
		mount(NULL, "/tmp/serve", NULL, MS_REMOUNT | MS_BIND | safe, NULL) < 0 || chdir("/tmp") < 0 ||
		syscall(SYS_pivot_root, ".", ".") < 0 || umount2(".", MNT_DETACH) < 0 || chdir("/") < 0 ||
		mount(NULL, "/", NULL, MS_REMOUNT | MS_RDONLY | MS_BIND | safe, NULL) < 0 || chdir("/serve") < 0)
		return den_fail_sys(err, errno, "empty root");
	return 0;
}

/* ---- rights ---- */

int guard_rights(uid_t uid, gid_t gid, pid_t parent, struct den_err *err)
{
	struct __user_cap_header_struct h = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct d[2] = { 0 };

	for (int c = 0; c < 64; c++)
		(void)prctl(PR_CAPBSET_DROP, c, 0, 0, 0); /* EPERM as an ordinary user, EINVAL beyond the last */
	if (geteuid() == 0 && (setgroups(0, NULL) < 0 || setresgid(gid, gid, gid) < 0 || setresuid(uid, uid, uid) < 0))
		return den_fail_sys(err, errno, "become user %u (--user NAME chooses another)", (unsigned)uid);
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || syscall(SYS_capset, &h, d) < 0)
		return den_fail_sys(err, errno, "give up rights");
	prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
	/* after the change of user, which takes it back */
	prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
	if (parent && getppid() != parent)
		return den_fail(err, DEN_CONFLICT, 0, "the launcher is gone");
	return 0;
}

int guard_limits(struct den_err *err)
{
	struct rlimit l = { 0, 0 };

	if (setrlimit(RLIMIT_CORE, &l) < 0)
		return den_fail_sys(err, errno, "limits");
	/* a stream takes three descriptors */
	if (getrlimit(RLIMIT_NOFILE, &l) == 0) {
		l.rlim_cur = MIN(l.rlim_max, FILES_MAX);
		setrlimit(RLIMIT_NOFILE, &l);
	}
	return 0;
}

/* ---- calls ---- */

/* Allowed with any arguments. What each is for: */
static const int plain[] = {
	/* sockets that came by accept, from the launcher or from a keeper; pairs of our own */
	SYS_read, SYS_write, SYS_readv, SYS_writev, SYS_recvfrom, SYS_recvmsg, SYS_recvmmsg, SYS_accept4, SYS_accept,
	SYS_shutdown, SYS_getsockopt, SYS_setsockopt, SYS_getsockname, SYS_getpeername, SYS_close, SYS_splice, SYS_pipe2,
	SYS_fcntl, SYS_dup, SYS_dup2, SYS_dup3, SYS_close_range, SYS_sendfile, SYS_listen,
	/* waiting */
	SYS_epoll_create1, SYS_epoll_wait, SYS_epoll_pwait, SYS_epoll_ctl, SYS_poll, SYS_ppoll, SYS_select,
	SYS_pselect6, SYS_eventfd2, SYS_timerfd_create, SYS_timerfd_settime, SYS_timerfd_gettime, SYS_nanosleep,
	SYS_clock_nanosleep, SYS_futex, SYS_restart_syscall,
	/* files of the only directory there is: the database, its log, uploads, the feed's socket */
	SYS_open, SYS_openat, SYS_pread64, SYS_pwrite64, SYS_preadv, SYS_pwritev, SYS_lseek, SYS_fsync, SYS_fdatasync,
	SYS_ftruncate, SYS_fallocate, SYS_stat, SYS_fstat, SYS_lstat, SYS_newfstatat, SYS_statx, SYS_access,
	SYS_faccessat, SYS_faccessat2, SYS_unlink, SYS_unlinkat, SYS_rename, SYS_renameat, SYS_renameat2, SYS_mkdir,
	SYS_mkdirat, SYS_rmdir, SYS_getdents64, SYS_getcwd, SYS_readlink, SYS_readlinkat, SYS_fchmod, SYS_umask,
	SYS_flock, SYS_fstatfs, SYS_statfs, SYS_fadvise64, SYS_utimensat, SYS_linkat, SYS_memfd_create,
	SYS_copy_file_range,
	/* memory; mmap and mprotect are checked below */
	SYS_munmap, SYS_mremap, SYS_brk, SYS_madvise, SYS_mincore, SYS_msync,
	/* threads; clone is checked below */
	SYS_set_robust_list, SYS_get_robust_list, SYS_rseq, SYS_set_tid_address, SYS_sched_yield,
	SYS_sched_getaffinity, SYS_sched_getparam, SYS_sched_getscheduler, SYS_getcpu, SYS_membarrier,
	/* signals of its own, time, chance, and the end */
	SYS_rt_sigaction, SYS_rt_sigprocmask, SYS_rt_sigreturn, SYS_rt_sigtimedwait, SYS_sigaltstack, SYS_tgkill,
	SYS_clock_gettime, SYS_clock_getres, SYS_gettimeofday, SYS_time, SYS_getrandom, SYS_getpid, SYS_getppid,
	SYS_gettid, SYS_getuid, SYS_geteuid, SYS_getgid, SYS_getegid, SYS_uname, SYS_sysinfo, SYS_getrusage,
	SYS_times, SYS_prlimit64, SYS_getrlimit, SYS_prctl, SYS_exit, SYS_exit_group,
};

/* What a server that was not taken over never does: the attempt is its end. All that is neither here nor above
 * is refused, so that a library that tries something new goes on without it. */
static const int deadly[] = {
	SYS_fork, SYS_vfork, SYS_execve, SYS_execveat, SYS_ptrace, SYS_process_vm_readv, SYS_process_vm_writev,
	SYS_pidfd_getfd, SYS_pidfd_open, SYS_kill, SYS_tkill, SYS_rt_sigqueueinfo, SYS_mount, SYS_umount2,
	SYS_pivot_root, SYS_chroot, SYS_unshare, SYS_setns, SYS_open_tree, SYS_move_mount, SYS_fsopen, SYS_fsmount,
	SYS_bpf, SYS_perf_event_open, SYS_userfaultfd, SYS_io_uring_setup, SYS_io_uring_enter,
	SYS_io_uring_register, SYS_keyctl, SYS_add_key, SYS_request_key, SYS_init_module, SYS_finit_module,
	SYS_delete_module, SYS_kexec_load, SYS_kexec_file_load, SYS_open_by_handle_at, SYS_name_to_handle_at,
	SYS_setuid, SYS_setgid, SYS_setresuid, SYS_setresgid, SYS_setreuid, SYS_setregid, SYS_setgroups, SYS_capset,
	SYS_mknod, SYS_mknodat, SYS_personality, SYS_iopl, SYS_ioperm, SYS_modify_ldt, SYS_reboot,
};

/* A thread, never a process. clone3 has its flags in memory, where no filter sees them; libc then uses clone. */
static void rule_thread(struct filter *p)
{
	filter_rule(p, SYS_clone3, SECCOMP_RET_ERRNO | ENOSYS);
	FILTER(p, FILTER_SKIP_UNLESS(SYS_clone, 4));
	FILTER(p, FILTER_LOAD(args[0]));
	FILTER(p, FILTER_SKIP_UNLESS_ANY(CLONE_THREAD, 1));
	FILTER(p, FILTER_RET(SECCOMP_RET_ALLOW));
	FILTER(p, FILTER_RET(SECCOMP_RET_KILL_PROCESS));
}

/* An address of less than sockaddr_in's 16 bytes: the feed's socket in our own directory for bind(), and for connect()
 * AF_UNSPEC, which ends a connection. The kernel takes the length as an int: the low half is all of it. */
static void rule_short_address(struct filter *p, int call)
{
	FILTER(p, FILTER_SKIP_UNLESS((uint32_t)call, 4));
	FILTER(p, FILTER_LOAD(args[2]));
	FILTER(p, BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, 16, 1, 0));
	FILTER(p, FILTER_RET(SECCOMP_RET_ALLOW));
	FILTER(p, FILTER_RET(SECCOMP_RET_ERRNO | EPERM));
}

/* MSG_FASTOPEN is a connect(). arg: which argument has the flags */
static void rule_send(struct filter *p, int call, size_t arg)
{
	FILTER(p, FILTER_SKIP_UNLESS((uint32_t)call, 4));
	FILTER(p, BPF_STMT(BPF_LD | BPF_W | BPF_ABS,
		  (uint32_t)(offsetof(struct seccomp_data, args) + arg * sizeof(uint64_t))));
	FILTER(p, FILTER_SKIP_UNLESS_ANY(MSG_FASTOPEN, 1));
	FILTER(p, FILTER_RET(SECCOMP_RET_KILL_PROCESS));
	FILTER(p, FILTER_RET(SECCOMP_RET_ALLOW));
}

/* What libraries ask of a descriptor. Whatever else there is (typing into a terminal, for one) is not ours. */
static void rule_ioctl(struct filter *p)
{
	static const uint32_t asked[] = { FIONBIO, FIONREAD, TIOCOUTQ, TCGETS, TIOCGWINSZ };
	const uint8_t n = ARRAY_SIZE(asked);

	FILTER(p, FILTER_SKIP_UNLESS(SYS_ioctl, (uint8_t)(n + 3)));
	FILTER(p, FILTER_LOAD(args[1]));
	for (uint8_t i = 0; i < n; i++)
		FILTER(p, BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, asked[i], (uint8_t)(n - i), 0));
	FILTER(p, FILTER_RET(SECCOMP_RET_ERRNO | ENOTTY));
	FILTER(p, FILTER_RET(SECCOMP_RET_ALLOW));
}

int guard_calls(struct den_err *err)
{
	struct filter p;

	filter_begin(&p);
	filter_no_exec(&p);
	/* Unix sockets alone: pairs, and the one that keepers tell their news to. */
	filter_first_arg(&p, SYS_socket, AF_UNIX, AF_UNIX, SECCOMP_RET_ERRNO | EAFNOSUPPORT);
	filter_first_arg(&p, SYS_socketpair, AF_UNIX, AF_UNIX, SECCOMP_RET_ERRNO | EAFNOSUPPORT);
	rule_short_address(&p, SYS_connect);
	rule_short_address(&p, SYS_bind);
	rule_send(&p, SYS_sendto, 3);
	rule_send(&p, SYS_sendmsg, 2);
	rule_send(&p, SYS_sendmmsg, 3);
	rule_ioctl(&p);
	rule_thread(&p);
	filter_rules(&p, plain, ARRAY_SIZE(plain), SECCOMP_RET_ALLOW);
	filter_rules(&p, deadly, ARRAY_SIZE(deadly), SECCOMP_RET_KILL_PROCESS);
	return filter_load(&p, SECCOMP_RET_ERRNO | EPERM, err);
}
