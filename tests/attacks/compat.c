/* The same calls through the doors that a filter written for 64 bits may have forgotten: int $0x80
 * with 32-bit numbers, and x32 numbers. */
#include "attack.h"

#include <sys/mman.h>

/* Arguments must lie in the low 4 GiB. */
static char *low;

static long call32(long nr, long a, long b, long c, long d, long e)
{
	long r;

	__asm__ volatile("int $0x80"
		: "=a"(r)
		: "a"(nr), "b"(a), "c"(b), "d"(c), "S"(d), "D"(e)
		: "memory", "r8", "r9", "r10", "r11");
	r = (int)r;
	if (r < 0 && r > -4096) {
		errno = -r;
		return -1;
	}
	return r;
}

static long callx32(long nr, long a, long b, long c, long d)
{
	register long r10 __asm__("r10") = d;
	long r;

	__asm__ volatile("syscall"
		: "=a"(r)
		: "a"(nr | 0x40000000), "D"(a), "S"(b), "d"(c), "r"(r10)
		: "rcx", "r11", "memory");
	if (r < 0 && r > -4096) {
		errno = -r;
		return -1;
	}
	return r;
}

#define LOW(x) ((long)(low + (x)))

static long mount32(void) { return call32(21, LOW(0), LOW(16), LOW(0), 0, 0); }
static long ptrace32(void) { return call32(26, 0x4206, 1, 0, 0, 0); }
static long umount32(void) { return call32(52, LOW(32), 2, 0, 0, 0); }
static long modify32(void) { return call32(128, LOW(64), 0, LOW(64), 0, 0); }
static long pivot32(void) { return call32(217, LOW(16), LOW(16), 0, 0, 0); }
static long kexec32(void) { return call32(283, 0, 0, 0, 0, 0); }
static long addkey32(void) { return call32(286, LOW(48), LOW(48), LOW(48), 1, -2); }
static long keyctl32(void) { return call32(288, 0, -4, 0, 0, 0); }
static long unshare32(void) { return call32(310, 0x00020000, 0, 0, 0, 0); }
static long perf32(void) { return call32(336, LOW(128), 0, -1, -1, 0); }
static long handle32(void) { return call32(342, -100, LOW(64), 0, 0, 0); }
static long setns32(void) { return call32(346, 0, 0, 0, 0, 0); }
static long bpf32(void) { return call32(357, 0, LOW(128), 16, 0, 0); }
static long uffd32(void) { return call32(374, 1, 0, 0, 0, 0); }
static long uring32(void) { return call32(425, 4, LOW(128), 0, 0, 0); }
static long mountx32(void) { return callx32(165, LOW(0), LOW(16), LOW(0), 0); }
static long ptracex32(void) { return callx32(521, 0x4206, 1, 0, 0); }
static long keyctlx32(void) { return callx32(250, 0, -4, 0, 0); }
static long bpfx32(void) { return callx32(321, 0, LOW(128), 16, 0); }
static long unsharex32(void) { return callx32(272, 0x00020000, 0, 0, 0); }
static long uringx32(void) { return callx32(425, 4, LOW(128), 0, 0); }
static long kexecx32(void) { return callx32(528, 0, 0, 0, 0); }

static const struct attack attacks[] = {
	{ "mount, 32 bits", mount32 },
	{ "ptrace of init, 32 bits", ptrace32 },
	{ "umount2, 32 bits", umount32 },
	{ "init_module, 32 bits", modify32 },
	{ "pivot_root, 32 bits", pivot32 },
	{ "kexec_load, 32 bits", kexec32 },
	{ "add_key, 32 bits", addkey32 },
	{ "keyctl, 32 bits", keyctl32 },
	{ "unshare, 32 bits", unshare32 },
	{ "perf_event_open, 32 bits", perf32 },
	{ "open_by_handle_at, 32 bits", handle32 },
	{ "setns, 32 bits", setns32 },
	{ "bpf, 32 bits", bpf32 },
	{ "userfaultfd, 32 bits", uffd32 },
	{ "io_uring_setup, 32 bits", uring32 },
	{ "mount, x32", mountx32 },
	{ "ptrace of init, x32", ptracex32 },
	{ "keyctl, x32", keyctlx32 },
	{ "bpf, x32", bpfx32 },
	{ "unshare, x32", unsharex32 },
	{ "io_uring_setup, x32", uringx32 },
	{ "kexec_load, x32", kexecx32 },
};

int main(void)
{
	low = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_32BIT, -1, 0);
	if (low == MAP_FAILED) {
		perror("mmap");
		return 2;
	}
	memcpy(low, "tmpfs", 6);
	memcpy(low + 16, "/tmp", 5);
	memcpy(low + 32, "/proc", 6);
	memcpy(low + 48, "user", 5);
	return attack_all(attacks, sizeof(attacks) / sizeof(attacks[0]));
}
