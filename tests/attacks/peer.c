/* Attacks on process 1, which runs with more rights than we do: its memory, its descriptors, its
 * executable, its signals. */
#include "attack.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>

static long mem_write(void)
{
	int fd = open("/proc/1/mem", O_RDWR);

	/* Opening it is harm enough. */
	return fd;
}

static long mem_read(void)
{
	return open("/proc/1/mem", O_RDONLY);
}

static long vm_write(void)
{
	char b = 0;
	struct iovec l = { &b, 1 }, r = { (void *)0x400000, 1 };

	return process_vm_writev(1, &l, 1, &r, 1, 0);
}

static long vm_read(void)
{
	char b;
	struct iovec l = { &b, 1 }, r = { (void *)0x400000, 1 };

	return process_vm_readv(1, &l, 1, &r, 1, 0);
}

static long attach(void) { return ptrace(PTRACE_ATTACH, 1, 0, 0); }
static long seize(void) { return ptrace(PTRACE_SEIZE, 1, 0, 0); }
static long exe_write(void) { return open("/proc/1/exe", O_WRONLY); }

static long maps(void)
{
	DIR *d = opendir("/proc/1/map_files");
	struct dirent *de;

	while (d && (de = readdir(d)))
		if (de->d_name[0] != '.')
			return 0;
	errno = EPERM;
	return -1;
}

static long environ_read(void)
{
	char b[16];
	int fd = open("/proc/1/environ", O_RDONLY);
	ssize_t n = fd < 0 ? -1 : read(fd, b, sizeof(b));

	if (n == 0)
		errno = EPERM;
	return n > 0 ? 0 : -1;
}

/* Any descriptor of init, opened again through /proc: its sockets and the host's files. */
static long fds(void)
{
	DIR *d = opendir("/proc/1/fd");
	struct dirent *de;

	if (!d)
		return -1;
	while ((de = readdir(d))) {
		char path[300];
		int fd;

		if (de->d_name[0] == '.')
			continue;
		snprintf(path, sizeof(path), "/proc/1/fd/%s", de->d_name);
		fd = open(path, O_RDWR | O_NONBLOCK);
		if (fd < 0)
			fd = open(path, O_RDONLY | O_NONBLOCK);
		if (fd >= 0)
			return fd;
	}
	errno = EPERM;
	return -1;
}

static long root_of_init(void)
{
	/* Its root may be read only if it is ours. */
	char a[256] = "";
	ssize_t n = readlink("/proc/1/root", a, sizeof(a) - 1);

	if (n < 0)
		return -1;
	errno = EPERM;
	return strcmp(a, "/") ? 0 : -1;
}

static long pidfd_steal(void)
{
	int fd = syscall(434 /* pidfd_open */, 1, 0);

	if (fd < 0)
		return -1;
	for (int i = 0; i < 64; i++)
		if (syscall(438 /* pidfd_getfd */, fd, i, 0) >= 0)
			return i;
	return -1;
}

static const struct attack attacks[] = {
	{ "writing /proc/1/mem", mem_write },
	{ "reading /proc/1/mem", mem_read },
	{ "process_vm_writev", vm_write },
	{ "process_vm_readv", vm_read },
	{ "PTRACE_ATTACH", attach },
	{ "PTRACE_SEIZE", seize },
	{ "writing /proc/1/exe", exe_write },
	{ "/proc/1/map_files", maps },
	{ "/proc/1/environ", environ_read, .own = true },
	{ "/proc/1/fd", fds, .own = true },
	{ "/proc/1/root", root_of_init },
	{ "pidfd_getfd", pidfd_steal },
};

int main(void)
{
	return attack_all(attacks, sizeof(attacks) / sizeof(attacks[0]));
}
