/* What a process is: limits, masks, names, rights. */
#include "memory.h"

#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>

extern char **environ;

static char cwd[300], exe[300];
static uint64_t env_sum, args_sum;
static cpu_set_t cpus;
static struct __user_cap_data_struct caps[2];

static uint64_t sum_text(const char *s, uint64_t h)
{
	for (; *s; s++)
		h = mix(h ^ (unsigned char)*s);
	return mix(h);
}

static uint64_t sum_environment(void)
{
	uint64_t h = 0;

	for (char **e = environ; *e; e++)
		h = sum_text(*e, h);
	return h;
}

static uint64_t sum_file(const char *path)
{
	char text[8000];
	int fd = open(path, O_RDONLY);
	ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text));
	uint64_t h = (uint64_t)n;

	close(fd);
	for (ssize_t i = 0; i < n; i++)
		h = mix(h ^ (unsigned char)text[i]);
	return h;
}

static bool capabilities(struct __user_cap_data_struct *d)
{
	struct __user_cap_header_struct h = { _LINUX_CAPABILITY_VERSION_3, 0 };

	return syscall(SYS_capget, &h, d) == 0;
}

static void self_setup(const char *argument)
{
	struct rlimit files = { 200, 1000 }, core = { 0, 0 }, size = { 1 << 30, RLIM_INFINITY };
	struct __user_cap_header_struct h = { _LINUX_CAPABILITY_VERSION_3, 0 };
	cpu_set_t one;
	ssize_t n;

	(void)argument;
	MUST(setenv("MEMORY_CARRIED", "an environment with = and \n", 1) == 0);
	MUST(mkdir("deep", 0755) == 0 && chdir("deep") == 0 && getcwd(cwd, sizeof(cwd)));
	n = readlink("/proc/self/exe", exe, sizeof(exe) - 1);
	MUST(n > 0);
	umask(027);
	MUST(setrlimit(RLIMIT_NOFILE, &files) == 0 && setrlimit(RLIMIT_CORE, &core) == 0);
	if (setrlimit(RLIMIT_FSIZE, &size) < 0) {
		size.rlim_max = 1 << 30;
		MUST(setrlimit(RLIMIT_FSIZE, &size) == 0);
	}
	MUST(setpriority(PRIO_PROCESS, 0, 5) == 0);
	MUST(prctl(PR_SET_NAME, "carried-self") == 0);
	MUST(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
	CPU_ZERO(&one);
	MUST(sched_getaffinity(0, sizeof(cpus), &cpus) == 0);
	/* Less than it had, where there is something to give up. */
	MUST(capabilities(caps));
	if (caps[0].permitted) {
		caps[0].effective &= ~(1U << CAP_CHOWN);
		caps[0].permitted &= ~(1U << CAP_FSETID);
		caps[0].effective &= caps[0].permitted;
		caps[0].inheritable &= caps[0].permitted;
		MUST(syscall(SYS_capset, &h, caps) == 0);
	} else {
		without("capabilities");
	}
	MUST(capabilities(caps));
	env_sum = sum_environment();
	args_sum = sum_file("/proc/self/cmdline");
}

static void limits_check(void)
{
	struct rlimit l;

	CHECK(getrlimit(RLIMIT_NOFILE, &l) == 0);
	IS(l.rlim_cur, 200);
	IS(l.rlim_max, 1000);
	CHECK(getrlimit(RLIMIT_CORE, &l) == 0);
	IS(l.rlim_max, 0);
	CHECK(getrlimit(RLIMIT_FSIZE, &l) == 0);
	IS(l.rlim_cur, 1 << 30);
}

static void self_check(void)
{
	struct __user_cap_data_struct now[2];
	char path[300], name[17] = "";
	mode_t mask = umask(0);
	cpu_set_t set;

	umask(mask);
	IS(mask, 027);
	limits_check();
	CHECK(getcwd(path, sizeof(path)) && strcmp(path, cwd) == 0);
	memset(path, 0, sizeof(path));
	CHECK(readlink("/proc/self/exe", path, sizeof(path) - 1) > 0 && strcmp(path, exe) == 0);
	IS(getpriority(PRIO_PROCESS, 0), 5);
	CHECK(prctl(PR_GET_NAME, name) == 0 && strcmp(name, "carried-self") == 0);
	IS(prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0), 1);
	CHECK(sched_getaffinity(0, sizeof(set), &set) == 0 && CPU_EQUAL(&set, &cpus));
	CHECK(capabilities(now) && memcmp(now, caps, sizeof(caps)) == 0);
	CHECK(strcmp(getenv("MEMORY_CARRIED") ?: "", "an environment with = and \n") == 0);
	CHECK(sum_environment() == env_sum);
	CHECK(sum_file("/proc/self/cmdline") == args_sum);
}

const struct subject subject_self = { "self", self_setup, self_check, NULL, NULL };

/* ---- user: somebody who is not root ---- */

static uid_t uid;

static void user_setup(const char *argument)
{
	const gid_t groups[] = { 2000, 1234, 1000 };

	(void)argument;
	if (getuid() == 0) {
		MUST(chmod(".", 0777) == 0);
		if (setgroups(3, groups) < 0 || setresgid(1000, 1001, 1000) < 0 ||
			setresuid(1000, 1000, 1000) < 0)
			without("another user: nobody but root is in this box");
		prctl(PR_SET_DUMPABLE, 1);
	}
	uid = getuid();
}

static void user_check(void)
{
	uid_t r, e, s;
	gid_t g[10];
	int n = getgroups(10, g);

	CHECK(getresuid(&r, &e, &s) == 0);
	IS(r, uid);
	IS(e, uid);
	IS(s, uid);
	if (uid == 0)
		return;
	if (uid == 1000 && n == 3) {
		IS(g[0] + g[1] + g[2], 2000 + 1234 + 1000);
		IS(getegid(), 1001);
		IS(getgid(), 1000);
	}
	CHECK(setresuid(0, 0, 0) < 0 && errno == EPERM);
	CHECK(open("/etc/shadow", O_RDONLY) < 0 && errno == EACCES);
}

const struct subject subject_user = { "user", user_setup, user_check, NULL, NULL };
