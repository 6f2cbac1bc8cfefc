/*
 * What init does first where the kernel is the sentry's: it puts in order what runsc mounts by itself, and gives
 * up the right to do so.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "fd.h"
#include "init.h"

/* No more processes and threads than this: a group that nobody can reach once it is not mounted any more. */
static void limit_pids(const char *max)
{
	struct den_err err;

	/* a box without its limit is none: all that starts it fails then, and says so */
	if (mkdir("/run/.pids", 0700) < 0 || mount("none", "/run/.pids", "cgroup", 0, "pids") < 0 ||
		mkdir("/run/.pids/box", 0755) < 0 || file_write_at(AT_FDCWD, "/run/.pids/box/pids.max", max, &err) < 0 ||
		file_write_at(AT_FDCWD, "/run/.pids/box/cgroup.procs", "1", &err) < 0)
		_exit(1);
	umount2("/run/.pids", MNT_DETACH);
	rmdir("/run/.pids");
}

/* The id of this start over the sentry's own. The file stays open: another one is written when programs were
 * loaded, which is a new start as far as anybody can tell. */
static int boot_fd = -1;

static void write_boot_id(const char *id)
{
	char text[64];
	int n = snprintf(text, sizeof(text), "%.36s\n", id);

	if (boot_fd >= 0)
		(void)!pwrite(boot_fd, text, (size_t)n, 0);
}

static void show_boot_id(const char *id)
{
	static const char path[] = "/run/.boot_id", at[] = "/proc/sys/kernel/random/boot_id";

	/* not a number that init has for something else */
	boot_fd = fd_move_up(open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0444), 16);
	write_boot_id(id);
	if (mount(path, at, NULL, MS_BIND, NULL) == 0)
		(void)mount(NULL, at, NULL, MS_BIND | MS_REMOUNT | MS_RDONLY, NULL);
	unlink(path);
}

/* init keeps the right, out of force, for guest_wake(); no program gets it, root or not: it is not in the bounding
 * set. And who has less may not look into init. */
static void drop_admin(void)
{
	if (prctl(PR_CAPBSET_DROP, CAP_SYS_ADMIN, 0, 0, 0) < 0)
		_exit(1);
}

static void admin(bool on)
{
	struct __user_cap_header_struct h = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct d[2];

	if (syscall(SYS_capget, &h, d) < 0)
		_exit(1);
	d[0].inheritable &= ~(1U << CAP_SYS_ADMIN);
	if (on)
		d[0].effective |= 1U << CAP_SYS_ADMIN;
	else
		d[0].effective &= ~(1U << CAP_SYS_ADMIN);
	if (syscall(SYS_capset, &h, d) < 0)
		_exit(1);
}

void guest_wake(const char *hostname, const char *boot_id)
{
	admin(true);
	if (hostname[0])
		(void)!sethostname(hostname, strlen(hostname));
	admin(false);
	if (boot_id[0])
		write_boot_id(boot_id);
}

/* What the sentry says of when a file was written becomes what the host says: paths are the keeper's, and the box's. */
void guest_times(const struct wire_frame *f)
{
	struct wire_reader rd = wire_reader(f->p, f->len);
	struct wire_value v;
	char path[4096];

	while (wire_next(&rd, &v, NULL) > 0) {
		struct timespec t[2] = { { .tv_nsec = UTIME_OMIT } };
		struct stat st;

		if (v.tag != F_PATH || v.len >= sizeof(path))
			continue;
		memcpy(path, v.p, v.len);
		path[v.len] = '\0';
		if (lstat(path, &st) < 0 || !S_ISREG(st.st_mode))
			continue;
		t[1] = st.st_mtim;
		(void)utimensat(AT_FDCWD, path, t, AT_SYMLINK_NOFOLLOW);
	}
}

/* What runsc gave it as 0, 1 and 2 are files of the host's, which root of the box could open through /proc. */
static void own_stdio(void)
{
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);

	for (int fd = 0; null >= 0 && fd < 3; fd++)
		dup2(null, fd);
	if (null > 2)
		close(null);
}

void guest_prepare(const char *pids, const char *boot_id)
{
	own_stdio();
	umount2("/tmp", MNT_DETACH); /* runsc covers an empty one: what is written there would not be kept */
	unlink("/dev/fuse"); /* and what else no box has */
	unlink("/dev/net/tun");
	rmdir("/dev/net");
	umask(0);
	mkdir("/run/lock", 01777);
	umask(022);
	/* the sentry lets a debugger see its own children alone; of whose programs it may be, the other wall says */
	(void)file_write_at(AT_FDCWD, "/proc/sys/kernel/yama/ptrace_scope", "0", NULL);
	limit_pids(pids);
	show_boot_id(boot_id);
	drop_admin();
	admin(false);
}
