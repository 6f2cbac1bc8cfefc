#include "pack.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <zlib.h>
#include <zstd.h>

#include "fd.h"
#include "mem.h"
#include "sha256.h"
#include "spool.h"

#define CHUNK (128U << 10)
#define GZIP_LEVEL 6
#define ZSTD_LEVEL 3

struct packer {
	enum export_pack pack;
	int fd;
	struct sha256 plain, packed;
	uint64_t size;
	z_stream z;
	ZSTD_CCtx *zstd;
	unsigned char out[CHUNK];
};

int packer_new(enum export_pack pack, struct packer **ret, struct den_err *err)
{
	struct packer *p = mem_new(struct packer);
	bool ok = true;

	p->pack = pack;
	p->fd = spool_new(err);
	sha256_init(&p->plain);
	sha256_init(&p->packed);
	/* zlib writes no time and no name into its gzip header: the same bytes each time */
	if (pack == EXPORT_GZIP)
		ok = deflateInit2(&p->z, GZIP_LEVEL, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) ==
		     Z_OK;
	if (pack == EXPORT_ZSTD)
		ok = (p->zstd = ZSTD_createCCtx()) != NULL &&
		     !ZSTD_isError(
			     ZSTD_CCtx_setParameter(p->zstd, ZSTD_c_compressionLevel, ZSTD_LEVEL));
	if (!ok)
		den_fail(err, DEN_INTERNAL, ENOMEM, "compress");
	if (p->fd < 0 || !ok) {
		packer_free(p);
		return -1;
	}
	*ret = p;
	return 0;
}

void packer_free(struct packer *p)
{
	if (!p)
		return;
	fd_close(&p->fd);
	if (p->pack == EXPORT_GZIP)
		deflateEnd(&p->z);
	ZSTD_freeCCtx(p->zstd);
	free(p);
}

void packed_free(struct packed *p)
{
	fd_close(&p->fd);
}

static int out_write(struct packer *p, const void *data, size_t n, struct den_err *err)
{
	if (!n)
		return 0;
	sha256_add(&p->packed, data, n);
	p->size += n;
	if (fd_write_all(p->fd, data, n, err) < 0)
		return den_wrap(err, "temporary file (set TMPDIR to a place with room)");
	return 0;
}

static int gzip_add(struct packer *p, const void *data, size_t n, bool end, struct den_err *err)
{
	int r;

	p->z.next_in = (Bytef *)data;
	p->z.avail_in = (uInt)n;
	do {
		p->z.next_out = p->out;
		p->z.avail_out = sizeof(p->out);
		r = deflate(&p->z, end ? Z_FINISH : Z_NO_FLUSH);
		if (out_write(p, p->out, sizeof(p->out) - p->z.avail_out, err) < 0)
			return -1;
	} while (p->z.avail_in || (end && r != Z_STREAM_END));
	return 0;
}

static int zstd_add(struct packer *p, const void *data, size_t n, bool end, struct den_err *err)
{
	ZSTD_inBuffer in = { data, n, 0 };
	size_t r;

	do {
		ZSTD_outBuffer out = { p->out, sizeof(p->out), 0 };

		r = ZSTD_compressStream2(p->zstd, &out, &in, end ? ZSTD_e_end : ZSTD_e_continue);
		if (ZSTD_isError(r))
			return den_fail(err, DEN_INTERNAL, 0, "compress: %s", ZSTD_getErrorName(r));
		if (out_write(p, p->out, out.pos, err) < 0)
			return -1;
	} while (in.pos < in.size || (end && r));
	return 0;
}

static int add(struct packer *p, const void *data, size_t n, bool end, struct den_err *err)
{
	switch (p->pack) {
	case EXPORT_GZIP:
		return gzip_add(p, data, n, end, err);
	case EXPORT_ZSTD:
		return zstd_add(p, data, n, end, err);
	case EXPORT_PLAIN:
		break;
	}
	return out_write(p, data, n, err);
}

int packer_add(const void *data, size_t n, void *user, struct den_err *err)
{
	struct packer *p = user;

	sha256_add(&p->plain, data, n);
	/* in pieces: zlib counts in 32 bits */
	for (size_t at = 0; at < n; at += CHUNK)
		if (add(p, (const char *)data + at, MIN(n - at, CHUNK), false, err) < 0)
			return -1;
	return 0;
}

int packer_end(struct packer *p, struct packed *ret, struct den_err *err)
{
	char hex[65];

	if (add(p, "", 0, true, err) < 0)
		return -1;
	*ret = (struct packed){ .fd = fd_take(&p->fd), .size = p->size };
	sha256_hex(&p->packed, hex);
	snprintf(ret->digest.s, sizeof(ret->digest.s), "sha256:%s", hex);
	sha256_hex(&p->plain, hex);
	snprintf(ret->diff_id.s, sizeof(ret->diff_id.s), "sha256:%s", hex);
	return 0;
}
