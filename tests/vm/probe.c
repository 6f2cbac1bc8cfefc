/*
 * What den's container wall asks of a kernel, tried one by one. Run it in the guest:
 *
 *   cc -O2 -Wall -static -o BUILDDIR/vm-probe tests/vm/probe*.c
 *   tests/vm/run BUILDDIR -- BUILDDIR/vm-probe            as root
 *   tests/vm/run BUILDDIR -- vm-as 1000 BUILDDIR/vm-probe  as an ordinary user
 *
 * One line a question: "ok" or "NO", and the errno or figure behind it. Exit status 1 if something
 * that den needs on every kernel is missing; what newer kernels have is asked and not required.
 * Each question is asked in a process of its own, in a scratch directory on the disk.
 */
#include "probe.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <time.h>
#include <unistd.h>

char scratch[256], self_cgroup[4096];

/* End this question: "ok" or "NO" with a reason. errno is shown if it is set. */
void __attribute__((noreturn, format(printf, 2, 3))) answer(bool ok, const char *fmt, ...)
{
	int sys = errno;
	va_list ap;

	va_start(ap, fmt);
	vprintf(fmt, ap);
	va_end(ap);
	if (!ok && sys)
		printf(": %s", strerror(sys));
	fflush(stdout);
	_exit(ok ? 0 : 1);
}

void put(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);

	if (fd < 0 || write(fd, text, strlen(text)) < 0)
		answer(false, "write '%s' to %s", text, path);
	close(fd);
}

void put_proc(pid_t pid, const char *file, const char *fmt, ...)
{
	char path[64], text[64];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	snprintf(path, sizeof(path), "/proc/%d/%s", pid, file);
	put(path, text);
}

const char *at(const char *name)
{
	static char ring[8][512];
	static int i;

	i = (i + 1) % 8;
	snprintf(ring[i], sizeof(ring[i]), "%s/%s", scratch, name);
	return ring[i];
}

/* A child in new namespaces, which waits until its ids are mapped and *go is written to. */
pid_t enter(unsigned long long flags, int cgroup, int *go)
{
	struct clone_args a = { .flags = flags | (cgroup >= 0 ? CLONE_INTO_CGROUP : 0),
		.exit_signal = SIGCHLD, .cgroup = cgroup >= 0 ? (unsigned)cgroup : 0 };
	int p[2];
	pid_t pid;
	char c;

	TRY(pipe2(p, O_CLOEXEC));
	pid = TRY(syscall(SYS_clone3, &a, sizeof(a)));
	if (pid == 0) {
		close(p[1]);
		if (read(p[0], &c, 1) != 1)
			_exit(97);	/* whoever asked has given up */
		TRY(setresgid(0, 0, 0));
		TRY(setresuid(0, 0, 0));
		/* Another uid makes a process undumpable, and then its /proc/self is not its own. */
		TRY(prctl(PR_SET_DUMPABLE, 1, 0, 0, 0));
		return 0;
	}
	close(p[0]);
	*go = p[1];
	return pid;
}

void map_ids(pid_t pid)
{
	if (geteuid() == 0) {
		put_proc(pid, "uid_map", "0 %u 65536", BASE);
		put_proc(pid, "gid_map", "0 %u 65536", BASE);
	} else {
		put_proc(pid, "setgroups", "deny");
		put_proc(pid, "uid_map", "0 %u 1", geteuid());
		put_proc(pid, "gid_map", "0 %u 1", getegid());
	}
}

/* The child's answer, which it printed itself, is ours. */
void __attribute__((noreturn)) follow(pid_t pid, int go)
{
	int status;

	TRY(write(go, "x", 1));
	TRY(waitpid(pid, &status, 0));
	if (WIFSIGNALED(status)) {
		errno = 0;
		answer(false, "the child died of signal %d", WTERMSIG(status));
	}
	_exit(WEXITSTATUS(status));
}

static const struct question {
	const char *name;
	void (*ask)(void);
	bool need;	/* den has no way round it */
	bool root;	/* only asked as root */
} questions[] = {
	{ "namespaces",         ask_namespaces,          true,  false },
	{ "kernel mounts",      ask_proc_mount,          true,  false },
	{ "cgroup2 mount",      ask_cgroup2_mount,       true,  false },
	{ "overlay in userns",  ask_overlay_userns,      true,  false },
	{ "idmap+overlay disk", ask_overlay_idmap_disk,  true,  true },
	{ "idmap+overlay btrfs", ask_overlay_idmap_btrfs, true, true },
	{ "idmap+overlay tmpfs", ask_overlay_idmap_tmpfs, false, true },
	{ "tmpfs xattr",        ask_tmpfs_xattr,         false, false },
	{ "overlay lowerdir+",  ask_fsopen_overlay,      false, false },
	{ "mknod in userns",    ask_mknod_userns,        true,  false },
	{ "cgroup files",       ask_cgroup_files,        true,  false },
	{ "cgroup.procs 0",     ask_cgroup_zero,         true,  false },
	{ "clone into cgroup",  ask_cgroup_clone,        true,  false },
	{ "cgroup.kill",        ask_cgroup_kill,         true,  false },
	{ "cgroup.freeze",      ask_cgroup_freeze,       true,  false },
	{ "cgroup oom",         ask_cgroup_oom,          true,  false },
	{ "timens fork",        ask_timens_fork,         true,  false },
	{ "timens exec",        ask_timens_exec,         false, false },
	{ "timens vfork+exec",  ask_timens_vfork,        false, false },
	{ "timens clone3",      ask_timens_clone3,       false, false },
	{ "seccomp without nnp", ask_seccomp,            true,  false },
	{ "seccomp notify",     ask_seccomp_notify,      true,  false },
	{ "landlock",           ask_landlock,            true,  false },
	{ "openat2",            ask_openat2,             true,  false },
	{ "close_range",        ask_close_range,         true,  false },
	{ "pidfs",              ask_pidfd,               false, false },
	{ "peer pidfd",         ask_peerpidfd,           false, false },
	{ "memfd noexec",       ask_detached_exec,       false, false },
	{ "fchmodat2",          ask_fchmodat2,           false, false },
	{ "statmount",          ask_statmount,           false, false },
};

/* Our groups go beside our own: one that holds processes cannot give controllers to children. */
static void find_cgroup(void)
{
	char line[2048], *slash;
	FILE *f = fopen("/proc/self/cgroup", "re");

	while (f && fgets(line, sizeof(line), f))
		if (strncmp(line, "0::", 3) == 0) {
			line[strcspn(line, "\n")] = 0;
			snprintf(self_cgroup, sizeof(self_cgroup), "/sys/fs/cgroup%s", line + 3);
		}
	if (f)
		fclose(f);
	slash = strrchr(self_cgroup, '/');
	if (slash)
		*slash = 0;
}

static bool question_ask(const struct question *q)
{
	int status;
	pid_t pid;

	strcpy(scratch, "/tmp/vm-probe.XXXXXX");
	if (!mkdtemp(scratch))
		return false;
	chmod(scratch, 0755);
	printf("%-20s ", q->name);
	fflush(stdout);
	pid = fork();
	if (pid == 0) {
		errno = 0;
		q->ask();
		_exit(98);
	}
	waitpid(pid, &status, 0);
	bool ok = WIFEXITED(status) && WEXITSTATUS(status) == 0;
	if (WIFSIGNALED(status))
		printf("died of signal %d", WTERMSIG(status));
	printf("\t%s\n", ok ? "ok" : q->need ? "NO" : "no (not needed)");
	fflush(stdout);
	return ok || !q->need;
}

int main(int argc, char **argv)
{
	int failed = 0, asked = 0;

	if (argc == 3 && strcmp(argv[1], "timens") == 0)
		return timens_after_exec(argv[2]);
	find_cgroup();
	for (size_t i = 0; i < sizeof(questions) / sizeof(*questions); i++) {
		if (questions[i].root && geteuid() != 0)
			continue;
		asked++;
		failed += !question_ask(&questions[i]);
	}
	printf("%d asked as uid %d, %d needed and missing\n", asked, geteuid(), failed);
	return failed != 0;
}
