/* Hashing and compressing the files of saved programs. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zstd.h>

#include "fd.h"
#include "mem.h"
#include "saved_manifest.h"
#include "sha256.h"

#define PART (1U << 20)
#define PACK_LEVEL 1 /* pages of memory: more costs much and gives little */

static int open_read(int dirfd, const char *name, struct den_err *err)
{
	int fd = openat(dirfd, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);

	if (fd < 0)
		den_fail(err, DEN_UNSUPPORTED, errno,
			"what was saved of the programs is damaged: '%.60s'", name);
	return fd;
}

static ssize_t read_part(int fd, void *p, size_t n, const char *name, struct den_err *err)
{
	ssize_t r;

	do
		r = read(fd, p, n);
	while (r < 0 && errno == EINTR);
	return r < 0 ? den_fail_sys(err, errno, "read '%.60s'", name) : r;
}

int saved_hash(int dirfd, const char *name, char ret[static 65], struct den_err *err)
{
	auto_fd fd = open_read(dirfd, name, err);
	auto_free char *part = fd >= 0 ? mem_alloc(PART) : NULL;
	struct sha256 h;
	ssize_t n;

	if (fd < 0)
		return -1;
	sha256_init(&h);
	while ((n = read_part(fd, part, PART, name, err)) > 0)
		sha256_add(&h, part, (size_t)n);
	sha256_hex(&h, ret);
	return n < 0 ? -1 : 0;
}

static int pack_all(int in, int out, const char *name, ZSTD_CCtx *z, struct den_err *err)
{
	auto_free char *part = mem_alloc(PART), *packed = mem_alloc(PART);
	ssize_t n;

	do {
		ZSTD_inBuffer from = { part, 0, 0 };
		size_t left;

		n = read_part(in, part, PART, name, err);
		if (n < 0)
			return -1;
		from.size = (size_t)n;
		do {
			ZSTD_outBuffer to = { packed, PART, 0 };

			left = ZSTD_compressStream2(
				z, &to, &from, n ? ZSTD_e_continue : ZSTD_e_end);
			if (ZSTD_isError(left))
				return den_fail(err, DEN_INTERNAL, 0, "compress '%.60s': %s", name,
					ZSTD_getErrorName(left));
			if (fd_write_all(out, packed, to.pos, err) < 0)
				return -1;
		} while (n ? from.pos < from.size : left);
	} while (n);
	return fsync(out) < 0 ? den_fail_sys(err, errno, "write '%.60s'", name) : 0;
}

int saved_pack(int dirfd, const char *name, struct den_err *err)
{
	auto_fd in = open_read(dirfd, name, err), out = -1;
	char to[300];
	ZSTD_CCtx *z;
	int r;

	if (in < 0)
		return -1;
	snprintf(to, sizeof(to), "%s.zst", name);
	unlinkat(dirfd, to, 0);
	out = openat(dirfd, to, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (out < 0)
		return den_fail_sys(err, errno, "make '%.60s'", to);
	z = ZSTD_createCCtx();
	ZSTD_CCtx_setParameter(z, ZSTD_c_compressionLevel, PACK_LEVEL);
	r = pack_all(in, out, name, z, err);
	ZSTD_freeCCtx(z);
	if (r < 0)
		unlinkat(dirfd, to, 0);
	return r;
}

static int unpack_all(int in, int out, const char *name, uint64_t max, ZSTD_DCtx *z,
	struct sha256 *h, struct den_err *err)
{
	auto_free char *part = mem_alloc(PART), *plain = mem_alloc(PART);
	uint64_t sum = 0;
	ssize_t n;

	while ((n = read_part(in, part, PART, name, err)) > 0) {
		ZSTD_inBuffer from = { part, (size_t)n, 0 };

		while (from.pos < from.size) {
			ZSTD_outBuffer to = { plain, PART, 0 };
			size_t r = ZSTD_decompressStream(z, &to, &from);

			sum += to.pos;
			if (ZSTD_isError(r) || sum > max)
				return den_fail(err, DEN_UNSUPPORTED, 0,
					"what was saved of the programs is damaged: '%.60s'", name);
			sha256_add(h, plain, to.pos);
			if (fd_write_all(out, plain, to.pos, err) < 0)
				return -1;
		}
	}
	return n < 0 ? -1 : 0;
}

int saved_unpack(int dirfd, const char *name, int to_dir, const char *to, uint64_t max,
	char ret[static 65], struct den_err *err)
{
	auto_fd in = open_read(dirfd, name, err), out = -1;
	struct sha256 h;
	ZSTD_DCtx *z;
	int r;

	if (in < 0)
		return -1;
	out = openat(to_dir, to, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (out < 0)
		return den_fail_sys(err, errno, "make '%.60s'", to);
	sha256_init(&h);
	z = ZSTD_createDCtx();
	r = unpack_all(in, out, name, max, z, &h, err);
	ZSTD_freeDCtx(z);
	sha256_hex(&h, ret);
	return r;
}
