/*
 * Feeds an archive to the reader and to the unpacker, cut into pieces that the input chooses. The
 * unpacker works below a throwaway directory; a canary beside it must stay as it was.
 */
#include <dirent.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fd.h"
#include "tar.h"
#include "tree.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static uint64_t seen;

static int on_entry(const struct tar_entry *e, void *user, struct den_err *err)
{
	(void)user, (void)err;
	seen += strlen(e->name) + (e->target ? strlen(e->target) : 0);
	for (size_t i = 0; i < e->n_xattrs; i++) {
		seen += strlen(e->xattrs[i].name);
		for (size_t j = 0; j < e->xattrs[i].len; j++)
			seen += ((const uint8_t *)e->xattrs[i].value)[j];
	}
	return 0;
}

static int on_data(const void *p, size_t n, void *user, struct den_err *err)
{
	(void)user, (void)err;
	if (!n)
		abort();
	seen += *(const uint8_t *)p;
	return 0;
}

static int on_end(void *user, struct den_err *err)
{
	(void)user, (void)err;
	return 0;
}

static char dir[] = "/tmp/fuzz-tar.XXXXXX";

static void scratch_remove(void)
{
	tree_remove_at(AT_FDCWD, dir, NULL);
}

static int scratch_open(void)
{
	static int fd = -1;

	if (fd >= 0)
		return fd;
	if (!mkdtemp(dir))
		abort();
	fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0 || mkdirat(fd, "canary", 0700) < 0)
		abort();
	atexit(scratch_remove);
	return fd;
}

static int count(int at, const char *name)
{
	DIR *d = fdopendir(openat(at, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
	int n = 0;

	if (!d)
		abort();
	while (readdir(d))
		n++;
	closedir(d);
	return n - 2;
}

static void unpack(const uint8_t *data, size_t n)
{
	const struct tree_unpack_opt opt = { .mode_clear = 07022, .max_bytes = 1 << 20,
		.max_entries = 64, .xattrs = TREE_XATTR_USER, .special = true };
	int scratch = scratch_open(), fd;
	struct tree_unpacker *u;
	struct den_err err;

	if (mkdirat(scratch, "d", 0700) < 0)
		abort();
	fd = openat(scratch, "d", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	u = tree_unpacker_new(fd, &opt);
	if (tree_unpacker_feed(u, data, n, &err) == 0)
		tree_unpacker_finish(u, &err);
	tree_unpacker_free(u);
	close(fd);
	/* nothing but the two is here, and the canary is empty */
	if (count(scratch, ".") != 2 || count(scratch, "canary") != 0)
		abort();
	if (tree_remove_at(scratch, "d", &err) < 0)
		abort();
}

/* Checksums are set right in every block that could be a header: a fuzzer would never guess them. */
static void mend(uint8_t *p, size_t n)
{
	for (; n >= TAR_BLOCK; p += TAR_BLOCK, n -= TAR_BLOCK) {
		unsigned sum = 0;
		char text[9];

		if (p[148] == 0) /* left wrong on purpose */
			continue;
		memset(p + 148, ' ', 8);
		for (size_t i = 0; i < TAR_BLOCK; i++)
			sum += p[i];
		snprintf(text, sizeof(text), "%06o", sum);
		memcpy(p + 148, text, 7);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	static const struct tar_ops ops = { on_entry, on_data, on_end };
	struct tar_reader *r = tar_reader_new(&ops, NULL);
	struct den_err err;
	size_t piece = n ? data[0] + 1U : 1;
	uint8_t *copy = malloc(n ? n : 1);

	memcpy(copy, data, n);
	mend(copy, n);
	for (size_t at = 0; at < n; at += piece)
		if (tar_reader_feed(r, copy + at, n - at < piece ? n - at : piece, &err) < 0)
			break;
	tar_reader_finish(r, &err);
	tar_reader_free(r);
	unpack(copy, n);
	free(copy);
	return 0;
}
