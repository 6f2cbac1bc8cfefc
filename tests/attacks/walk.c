/*
 * Opens every file of the kernel's own file systems for writing, without writing, and prints those
 * that open though they are not the box's alone. What is the box's alone: its network and IPC
 * settings, its host name, and each process's own entries in /proc/PID.
 */
#include "attack.h"

#include <fcntl.h>
#include <ftw.h>
#include <sys/stat.h>

static int open_count, tried;

static bool own(const char *path)
{
	static const char *const prefixes[] = { "/proc/sys/net/", "/proc/sys/kernel/shm", "/proc/sys/kernel/msg",
		"/proc/sys/kernel/sem", "/proc/sys/kernel/hostname", "/proc/sys/kernel/domainname",
		"/proc/sys/fs/mqueue/", "/proc/sys/user/", "/proc/sys/kernel/ns_last_pid",
		"/sys/class/net/lo/", "/sys/devices/virtual/net/lo/" };

	for (size_t i = 0; i < sizeof(prefixes) / sizeof(prefixes[0]); i++)
		if (!strncmp(path, prefixes[i], strlen(prefixes[i])))
			return true;
	return false;
}

static int visit(const char *path, const struct stat *st, int type, struct FTW *f)
{
	int fd;

	if (type == FTW_D && f->level == 1 && !strncmp(path, "/proc/", 6)
		&& (strspn(path + 6, "0123456789") == strlen(path + 6)))
		return FTW_SKIP_SUBTREE;
	if (!S_ISREG(st->st_mode) || own(path))
		return FTW_CONTINUE;
	tried++;
	fd = open(path, O_WRONLY | O_NONBLOCK | O_CLOEXEC);
	if (fd >= 0) {
		close(fd);
		printf("OPEN %s\n", path);
		open_count++;
	}
	return FTW_CONTINUE;
}

/* Reading these tells about the host's memory, keys or log, or hangs. */
static void secret(const char *path)
{
	char b[64];
	int fd = open(path, O_RDONLY | O_NONBLOCK);
	ssize_t n = fd < 0 ? -1 : read(fd, b, sizeof(b));

	tried++;
	if (n > 0) {
		printf("OPEN %s for reading\n", path);
		open_count++;
	}
	if (fd >= 0)
		close(fd);
}

int main(void)
{
	static const char *const secrets[] = { "/proc/kcore", "/proc/kmsg", "/proc/keys", "/proc/timer_list",
		"/proc/sched_debug", "/proc/latency_stats", "/proc/kpagecount", "/proc/kpageflags",
		"/sys/firmware/dmi/tables/DMI", "/sys/kernel/debug/sched/debug", "/dev/mem", "/dev/kmem",
		"/dev/port", "/dev/kmsg", "/dev/vda", "/dev/sda", "/dev/loop0", "/dev/loop-control",
		"/dev/fuse", "/dev/kvm", "/dev/net/tun", "/dev/vsock", "/dev/vhost-vsock" };

	setvbuf(stdout, NULL, _IOLBF, 0);
	alarm(60);
	nftw("/proc", visit, 16, FTW_PHYS | FTW_MOUNT | FTW_ACTIONRETVAL);
	nftw("/proc/sys", visit, 16, FTW_PHYS | FTW_ACTIONRETVAL);
	nftw("/sys", visit, 16, FTW_PHYS | FTW_ACTIONRETVAL);
	for (size_t i = 0; i < sizeof(secrets) / sizeof(secrets[0]); i++)
		secret(secrets[i]);
	printf("%d tried, %d open\n", tried, open_count);
	return open_count ? 1 : 0;
}
