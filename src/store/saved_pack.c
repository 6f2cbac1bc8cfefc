/* Hashing files of saved programs, and unpacking those that were compressed as wholes (format 1). */
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
