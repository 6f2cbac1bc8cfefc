/*
 * The box's system call filter, asked through the kernel. That the filter equals its list was
 * proved when it was generated; here the list itself is held against what a box has to refuse and
 * has to be able to do. Arguments are chosen so that without the filter the kernel would answer
 * otherwise; where a capability check would give the same EPERM, only the filter's errno is
 * checked.
 */
#include "test.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/netlink.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "mem.h"
#include "seccomp.h"

#define HIGH (1UL << 32) /* a bit that the kernel does not look at in an int */
#define CLONE3 435

/* A test runs in a process of its own, so the filter ends with it. */
static void enter_box(void)
{
	struct den_err err;

	if (unshare(CLONE_NEWUSER) < 0)
		SKIP("no user namespaces here, and without one the filter cannot be loaded");
	CHECK(seccomp_load(&err) == 0);
	CHECK(prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 0);
}

static int call_errno(long nr, unsigned long a, unsigned long b, unsigned long c)
{
	errno = 0;
	return syscall(nr, a, b, c, 0UL, 0UL, 0UL) == -1 ? errno : 0;
}

/* Names the call that failed, which a CHECK in a loop does not. */
static int call_refused(
	const char *name, long nr, unsigned long a, unsigned long b, unsigned long c, int want)
{
	int got = call_errno(nr, a, b, c);

	if (got != want)
		fprintf(stderr, "  %s(%#lx, %#lx, %#lx): errno %d, not %d\n", name, a, b, c, got,
			want);
	return got == want;
}

TEST(seccomp_needs_a_capability_or_fails_with_its_reason)
{
	struct den_err err;

	if (geteuid() == 0)
		CHECK(setresuid(65534, 65534, 65534) == 0);
	CHECK(seccomp_load(&err) < 0);
	CHECK(err.code == DEN_DENIED && err.sys == EACCES && strstr(err.msg, "CAP_SYS_ADMIN"));
}

TEST(seccomp_refuses_what_reaches_out_of_a_box)
{
/* clang-format off */
#define NO(name) { #name, SYS_##name, EPERM }
	static const struct {
		const char *name;
		long nr;
		int want;
	} refused[] = {
		NO(mount), NO(umount2), NO(pivot_root), NO(open_tree), NO(move_mount), NO(fsopen),
		NO(fsconfig), NO(fsmount), NO(fspick), NO(mount_setattr), NO(setns), NO(bpf),
		NO(perf_event_open), NO(userfaultfd), NO(io_uring_setup), NO(io_uring_enter),
		NO(io_uring_register), NO(keyctl), NO(add_key), NO(request_key), NO(kexec_load),
		NO(kexec_file_load), NO(init_module), NO(finit_module), NO(delete_module),
		NO(name_to_handle_at), NO(open_by_handle_at), NO(fanotify_init), NO(fanotify_mark),
		NO(swapon), NO(swapoff), NO(reboot), NO(acct), NO(quotactl), NO(quotactl_fd),
		NO(settimeofday), NO(clock_settime), NO(syslog), NO(vhangup), NO(pidfd_getfd),
		NO(kcmp), NO(move_pages), NO(migrate_pages),
#ifdef __x86_64__
		NO(iopl), NO(ioperm), { "modify_ldt", SYS_modify_ldt, ENOSYS },
#endif
		{ "open_tree_attr", 467, EPERM }, { "lsm_set_self_attr", 460, EPERM },
		{ "clone3", CLONE3, ENOSYS }, { "cachestat", 451, ENOSYS },
		{ "memfd_secret", 447, ENOSYS }, { "lookup_dcookie", SYS_lookup_dcookie, ENOSYS },
		{ "a call of the future", 900, ENOSYS },
	};
	/* clang-format on */

	enter_box();
	for (size_t i = 0; i < ARRAY_SIZE(refused); i++) {
		/* -1 is no file and no address, so nothing happens should one get through. */
		CHECK(call_refused(
			refused[i].name, refused[i].nr, -1UL, -1UL, -1UL, refused[i].want));
		CHECK(call_refused(refused[i].name, refused[i].nr, -1UL, 0, 0, refused[i].want));
	}
}

TEST(seccomp_is_what_refuses_and_not_the_kernel_by_chance)
{
	static const long nrs[] = { SYS_setns, SYS_fsconfig, SYS_keyctl, SYS_add_key,
		SYS_io_uring_enter, SYS_name_to_handle_at, SYS_pidfd_getfd, SYS_kcmp };
	int other[ARRAY_SIZE(nrs)];

	for (size_t i = 0; i < ARRAY_SIZE(nrs); i++)
		other[i] = call_errno(nrs[i], -1UL, -1UL, -1UL);
	enter_box();
	for (size_t i = 0; i < ARRAY_SIZE(nrs); i++) {
		CHECK(other[i] != EPERM);
		CHECK(call_errno(nrs[i], -1UL, -1UL, -1UL) == EPERM);
	}
}

TEST(seccomp_refuses_every_new_namespace)
{
	static const unsigned long kinds[] = { CLONE_NEWNS, CLONE_NEWCGROUP, CLONE_NEWUTS,
		CLONE_NEWIPC, CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET };

	enter_box();
	for (size_t i = 0; i < ARRAY_SIZE(kinds); i++) {
		CHECK(call_refused("unshare", SYS_unshare, kinds[i], 0, 0, EPERM));
		CHECK(call_refused("unshare", SYS_unshare, kinds[i] | CLONE_FILES, 0, 0, EPERM));
		CHECK(call_refused("clone", SYS_clone, kinds[i] | SIGCHLD, 0, 0, EPERM));
		CHECK(call_refused("clone", SYS_clone, kinds[i] | CLONE_VM | HIGH, 0, 0, EPERM));
	}
	CHECK(call_refused("unshare time", SYS_unshare, 0x80, 0, 0, EPERM));
	CHECK(call_refused("unshare of something new", SYS_unshare, HIGH, 0, 0, EPERM));
	CHECK(call_errno(SYS_unshare, CLONE_FILES | CLONE_FS | CLONE_SYSVSEM, 0, 0) == 0);
}

TEST(seccomp_refuses_typing_into_the_terminal)
{
	static const unsigned long bad[] = { TIOCSTI, TIOCLINUX, TIOCSETD };

	enter_box();
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		for (int bit = 32; bit <= 64; bit++) { /* 64: none */
			unsigned long high = bit < 64 ? 1UL << bit : 0;

			CHECK(call_refused("ioctl", SYS_ioctl, -1UL, bad[i] | high, 0, EPERM));
		}
	CHECK(call_errno(SYS_ioctl, -1UL, TCGETS, 0) == EBADF);
	CHECK(call_errno(SYS_ioctl, -1UL, TCGETS | HIGH, 0) == EBADF);
}

TEST(seccomp_lets_few_kinds_of_socket_be)
{
	enum {
		MPTCP = 262,
		SCTP = 132,
		L2TP = 115,
		UDPLITE = 136,
		SEQPACKET = 5,
		DCCP = 6,
		PACKET = 10
	};
	static const struct {
		unsigned long family, type, proto;
		int want;
	} t[] = {
		{ AF_UNIX, SOCK_STREAM, 0, 0 },
		{ AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, 0 },
		{ AF_UNIX | HIGH, SOCK_DGRAM, 0, 0 },
		{ AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, 0 },
		{ AF_INET, SOCK_STREAM, IPPROTO_TCP, 0 },
		{ AF_INET, SOCK_DGRAM, IPPROTO_UDP, 0 },
		{ AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE, 0 },
		{ AF_NETLINK, SOCK_DGRAM, NETLINK_KOBJECT_UEVENT, 0 },
		{ AF_NETLINK, SOCK_RAW, NETLINK_AUDIT, EPROTONOSUPPORT },
		{ AF_NETLINK, SOCK_RAW, NETLINK_NETFILTER, EPROTONOSUPPORT },
		{ AF_NETLINK | HIGH, SOCK_RAW, NETLINK_NETFILTER | HIGH, EPROTONOSUPPORT },
		{ AF_NETLINK, SOCK_RAW, NETLINK_XFRM, EPROTONOSUPPORT },
		{ AF_NETLINK, SOCK_RAW, NETLINK_GENERIC, EPROTONOSUPPORT },
		{ AF_INET, SOCK_STREAM, MPTCP, EPROTONOSUPPORT },
		{ AF_INET, SOCK_STREAM, SCTP, EPROTONOSUPPORT },
		{ AF_INET6, SOCK_STREAM, SCTP | HIGH, EPROTONOSUPPORT },
		{ AF_INET, SEQPACKET, 0, EPROTONOSUPPORT },
		{ AF_INET, DCCP, 0, EPROTONOSUPPORT },
		{ AF_INET, SOCK_DGRAM, L2TP, EPROTONOSUPPORT },
		{ AF_INET6, SOCK_DGRAM, UDPLITE, EPROTONOSUPPORT },
		{ AF_INET, PACKET, 0x300, EPROTONOSUPPORT }, /* the kernel makes it AF_PACKET */
		{ AF_PACKET, SOCK_RAW, 0x300, EAFNOSUPPORT },
		{ AF_PACKET | HIGH, SOCK_RAW, 0x300, EAFNOSUPPORT },
		{ AF_VSOCK, SOCK_STREAM, 0, EAFNOSUPPORT },
		{ AF_VSOCK | HIGH, SOCK_STREAM, 0, EAFNOSUPPORT },
		{ AF_ALG, SEQPACKET, 0, EAFNOSUPPORT },
		{ AF_ALG | 1UL << 63, SEQPACKET, 0, EAFNOSUPPORT },
		{ AF_TIPC, SOCK_STREAM, 0, EAFNOSUPPORT },
		{ AF_BLUETOOTH, SOCK_RAW, 0, EAFNOSUPPORT },
		{ AF_RDS, SEQPACKET, 0, EAFNOSUPPORT },
		{ AF_XDP, SOCK_RAW, 0, EAFNOSUPPORT },
		{ 200, SOCK_STREAM, 0, EAFNOSUPPORT },
	};
	int pair[2];

	enter_box();
	for (size_t i = 0; i < ARRAY_SIZE(t); i++)
		CHECK(call_refused(
			"socket", SYS_socket, t[i].family, t[i].type, t[i].proto, t[i].want));
	CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
	CHECK(socketpair(AF_TIPC, SOCK_STREAM, 0, pair) < 0 && errno == EAFNOSUPPORT);
	/* The old way to load firewall rules; EBADF is the kernel's own answer for -1. */
	CHECK(call_errno(SYS_setsockopt, -1UL, 0, 64) == ENOPROTOOPT);
	CHECK(call_errno(SYS_setsockopt, -1UL, HIGH, 65 | HIGH) == ENOPROTOOPT);
	CHECK(call_errno(SYS_setsockopt, -1UL, 41, 64) == ENOPROTOOPT);
	CHECK(call_errno(SYS_setsockopt, -1UL, 0, 0x48b) == ENOPROTOOPT);
	CHECK(call_errno(SYS_setsockopt, -1UL, 41, 67) == EBADF); /* IPV6_TCLASS */
	CHECK(call_errno(SYS_setsockopt, -1UL, SOL_SOCKET, SO_REUSEADDR) == EBADF);
}

TEST(seccomp_lets_only_harmless_personalities_be)
{
	static const unsigned long bad[] = { READ_IMPLIES_EXEC, MMAP_PAGE_ZERO, ADDR_COMPAT_LAYOUT,
		ADDR_NO_RANDOMIZE | READ_IMPLIES_EXEC, 0x1, 0xfffffffe };

	enter_box();
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		CHECK(call_refused("personality", SYS_personality, bad[i], 0, 0, EPERM));
		CHECK(call_refused("personality", SYS_personality, bad[i] | HIGH, 0, 0, EPERM));
	}
	CHECK(personality(0xffffffff) == 0);
	CHECK(personality(ADDR_NO_RANDOMIZE) == 0 && personality(0xffffffff) == ADDR_NO_RANDOMIZE);
	CHECK(personality(PER_LINUX32) >= 0 && personality(0) >= 0);
}

#ifdef __x86_64__
/* A call of the 32-bit ABI out of a 64-bit program: what an attacker does to get past a filter that
 * only thought of one. The high halves of the registers are the attacker's as well. */
static long int80(unsigned long nr, unsigned long a, unsigned long b, unsigned long c)
{
	long ret;

	__asm__ volatile("int $0x80"
			 : "=a"(ret)
			 : "a"(nr), "b"(a), "c"(b), "d"(c)
			 : "memory", "r8", "r9", "r10", "r11");
	return (int)ret;
}

/* Without 32-bit calls in this kernel int 0x80 is a SIGSEGV. */
static int has_int80(void)
{
	pid_t pid = fork();
	int status;

	if (pid == 0)
		_exit(int80(20, 0, 0, 0) == getpid() ? 0 : 1);
	return waitpid(pid, &status, 0) == pid && status == 0;
}

TEST(seccomp_holds_for_32_bit_calls)
{
	/* clang-format off */
	enum { I386_MOUNT = 21, I386_IOCTL = 54, I386_SOCKETCALL = 102, I386_CLONE = 120,
	       I386_MODIFY_LDT = 123, I386_VM86 = 166, I386_PIVOT_ROOT = 217, I386_KEYCTL = 288,
	       I386_UNSHARE = 310, I386_SETNS = 346, I386_BPF = 357, I386_SOCKET = 359,
	       I386_SETTIME64 = 404, I386_IO_URING = 425, I386_GETPID = 20, I386_TIME = 13 };
	/* clang-format on */
	static const struct {
		unsigned long nr, a, b, c;
		long want;
	} t[] = {
		{ I386_MOUNT, 0, 0, 0, -EPERM },
		{ I386_PIVOT_ROOT, 0, 0, 0, -EPERM },
		{ I386_KEYCTL, 0, 0, 0, -EPERM },
		{ I386_BPF, 0, 0, 0, -EPERM },
		{ I386_SETNS, -1UL, 0, 0, -EPERM },
		{ I386_IO_URING, 1, 0, 0, -EPERM },
		{ I386_SETTIME64, 0, 0, 0, -EPERM },
		{ I386_VM86, 0, 0, 0, -EPERM },
		{ I386_MODIFY_LDT, 0, 0, 0, -ENOSYS },
		{ CLONE3, 0, 0, 0, -ENOSYS },
		{ I386_SOCKETCALL, 1, 0, 0, -ENOSYS }, /* it would be EFAULT */
		{ I386_UNSHARE, CLONE_NEWUSER, 0, 0, -EPERM },
		{ I386_UNSHARE, CLONE_NEWNET | HIGH, 0, 0, -EPERM },
		{ I386_UNSHARE, CLONE_FILES, 0, 0, 0 },
		{ I386_CLONE, CLONE_NEWUSER | SIGCHLD, 0, 0, -EPERM },
		{ I386_CLONE, CLONE_NEWNS | HIGH, 0, 0, -EPERM },
		{ I386_IOCTL, -1UL, TIOCSTI, 0, -EPERM },
		{ I386_IOCTL, -1UL, TIOCSTI | HIGH, 0, -EPERM },
		{ I386_IOCTL, -1UL, TCGETS, 0, -EBADF },
		{ I386_SOCKET, AF_ALG, SOCK_SEQPACKET, 0, -EAFNOSUPPORT },
		{ I386_SOCKET, AF_VSOCK | HIGH, SOCK_STREAM, 0, -EAFNOSUPPORT },
	};

	if (!has_int80())
		SKIP("this kernel has no 32-bit calls");
	enter_box();
	for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
		long got = int80(t[i].nr, t[i].a, t[i].b, t[i].c);

		if (got != t[i].want)
			fprintf(stderr, "  i386 call %lu(%#lx): %ld\n", t[i].nr, t[i].a, got);
		CHECK(got == t[i].want);
	}
	CHECK(int80(I386_GETPID, 0, 0, 0) == getpid());
	CHECK(int80(I386_TIME, 0, 0, 0) > 0);
	CHECK(int80(I386_SOCKET, AF_INET, SOCK_STREAM, 0) >= 0);
}

/* A kernel without x32 says the same by itself; on one with it, this is the filter's word. */
TEST(seccomp_has_no_x32_calls)
{
	enum { X32 = 0x40000000 };

	enter_box();
	CHECK(call_refused("x32 getpid", X32 | SYS_getpid, 0, 0, 0, ENOSYS));
	CHECK(call_refused("x32 mount", X32 | SYS_mount, 0, 0, 0, ENOSYS));
	CHECK(call_refused("x32 ioctl", X32 | 514, -1UL, TIOCSTI, 0, ENOSYS));
	CHECK(call_refused("x32 execve", X32 | 520, 0, 0, 0, ENOSYS));
	CHECK(call_refused("x32 number without its bit", 520, 0, 0, 0, ENOSYS));
}
#endif

static void *thread_mark(void *arg)
{
	*(int *)arg = 1;
	return NULL;
}

TEST(seccomp_lets_processes_threads_and_tracing_work)
{
	pthread_t thread;
	int mark = 0, status;
	pid_t pid;

	enter_box();
	CHECK(pthread_create(&thread, NULL, thread_mark, &mark) == 0); /* clone3, then clone */
	CHECK(pthread_join(thread, NULL) == 0 && mark == 1);
#ifdef SYS_fork /* which libc's fork() does not use */
	pid = (pid_t)syscall(SYS_fork);
	CHECK(pid >= 0);
	if (pid == 0)
		_exit(7);
	CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 7);
#endif
	pid = fork();
	CHECK(pid >= 0);
	if (pid == 0) {
		if (ptrace(PTRACE_TRACEME, 0, 0, 0) < 0)
			_exit(1);
		raise(SIGSTOP);
		execl("/bin/true", "true", NULL);
		_exit(2);
	}
	CHECK(waitpid(pid, &status, 0) == pid && WIFSTOPPED(status));
	CHECK(ptrace(PTRACE_CONT, pid, 0, 0) == 0);
	CHECK(waitpid(pid, &status, 0) == pid && WIFSTOPPED(status) && WSTOPSIG(status) == SIGTRAP);
	CHECK(ptrace(PTRACE_DETACH, pid, 0, 0) == 0);
	CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

TEST(seccomp_lets_files_memory_and_ipc_work)
{
	char path[128];
	int fd, pidfd;

	enter_box();
	snprintf(path, sizeof(path), "%s/fifo", test_dir());
	CHECK(mkfifo(path, 0600) == 0);
	fd = memfd_create("x", MFD_CLOEXEC);
	CHECK(fd >= 0 && ftruncate(fd, 4096) == 0);
	CHECK(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) != MAP_FAILED);
	CHECK(call_errno(SYS_shmget, 0, 4096, 01600) == 0);
	pidfd = (int)syscall(SYS_pidfd_open, getpid(), 0);
	CHECK(pidfd >= 0 && syscall(SYS_pidfd_send_signal, pidfd, 0, NULL, 0) == 0);
	CHECK(call_errno(SYS_seccomp, 2, 0, 0) != ENOSYS); /* SECCOMP_GET_ACTION_AVAIL: EFAULT */
	CHECK(call_errno(SYS_mknodat, 0, 0, S_IFIFO) == EFAULT);
	CHECK(call_errno(SYS_chroot, 0, 0, 0) == EFAULT);
	CHECK(call_errno(SYS_get_mempolicy, 0, 0, 0) != EPERM);
}
