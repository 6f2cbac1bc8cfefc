/* Recipes of pages and indexes of packs, whatever a disk made of them; and frames that are no zstd. */
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fd.h"
#include "mem.h"
#include "saved_pages.h"
#include "sha256.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

/* What parses must be written as it was read. */
static void recipe(const uint8_t *p, size_t n)
{
	auto_recipe r = { 0 };
	auto_buf out = { 0 };
	struct den_err err;

	if (saved_recipe_parse(p, n, &r, &err) < 0)
		return;
	saved_recipe_put(&r, &out);
	if (out.len != n || memcmp(out.p, p, n))
		abort();
}

static void put(
	int dir, const char *name, const void *const parts[], const size_t sizes[], size_t n)
{
	int fd = openat(dir, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	for (size_t i = 0; i < n; i++)
		if (fd < 0 || write(fd, parts[i], sizes[i]) != (ssize_t)sizes[i])
			abort();
	close(fd);
}

/* A pack whose index has the right hash, and a recipe that names it: only what they say is wrong. */
static void whole(int dir, const uint8_t *index, size_t index_n, const uint8_t *list, size_t list_n,
	const uint8_t *frames, size_t frames_n)
{
	const void *parts[] = { frames, index, NULL };
	size_t sizes[] = { frames_n, index_n, SAVED_TAIL };
	uint8_t tail[SAVED_TAIL] = { (uint8_t)index_n, (uint8_t)(index_n >> 8) };
	auto_free const char **names = NULL;
	char name[SAVED_PACK_NAME];
	auto_recipe r = { 0 };
	struct den_err err;
	struct sha256 h;
	uint8_t id[SAVED_ID];

	if (saved_recipe_parse(list, list_n, &r, &err) < 0)
		return;
	memcpy(tail + 8, "denpackE", 8);
	parts[2] = tail;
	sha256_init(&h);
	sha256_add(&h, index, index_n);
	sha256_end(&h, id);
	saved_pack_name(id, name);
	put(dir, name, parts, sizes, ARRAY_SIZE(parts));
	for (uint32_t i = 0; i < r.n_packs; i++)
		memcpy(r.packs[i], id, SAVED_ID);
	names = mem_alloc((r.n_files + 1) * sizeof(*names));
	for (uint32_t i = 0; i < r.n_files; i++)
		names[i] = "pages";
	(void)saved_pages_read(dir, &r, names, -1, &err);
	unlinkat(dir, name, 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	static int dir = -1;
	struct saved_pack p = SAVED_PACK_NONE;
	size_t index_n, list_n;
	struct den_err err;

	if (dir < 0) {
		char path[] = "/tmp/den-fuzz-pages.XXXXXX";

		if (!mkdtemp(path) || (dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC)) < 0)
			abort();
	}
	recipe(data, n);
	if (saved_index_parse(data, n, n, &p, &err) == 0)
		saved_pack_close(&p);
	if (n < 4)
		return 0;
	index_n = MIN((size_t)data[0] | (size_t)data[1] << 8, n - 4);
	list_n = MIN((size_t)data[2] | (size_t)data[3] << 8, n - 4 - index_n);
	whole(dir, data + 4, index_n, data + 4 + index_n, list_n, data + 4 + index_n + list_n,
		n - 4 - index_n - list_n);
	return 0;
}
