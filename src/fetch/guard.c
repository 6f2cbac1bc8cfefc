#include "guard.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <linux/landlock.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "fd.h"
#include "mem.h"
#include "parse.h"

#if defined(__SANITIZE_ADDRESS__)
#define SHADOW_MEMORY                                                                              \
	1 /* AddressSanitizer maps terabytes, and looks for leaks in /proc at the end */
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SHADOW_MEMORY 1
#endif
#endif

int guard_parse_drop(const char *text, struct guard *g, struct den_err *err)
{
	char uid[16];
	uint64_t u, n;
	const char *colon = strchr(text, ':');

	if (!colon || (size_t)(colon - text) >= sizeof(uid))
		return den_fail(err, DEN_INVALID, 0, "'%.40s' is not UID:GID", text);
	snprintf(uid, sizeof(uid), "%.*s", (int)(colon - text), text);
	if (parse_u64(uid, 1, UINT32_MAX - 1, &u, err) < 0 ||
		parse_u64(colon + 1, 1, UINT32_MAX - 1, &n, err) < 0)
		return den_wrap(err, "--drop");
	g->drop = true;
	g->uid = (uid_t)u;
	g->gid = (gid_t)n;
	return 0;
}

static int limits_set(struct den_err *err)
{
	static const struct {
		int what;
		rlim_t most;
	} limits[] = {
#ifndef SHADOW_MEMORY
		{ RLIMIT_AS, 1UL << 30 },
#endif
		{ RLIMIT_NOFILE, 256 }, { RLIMIT_CORE, 0 }, /* passwords are in memory */
	};

	for (size_t i = 0; i < ARRAY_SIZE(limits); i++) {
		struct rlimit r;

		if (getrlimit(limits[i].what, &r) < 0)
			return den_fail_sys(err, errno, "read a limit");
		r.rlim_cur = MIN(r.rlim_cur, limits[i].most);
		r.rlim_max = MIN(r.rlim_max, limits[i].most);
		if (setrlimit(limits[i].what, &r) < 0)
			return den_fail_sys(err, errno, "set a limit");
	}
	return 0;
}

/* Becoming somebody else forgets which signal our parent's death sends; whoever asked for it needs
 * it. */
static int ids_drop(const struct guard *g, struct den_err *err)
{
	int death = 0;

	if (geteuid() != 0) {
		if (geteuid() == g->uid && getegid() == g->gid)
			return 0;
		return den_fail(err, DEN_DENIED, 0, "--drop needs root; leave it out");
	}
	prctl(PR_GET_PDEATHSIG, &death);
	if (setgroups(0, NULL) < 0 || setresgid(g->gid, g->gid, g->gid) < 0 ||
		setresuid(g->uid, g->uid, g->uid) < 0)
		return den_fail_sys(err, errno, "become user %u", (unsigned)g->uid);
	if (setuid(0) == 0 || geteuid() != g->uid)
		return den_fail(err, DEN_INTERNAL, 0, "root came back after --drop");
	if (death)
		prctl(PR_SET_PDEATHSIG, death);
	return 0;
}

/* Root without --drop: all that is left is to write in a directory that is another user's. */
static int caps_drop(struct den_err *err)
{
	struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct data[2] = { 0 };

	if (syscall(SYS_capget, &head, data) < 0)
		return den_fail_sys(err, errno, "read capabilities");
	data[0].permitted &= 1U << CAP_DAC_OVERRIDE;
	data[0].effective = data[0].permitted;
	data[0].inheritable = 0;
	data[1] = (struct __user_cap_data_struct){ 0 };
	if (syscall(SYS_capset, &head, data) < 0)
		return den_fail_sys(err, errno, "give up capabilities");
	return 0;
}

/* The header of the oldest distribution that we build on does not know all of these. */
struct ruleset {
	uint64_t fs, net, scoped;
};
#define FS_V1 ((1ULL << 13) - 1)
#define FS_REFER (1ULL << 13)
#define FS_TRUNCATE (1ULL << 14)
#define FS_IOCTL_DEV (1ULL << 15)
#define NET_BIND_TCP (1ULL << 0)
#define SCOPE_ALL 3ULL /* abstract sockets, signals */
#define FS_READ (LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR)
#define FS_READ_OF_FILE LANDLOCK_ACCESS_FS_READ_FILE

static int rule_add(int rules, int fd, uint64_t access, struct den_err *err)
{
	struct landlock_path_beneath_attr rule = { .allowed_access = access, .parent_fd = fd };

	if (syscall(SYS_landlock_add_rule, rules, LANDLOCK_RULE_PATH_BENEATH, &rule, 0) < 0)
		return den_fail_sys(err, errno, "landlock: add a rule");
	return 0;
}

static int rules_readable(int rules, struct den_err *err)
{
	/* certificates, the resolver's settings and plug-ins; resolv.conf is often a link to
	 * elsewhere */
	static const char *const paths[] = {
		"/etc",
		"/usr",
		"/lib",
		"/lib64",
		"/etc/resolv.conf",
		"/run/systemd/resolve",
		"/var/lib/ca-certificates",
		"/dev/null",
		"/dev/urandom",
#ifdef SHADOW_MEMORY
		"/proc",
#endif
	};

	for (size_t i = 0; i < ARRAY_SIZE(paths); i++) {
		auto_fd fd = open(paths[i], O_PATH | O_CLOEXEC);
		struct stat st;

		if (fd < 0 || fstat(fd, &st) < 0)
			continue;
		if (rule_add(rules, fd, S_ISDIR(st.st_mode) ? FS_READ : FS_READ_OF_FILE, err) < 0)
			return den_wrap(err, "'%s'", paths[i]);
	}
	return 0;
}

static int landlock_enter(int dir, struct den_err *err)
{
	struct ruleset set = { .fs = FS_V1 };
	long abi = syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);
	size_t size = sizeof(set.fs);
	uint64_t write = FS_READ | LANDLOCK_ACCESS_FS_WRITE_FILE | LANDLOCK_ACCESS_FS_REMOVE_FILE |
			 LANDLOCK_ACCESS_FS_MAKE_REG;
	auto_fd rules = -1;

	if (abi < 1) /* this kernel has none */
		return 0;
	if (abi >= 2)
		set.fs |= FS_REFER;
	if (abi >= 3) {
		set.fs |= FS_TRUNCATE;
		write |= FS_TRUNCATE;
	}
	if (abi >= 4) {
		set.net = NET_BIND_TCP;
		size = offsetof(struct ruleset, scoped);
	}
	if (abi >= 5)
		set.fs |= FS_IOCTL_DEV;
	if (abi >= 6) {
		set.scoped = SCOPE_ALL;
		size = sizeof(set);
	}
	rules = (int)syscall(SYS_landlock_create_ruleset, &set, size, 0);
	if (rules < 0)
		return den_fail_sys(err, errno, "landlock");
	if (rules_readable(rules, err) < 0 || rule_add(rules, dir, write, err) < 0)
		return -1;
	if (syscall(SYS_landlock_restrict_self, rules, 0) < 0)
		return den_fail_sys(err, errno, "landlock");
	return 0;
}

int guard_enter(const struct guard *g, struct den_err *err)
{
	if (limits_set(err) < 0 || (g->drop && ids_drop(g, err) < 0) ||
		(geteuid() == 0 && caps_drop(err) < 0))
		return -1;
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		return den_fail_sys(err, errno, "give up new privileges");
#ifndef SHADOW_MEMORY
	prctl(PR_SET_DUMPABLE, 0); /* nobody else's debugger reads passwords here */
#endif
	return landlock_enter(g->dir, err);
}
