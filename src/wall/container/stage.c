/*
 * The dangerous minute: from clone3() to the exec of den-init, as a table.
 * Nothing here may call malloc(): the child of a clone has the allocator's state of that instant.
 */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <linux/landlock.h>
#include <net/if.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "fd.h"
#include "launch.h"
#include "mem.h"
#include "seccomp.h"

/* Capabilities that root of a box keeps, over its own user namespace alone. Left out on purpose:
 * SYS_ADMIN (mounts, namespaces), NET_ADMIN (nftables and routes are kernel code that attackers
 * like), SYS_PTRACE (init), SYS_MODULE, SYS_RAWIO, SYS_TIME, SYS_BOOT, SYS_RESOURCE, BPF, PERFMON
 * and what else the kernel grants to nobody in a user namespace. */
const int caps_kept[] = { CAP_CHOWN, CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH, CAP_FOWNER,
	CAP_FSETID, CAP_KILL, CAP_SETGID, CAP_SETUID, CAP_SETPCAP, CAP_NET_BIND_SERVICE,
	CAP_NET_RAW, CAP_SYS_CHROOT, CAP_MKNOD, CAP_AUDIT_WRITE, CAP_SETFCAP, CAP_IPC_OWNER,
	CAP_LEASE };
const int n_caps_kept = ARRAY_SIZE(caps_kept);

/* Waits until the keeper has written the id maps and mapped the layers; later, until it has written
 * down who we are. If it dies instead, so do we. */
int stage_wait(struct launch *l, struct den_err *err)
{
	char c;
	ssize_t n;

	do
		n = read(l->go_fd, &c, 1);
	while (n < 0 && errno == EINTR);
	return n == 1 ? 0 : den_fail(err, DEN_INTERNAL, 0, "the keeper went away");
}

int stage_ids(struct launch *l, struct den_err *err)
{
	if (setresgid(0, 0, 0) < 0 || (l->plan->ids != IDS_SINGLE && setgroups(0, NULL) < 0) ||
		setresuid(0, 0, 0) < 0)
		return den_fail_sys(err, errno, "become root of the box");
	/* Changing ids made us undumpable; our own /proc files are needed until exec. */
	prctl(PR_SET_DUMPABLE, 1, 0, 0, 0);
	return 0;
}

int stage_cgroup(struct launch *l, struct den_err *err)
{
	for (int i = 0; i < l->n_cg_fds; i++)
		if (write(l->cg_fds[i], "0", 1) != 1)
			return den_fail_sys(err, errno, "enter cgroup");
	/* After entering, so that the box sees its own group as the root. */
	if (unshare(CLONE_NEWCGROUP) < 0)
		return den_fail_sys(err, errno, "cgroup namespace");
	return 0;
}

int stage_session(struct launch *l, struct den_err *err)
{
	/* by the keeper; exec would keep that */
	static const int ignored[] = { SIGPIPE, SIGHUP, SIGINT };

	(void)l;
	if (setsid() < 0)
		return den_fail_sys(err, errno, "setsid");
	for (size_t i = 0; i < ARRAY_SIZE(ignored); i++)
		signal(ignored[i], SIG_DFL);
	/* A session keyring of its own: the caller's keys are not to be found from here. */
	syscall(SYS_keyctl, 1 /* KEYCTL_JOIN_SESSION_KEYRING */, NULL, 0, 0, 0);
	umask(022);
	return 0;
}

int stage_hostname(struct launch *l, struct den_err *err)
{
	return sethostname(l->hostname, strlen(l->hostname)) < 0 ?
		den_fail_sys(err, errno, "hostname") : 0;
}

int stage_loopback(struct launch *l, struct den_err *err)
{
	struct ifreq r = { .ifr_name = "lo", .ifr_flags = IFF_UP | IFF_RUNNING };
	auto_fd fd = -1;

	if (l->plan->host_net)
		return 0;
	fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0 || ioctl(fd, SIOCSIFFLAGS, &r) < 0)
		return den_fail_sys(err, errno, "bring up lo");
	return 0;
}

/* Uptime and the monotonic clock of the box begin with it. It enters the namespace at exec, which
 * kernels before 6.3 do not do: there the box sees the host's clocks. */
static int stage_time(struct launch *l, struct den_err *err)
{
	struct timespec mono, boot;
	char text[96];

	(void)err;
	if (!l->time_ns)
		return 0;
	clock_gettime(CLOCK_MONOTONIC, &mono);
	clock_gettime(CLOCK_BOOTTIME, &boot);
	if (unshare(CLONE_NEWTIME) < 0)
		return 0;
	snprintf(text, sizeof(text), "monotonic -%lld 0\nboottime -%lld 0\n",
		(long long)mono.tv_sec, (long long)boot.tv_sec);
	(void)file_write_at(AT_FDCWD, "/proc/self/timens_offsets", text, NULL);
	return 0;
}

int stage_limits(struct launch *l, struct den_err *err)
{
	/* A crash in the box must not start the host's core dump handler: 1 is the kernel's word
	 * for "no dump, not even to a pipe". */
	struct rlimit core = { 1, 1 };

	if (setrlimit(RLIMIT_CORE, &core) < 0)
		return den_fail_sys(err, errno, "core limit");
	if (!l->n_cg_fds && l->plan->spec->pids && !l->own) { /* not the threads of a sentry */
		struct rlimit n = { l->plan->spec->pids, l->plan->spec->pids };

		if (setrlimit(RLIMIT_NPROC, &n) < 0)
			return den_fail_sys(err, errno, "process limit");
	}
	if (l->cpus) {
		cpu_set_t all, mine;
		unsigned n = 0, skip;

		/* nproc counts what the process may run on. Which ones: by id, so that boxes
		 * spread. */
		CPU_ZERO(&mine);
		if (sched_getaffinity(0, sizeof(all), &all) < 0 ||
			(unsigned)CPU_COUNT(&all) <= l->cpus)
			return 0;
		skip = (unsigned)(l->plan->id->s[5] * 31 + l->plan->id->s[9]) %
		       (unsigned)CPU_COUNT(&all);
		for (unsigned i = 0; n < l->cpus; i = (i + 1) % CPU_SETSIZE) {
			if (!CPU_ISSET(i, &all))
				continue;
			if (skip) {
				skip--;
				continue;
			}
			CPU_SET(i, &mine);
			n++;
		}
		sched_setaffinity(0, sizeof(mine), &mine);
	}
	return 0;
}

static int stage_caps(struct launch *l, struct den_err *err)
{
	(void)l;
	for (int cap = 0; cap <= 63; cap++) {
		bool keep = false;

		for (size_t i = 0; i < ARRAY_SIZE(caps_kept); i++)
			keep |= caps_kept[i] == cap;
		if (keep)
			continue;
		if (prctl(PR_CAPBSET_DROP, cap, 0, 0, 0) < 0) {
			if (errno == EINVAL)
				break; /* past the last one this kernel knows */
			return den_fail_sys(err, errno, "drop capability %d", cap);
		}
	}
	/* The bounding set takes effect at exec: what is in force now is needed for the next
	 * stages. */
	return 0;
}

/*
 * Where there is no root, ids do not stand between the box and its owner's files, so a second wall
 * stands there: nothing that is not below the box's root can be opened, not even through a
 * descriptor that should not be there, and no signal or abstract socket crosses.
 */
static int stage_landlock(struct launch *l, struct den_err *err)
{
	static const uint64_t fs_by_abi[] = { 0, 0x1fff, 0x3fff, 0x7fff, 0x7fff, 0xffff, 0xffff };
	struct {
		uint64_t fs, net, scoped;
	} attr = { 0 };
	struct landlock_path_beneath_attr below = { 0 };
	/* the one file from outside that is still to be executed */
	struct landlock_path_beneath_attr init = {
		.allowed_access = LANDLOCK_ACCESS_FS_EXECUTE | LANDLOCK_ACCESS_FS_READ_FILE,
		.parent_fd = l->init_fd
	};
	auto_fd ruleset = -1, rootfd = -1;
	long abi;

	if (l->root)
		return 0;
	abi = syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);
	if (abi < 2) /* without it, or without REFER (rename between directories): do without */
		return 0;
	attr.fs = below.allowed_access = fs_by_abi[MIN(abi, (long)ARRAY_SIZE(fs_by_abi) - 1)];
	if (abi >= 6)
		attr.scoped = 3; /* abstract unix sockets, signals */
	ruleset = (int)syscall(SYS_landlock_create_ruleset, &attr, abi >= 6 ? sizeof(attr) : 8, 0);
	rootfd = open("/", O_PATH | O_CLOEXEC);
	below.parent_fd = rootfd;
	if (ruleset < 0 || rootfd < 0 ||
		syscall(SYS_landlock_add_rule, ruleset, LANDLOCK_RULE_PATH_BENEATH, &below,
			0) < 0 ||
		syscall(SYS_landlock_add_rule, ruleset, LANDLOCK_RULE_PATH_BENEATH, &init, 0) < 0 ||
		syscall(SYS_landlock_restrict_self, ruleset, 0) < 0)
		return den_fail_sys(err, errno, "landlock");
	return 0;
}

static int stage_seccomp(struct launch *l, struct den_err *err)
{
	(void)l;
	return seccomp_load(err);
}

/* Puts init's descriptors where it expects them and closes all others. */
static int stage_exec(struct launch *l, struct den_err *err)
{
	char *argv[] = { (char *)"den-init", l->orphan_s, l->memory, NULL };
	char *env[] = { NULL };
	/* wanted number, descriptor; first all move out of the way */
	int fds[] = { l->plan->listen_fd, l->meminfo_fd, l->memuse_fd, l->init_fd, l->err_fd };
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);

	if (null < 0)
		return den_fail_sys(err, errno, "open /dev/null");
	for (size_t i = 0; i < ARRAY_SIZE(fds); i++)
		if (fds[i] >= 0)
			fds[i] = fcntl(fds[i], F_DUPFD_CLOEXEC, 16);
	l->err_fd = fds[4];
	for (int i = 0; i < 3; i++)
		if (dup2(null, i) < 0)
			return den_fail_sys(err, errno, "stdio");
	for (int i = 0; i < 5; i++) {
		close(3 + i);
		if (fds[i] >= 0 && dup3(fds[i], 3 + i, i < 3 ? 0 : O_CLOEXEC) < 0)
			return den_fail_sys(err, errno, "descriptors");
	}
	l->err_fd = 7;
	fd_close_from(8);
	syscall(SYS_execveat, 6, "", argv, env, AT_EMPTY_PATH);
	return den_fail_sys(err, errno, "execute init");
}

static const struct launch_stage stages[] = {
	{ "wait", stage_wait },		/* the maps must be there before anything else */
	{ "ids", stage_ids },
	{ "cgroup", stage_cgroup },	/* before anything costs: limits are in force from here */
	{ "session", stage_session },
	{ "hostname", stage_hostname },
	{ "loopback", stage_loopback },
	{ "layers", stage_layers },	/* host paths are needed: before pivot */
	{ "prepare", stage_prepare },	/* takes along what only the host's tree has */
	{ "time", stage_time },		/* needs the host's /proc */
	{ "pivot", stage_pivot },	/* no host path resolves then, no link of the box leaves */
	{ "system", stage_system },	/* /proc /sys /dev /run */
	{ "shares", stage_shares },	/* --mount, over the system's */
	{ "trust", stage_trust },	/* the authority of the box's gate; needs /run/den */
	{ "owners", stage_owners },	/* first start, if the template could not be owned right */
	{ "mask", stage_mask },
	{ "limits", stage_limits },
	{ "caps", stage_caps },		/* after the last mount */
	{ "landlock", stage_landlock },
	{ "recorded", stage_wait },	/* what could not be found again must not run */
	{ "seccomp", stage_seccomp },	/* last: forbids most of these; SYS_ADMIN goes at exec */
	{ "exec", stage_exec },
};

const struct launch_kind launch_container = { stages, ARRAY_SIZE(stages), NULL };

void launch_child(struct launch *l)
{
	struct launch_msg m = { 0 };

	for (l->step = 0; l->step < l->kind->n_stages; l->step++) {
		if (l->kind->stages[l->step].run(l, &m.err) < 0) {
			m.step = l->step;
			(void)!write(l->err_fd, &m, sizeof(m));
			break;
		}
	}
	_exit(1);
}
