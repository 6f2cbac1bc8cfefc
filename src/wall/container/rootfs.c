/*
 * The box's file system, built in its own mount namespace: nothing ever appears in the host's mount
 * table, and everything is gone with the last process.
 *
 *   /tmp (host's view)   a tmpfs to work on, seen by nobody else
 *     lN                 layers from the template (id-mapped, or as they are)
 *     e                  files of this box alone (hostname, ...), the topmost layer of /
 *     up                 the box's own changes: uN and wN for the N-th tree
 *     r                  the overlay that becomes /
 *
 * What needs the host's tree (devices, a visible /proc) is taken as detached mounts before
 * pivot_root, and put in place after it: from then on no path leaves the box, whatever links a
 * restarted box may have planted.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/mount.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "fd.h"
#include "launch.h"
#include "mem.h"
#include "volume.h"

/* <sys/mount.h> and <linux/mount.h> cannot be included together on older libcs. */
extern int mount(const char *, const char *, const char *, unsigned long, const void *);
extern int umount2(const char *, int);
#define MS_RDONLY_ 1UL
#define MS_NOSUID_ 2UL
#define MS_NODEV_ 4UL
#define MS_NOEXEC_ 8UL
#define MS_REMOUNT_ 32UL
#define MS_NOATIME_ 1024UL
#define MS_BIND_ 4096UL
#define MS_REC_ 16384UL
#define MS_PRIVATE_ (1UL << 18)
#define MNT_DETACH_ 2

#define STAGE_DIR "/tmp"
/* An empty file that cannot be opened for writing (to /dev/null one could, which looks like
 * success). */
#define NOTHING "/sys/dev/nothing"

static const char *const device_names[DEVICES] = { "null", "zero", "full", "random", "urandom",
	"tty" };

int mount_clone(int dirfd, const char *path, struct den_err *err)
{
	int fd = (int)syscall(
		SYS_open_tree, dirfd, path, OPEN_TREE_CLONE | O_CLOEXEC | AT_EMPTY_PATH);

	if (fd < 0 && errno == EINVAL) /* has mounts below that may not be uncovered */
		fd = (int)syscall(SYS_open_tree, dirfd, path,
			OPEN_TREE_CLONE | O_CLOEXEC | AT_EMPTY_PATH | AT_RECURSIVE);
	return fd < 0 ? den_fail_sys(err, errno, "take '%s' along", path) : fd;
}

int mount_attach(int fd, const char *at, struct den_err *err)
{
	if (syscall(SYS_move_mount, fd, "", AT_FDCWD, at, MOVE_MOUNT_F_EMPTY_PATH) < 0)
		return den_fail_sys(err, errno, "mount at '%s'", at);
	return 0;
}

static int mount_fs(const char *type, const char *at, unsigned long flags, const char *opts,
	struct den_err *err)
{
	if (mount(type, at, type, flags, opts) < 0)
		return den_fail_sys(err, errno, "mount %s at '%s'", type, at);
	return 0;
}

/* ---- layers ---- */

int open_lowers(struct launch *l, struct den_err *err)
{
	for (size_t t = 0; t < l->plan->n_trees; t++) {
		for (const char *const *p = l->plan->trees[t].lowers; *p; p++) {
			if (l->n_lowers == LAYERS_MAX)
				return den_fail(
					err, DEN_LIMIT, 0, "more than %d layers", LAYERS_MAX);
			l->lower_fd[l->n_lowers] = mount_clone(AT_FDCWD, *p, err);
			if (l->lower_fd[l->n_lowers++] < 0)
				return -1;
		}
	}
	return 0;
}

int open_run(struct launch *l, struct den_err *err)
{
	if (!l->plan->run_path)
		return 0;
	l->run_fd = mount_clone(AT_FDCWD, l->plan->run_path, err);
	return l->run_fd < 0 ? -1 : 0;
}

int open_share(struct launch *l, size_t i, struct den_err *err)
{
	const char *host = l->plan->spec->mounts[i].host, *name = volume_name(host);
	char path[4096];

	if (name) {
		if (snprintf(path, sizeof(path), "%s/%s", l->plan->volumes, name) >= (int)sizeof(path))
			return den_fail(err, DEN_INVALID, 0, "the state directory's path is too long");
		host = path;
	}
	l->mount_fd[i] = mount_clone(AT_FDCWD, host, err);
	return l->mount_fd[i] < 0 ? -1 : 0;
}

static int open_layers(struct launch *l, struct den_err *err)
{
	if (open_lowers(l, err) < 0)
		return -1;
	l->upper_fd = mount_clone(AT_FDCWD, l->upper_path, err);
	if (l->upper_fd < 0 || open_run(l, err) < 0)
		return -1;
	for (size_t i = 0; i < l->plan->spec->n_mounts; i++) {
		struct stat st;

		if (open_share(l, i, err) < 0 || fstat(l->mount_fd[i], &st) < 0)
			return -1;
		l->mount_is_file[i] = !S_ISDIR(st.st_mode);
	}
	return 0;
}

static int overlay(struct launch *l, size_t t, int first, int n, struct den_err *err)
{
	char opts[2048], at[512]; /* LAYERS_MAX names of up to five bytes, and the rest */
	int len = snprintf(opts, sizeof(opts), "lowerdir=%s", t ? "" : "e");

	for (int i = first; i < first + n; i++)
		len += snprintf(opts + len, sizeof(opts) - (size_t)len, "%sl%d",
			i > first || !t ? ":" : "", i);
	/* userxattr: this overlay is mounted by the box's own root, with its rights and no more */
	len += snprintf(opts + len, sizeof(opts) - (size_t)len,
		",upperdir=up/u%zu,workdir=up/w%zu,userxattr%s", t, t,
		l->volatile_upper ? ",volatile" : "");
	snprintf(at, sizeof(at), "r%s", t ? l->plan->trees[t].at : "");
	/* noatime: reading changes nothing, so a turn that only read leaves no checkpoint */
	if (mount("overlay", at, "overlay", MS_NOATIME_, opts) < 0)
		return den_fail_sys(
			err, errno, "overlay for '%s' (%s)", l->plan->trees[t].at, opts);
	return 0;
}

static int make_dir(const char *path, mode_t mode, struct den_err *err)
{
	if (mkdir(path, mode) < 0 && errno != EEXIST)
		return den_fail_sys(err, errno, "make '%s'", path);
	return 0;
}

static int put_text(const char *path, const char *text, struct den_err *err)
{
	auto_fd fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0644);
	size_t n = strlen(text);

	if (fd < 0 || write(fd, text, n) != (ssize_t)n)
		return den_fail_sys(err, errno, "write '%s'", path);
	return 0;
}

/*
 * Files that each box has of its own are a layer above the template: nothing is written to disk for
 * them, each start has them right, and what the box changes in them is kept like any other change.
 */
static int make_own_files(struct launch *l, struct den_err *err)
{
	char text[512];

	if (make_dir("e", 0755, err) < 0 || make_dir("e/etc", 0755, err) < 0)
		return -1;
	snprintf(text, sizeof(text), "%s\n", l->hostname);
	if (put_text("e/etc/hostname", text, err) < 0)
		return -1;
	snprintf(text, sizeof(text),
		"127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n127.0.1.1\t%s\n",
		l->hostname);
	if (put_text("e/etc/hosts", text, err) < 0 ||
		put_text("e/etc/resolv.conf", l->resolv, err) < 0)
		return -1;
	snprintf(text, sizeof(text), "%s\n", l->plan->machine_id);
	return put_text("e/etc/machine-id", text, err);
}

int stage_layers(struct launch *l, struct den_err *err)
{
	int next = 0;

	if (mount(NULL, "/", NULL, MS_REC_ | MS_PRIVATE_, NULL) < 0)
		return den_fail_sys(err, errno, "make mounts private");
	if (!l->root && open_layers(l, err) < 0)
		return -1;
	if (mount_fs("tmpfs", STAGE_DIR, MS_NOSUID_ | MS_NODEV_, "mode=0700,size=1m", err) < 0)
		return -1;
	if (chdir(STAGE_DIR) < 0 || mkdir("up", 0700) < 0 || mkdir("r", 0700) < 0)
		return den_fail_sys(err, errno, "working directory");
	if (make_own_files(l, err) < 0)
		return -1;
	for (int i = 0; i < l->n_lowers; i++) {
		char name[16];

		snprintf(name, sizeof(name), "l%d", i);
		if (mkdir(name, 0700) < 0 || mount_attach(l->lower_fd[i], name, err) < 0)
			return den_wrap(err, "layer %d", i);
	}
	if (mount_attach(l->upper_fd, "up", err) < 0)
		return -1;
	for (size_t t = 0; t < l->plan->n_trees; t++) {
		int n = 0;

		while (l->plan->trees[t].lowers[n])
			n++;
		if (overlay(l, t, next, n, err) < 0)
			return -1;
		next += n;
	}
	return 0;
}

/* ---- what has to be taken along ---- */

/* A file on the working tmpfs, to be bound over one of /proc. */
static int proc_file(
	const char *name, const char *text, int *ret_mount, int *ret_fd, struct den_err *err)
{
	auto_fd fd = open(name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0444);

	if (fd < 0 || write(fd, text, strlen(text)) < 0)
		return den_fail_sys(err, errno, "make %s", name);
	*ret_mount = mount_clone(AT_FDCWD, name, err);
	if (*ret_mount < 0)
		return -1;
	if (ret_fd)
		*ret_fd = fd_take(&fd);
	return 0;
}

/* /proc must be made while the host's is still in sight: the kernel lets a user namespace mount
 * only what it could see anyway. */
int make_proc(struct launch *l, bool hide, struct den_err *err)
{
	auto_fd fs = (int)syscall(SYS_fsopen, "proc", FSOPEN_CLOEXEC);

	if (fs >= 0 && hide && syscall(SYS_fsconfig, fs, FSCONFIG_SET_STRING, "hidepid", "invisible", 0) < 0)
		return den_fail_sys(err, errno, "a /proc that shows the box alone");
	if (fs < 0 || syscall(SYS_fsconfig, fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0)
		return den_fail_sys(err, errno, "make /proc");
	l->proc_fd = (int)syscall(SYS_fsmount, fs, FSMOUNT_CLOEXEC,
		MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC);
	if (l->proc_fd < 0)
		return den_fail_sys(err, errno,
			"mount /proc (inside another container the outer /proc must not be "
			"masked)");
	return 0;
}

int stage_prepare(struct launch *l, struct den_err *err)
{
	char text[64];

	for (int i = 0; i < DEVICES; i++) {
		char path[32];

		snprintf(path, sizeof(path), "/dev/%s", device_names[i]);
		l->device_fd[i] = mount_clone(AT_FDCWD, path, err);
		if (l->device_fd[i] < 0)
			return -1;
	}
	if (!l->kind->same_pids && make_proc(l, false, err) < 0)
		return -1;
	snprintf(text, sizeof(text), "%s\n", l->plan->boot_id);
	if (proc_file("boot_id", text, &l->proc_file_fd[0], NULL, err) < 0)
		return -1;
	if (l->plan->spec->memory &&
		proc_file("meminfo", "", &l->proc_file_fd[1], &l->meminfo_fd, err) < 0)
		return -1;
	return 0;
}

int stage_pivot(struct launch *l, struct den_err *err)
{
	auto_fd old = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);

	(void)l;
	if (old < 0 || chdir("r") < 0)
		return den_fail_sys(err, errno, "enter the new root");
	if (syscall(SYS_pivot_root, ".", ".") < 0)
		return den_fail_sys(err, errno, "pivot_root");
	if (fchdir(old) < 0 || umount2(".", MNT_DETACH_) < 0 || chdir("/") < 0)
		return den_fail_sys(err, errno, "leave the old root");
	return 0;
}

/* ---- after pivot: every path is the box's ---- */

static int make_file(const char *path, struct den_err *err)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0666);

	if (fd < 0)
		return den_fail_sys(err, errno, "make '%s'", path);
	close(fd);
	return 0;
}

static int make_devices(struct launch *l, struct den_err *err)
{
	static const struct {
		const char *target, *name;
	} links[] = { { "/proc/self/fd", "/dev/fd" }, { "/proc/self/fd/0", "/dev/stdin" },
		{ "/proc/self/fd/1", "/dev/stdout" }, { "/proc/self/fd/2", "/dev/stderr" },
		{ "pts/ptmx", "/dev/ptmx" } };
	char path[32], opts[64];

	if (make_dir("/dev", 0755, err) < 0 ||
		mount_fs("tmpfs", "/dev", MS_NOSUID_ | MS_NOEXEC_,
			"mode=0755,size=64k,nr_inodes=1024", err) < 0)
		return -1;
	for (int i = 0; i < DEVICES; i++) {
		snprintf(path, sizeof(path), "/dev/%s", device_names[i]);
		if (make_file(path, err) < 0 || mount_attach(l->device_fd[i], path, err) < 0)
			return -1;
	}
	for (size_t i = 0; i < ARRAY_SIZE(links); i++)
		if (symlink(links[i].target, links[i].name) < 0)
			return den_fail_sys(err, errno, "link '%s'", links[i].name);
	if (make_dir("/dev/pts", 0755, err) < 0 || make_dir("/dev/shm", 01777, err) < 0 ||
		make_dir("/dev/mqueue", 01777, err) < 0)
		return -1;
	snprintf(opts, sizeof(opts), "newinstance,ptmxmode=0666,mode=0620%s",
		l->plan->ids == IDS_SINGLE ? "" : ",gid=5");
	if (mount_fs("devpts", "/dev/pts", MS_NOSUID_ | MS_NOEXEC_, opts, err) < 0 ||
		mount_fs("tmpfs", "/dev/shm", MS_NOSUID_ | MS_NODEV_, "mode=1777", err) < 0)
		return -1;
	return mount_fs("mqueue", "/dev/mqueue", MS_NOSUID_ | MS_NODEV_ | MS_NOEXEC_, NULL, err);
}

/* /sys holds nothing of the host: just what programs read to size themselves. */
static int make_sys(struct launch *l, struct den_err *err)
{
	static const char *const dirs[] = { "/sys/class", "/sys/class/net", "/sys/block",
		"/sys/bus", "/sys/dev", "/sys/firmware", "/sys/fs", "/sys/fs/cgroup", "/sys/kernel",
		"/sys/kernel/mm", "/sys/kernel/mm/transparent_hugepage", "/sys/module",
		"/sys/devices", "/sys/devices/system", "/sys/devices/system/cpu" };
	static const char *const files[] = { "online", "possible", "present" };
	long host = sysconf(_SC_NPROCESSORS_ONLN);
	unsigned n = l->cpus ? MIN(l->cpus, (unsigned)host) : (unsigned)host;
	char path[64], text[32];

	if (make_dir("/sys", 0755, err) < 0 ||
		mount_fs("tmpfs", "/sys", MS_NOSUID_ | MS_NODEV_ | MS_NOEXEC_,
			"mode=0755,size=256k", err) < 0)
		return -1;
	for (size_t i = 0; i < ARRAY_SIZE(dirs); i++)
		if (make_dir(dirs[i], 0755, err) < 0)
			return -1;
	snprintf(text, sizeof(text), n > 1 ? "0-%u\n" : "0\n", n - 1);
	for (size_t i = 0; i < ARRAY_SIZE(files); i++) {
		snprintf(path, sizeof(path), "/sys/devices/system/cpu/%s", files[i]);
		if (put_text(path, text, err) < 0)
			return -1;
	}
	if (put_text("/sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n",
		    err) < 0 ||
		put_text(NOTHING, "", err) < 0)
		return -1;
	if (mount(NULL, "/sys", NULL,
		    MS_REMOUNT_ | MS_RDONLY_ | MS_NOSUID_ | MS_NODEV_ | MS_NOEXEC_,
		    "mode=0755,size=256k") < 0)
		return den_fail_sys(err, errno, "make /sys read-only");
	return 0;
}

/* What the keeper tells the box: the box reads it, and cannot change or cover it. */
static int mount_run(struct launch *l, struct den_err *err)
{
	struct mount_attr attr = { .attr_set = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV };

	if (!(l->plan->spec->flags & BOX_RESEED)) /* that is a library, which programs load */
		attr.attr_set |= MOUNT_ATTR_NOEXEC;
	if (make_dir("/run/den", 0755, err) < 0)
		return -1;
	if (syscall(SYS_mount_setattr, l->run_fd, "", AT_EMPTY_PATH, &attr, sizeof(attr)) < 0)
		return den_fail_sys(err, errno, "protect /run/den");
	return mount_attach(l->run_fd, "/run/den", err);
}

/* Where systems keep the certificates that programs trust. A box that has none of these files has
 * programs that look at the variables alone, or at nothing. */
const char *const trust_bundles[] = { "/etc/ssl/certs/ca-certificates.crt", "/etc/ssl/cert.pem",
	"/etc/pki/tls/certs/ca-bundle.crt", NULL };

int stage_trust(struct launch *l, struct den_err *err)
{
	for (const char *const *at = trust_bundles; l->plan->trust && *at; at++) {
		struct stat st;

		if (lstat(*at, &st) < 0 || !S_ISREG(st.st_mode))
			continue;
		if (mount("/run/den/ca-bundle.pem", *at, NULL, MS_BIND_, NULL) < 0)
			return den_fail_sys(err, errno, "certificates at '%s'", *at);
	}
	return 0;
}

int stage_system(struct launch *l, struct den_err *err)
{
	if (make_dir("/proc", 0555, err) < 0 || mount_attach(l->proc_fd, "/proc", err) < 0)
		return -1;
	if (make_sys(l, err) < 0 || make_devices(l, err) < 0)
		return -1;
	if (make_dir("/run", 0755, err) < 0 ||
		mount_fs("tmpfs", "/run", MS_NOSUID_ | MS_NODEV_, "mode=0755", err) < 0)
		return -1;
	if (make_dir("/run/lock", 01777, err) < 0)
		return -1;
	return l->run_fd < 0 ? 0 : mount_run(l, err);
}

static int make_parents(const char *path, struct den_err *err)
{
	char p[4096];

	if (snprintf(p, sizeof(p), "%s", path) >= (int)sizeof(p))
		return den_fail(err, DEN_INVALID, ENAMETOOLONG, "'%.100s'", path);
	for (char *s = p + 1; (s = strchr(s, '/')); s++) {
		*s = '\0';
		if (make_dir(p, 0755, err) < 0)
			return -1;
		*s = '/';
	}
	return 0;
}

int stage_shares(struct launch *l, struct den_err *err)
{
	for (size_t i = 0; i < l->plan->spec->n_mounts; i++) {
		const struct box_mount *m = &l->plan->spec->mounts[i];
		struct mount_attr attr = { .attr_set = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV };

		if (m->ro)
			attr.attr_set |= MOUNT_ATTR_RDONLY;
		if (make_parents(m->box, err) < 0)
			return -1;
		if ((l->mount_is_file[i] ? make_file(m->box, err)
					 : make_dir(m->box, 0755, err)) < 0)
			return -1;
		if (syscall(SYS_mount_setattr, l->mount_fd[i], "", AT_EMPTY_PATH | AT_RECURSIVE,
			    &attr, sizeof(attr)) < 0)
			return den_fail_sys(err, errno, "protect mount '%s'", m->box);
		if (mount_attach(l->mount_fd[i], m->box, err) < 0)
			return -1;
	}
	return 0;
}

/* Ownership that the template's builder, an ordinary user, could not give:
 * "UID GID MODE|- PATH". */
static int apply_owner(char *line, struct den_err *err)
{
	unsigned uid, gid, mode = 0;
	char mode_text[8];
	int at = 0;

	if (sscanf(line, "%u %u %7s %n", &uid, &gid, mode_text, &at) != 3 || !at || !line[at])
		return den_fail(err, DEN_INTERNAL, 0, "owners: '%.80s'", line);
	if (lchown(line + at, uid, gid) < 0 && errno != ENOENT)
		return den_fail_sys(err, errno, "own '%.80s'", line + at);
	if (mode_text[0] != '-' && sscanf(mode_text, "%o", &mode) == 1 &&
		chmod(line + at, mode) < 0 && errno != ENOENT)
		return den_fail_sys(err, errno, "mode of '%.80s'", line + at);
	return 0;
}

static int apply_owners(int fd, struct den_err *err)
{
	char buf[8192];
	size_t len = 0;
	ssize_t n;

	while ((n = read(fd, buf + len, sizeof(buf) - 1 - len)) > 0) {
		char *p = buf, *end;

		len += (size_t)n;
		buf[len] = '\0';
		while ((end = strchr(p, '\n'))) {
			*end = '\0';
			if (*p && apply_owner(p, err) < 0)
				return -1;
			p = end + 1;
		}
		len -= (size_t)(p - buf);
		memmove(buf, p, len);
	}
	return 0;
}

int stage_owners(struct launch *l, struct den_err *err)
{
	if (l->owners_fd < 0 || access("/var/lib/den-owned", F_OK) == 0)
		return 0;
	if (apply_owners(l->owners_fd, err) < 0)
		return -1;
	return put_text("/var/lib/den-owned", "", err);
}

/* Over what the kernel shows of the whole machine. Writing there fails for a box's root by its ids
 * already; reading some of it would tell about the host. */
int stage_mask(struct launch *l, struct den_err *err)
{
	static const char *const hidden_files[] = { "/proc/kcore", "/proc/keys", "/proc/key-users",
		"/proc/kallsyms", "/proc/kmsg", "/proc/sysrq-trigger", "/proc/timer_list",
		"/proc/sched_debug", "/proc/latency_stats", "/proc/kpagecount",
		"/proc/kpageflags" };
	static const char *const hidden_dirs[] = { "/proc/acpi", "/proc/scsi", "/proc/bus",
		"/proc/irq", "/proc/fs", "/proc/driver" };
	static const char *const read_only[] = { "/proc/sys", "/proc/pressure" };
	struct mount_attr ro = { .attr_set = MOUNT_ATTR_RDONLY };

	for (size_t i = 0; i < ARRAY_SIZE(hidden_files); i++)
		if (mount(NOTHING, hidden_files[i], NULL, MS_BIND_, NULL) < 0 && errno != ENOENT)
			return den_fail_sys(err, errno, "mask '%s'", hidden_files[i]);
	for (size_t i = 0; i < ARRAY_SIZE(hidden_dirs); i++)
		if (mount("/sys/firmware", hidden_dirs[i], NULL, MS_BIND_, NULL) < 0 &&
			errno != ENOENT)
			return den_fail_sys(err, errno, "mask '%s'", hidden_dirs[i]);
	for (size_t i = 0; i < ARRAY_SIZE(read_only); i++) {
		if (mount(read_only[i], read_only[i], NULL, MS_BIND_ | MS_REC_, NULL) < 0) {
			if (errno == ENOENT)
				continue;
			return den_fail_sys(err, errno, "protect '%s'", read_only[i]);
		}
		if (syscall(SYS_mount_setattr, AT_FDCWD, read_only[i], 0, &ro, sizeof(ro)) < 0)
			return den_fail_sys(err, errno, "make '%s' read-only", read_only[i]);
	}
	if (syscall(SYS_mount_setattr, l->proc_file_fd[0], "", AT_EMPTY_PATH, &ro,
		    sizeof(ro)) < 0 ||
		mount_attach(l->proc_file_fd[0], "/proc/sys/kernel/random/boot_id", err) < 0)
		return den_wrap(err, "boot_id");
	if (l->plan->spec->memory && (syscall(SYS_mount_setattr, l->proc_file_fd[1], "",
					      AT_EMPTY_PATH, &ro, sizeof(ro)) < 0 ||
					     mount_attach(l->proc_file_fd[1], "/proc/meminfo", err) < 0))
		return den_wrap(err, "meminfo");
	return 0;
}
