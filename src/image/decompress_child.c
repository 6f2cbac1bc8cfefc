/*
 * The child of decompress.h. In this order:
 *
 *   descriptors   0 and 1 are the pipes, all others are closed
 *   limits        addresses, no core file: what it reads may be somebody's secret
 *   no_new_privs  the filter needs it
 *   filter        last: it forbids all of the above
 */
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <lzma.h>
#include <signal.h>
#include <stddef.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>
#include <zstd_errors.h>

#include "decompress.h"
#include "mem.h"

#define CHUNK (128U << 10)
#define ADDRESSES (256U << 20)
#define XZ_MEMORY (128U << 20)

#if defined(__SANITIZE_ADDRESS__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SANITIZED 1
#endif
#endif

static unsigned char in_bytes[CHUNK], out_bytes[CHUNK];

static size_t in_read(void)
{
	ssize_t n;

	do
		n = read(0, in_bytes, sizeof(in_bytes));
	while (n < 0 && errno == EINTR);
	if (n < 0)
		_exit(CHILD_IO);
	return (size_t)n;
}

static void out_write(size_t n)
{
	for (size_t at = 0; at < n;) {
		ssize_t w = write(1, out_bytes + at, n - at);

		if (w < 0 && errno != EINTR)
			_exit(CHILD_IO); /* nobody reads any more */
		at += w > 0 ? (size_t)w : 0;
	}
}

/* ---- the formats ----------------------------------------------------------------------------- */

/* Zeros after the last member are padding, as tape drives and split uploads leave. */
static enum decompress_end rest_is_zero(const unsigned char *p, size_t n)
{
	while (n) {
		for (size_t i = 0; i < n; i++)
			if (p[i])
				return CHILD_CORRUPT;
		n = in_read();
		p = in_bytes;
	}
	return CHILD_OK;
}

static enum decompress_end gzip_run(void)
{
	z_stream z = { 0 };
	bool inside = false; /* a member began */
	bool full = false; /* the output was: there may be more of it without new input */

	if (inflateInit2(&z, 15 + 16) != Z_OK)
		return CHILD_MEMORY;
	for (;;) {
		int r;

		if (!z.avail_in && !full) {
			z.next_in = in_bytes;
			z.avail_in = (uInt)in_read();
			if (!z.avail_in)
				return inside ? CHILD_TRUNCATED : CHILD_OK;
		}
		if (!inside && z.avail_in && *z.next_in == 0)
			return rest_is_zero(z.next_in, z.avail_in);
		inside = true;
		z.next_out = out_bytes;
		z.avail_out = sizeof(out_bytes);
		r = inflate(&z, Z_NO_FLUSH);
		out_write(sizeof(out_bytes) - z.avail_out);
		full = !z.avail_out;
		if (r == Z_MEM_ERROR)
			return CHILD_MEMORY;
		if (r == Z_STREAM_END) {
			inside = full = false;
			r = inflateReset(&z);
		}
		if (r != Z_OK && r != Z_BUF_ERROR)
			return CHILD_CORRUPT;
	}
}

static enum decompress_end zstd_run(void)
{
	ZSTD_DStream *z = ZSTD_createDStream();
	ZSTD_inBuffer in = { in_bytes, in_read(), 0 };

	if (!z)
		return CHILD_MEMORY;
	for (;;) {
		ZSTD_outBuffer out = { out_bytes, sizeof(out_bytes), 0 };
		size_t r = ZSTD_decompressStream(z, &out, &in);

		if (ZSTD_isError(r)) {
			ZSTD_ErrorCode code = ZSTD_getErrorCode(r);

			return code == ZSTD_error_frameParameter_windowTooLarge ||
					       code == ZSTD_error_memory_allocation
				       ? CHILD_MEMORY
				       : CHILD_CORRUPT;
		}
		out_write(out.pos);
		/* r is 0 where a frame ended; before that, a full output may be followed by more */
		if (in.pos < in.size || (r && out.pos == sizeof(out_bytes)))
			continue;
		in.pos = 0;
		in.size = in_read();
		if (!in.size)
			return r ? CHILD_TRUNCATED : CHILD_OK;
	}
}

static enum decompress_end xz_run(void)
{
	lzma_stream z = LZMA_STREAM_INIT;
	lzma_action action = LZMA_RUN;
	lzma_ret r;

	if (lzma_stream_decoder(&z, XZ_MEMORY, LZMA_CONCATENATED) != LZMA_OK)
		return CHILD_MEMORY;
	for (;;) {
		if (!z.avail_in && action == LZMA_RUN) {
			z.next_in = in_bytes;
			z.avail_in = in_read();
			if (!z.avail_in)
				action = LZMA_FINISH;
		}
		z.next_out = out_bytes;
		z.avail_out = sizeof(out_bytes);
		r = lzma_code(&z, action);
		out_write(sizeof(out_bytes) - z.avail_out);
		switch (r) {
		case LZMA_OK:
			break;
		case LZMA_STREAM_END:
			return CHILD_OK;
		case LZMA_BUF_ERROR:
			return CHILD_TRUNCATED;
		case LZMA_MEM_ERROR:
		case LZMA_MEMLIMIT_ERROR:
			return CHILD_MEMORY;
		default:
			return CHILD_CORRUPT;
		}
	}
}

/* ---- the cell -------------------------------------------------------------------------------- */

#if defined(__x86_64__)
#define ARCH_NOW AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define ARCH_NOW AUDIT_ARCH_AARCH64
#elif defined(__riscv) && __riscv_xlen == 64
#define ARCH_NOW AUDIT_ARCH_RISCV64
#else
#error "the decompressor's filter does not know this architecture"
#endif

#define ALLOW(call)                                                                                \
	BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_##call, 0, 1),                                     \
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)

static int filter_set(void)
{
	static const struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ARCH_NOW, 1, 0),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		ALLOW(read),
		ALLOW(write),
		ALLOW(mmap),
		ALLOW(munmap),
		ALLOW(mremap),
		ALLOW(brk),
		ALLOW(close),
		ALLOW(rt_sigreturn),
		ALLOW(exit_group),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
	};
	struct sock_fprog prog = { ARRAY_SIZE(code), (struct sock_filter *)code };

	return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog);
}

static void cell_enter(void)
{
	struct rlimit core = { 0, 0 };

	signal(SIGPIPE, SIG_IGN);
	if (setrlimit(RLIMIT_CORE, &core) < 0 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		_exit(CHILD_SETUP);
#ifndef SANITIZED /* which needs terabytes of addresses, and calls of its own */
	if (setrlimit(RLIMIT_AS, &(struct rlimit){ ADDRESSES, ADDRESSES }) < 0 || filter_set() < 0)
		_exit(CHILD_SETUP);
#else
	(void)filter_set;
#endif
}

void decompress_child(enum decompress_kind kind)
{
	enum decompress_end (*const run[])(void) = {
		[DECOMPRESS_GZIP] = gzip_run, [DECOMPRESS_ZSTD] = zstd_run, [DECOMPRESS_XZ] = xz_run
	};

	cell_enter();
	_exit(run[kind]());
}
