/* cgroup v2. */
#include "probe.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static int cgroup_make(const char *name, char *path, size_t size)
{
	snprintf(path, size, "%s/%s-%d", self_cgroup, name, getpid());
	TRY(mkdir(path, 0755));
	return TRY(open(path, O_DIRECTORY | O_RDONLY | O_CLOEXEC));
}

static bool cgroup_has(const char *dir, const char *file, pid_t pid)
{
	char path[4200], text[4096] = "", *line, *save;
	int fd;

	snprintf(path, sizeof(path), "%s/%s", dir, file);
	fd = TRY(open(path, O_RDONLY | O_CLOEXEC));
	TRY(read(fd, text, sizeof(text) - 1));
	close(fd);
	for (line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save))
		if (atoi(line) == pid)
			return true;
	return false;
}

/* Removal fails as long as a zombie's group is busy, so wait for it for a while. */
static void cgroup_drop(const char *path)
{
	for (int i = 0; i < 100 && rmdir(path) < 0 && errno == EBUSY; i++)
		usleep(10000);
}

void ask_cgroup_zero(void)
{
	char path[4200];
	int dir = cgroup_make("zero", path, sizeof(path)), go, status;
	int procs = TRY(openat(dir, "cgroup.procs", O_WRONLY | O_CLOEXEC));
	pid_t pid = enter(ALL_NS, -1, &go);

	if (pid == 0) {
		TRY(write(procs, "0", 1));
		TRY(unshare(CLONE_NEWCGROUP));
		pause();
	}
	map_ids(pid);
	TRY(write(go, "x", 1));
	for (int i = 0; i < 300 && !cgroup_has(path, "cgroup.procs", pid); i++) {
		if (waitpid(pid, &status, WNOHANG) == pid) {
			cgroup_drop(path);
			_exit(1);	/* it said why */
		}
		usleep(10000);
	}
	bool there = cgroup_has(path, "cgroup.procs", pid);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	cgroup_drop(path);
	errno = 0;
	answer(there, "\"0\" into an inherited cgroup.procs, written in the new user namespace");
}

void ask_cgroup_clone(void)
{
	char path[4200];
	int dir = cgroup_make("clone", path, sizeof(path)), go;
	pid_t pid = enter(ALL_NS | CLONE_NEWCGROUP, dir, &go);

	if (pid == 0)
		pause();
	bool there = cgroup_has(path, "cgroup.procs", pid);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	cgroup_drop(path);
	errno = 0;
	answer(there, "clone3(CLONE_INTO_CGROUP) with all namespaces");
}

void ask_cgroup_kill(void)
{
	char path[4200];
	int dir = cgroup_make("kill", path, sizeof(path)), go, fd, status;
	pid_t pid = enter(ALL_NS | CLONE_NEWCGROUP, dir, &go);

	if (pid == 0)
		pause();
	fd = TRY(openat(dir, "cgroup.kill", O_WRONLY | O_CLOEXEC));
	TRY(write(fd, "1", 1));
	TRY(waitpid(pid, &status, 0));
	cgroup_drop(path);
	errno = 0;
	answer(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL, "cgroup.kill");
}

void ask_cgroup_freeze(void)
{
	char path[4200], file[4300], text[256] = "";
	int dir = cgroup_make("freeze", path, sizeof(path)), go, fd, i;
	pid_t pid = enter(ALL_NS | CLONE_NEWCGROUP, dir, &go);

	if (pid == 0)
		pause();
	snprintf(file, sizeof(file), "%s/cgroup.freeze", path);
	put(file, "1");
	for (i = 0; i < 300 && !strstr(text, "frozen 1"); i++) {
		usleep(10000);
		fd = TRY(openat(dir, "cgroup.events", O_RDONLY | O_CLOEXEC));
		TRY(read(fd, text, sizeof(text) - 1));
		close(fd);
	}
	put(file, "0");
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	cgroup_drop(path);
	errno = 0;
	answer(i < 300, "cgroup.freeze");
}

void ask_cgroup_files(void)
{
	static const char *const need[] = { "memory.max", "memory.high", "memory.swap.max",
		"memory.events", "memory.oom.group", "pids.max", "pids.events", "cpu.max",
		"cpu.weight", "cpu.stat" };
	static const char *const more[] = { "memory.peak", "memory.reclaim", "pids.peak",
		"memory.pressure", "cpu.max.burst", "cpu.idle", "cpuset.cpus", "io.max",
		"cpu.stat.local" };
	char path[4200], missing[512] = "", lacks[512] = "";
	int dir = cgroup_make("files", path, sizeof(path));

	for (size_t i = 0; i < sizeof(need) / sizeof(*need); i++)
		if (faccessat(dir, need[i], F_OK, 0) < 0)
			strcat(strcat(missing, " "), need[i]);
	for (size_t i = 0; i < sizeof(more) / sizeof(*more); i++)
		if (faccessat(dir, more[i], F_OK, 0) < 0)
			strcat(strcat(lacks, " "), more[i]);
	cgroup_drop(path);
	errno = 0;
	answer(!*missing, "missing:%s; not there, not needed:%s", *missing ? missing : " none",
	       *lacks ? lacks : " none");
}

void ask_cgroup_oom(void)
{
	char path[4200], file[4300], text[512] = "", *hit;
	int dir = cgroup_make("oom", path, sizeof(path)), go, fd, status;
	pid_t pid;

	snprintf(file, sizeof(file), "%s/memory.max", path);
	put(file, "16777216");
	pid = enter(CLONE_NEWUSER | CLONE_NEWPID, dir, &go);
	if (pid == 0) {
		char *p = mmap(NULL, 64 << 20, PROT_READ | PROT_WRITE,
			       MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
		memset(p, 1, 64 << 20);
		errno = 0;
		answer(false, "64 MiB fit into 16");
	}
	map_ids(pid);
	TRY(write(go, "x", 1));
	TRY(waitpid(pid, &status, 0));
	fd = TRY(openat(dir, "memory.events", O_RDONLY));
	TRY(read(fd, text, sizeof(text) - 1));
	hit = strstr(text, "oom_kill ");
	cgroup_drop(path);
	errno = 0;
	answer(WIFSIGNALED(status) && hit && atoi(hit + 9) > 0, "memory.max kills, memory.events says so");
}
