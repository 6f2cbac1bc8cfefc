/*
 * What init does first where the kernel is the sentry's: it puts in order what runsc mounts by itself, and gives
 * up the right to do so.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <stdio.h>
#include <stdlib.h>
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

	if (mkdir("/run/.pids", 0700) < 0 || mount("none", "/run/.pids", "cgroup", 0, "pids") < 0)
		return;
	if (mkdir("/run/.pids/box", 0755) == 0 && file_write_at(AT_FDCWD, "/run/.pids/box/pids.max", max, &err) == 0)
		(void)file_write_at(AT_FDCWD, "/run/.pids/box/cgroup.procs", "1", &err);
	umount2("/run/.pids", MNT_DETACH);
	rmdir("/run/.pids");
}

/* The id of this start over the sentry's own, which would be the same for all that is loaded from one image. */
static void show_boot_id(const char *id)
{
	static const char path[] = "/run/.boot_id";
	auto_fd fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0444);
	char text[64];
	int n = snprintf(text, sizeof(text), "%s\n", id);

	if (fd >= 0 && write(fd, text, (size_t)n) == n)
		(void)mount(path, "/proc/sys/kernel/random/boot_id", NULL, MS_BIND, NULL);
	unlink(path);
}

static void drop_admin(void)
{
	struct __user_cap_header_struct h = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct d[2];

	prctl(PR_CAPBSET_DROP, CAP_SYS_ADMIN, 0, 0, 0);
	if (syscall(SYS_capget, &h, d) < 0)
		_exit(1);
	d[0].effective &= ~(1U << CAP_SYS_ADMIN);
	d[0].permitted &= ~(1U << CAP_SYS_ADMIN);
	d[0].inheritable &= ~(1U << CAP_SYS_ADMIN);
	if (syscall(SYS_capset, &h, d) < 0)
		_exit(1);
}

void guest_prepare(const char *pids, const char *boot_id)
{
	umount2("/tmp", MNT_DETACH); /* runsc covers an empty one: what is written there would not be kept */
	unlink("/dev/fuse");
	umask(0);
	mkdir("/run/lock", 01777);
	umask(022);
	limit_pids(pids);
	show_boot_id(boot_id);
	drop_admin();
}
