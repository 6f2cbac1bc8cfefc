/*
 * The system calls of a box, each with its verdict. Data only: seccomp_gen.c makes the filter of it
 * when den is built, for the machine's own ABI and for its 32-bit one, and proves that the filter
 * says what is written here. docs/decisions/0002-seccomp.md has the reasoning and the figures.
 *
 * A box is a whole Linux system with root in a user namespace, so the question for each call is not
 * "could a program do without" but "what does it reach that namespaces, cgroups and the kernel's
 * own permission checks do not already hold back". Three answers:
 *   ALLOW    the kernel's checks are enough
 *   an errno a refusal; the errno is the one that programs already know how to live with
 *   ENOSYS   also for every call that is not listed, so that a call of tomorrow's kernel looks like
 *            a call of yesterday's, and programs fall back
 *
 * A name that does not exist on an ABI is skipped there; one that exists nowhere fails the build.
 */
#pragma once

#include <errno.h>
#include <stdint.h>

#define ALLOW 0

struct call_group {
	int verdict; /* ALLOW or an errno */
	const char *names; /* separated by spaces */
};

/* clang-format off: it would break the words of the tables apart */
static const struct call_group groups[] = {
	/* ---- Allowed ---------------------------------------------------------------------- */

	/* Files by path: the box's own tree; file permissions and the user namespace decide. mknod
	 * is here for FIFOs and sockets: the kernel refuses devices in a user namespace. chroot
	 * needs no wall of its own, the box's root is a mount namespace with nothing above it. */
	{ ALLOW, "access faccessat faccessat2 chdir chmod fchmodat fchmodat2 chown chown32 "
		 "fchownat lchown lchown32 chroot creat open openat openat2 link linkat symlink "
		 "symlinkat readlink readlinkat mkdir mkdirat rmdir mknod mknodat rename "
		 "renameat renameat2 unlink unlinkat truncate truncate64 stat stat64 lstat "
		 "lstat64 newfstatat fstatat64 statx statfs statfs64 utime utimes futimesat "
		 "utimensat utimensat_time64 getcwd umask" },
	/* Extended attributes: dpkg, rsync, setcap. The kernel scopes security.capability to the
	 * user namespace that wrote it. */
	{ ALLOW, "setxattr lsetxattr fsetxattr setxattrat getxattr lgetxattr fgetxattr "
		 "getxattrat listxattr llistxattr flistxattr listxattrat removexattr "
		 "lremovexattr fremovexattr removexattrat file_getattr file_setattr" },
	/* Files by descriptor. sync flushes other boxes' data too: a cost, not a leak, and every
	 * install script calls it. */
	{ ALLOW, "read write readv writev pread64 pwrite64 preadv pwritev preadv2 pwritev2 "
		 "lseek _llseek close close_range dup dup2 dup3 fcntl fcntl64 flock fstat "
		 "fstat64 fstatfs fstatfs64 fchdir fchmod fchown fchown32 ftruncate ftruncate64 "
		 "fallocate fadvise64 fadvise64_64 arm_fadvise64_64 readahead getdents "
		 "getdents64 fsync fdatasync sync syncfs sync_file_range arm_sync_file_range "
		 "copy_file_range sendfile sendfile64 splice tee vmsplice pipe pipe2" },
	/* Waiting for descriptors; the older asynchronous I/O (databases), not io_uring. */
	{ ALLOW, "poll ppoll ppoll_time64 select _newselect pselect6 pselect6_time64 "
		 "epoll_create epoll_create1 epoll_ctl epoll_wait epoll_pwait epoll_pwait2 "
		 "eventfd eventfd2 signalfd signalfd4 inotify_init inotify_init1 "
		 "inotify_add_watch inotify_rm_watch io_setup io_destroy io_submit io_cancel "
		 "io_getevents io_pgetevents io_pgetevents_time64" },
	/* Memory: bounded by the cgroup and the rlimits. NUMA policy of a process's own pages is
	 * here because Java, MySQL and numactl set it and complain loudly when they cannot; the
	 * cgroup's cpuset still says which nodes there are. */
	{ ALLOW, "brk mmap mmap2 munmap mremap mprotect madvise process_madvise "
		 "process_mrelease mincore msync mlock mlock2 munlock mlockall munlockall mseal "
		 "memfd_create pkey_alloc pkey_free pkey_mprotect map_shadow_stack membarrier "
		 "get_mempolicy set_mempolicy mbind set_mempolicy_home_node" },
	/* Processes and threads: pids are the box's own, and limited in number. clone is below,
	 * with a condition. */
	{ ALLOW, "fork vfork execve execveat exit exit_group wait4 waitpid waitid "
		 "set_tid_address gettid getpid getppid getpgid getpgrp setpgid getsid setsid "
		 "times getrusage getcpu rseq set_robust_list get_robust_list futex "
		 "futex_time64 futex_waitv futex_wake futex_wait futex_requeue restart_syscall "
		 "pidfd_open pidfd_send_signal prctl arch_prctl set_thread_area get_thread_area "
		 "set_tls get_tls cacheflush breakpoint uname" },
	/* The return of a probe that the host's administrator put on a program; the kernel kills
	 * who calls it from anywhere else, and a probed program that is refused it crashes. */
	{ ALLOW, "uretprobe" },
	/* Debuggers on the box's own processes: gdb, strace. The kernel asks for the same user
	 * namespace and credentials, and since Linux 4.8 a tracer cannot change a call behind the
	 * filter's back. */
	{ ALLOW, "ptrace process_vm_readv process_vm_writev" },
	/* Signals stay inside the pid namespace. */
	{ ALLOW, "kill tkill tgkill rt_sigaction rt_sigprocmask rt_sigpending rt_sigqueueinfo "
		 "rt_sigreturn rt_sigsuspend rt_sigtimedwait rt_sigtimedwait_time64 "
		 "rt_tgsigqueueinfo sigaltstack signal sigaction sigpending sigprocmask "
		 "sigreturn sigsuspend sgetmask ssetmask pause" },
	/* Scheduling: the cgroup bounds it from outside; real-time classes need a rlimit that a box
	 * does not have. */
	{ ALLOW, "sched_yield sched_getaffinity sched_setaffinity sched_getattr sched_setattr "
		 "sched_getparam sched_setparam sched_getscheduler sched_setscheduler "
		 "sched_get_priority_max sched_get_priority_min sched_rr_get_interval "
		 "sched_rr_get_interval_time64 getpriority setpriority nice ioprio_get "
		 "ioprio_set" },
	/* Users, groups and capabilities: all of them inside the user namespace. sudo, su, useradd
	 * and setuid programs live on these. */
	{ ALLOW, "getuid getuid32 geteuid geteuid32 getgid getgid32 getegid getegid32 getresuid "
		 "getresuid32 getresgid getresgid32 getgroups getgroups32 setuid setuid32 "
		 "setgid setgid32 setreuid setreuid32 setregid setregid32 setresuid setresuid32 "
		 "setresgid setresgid32 setgroups setgroups32 setfsuid setfsuid32 setfsgid "
		 "setfsgid32 capget capset" },
	/* Limits may be lowered by everyone and raised by none; the host's name is the box's
	 * own. */
	{ ALLOW, "getrlimit ugetrlimit setrlimit prlimit64 sysinfo sethostname setdomainname "
		 "getrandom" },
	/* Narrowing oneself further, as browsers, sshd and systemd units do. A nested filter cannot
	 * widen this one: an errno here outranks its notify, trace and allow. */
	{ ALLOW, "seccomp landlock_create_ruleset landlock_add_rule landlock_restrict_self "
		 "lsm_get_self_attr lsm_list_modules" },
	/* Reading clocks and waiting. adjtimex and clock_adjtime also read; to write, the kernel
	 * asks for CAP_SYS_TIME over the host, which no box has. */
	{ ALLOW, "time gettimeofday clock_gettime clock_gettime64 clock_getres "
		 "clock_getres_time64 clock_nanosleep clock_nanosleep_time64 nanosleep adjtimex "
		 "clock_adjtime clock_adjtime64 alarm getitimer setitimer timer_create "
		 "timer_delete timer_getoverrun timer_gettime timer_gettime64 timer_settime "
		 "timer_settime64 timerfd_create timerfd_gettime timerfd_gettime64 "
		 "timerfd_settime timerfd_settime64" },
	/* SysV and POSIX IPC: the box has an IPC namespace. The multiplexer ipc (32-bit) hides its
	 * arguments from a filter, which is harmless: nothing in it is refused. */
	{ ALLOW, "ipc semget semop semtimedop semtimedop_time64 semctl shmget shmat shmdt "
		 "shmctl msgget msgsnd msgrcv msgctl mq_open mq_unlink mq_timedsend "
		 "mq_timedsend_time64 mq_timedreceive mq_timedreceive_time64 mq_notify "
		 "mq_getsetattr" },
	/* Sockets, once they exist: which ones may exist is below, at socket and socketpair. */
	{ ALLOW, "bind connect listen accept accept4 getsockname getpeername getsockopt send "
		 "sendto sendmsg sendmmsg recv recvfrom recvmsg recvmmsg recvmmsg_time64 "
		 "shutdown" },
	/* What is mounted, to look at: the same as /proc/self/mountinfo. */
	{ ALLOW, "statmount listmount" },

	/* ---- Knowingly left out ----------------------------------------------------------- */

	/* Mounts: uncovering masked paths, remounting read-only ones writable, and every file
	 * system's parser of hostile images. The box's mounts are made before this filter is. */
	{ EPERM, "mount umount umount2 pivot_root open_tree open_tree_attr move_mount fsopen "
		 "fsconfig fsmount fspick mount_setattr" },
	/* Other namespaces. unshare and clone are below. */
	{ EPERM, "setns" },
	/* clone3's flags are in memory, where a filter cannot see them. glibc falls back
	 * to clone on ENOSYS, and on nothing else; musl and Go use clone. */
	{ ENOSYS, "clone3" },
	/* Big young parts of the kernel with a long record of holes, and no need of them: io_uring
	 * also makes calls that no filter sees. Programs know EPERM here, from the sysctls that
	 * switch these off. */
	{ EPERM, "bpf perf_event_open userfaultfd io_uring_setup io_uring_enter "
		 "io_uring_register" },
	/* Keyrings are not namespaced: quotas and the caller's keys are the host's. */
	{ EPERM, "keyctl add_key request_key" },
	/* Another kernel, or more of this one. */
	{ EPERM, "kexec_load kexec_file_load init_module finit_module delete_module "
		 "create_module get_kernel_syms query_module" },
	/* File handles: opening one reaches every file of the file system, the host's too; without
	 * that, making one has no use (systemd and others fall back). fanotify reports handles and
	 * can stall others' opens; EPERM is what it gave every ordinary user for ten years. */
	{ EPERM, "name_to_handle_at open_by_handle_at fanotify_init fanotify_mark" },
	/* The machine as a whole: its power, swap, accounting, quotas, clock, log and terminals. */
	{ EPERM, "reboot swapon swapoff acct quotactl quotactl_fd settimeofday stime "
		 "clock_settime clock_settime64 syslog vhangup" },
	/* Hardware. */
	{ EPERM, "iopl ioperm vm86 vm86old pciconfig_iobase pciconfig_read pciconfig_write" },
	/* Segment tables: only 16-bit code under Wine and DOS emulators needs them (threads use
	 * set_thread_area), and they have been a way into the kernel. ENOSYS is what a kernel built
	 * without them says. */
	{ ENOSYS, "modify_ldt" },
	/* Takes a file out of another process: what a debugger can do in more steps, a thief should
	 * not do in one. */
	{ EPERM, "pidfd_getfd" },
	/* Tells the order of kernel addresses; a helper of checkpointing tools. */
	{ EPERM, "kcmp" },
	/* Pages by physical place: an oracle for what is shared with other boxes. */
	{ EPERM, "move_pages migrate_pages" },
	/* Whether a page of a shared file is cached tells what other boxes read. */
	{ ENOSYS, "cachestat" },
	/* Memory that the kernel itself cannot read cannot be part of a full checkpoint. ENOSYS is
	 * what a kernel says where it is switched off, as by default. */
	{ ENOSYS, "memfd_secret" },
	/* The label of a security module would outlive the box's idea of it. */
	{ EPERM, "lsm_set_self_attr" },
	/* Namespaces by number, to find those of others. */
	{ EPERM, "listns" },
	/* One call for all socket calls, on i386: the address family is in memory, where a filter
	 * cannot see it, so allowing it would open AF_ALG, AF_VSOCK and all others to whoever
	 * executes "int $0x80". The price is real: 32-bit programs of Debian's libc and of Go have
	 * no sockets. See the decision. */
	{ ENOSYS, "socketcall" },
	/* Relics, each with a successor that programs use. */
	{ ENOSYS, "lookup_dcookie nfsservctl uselib ustat sysfs _sysctl bdflush "
		  "remap_file_pages readdir oldstat oldfstat oldlstat olduname oldolduname "
		  "epoll_ctl_old epoll_wait_old usr26 usr32" },
	/* Numbers without a call behind them. */
	{ ENOSYS, "afs_syscall break ftime getpmsg gtty idle lock mpx prof profil putpmsg "
		  "security stty tuxcall ulimit vserver" },
};
/* clang-format on */

/*
 * Calls that depend on an argument: the first row that matches decides, and the last row of a call
 * has no condition. A condition is (argument & mask) == value. The kernel reads int and unsigned
 * int arguments from the low half of a register only, so LOW is the mask for those: with the whole
 * register compared, a stray high bit would make a refused value look like another one.
 */
struct cond {
	uint8_t arg;
	uint64_t mask; /* 0: no condition */
	uint64_t value;
};

struct arg_rule {
	const char *name;
	int verdict;
	struct cond when[3];
};

#define LOW 0xffffffffULL
#define ALL (~0ULL)

/* CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET. Not NEWTIME (0x80): in clone's
 * flags that bit belongs to the signal number. */
#define CLONE_NEW_ANY 0x7e020000ULL
/* What unshare may do: CLONE_FS, CLONE_FILES, CLONE_SYSVSEM. Every other bit, also those that are
 * not invented yet, is refused. */
#define UNSHARE_FINE (0x200ULL | 0x400ULL | 0x40000ULL)
/* UNAME26, ADDR_NO_RANDOMIZE (gdb, setarch -R; the kernel drops it for setuid programs),
 * PER_LINUX32. Not READ_IMPLIES_EXEC, MMAP_PAGE_ZERO and the like, which serve exploits. */
#define PERSONALITY_FINE (0x20000ULL | 0x40000ULL | 0x8ULL)

/* clang-format off */
/* AF_INET is 2, AF_INET6 10: one bit apart. The type's flags (SOCK_CLOEXEC, SOCK_NONBLOCK) are
 * above the low four bits. */
#define INET { 0, LOW & ~8ULL, 2 }
#define TYPE(n) { 1, 0xf, n }
#define PROTO(n) { 2, LOW, n }
#define NETLINK { 0, LOW, 16 }
#define OPT(level, mask, opt) { 1, LOW, level }, { 2, LOW & (mask), opt }

static const struct arg_rule arg_rules[] = {
	/* A new user namespace gives every capability over what is made in it; the others come
	 * with it. */
	{ "clone", ALLOW, { { 0, CLONE_NEW_ANY, 0 } } },
	{ "clone", EPERM },
	{ "unshare", ALLOW, { { 0, ALL & ~UNSHARE_FINE, 0 } } },
	{ "unshare", EPERM },

	{ "personality", ALLOW, { { 0, LOW & ~PERSONALITY_FINE, 0 } } },
	{ "personality", ALLOW, { { 0, LOW, 0xffffffff } } }, /* asks, sets nothing */
	{ "personality", EPERM },

	/* Typing into the terminal, which may be the caller's: TIOCSTI, TIOCLINUX (paste). TIOCSETD
	 * loads line disciplines, old modules with a record. */
	{ "ioctl", EPERM, { { 1, LOW, 0x5412 } } },
	{ "ioctl", EPERM, { { 1, LOW, 0x541c } } },
	{ "ioctl", EPERM, { { 1, LOW, 0x5423 } } },
	{ "ioctl", ALLOW },

	/* Families: unix; TCP, UDP, ping and raw over IP; netlink for routes (ip, getifaddrs),
	 * socket listings (ss) and device events (libudev). By type and protocol too, since SCTP,
	 * DCCP, MPTCP, L2TP and UDP-Lite sit under AF_INET, load modules on demand, and since
	 * AF_INET with SOCK_PACKET is AF_PACKET. Refused netlink: audit, netfilter, xfrm, generic
	 * and the rest. The errnos are those of a kernel built without them: sudo, useradd and Go
	 * look for them. */
	{ "socket", ALLOW, { { 0, LOW, 1 } } },
	{ "socket", ALLOW, { INET, TYPE(1), PROTO(0) } },
	{ "socket", ALLOW, { INET, TYPE(1), PROTO(6) } }, /* TCP */
	{ "socket", ALLOW, { INET, TYPE(2), PROTO(0) } },
	{ "socket", ALLOW, { INET, TYPE(2), PROTO(17) } }, /* UDP */
	{ "socket", ALLOW, { INET, TYPE(2), PROTO(1) } }, /* ping */
	{ "socket", ALLOW, { INET, TYPE(2), PROTO(58) } }, /* ping, IPv6 */
	{ "socket", ALLOW, { INET, TYPE(3) } }, /* raw: needs CAP_NET_RAW */
	{ "socket", EPROTONOSUPPORT, { INET } },
	{ "socket", ALLOW, { NETLINK, PROTO(0) } }, /* route */
	{ "socket", ALLOW, { NETLINK, PROTO(4) } }, /* sock_diag */
	{ "socket", ALLOW, { NETLINK, PROTO(15) } }, /* kobject_uevent */
	{ "socket", EPROTONOSUPPORT, { NETLINK } },
	{ "socket", EAFNOSUPPORT },
	/* Unix is the only family with pairs, but for TIPC. */
	{ "socketpair", ALLOW, { { 0, LOW, 1 } } },
	{ "socketpair", EAFNOSUPPORT },

	/* The old way to load firewall rules (iptables, ip6tables, arptables, ebtables, IPVS), a
	 * parser in the kernel that root in a namespace may feed. Netlink's way is closed above. */
	{ "setsockopt", ENOPROTOOPT, { OPT(0, ~1ULL, 64) } },
	{ "setsockopt", ENOPROTOOPT, { OPT(0, ~1ULL, 96) } },
	{ "setsockopt", ENOPROTOOPT, { OPT(0, ~1ULL, 128) } },
	{ "setsockopt", ENOPROTOOPT, { OPT(0, ~0x3fULL, 0x480) } },
	{ "setsockopt", ENOPROTOOPT, { OPT(41, ~1ULL, 64) } },
	{ "setsockopt", ALLOW },
};
/* clang-format on */

/* Numbers that libseccomp may be too old to know. From 424 on a number is the same on every ABI. */
static const struct {
	const char *name;
	int nr;
	int x86_64_only;
} new_calls[] = {
	{ "uretprobe", 335, 1 },
	{ "cachestat", 451 },
	{ "fchmodat2", 452 },
	{ "map_shadow_stack", 453 },
	{ "futex_wake", 454 },
	{ "futex_wait", 455 },
	{ "futex_requeue", 456 },
	{ "statmount", 457 },
	{ "listmount", 458 },
	{ "lsm_get_self_attr", 459 },
	{ "lsm_set_self_attr", 460 },
	{ "lsm_list_modules", 461 },
	{ "mseal", 462 },
	{ "setxattrat", 463 },
	{ "getxattrat", 464 },
	{ "listxattrat", 465 },
	{ "removexattrat", 466 },
	{ "open_tree_attr", 467 },
	{ "file_getattr", 468 },
	{ "file_setattr", 469 },
	{ "listns", 470 },
};
