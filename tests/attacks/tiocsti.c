/* Pushing characters into the terminal that den itself reads, also with bits set above the 32 that
 * the kernel looks at. Standard input must be a terminal. */
#include "attack.h"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>

static long sti(void) { return syscall(SYS_ioctl, 0, TIOCSTI, "x"); }
static long sti_high(void) { return syscall(SYS_ioctl, 0, TIOCSTI | 0x100000000UL, "x"); }
static long sti_higher(void) { return syscall(SYS_ioctl, 0, TIOCSTI | 0xdead000000000000UL, "x"); }
static long console(void) { return syscall(SYS_ioctl, 0, TIOCLINUX, "\x02"); }
static long console_high(void) { return syscall(SYS_ioctl, 0, TIOCLINUX | 0x100000000UL, "\x02"); }

static long sti_controlling(void)
{
	int fd = open("/dev/tty", O_RDWR);

	return fd < 0 ? -1 : syscall(SYS_ioctl, fd, TIOCSTI, "x");
}

static const struct attack attacks[] = {
	{ "TIOCSTI", sti },
	{ "TIOCSTI with bit 32", sti_high },
	{ "TIOCSTI with many high bits", sti_higher },
	{ "TIOCSTI on /dev/tty", sti_controlling },
	{ "TIOCLINUX", console },
	{ "TIOCLINUX with bit 32", console_high },
};

int main(void)
{
	if (!isatty(0)) {
		puts("standard input is no terminal");
		return 2;
	}
	return attack_all(attacks, sizeof(attacks) / sizeof(attacks[0]));
}
