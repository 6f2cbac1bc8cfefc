/*
 * What den's container wall asks of a kernel, tried one by one. Run it in the guest:
 *
 *   cc -O2 -Wall -static -o BUILDDIR/vm-probe tests/vm/probe.c
 *   tests/vm/run BUILDDIR -- BUILDDIR/vm-probe            as root
 *   tests/vm/run BUILDDIR -- vm-as 1000 BUILDDIR/vm-probe  as an ordinary user
 *
 * One line a question: "ok" or "NO", and the errno or figure behind it. Exit status 1 if something
 * that den needs on every kernel is missing; what newer kernels have is asked and not required.
 * Each question is asked in a process of its own, in a scratch directory on the disk.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/landlock.h>
#include <linux/mount.h>
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
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <time.h>
#include <unistd.h>

#ifndef CLONE_NEWTIME
#define CLONE_NEWTIME 0x80
#endif
#define BASE 1073741824u	/* first host id of the box that the root half makes */
#define ALL_NS (CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC | \
		CLONE_NEWUTS)

static char scratch[256], self_cgroup[4096];

/* End this question: "ok" or "NO" with a reason. errno is shown if it is set. */
static void __attribute__((noreturn, format(printf, 2, 3))) answer(bool ok, const char *fmt, ...)
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
#define TRY(call) ({						\
	errno = 0;						\
	long r_ = (long)(call);					\
	if (r_ < 0)						\
		answer(false, "%s", #call);			\
	r_;							\
})

static void put(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);

	if (fd < 0 || write(fd, text, strlen(text)) < 0)
		answer(false, "write '%s' to %s", text, path);
	close(fd);
}

static void put_proc(pid_t pid, const char *file, const char *fmt, ...)
{
	char path[64], text[64];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	snprintf(path, sizeof(path), "/proc/%d/%s", pid, file);
	put(path, text);
}

static const char *at(const char *name)
{
	static char ring[8][512];
	static int i;

	i = (i + 1) % 8;
	snprintf(ring[i], sizeof(ring[i]), "%s/%s", scratch, name);
	return ring[i];
}

/* A child in new namespaces, which waits until its ids are mapped and *go is written to. */
static pid_t enter(unsigned long long flags, int cgroup, int *go)
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

static void map_ids(pid_t pid)
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
static void __attribute__((noreturn)) follow(pid_t pid, int go)
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

static void ask_namespaces(void)
{
	int go;
	pid_t pid = enter(ALL_NS | CLONE_NEWCGROUP, -1, &go);

	if (pid == 0)
		answer(getpid() == 1 && getuid() == 0, "user mount pid net ipc uts cgroup at once");
	map_ids(pid);
	follow(pid, go);
}

static void ask_overlay_userns(void)
{
	int go;
	pid_t pid;
	char opt[2048];

	mkdir(at("low"), 0755);
	close(TRY(open(at("low/file"), O_CREAT | O_WRONLY, 0644)));
	pid = enter(CLONE_NEWUSER | CLONE_NEWNS, -1, &go);
	if (pid == 0) {
		TRY(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL));
		mkdir(at("root"), 0755);
		snprintf(opt, sizeof(opt), "lowerdir=%s,upperdir=%s,workdir=%s,userxattr", at("low"),
			 at("up"), at("work"));
		TRY(mount("o", at("root"), "overlay", 0, opt));
		TRY(unlink(at("root/file")));
		close(TRY(open(at("root/new"), O_CREAT | O_WRONLY, 0644)));
		answer(access(at("root/file"), F_OK) < 0, "upper on the disk, whiteout made");
	}
	map_ids(pid);
	/* As root the box's ids must own its upper; as a user they are our own. */
	mkdir(at("up"), 0755);
	mkdir(at("work"), 0755);
	if (geteuid() == 0) {
		TRY(chown(at("up"), BASE, BASE));
		TRY(chown(at("work"), BASE, BASE));
		TRY(chown(scratch, BASE, BASE));
	}
	follow(pid, go);
}

static int tree_of(const char *path)
{
	return TRY(syscall(SYS_open_tree, AT_FDCWD, path, OPEN_TREE_CLONE | O_CLOEXEC));
}

static void idmap(int tree, pid_t pid)
{
	struct mount_attr attr = { .attr_set = MOUNT_ATTR_IDMAP };
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/ns/user", pid);
	attr.userns_fd = TRY(open(path, O_RDONLY | O_CLOEXEC));
	TRY(syscall(SYS_mount_setattr, tree, "", AT_EMPTY_PATH, &attr, sizeof(attr)));
}

static void overlay_idmapped(const char *dir)
{
	char opt[2048], stage[600];
	struct stat st;
	int go, low, up;
	pid_t pid;

	snprintf(stage, sizeof(stage), "%s/stage", dir);
	mkdir(stage, 0755);
	snprintf(opt, sizeof(opt), "%s/box", dir);
	mkdir(opt, 0755);
	snprintf(opt, sizeof(opt), "%s/box/u", dir);
	mkdir(opt, 0755);
	snprintf(opt, sizeof(opt), "%s/box/w", dir);
	mkdir(opt, 0755);
	low = tree_of("/usr");
	snprintf(opt, sizeof(opt), "%s/box", dir);
	up = tree_of(opt);
	pid = enter(CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID, -1, &go);
	if (pid == 0) {
		TRY(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL));
		TRY(mount("t", stage, "tmpfs", 0, "mode=755"));
		TRY(chdir(stage));
		TRY(mkdir("l", 0755) | mkdir("u", 0755) | mkdir("r", 0755));
		TRY(syscall(SYS_move_mount, low, "", AT_FDCWD, "l", MOVE_MOUNT_F_EMPTY_PATH));
		TRY(syscall(SYS_move_mount, up, "", AT_FDCWD, "u", MOVE_MOUNT_F_EMPTY_PATH));
		snprintf(opt, sizeof(opt), "lowerdir=l,upperdir=u/u,workdir=u/w,userxattr");
		TRY(mount("o", "r", "overlay", 0, opt));
		TRY(stat("r/bin/su", &st));
		if (st.st_uid != 0 || !(st.st_mode & S_ISUID))
			answer(false, "su of the lower is uid %u mode %o", st.st_uid, st.st_mode);
		TRY(unlink("r/bin/chfn"));
		close(TRY(open("r/bin/passwd", O_WRONLY | O_APPEND)));	/* copies up */
		close(TRY(open("r/new", O_CREAT | O_WRONLY, 0644)));
		TRY(chown("r/new", 1000, 1000));
		/* A directory of the lower: EXDEV without redirect_dir, which mv(1) answers by copying. */
		errno = 0;
		bool renamed = rename("r/share/zoneinfo", "r/share/zz") == 0;
		int why = renamed ? 0 : errno;
		TRY(lstat("u/u/new", &st));
		if (st.st_uid != 1000)
			answer(false, "uid in the box is %u", st.st_uid);
		errno = 0;
		answer(true, "copy-up, whiteout, chown; renaming a lower directory: %s",
		       why ? strerrorname_np(why) : "done");
	}
	map_ids(pid);
	idmap(low, pid);
	idmap(up, pid);
	follow(pid, go);
}

static void ask_overlay_idmap_disk(void)
{
	overlay_idmapped(scratch);
}

static void ask_overlay_idmap_tmpfs(void)
{
	TRY(unshare(CLONE_NEWNS));
	TRY(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL));
	TRY(mount("t", scratch, "tmpfs", 0, NULL));
	overlay_idmapped(scratch);
}

static void ask_overlay_idmap_btrfs(void)
{
	char cmd[1024];

	TRY(unshare(CLONE_NEWNS));
	TRY(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL));
	mkdir(at("pool"), 0755);
	snprintf(cmd, sizeof(cmd), "cd %s && truncate -s 256M img && "
		 "mkfs.btrfs -q img >/dev/null 2>&1 && mount -o loop img pool", scratch);
	errno = 0;
	if (system(cmd) != 0)
		answer(false, "mkfs.btrfs and loop mount");
	overlay_idmapped(at("pool"));
}

static void ask_tmpfs_xattr(void)
{
	TRY(unshare(geteuid() ? CLONE_NEWNS | CLONE_NEWUSER : CLONE_NEWNS));
	TRY(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL));
	TRY(mount("t", scratch, "tmpfs", 0, NULL));
	TRY(setxattr(scratch, "user.x", "y", 1, 0));
	answer(true, "user.* on tmpfs");
}

/* ---- cgroup ---- */
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

static void ask_cgroup_zero(void)
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

static void ask_cgroup_clone(void)
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

static void ask_cgroup_kill(void)
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

static void ask_cgroup_freeze(void)
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

static void ask_cgroup_files(void)
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

static void ask_cgroup_oom(void)
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

/* ---- time, seccomp, landlock, the rest ---- */
static void ns_name(const char *which, char ret[64])
{
	char path[64];
	ssize_t n;

	snprintf(path, sizeof(path), "/proc/self/ns/%s", which);
	n = TRY(readlink(path, ret, 63));
	ret[n] = 0;
}

/* Started again as "probe timens OLD": did exec bring us into the new time namespace? */
static int timens_after_exec(const char *old)
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

static void ask_timens_exec(void)
{
	char old[64];

	timens_unshare(old);
	TRY(execl("/proc/self/exe", "probe", "timens", old, (char *)NULL));
}

static void ask_timens_vfork(void)
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

static void ask_timens_fork(void)
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
static void ask_timens_clone3(void)
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

static void ask_seccomp(void)
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

static void ask_seccomp_notify(void)
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

static void ask_landlock(void)
{
	int abi = TRY(syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION));

	answer(abi >= 1, "ABI %d", abi);
}

static void ask_proc_mount(void)
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

static void ask_cgroup2_mount(void)
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

static void ask_fsopen_overlay(void)
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

static void ask_detached_exec(void)
{
	int fd = TRY(memfd_create("x", 0x0008u /* MFD_NOEXEC_SEAL */ | MFD_CLOEXEC));

	answer(fd >= 0, "MFD_NOEXEC_SEAL");
}

static void ask_openat2(void)
{
	struct { unsigned long long flags, mode, resolve; } how = { O_PATH, 0, 0x10 | 0x04 };
	int root = TRY(open("/", O_PATH));
	int fd = TRY(syscall(SYS_openat2, root, "usr/bin", &how, sizeof(how)));

	answer(fd >= 0, "RESOLVE_IN_ROOT|NO_SYMLINKS");
}

static void ask_pidfd(void)
{
	int self = TRY(syscall(SYS_pidfd_open, getpid(), 0));
	struct statfs fs;

	TRY(fstatfs(self, &fs));
	errno = 0;
	answer(fs.f_type == 0x50494446, "pidfs: a pidfd's inode is unique");
}

static void ask_peerpidfd(void)
{
	int sv[2], pidfd;
	socklen_t len = sizeof(pidfd);

	TRY(socketpair(AF_UNIX, SOCK_STREAM, 0, sv));
	TRY(getsockopt(sv[0], SOL_SOCKET, 77 /* SO_PEERPIDFD */, &pidfd, &len));
	answer(true, "SO_PEERPIDFD");
}

static void ask_fchmodat2(void)
{
	TRY(syscall(452, AT_FDCWD, scratch, 0755, AT_SYMLINK_NOFOLLOW));
	answer(true, "fchmodat2");
}

static void ask_statmount(void)
{
	errno = 0;
	answer(syscall(457, NULL, NULL, 0, 0) >= 0 || errno != ENOSYS, "statmount");
}

static void ask_close_range(void)
{
	TRY(syscall(SYS_close_range, 100, ~0u, 4 /* CLOEXEC */));
	answer(true, "close_range(CLOEXEC)");
}

static void ask_mknod_userns(void)
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
