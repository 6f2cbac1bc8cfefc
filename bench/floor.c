/*
 * The floor: what the kernel alone needs for a box, so that den can be measured against it.
 *
 *   floor [-m] TEMPLATE WORKDIR
 *
 * Does the kernel's share of `den run true` and nothing else: the namespaces, id map, mounts, masks,
 * cgroups, limits, capabilities and seccomp filter of the container wall (src/wall/container: keep
 * the two in step), then /bin/true as the box's first process, then it takes everything away again.
 * No second process of den's, no database, no sockets, no protocol, no errors that help.
 *
 * TEMPLATE is a version that den has built (STATE/templates/host-*), WORKDIR a directory on the file
 * system where boxes would lie. With -m the box's changes are on a tmpfs.
 */
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <linux/mount.h>
#include <linux/sched.h>
#include <linux/seccomp.h>
#include <net/if.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "seccomp_filter.h" /* made by seccomp_gen: the very filter of a box */

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))
#define ID_BASE 1879048192U /* above all of den's: a floor never meets a box */
#define ID_RANGE 65536
#define TREES_MAX 8
#define LOWERS_MAX 16
#define STAGE_DIR "/tmp"

/* <sys/mount.h> and <linux/mount.h> cannot be included together on older libcs. */
extern int mount(const char *, const char *, const char *, unsigned long, const void *);
extern int umount2(const char *, int);
enum {
	RDONLY = 1, NOSUID = 2, NODEV = 4, NOEXEC = 8, REMOUNT = 32, BIND = 4096, REC = 16384,
	PRIVATE = 1 << 18, DETACH = 2,
};

struct tree {
	char *at, *lowers[LOWERS_MAX];
	int n;
};

static struct tree trees[TREES_MAX];
static int n_trees, lower_fd[LOWERS_MAX], n_lowers, upper_fd = -1, box_fd;
static bool in_memory;
static char box_name[64];
static const char *const devices[] = { "null", "zero", "full", "random", "urandom", "tty" };

static void must(long r, const char *what)
{
	if (r < 0)
		err(1, "%s", what);
}

static void put(int dirfd, const char *path, const char *text)
{
	int fd = openat(dirfd, path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);

	must(fd, path);
	must(write(fd, text, strlen(text)), path);
	close(fd);
}

static int take(int dirfd, const char *path)
{
	int fd = (int)syscall(SYS_open_tree, dirfd, path, OPEN_TREE_CLONE | O_CLOEXEC);

	must(fd, path);
	return fd;
}

static void attach(int fd, const char *at)
{
	must(syscall(SYS_move_mount, fd, "", AT_FDCWD, at, MOVE_MOUNT_F_EMPTY_PATH), at);
}

static void mount_fs(const char *type, const char *at, unsigned long flags, const char *opts)
{
	must(mount(type, at, type, flags, opts), at);
}

/* ---- before: layers, the box's directory, cgroups ---- */

static void read_template(const char *dir)
{
	char path[4096], *line = NULL;
	size_t cap = 0;
	FILE *f;

	snprintf(path, sizeof(path), "%s/trees", dir);
	f = fopen(path, "re");
	if (!f)
		err(1, "%s", path);
	while (getline(&line, &cap, f) > 0 && n_trees < TREES_MAX) {
		struct tree *t = &trees[n_trees++];
		char *rest = strdup(line), *lower;

		rest[strcspn(rest, "\n")] = '\0';
		t->at = strsep(&rest, "\t");
		while ((lower = strsep(&rest, "\t")) && n_lowers < LOWERS_MAX) {
			if (lower[0] == '/')
				snprintf(path, sizeof(path), "%s", lower);
			else
				snprintf(path, sizeof(path), "%s/%s", dir, lower);
			lower_fd[n_lowers++] = take(AT_FDCWD, path);
			t->n++;
		}
	}
	free(line);
	fclose(f);
}

static const char *const upper_dirs[] = { "%su%d", "%sw%d" };

static void make_uppers(int dirfd, const char *below)
{
	char path[32];

	for (int t = 0; t < n_trees; t++) {
		for (size_t i = 0; i < COUNT(upper_dirs); i++) {
			snprintf(path, sizeof(path), upper_dirs[i], below, t);
			must(mkdirat(dirfd, path, 0755), path);
		}
	}
}

static void make_box(const char *workdir)
{
	char path[4096];

	snprintf(path, sizeof(path), "%s/%s", workdir, box_name);
	must(mkdir(path, 0700), path);
	box_fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	must(box_fd, path);
	if (in_memory)
		return;
	make_uppers(box_fd, "");
	upper_fd = take(box_fd, ".");
}

#define OVERLAY_WORK "w%d/work" /* made by overlayfs in its workdir */

/* What the kernel and the box leave there; names that are not there do no harm. */
static void remove_box(const char *workdir)
{
	static const struct {
		const char *path;
		int flags;
	} below[] = { { OVERLAY_WORK "/incompat/volatile/dirty", 0 }, { OVERLAY_WORK "/incompat/volatile", AT_REMOVEDIR },
		{ OVERLAY_WORK "/incompat", AT_REMOVEDIR }, { OVERLAY_WORK, AT_REMOVEDIR }, { "w%d", AT_REMOVEDIR },
		{ "u%d", AT_REMOVEDIR } };
	char path[4096];

	for (int t = 0; t < n_trees && !in_memory; t++) {
		for (size_t i = 0; i < COUNT(below); i++) {
			snprintf(path, sizeof(path), below[i].path, t);
			if (unlinkat(box_fd, path, below[i].flags) < 0 && errno != ENOENT)
				err(1, "remove %s", path);
		}
	}
	snprintf(path, sizeof(path), "%s/%s", workdir, box_name);
	must(rmdir(path), path);
}

/* One tree where there is one; else membership in the v2 tree and the limit in v1's, as den does. */
static const char *unified = "/sys/fs/cgroup", *limits;
static int tasks_fd = -1;

static int make_cgroups(void)
{
	char path[256];
	int group;

	if (access("/sys/fs/cgroup/unified/cgroup.procs", F_OK) == 0) {
		unified = "/sys/fs/cgroup/unified";
		limits = "/sys/fs/cgroup/pids";
	}
	snprintf(path, sizeof(path), "%s/%s", unified, box_name);
	must(mkdir(path, 0755), path);
	group = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	must(group, path);
	if (limits) {
		snprintf(path, sizeof(path), "%s/%s", limits, box_name);
		must(mkdir(path, 0755), path);
		strcat(path, "/tasks");
		tasks_fd = open(path, O_WRONLY | O_CLOEXEC);
		must(tasks_fd, path);
	}
	snprintf(path, sizeof(path), "%s/%s/pids.max", limits ? limits : unified, box_name);
	put(AT_FDCWD, path, "4096");
	return group;
}

static void remove_cgroups(void)
{
	const char *const all[] = { unified, limits };
	char path[256];

	for (size_t i = 0; i < COUNT(all); i++) {
		if (!all[i])
			continue;
		snprintf(path, sizeof(path), "%s/%s", all[i], box_name);
		while (rmdir(path) < 0 && errno == EBUSY)
			usleep(100);
	}
}

/* ---- in the box ---- */

static void be_root_of_box(void)
{
	must(setresgid(0, 0, 0), "setresgid");
	must(setgroups(0, NULL), "setgroups");
	must(setresuid(0, 0, 0), "setresuid");
	prctl(PR_SET_DUMPABLE, 1, 0, 0, 0);
	if (tasks_fd >= 0)
		must(write(tasks_fd, "0", 1), "enter cgroup");
	must(unshare(CLONE_NEWCGROUP), "cgroup namespace");
	must(setsid(), "setsid");
	syscall(SYS_keyctl, 1, NULL, 0, 0, 0);
	umask(022);
	must(sethostname(box_name, strlen(box_name)), "sethostname");
}

static void loopback_up(void)
{
	struct ifreq r = { .ifr_name = "lo", .ifr_flags = IFF_UP | IFF_RUNNING };
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	must(fd, "socket");
	must(ioctl(fd, SIOCSIFFLAGS, &r), "lo");
	close(fd);
}

static void make_etc(void)
{
	static const char *const files[] = { "e/etc/hostname", "e/etc/hosts", "e/etc/resolv.conf",
		"e/etc/machine-id" };

	must(mkdir("e", 0755), "e");
	must(mkdir("e/etc", 0755), "e/etc");
	for (size_t i = 0; i < COUNT(files); i++)
		put(AT_FDCWD, files[i], "floor\n");
}

static void mount_layers(void)
{
	char opts[512], at[64];
	int next = 0;

	must(mount(NULL, "/", NULL, REC | PRIVATE, NULL), "private");
	mount_fs("tmpfs", STAGE_DIR, NOSUID | NODEV, "mode=0700,size=1m");
	must(chdir(STAGE_DIR), "chdir");
	must(mkdir("up", 0700), "up");
	must(mkdir("r", 0700), "r");
	make_etc();
	for (int i = 0; i < n_lowers; i++) {
		snprintf(at, sizeof(at), "l%d", i);
		must(mkdir(at, 0700), at);
		attach(lower_fd[i], at);
	}
	if (in_memory) {
		mount_fs("tmpfs", "up", NODEV, "mode=0755");
		make_uppers(AT_FDCWD, "up/");
	} else {
		attach(upper_fd, "up");
	}
	for (int t = 0; t < n_trees; t++) {
		int len = snprintf(opts, sizeof(opts), "lowerdir=%s", t ? "" : "e:");

		for (int i = 0; i < trees[t].n; i++)
			len += snprintf(opts + len, sizeof(opts) - (size_t)len, "%sl%d", i ? ":" : "", next++);
		snprintf(opts + len, sizeof(opts) - (size_t)len, ",upperdir=up/u%d,workdir=up/w%d,userxattr%s",
			t, t, in_memory ? "" : ",volatile");
		snprintf(at, sizeof(at), "r%s", t ? trees[t].at : "");
		mount_fs("overlay", at, 0, opts);
	}
}

static int device_fd[COUNT(devices)], proc_fd, boot_id_fd;

static void take_along(void)
{
	char path[32];
	int fs;

	for (size_t i = 0; i < COUNT(devices); i++) {
		snprintf(path, sizeof(path), "/dev/%s", devices[i]);
		device_fd[i] = take(AT_FDCWD, path);
	}
	fs = (int)syscall(SYS_fsopen, "proc", FSOPEN_CLOEXEC);
	must(fs, "fsopen");
	must(syscall(SYS_fsconfig, fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0), "fsconfig");
	proc_fd = (int)syscall(SYS_fsmount, fs, FSMOUNT_CLOEXEC,
		MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC);
	must(proc_fd, "fsmount");
	close(fs);
	put(AT_FDCWD, "boot_id", "00000000-0000-4000-a000-000000000000\n");
	boot_id_fd = take(AT_FDCWD, "boot_id");
}

static void time_namespace(void)
{
	struct timespec mono, boot;
	char text[96];

	clock_gettime(CLOCK_MONOTONIC, &mono);
	clock_gettime(CLOCK_BOOTTIME, &boot);
	if (unshare(CLONE_NEWTIME) < 0)
		return;
	snprintf(text, sizeof(text), "monotonic -%lld 0\nboottime -%lld 0\n", (long long)mono.tv_sec,
		(long long)boot.tv_sec);
	put(AT_FDCWD, "/proc/self/timens_offsets", text);
}

static void pivot(void)
{
	int old = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);

	must(old, "/");
	must(chdir("r"), "chdir");
	must(syscall(SYS_pivot_root, ".", "."), "pivot_root");
	must(fchdir(old), "fchdir");
	must(umount2(".", DETACH), "umount");
	must(chdir("/"), "chdir");
	close(old);
}

static void make_sys(void)
{
	static const char *const dirs[] = { "/sys/class", "/sys/class/net", "/sys/block", "/sys/bus",
		"/sys/dev", "/sys/firmware", "/sys/fs", "/sys/fs/cgroup", "/sys/kernel", "/sys/kernel/mm",
		"/sys/kernel/mm/transparent_hugepage", "/sys/module", "/sys/devices", "/sys/devices/system",
		"/sys/devices/system/cpu" };
	static const char *const files[] = { "/sys/devices/system/cpu/online",
		"/sys/devices/system/cpu/possible", "/sys/devices/system/cpu/present",
		"/sys/kernel/mm/transparent_hugepage/enabled" };

	mount_fs("tmpfs", "/sys", NOSUID | NODEV | NOEXEC, "mode=0755,size=256k");
	for (size_t i = 0; i < COUNT(dirs); i++)
		must(mkdir(dirs[i], 0755), dirs[i]);
	for (size_t i = 0; i < COUNT(files); i++)
		put(AT_FDCWD, files[i], "0-1\n");
	must(mount(NULL, "/sys", NULL, REMOUNT | RDONLY | NOSUID | NODEV | NOEXEC, "mode=0755,size=256k"),
		"/sys read-only");
}

static void make_dev(void)
{
	static const char *const links[][2] = { { "/proc/self/fd", "/dev/fd" },
		{ "/proc/self/fd/0", "/dev/stdin" }, { "/proc/self/fd/1", "/dev/stdout" },
		{ "/proc/self/fd/2", "/dev/stderr" }, { "pts/ptmx", "/dev/ptmx" } };
	char path[32];

	mount_fs("tmpfs", "/dev", NOSUID | NOEXEC, "mode=0755,size=64k,nr_inodes=1024");
	for (size_t i = 0; i < COUNT(devices); i++) {
		snprintf(path, sizeof(path), "/dev/%s", devices[i]);
		close(open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0666));
		attach(device_fd[i], path);
	}
	for (size_t i = 0; i < COUNT(links); i++)
		must(symlink(links[i][0], links[i][1]), links[i][1]);
	must(mkdir("/dev/pts", 0755), "pts");
	must(mkdir("/dev/shm", 01777), "shm");
	must(mkdir("/dev/mqueue", 01777), "mqueue");
	mount_fs("devpts", "/dev/pts", NOSUID | NOEXEC, "newinstance,ptmxmode=0666,mode=0620,gid=5");
	mount_fs("tmpfs", "/dev/shm", NOSUID | NODEV, "mode=1777");
	mount_fs("mqueue", "/dev/mqueue", NOSUID | NODEV | NOEXEC, NULL);
}

static void mask(void)
{
	static const char *const files[] = { "/proc/kcore", "/proc/keys", "/proc/key-users",
		"/proc/kallsyms", "/proc/kmsg", "/proc/sysrq-trigger", "/proc/timer_list",
		"/proc/sched_debug", "/proc/latency_stats", "/proc/kpagecount", "/proc/kpageflags" };
	static const char *const dirs[] = { "/proc/acpi", "/proc/scsi", "/proc/bus", "/proc/irq", "/proc/fs",
		"/proc/driver" };
	static const char *const protect[] = { "/proc/sys", "/proc/pressure" };
	struct mount_attr ro = { .attr_set = MOUNT_ATTR_RDONLY };

	for (size_t i = 0; i < COUNT(files); i++)
		if (mount("/dev/null", files[i], NULL, BIND, NULL) < 0 && errno != ENOENT)
			err(1, "%s", files[i]);
	for (size_t i = 0; i < COUNT(dirs); i++)
		if (mount("/sys/firmware", dirs[i], NULL, BIND, NULL) < 0 && errno != ENOENT)
			err(1, "%s", dirs[i]);
	for (size_t i = 0; i < COUNT(protect); i++) {
		if (mount(protect[i], protect[i], NULL, BIND | REC, NULL) < 0 && errno == ENOENT)
			continue;
		must(syscall(SYS_mount_setattr, AT_FDCWD, protect[i], 0, &ro, sizeof(ro)), protect[i]);
	}
	must(syscall(SYS_mount_setattr, boot_id_fd, "", AT_EMPTY_PATH, &ro, sizeof(ro)), "boot_id");
	attach(boot_id_fd, "/proc/sys/kernel/random/boot_id");
}

static void confine(void)
{
	static const int kept[] = { CAP_CHOWN, CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH, CAP_FOWNER, CAP_FSETID,
		CAP_KILL, CAP_SETGID, CAP_SETUID, CAP_SETPCAP, CAP_NET_BIND_SERVICE, CAP_NET_RAW,
		CAP_SYS_CHROOT, CAP_MKNOD, CAP_AUDIT_WRITE, CAP_SETFCAP, CAP_IPC_OWNER, CAP_LEASE };
	struct sock_fprog filter = { COUNT(box_filter), (struct sock_filter *)box_filter };
	struct rlimit core = { 1, 1 };

	must(setrlimit(RLIMIT_CORE, &core), "rlimit");
	for (int cap = 0; cap <= 63; cap++) {
		bool keep = false;

		for (size_t i = 0; i < COUNT(kept); i++)
			keep |= kept[i] == cap;
		if (!keep && prctl(PR_CAPBSET_DROP, cap, 0, 0, 0) < 0)
			break; /* past the last one this kernel knows */
	}
	must(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &filter), "seccomp");
}

static void child(int go)
{
	char *argv[] = { (char *)"true", NULL }, *env[] = { NULL };
	char c;

	must(read(go, &c, 1) == 1 ? 0 : -1, "go");
	be_root_of_box();
	loopback_up();
	mount_layers();
	take_along();
	time_namespace();
	pivot();
	attach(proc_fd, "/proc");
	make_sys();
	make_dev();
	mount_fs("tmpfs", "/run", NOSUID | NODEV, "mode=0755");
	must(mkdir("/run/lock", 01777), "/run/lock");
	mask();
	confine();
	syscall(SYS_close_range, 3, ~0U, 0);
	execve("/bin/true", argv, env);
	err(1, "/bin/true");
}

/* ---- outside ---- */

static void map_ids(pid_t pid)
{
	struct mount_attr attr = { .attr_set = MOUNT_ATTR_IDMAP };
	char path[64], text[64];
	int ns;

	snprintf(text, sizeof(text), "0 %u %u", ID_BASE, ID_RANGE);
	snprintf(path, sizeof(path), "/proc/%d/uid_map", (int)pid);
	put(AT_FDCWD, path, text);
	snprintf(path, sizeof(path), "/proc/%d/gid_map", (int)pid);
	put(AT_FDCWD, path, text);
	snprintf(path, sizeof(path), "/proc/%d/ns/user", (int)pid);
	ns = open(path, O_RDONLY | O_CLOEXEC);
	must(ns, path);
	attr.userns_fd = (uint64_t)ns;
	for (int i = 0; i < n_lowers; i++)
		must(syscall(SYS_mount_setattr, lower_fd[i], "", AT_EMPTY_PATH, &attr, sizeof(attr)), "id-map");
	if (!in_memory)
		must(syscall(SYS_mount_setattr, upper_fd, "", AT_EMPTY_PATH, &attr, sizeof(attr)), "id-map");
	close(ns);
}

int main(int argc, char **argv)
{
	struct clone_args a = {
		.flags = CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWIPC | CLONE_NEWUTS |
			CLONE_NEWNET | CLONE_INTO_CGROUP,
		.exit_signal = SIGCHLD,
	};
	int go[2], status = 1;
	pid_t pid;

	in_memory = argc > 1 && !strcmp(argv[1], "-m");
	argv += in_memory;
	if (argc - in_memory != 3)
		errx(2, "floor [-m] TEMPLATE WORKDIR");
	umask(0);
	snprintf(box_name, sizeof(box_name), "den-floor.%d", (int)getpid());
	read_template(argv[1]);
	make_box(argv[2]);
	a.cgroup = (uint64_t)make_cgroups();
	must(pipe2(go, O_CLOEXEC), "pipe");
	pid = (pid_t)syscall(SYS_clone3, &a, sizeof(a));
	if (pid == 0) {
		close(go[1]);
		child(go[0]);
	}
	must(pid, "clone3");
	map_ids(pid);
	must(write(go[1], "g", 1), "go");
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	remove_cgroups();
	remove_box(argv[2]);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}
