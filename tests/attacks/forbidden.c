/* Calls that no program of a box needs and that reach deep into the shared kernel. Each is made with
 * arguments that would work, or fail in another way, where it is allowed. */
#include "attack.h"

#include <fcntl.h>
#include <linux/bpf.h>
#include <linux/io_uring.h>
#include <linux/keyctl.h>
#include <linux/perf_event.h>
#include <linux/reboot.h>
#include <linux/userfaultfd.h>
#include <sys/mman.h>
#include <sys/personality.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/time.h>
#include <sys/timex.h>
#include <time.h>

static long try_bpf(void)
{
	union bpf_attr a = { .map_type = BPF_MAP_TYPE_ARRAY, .key_size = 4, .value_size = 4, .max_entries = 1 };

	return syscall(SYS_bpf, BPF_MAP_CREATE, &a, sizeof(a));
}

static long try_bpf_prog(void)
{
	return syscall(SYS_bpf, BPF_PROG_LOAD, NULL, 0);
}

static long try_perf(void)
{
	struct perf_event_attr a = { .type = PERF_TYPE_SOFTWARE, .size = sizeof(a),
		.config = PERF_COUNT_SW_TASK_CLOCK, .exclude_kernel = 1, .exclude_hv = 1 };

	return syscall(SYS_perf_event_open, &a, 0, -1, -1, 0);
}

static long try_userfaultfd(void)
{
	return syscall(SYS_userfaultfd, O_CLOEXEC | 1 /* UFFD_USER_MODE_ONLY */);
}

static long try_io_uring_setup(void)
{
	struct io_uring_params p = { 0 };

	return syscall(SYS_io_uring_setup, 4, &p);
}

static long try_io_uring_enter(void)
{
	return syscall(SYS_io_uring_enter, 0, 0, 0, 0, NULL, 0);
}

static long try_io_uring_register(void)
{
	return syscall(SYS_io_uring_register, 0, 0, NULL, 0);
}

static long try_keyctl(void)
{
	return syscall(SYS_keyctl, KEYCTL_GET_KEYRING_ID, KEY_SPEC_USER_SESSION_KEYRING, 0, 0, 0);
}

static long try_add_key(void)
{
	return syscall(SYS_add_key, "user", "den-attack", "x", 1, KEY_SPEC_PROCESS_KEYRING);
}

static long try_request_key(void)
{
	return syscall(SYS_request_key, "user", "den-attack", NULL, 0);
}

static long try_kexec(void)
{
	return syscall(SYS_kexec_load, 0, 0, NULL, 0);
}

static long try_kexec_file(void)
{
	return syscall(SYS_kexec_file_load, -1, -1, 0, "", 0);
}

static long try_init_module(void)
{
	return syscall(SYS_init_module, "", 0, "");
}

static long try_finit_module(void)
{
	return syscall(SYS_finit_module, -1, "", 0);
}

static long try_delete_module(void)
{
	return syscall(SYS_delete_module, "nosuchmodule", O_NONBLOCK);
}

static long try_open_by_handle(void)
{
	struct {
		struct file_handle h;
		unsigned char b[128];
	} u = { .h.handle_bytes = 128 };
	int id, dir = open("/", O_RDONLY | O_DIRECTORY);

	/* Where handles cannot be made, a made-up one: the inode of a file system's root. */
	if (name_to_handle_at(AT_FDCWD, "/", &u.h, &id, 0) < 0) {
		u.h.handle_bytes = 8;
		u.h.handle_type = 1;
		u.b[0] = 2;
	}
	return open_by_handle_at(dir, &u.h, O_RDONLY);
}

static long try_ptrace_init(void)
{
	return syscall(SYS_ptrace, 0x4206 /* PTRACE_SEIZE */, 1, 0, 0);
}

static long try_swapon(void)
{
	return syscall(SYS_swapon, "/nonexistent", 0);
}

static long try_swapoff(void)
{
	return syscall(SYS_swapoff, "/nonexistent");
}

static long try_reboot(void)
{
	/* A command that does not exist: harmless where it gets through. */
	return syscall(SYS_reboot, LINUX_REBOOT_MAGIC1, LINUX_REBOOT_MAGIC2, 0x12345, NULL);
}

static long try_clock_settime(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_REALTIME, &ts);
	return syscall(SYS_clock_settime, CLOCK_REALTIME, &ts);
}

static long try_settimeofday(void)
{
	struct timeval tv;

	gettimeofday(&tv, NULL);
	return syscall(SYS_settimeofday, &tv, NULL);
}

static long try_adjtimex(void)
{
	struct timex t = { .modes = ADJ_TICK, .tick = 10000 };

	return syscall(SYS_adjtimex, &t);
}

static long try_acct(void)
{
	return syscall(SYS_acct, "/nonexistent");
}

static long try_quotactl(void)
{
	return syscall(SYS_quotactl, 0x80000100 /* Q_SYNC */, "/nonexistent", 0, NULL);
}

static long try_syslog(void)
{
	char b[256];

	return syscall(SYS_syslog, 3 /* SYSLOG_ACTION_READ_ALL */, b, sizeof(b));
}

static long try_iopl(void)
{
	return syscall(SYS_iopl, 3);
}

static long try_ioperm(void)
{
	return syscall(SYS_ioperm, 0x80, 1, 1);
}

static long try_lookup_dcookie(void)
{
	char b[64];

	return syscall(SYS_lookup_dcookie, 0L, b, sizeof(b));
}

static long try_personality(void)
{
	return syscall(SYS_personality, READ_IMPLIES_EXEC | MMAP_PAGE_ZERO);
}

static long try_move_pages_init(void)
{
	return syscall(SYS_migrate_pages, 1, 0, NULL, NULL);
}

static long try_pidfd_getfd_init(void)
{
	int fd = syscall(SYS_pidfd_open, 1, 0);

	if (fd < 0)
		return -1;
	return syscall(438 /* pidfd_getfd */, fd, 0, 0);
}

static long try_kcmp_init(void)
{
	return syscall(SYS_kcmp, getpid(), 1, 1 /* KCMP_VM */, 0, 0);
}

/* Made and opened: a node that cannot be opened is harmless. */
static long device(const char *name, mode_t type, unsigned major, unsigned minor)
{
	char path[64];
	int fd;

	snprintf(path, sizeof(path), "/tmp/%s.%d", name, getpid());
	if (mknod(path, type | 0600, makedev(major, minor)) < 0)
		return -1;
	fd = open(path, O_RDWR | O_NONBLOCK);
	unlink(path);
	return fd;
}

static long try_mknod_disk(void)
{
	return device("vda", S_IFBLK, 254, 0);
}

static long try_mknod_sda(void)
{
	return device("sda", S_IFBLK, 8, 0);
}

static long try_mknod_loop(void)
{
	return device("loop", S_IFBLK, 7, 0);
}

static long try_mknod_mem(void)
{
	return device("mem", S_IFCHR, 1, 1);
}

static long try_mknod_kmsg(void)
{
	return device("kmsg", S_IFCHR, 1, 11);
}

static long try_mknod_kvm(void)
{
	return device("kvm", S_IFCHR, 10, 232);
}

static long try_mknod_fuse(void)
{
	return device("fuse", S_IFCHR, 10, 229);
}

static const struct attack attacks[] = {
	{ "bpf map", try_bpf },
	{ "bpf program", try_bpf_prog },
	{ "perf_event_open", try_perf },
	{ "userfaultfd", try_userfaultfd },
	{ "io_uring_setup", try_io_uring_setup },
	{ "io_uring_enter", try_io_uring_enter },
	{ "io_uring_register", try_io_uring_register },
	{ "keyctl", try_keyctl },
	{ "add_key", try_add_key },
	{ "request_key", try_request_key },
	{ "kexec_load", try_kexec },
	{ "kexec_file_load", try_kexec_file },
	{ "init_module", try_init_module },
	{ "finit_module", try_finit_module },
	{ "delete_module", try_delete_module },
	{ "open_by_handle_at", try_open_by_handle },
	{ "ptrace of init", try_ptrace_init },
	{ "pidfd_getfd of init", try_pidfd_getfd_init },
	{ "kcmp of init", try_kcmp_init },
	{ "migrate_pages of init", try_move_pages_init },
	{ "swapon", try_swapon },
	{ "swapoff", try_swapoff },
	{ "reboot", try_reboot },
	{ "clock_settime", try_clock_settime },
	{ "settimeofday", try_settimeofday },
	{ "adjtimex", try_adjtimex },
	{ "acct", try_acct },
	{ "quotactl", try_quotactl },
	{ "syslog", try_syslog, .own = true },
	{ "iopl", try_iopl },
	{ "ioperm", try_ioperm },
	{ "lookup_dcookie", try_lookup_dcookie },
	{ "personality", try_personality },
	{ "device node of a disk", try_mknod_disk },
	{ "device node of a SCSI disk", try_mknod_sda },
	{ "device node of a loop device", try_mknod_loop },
	{ "device node of memory", try_mknod_mem },
	{ "device node of kmsg", try_mknod_kmsg },
	{ "device node of kvm", try_mknod_kvm },
	{ "device node of fuse", try_mknod_fuse },
};

int main(void)
{
	return attack_all(attacks, sizeof(attacks) / sizeof(attacks[0]));
}
