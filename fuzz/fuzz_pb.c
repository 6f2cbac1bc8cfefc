/* Protocol buffers and CRIU's images: read, changed and read again, whatever they hold. */
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fd.h"
#include "images.h"
#include "pb.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static uint64_t seen;

static void read_all(const uint8_t *p, size_t n, int depth)
{
	struct pb_reader r = pb_reader(p, n);
	struct pb_field f;

	while (pb_next(&r, &f) > 0) {
		seen += f.u + f.number;
		if (f.wire == PB_BYTES && depth < 8)
			read_all(f.p, f.n, depth + 1);
	}
}

static void put(int dir, const char *name, const void *head, size_t head_len, const uint8_t *p, size_t n)
{
	int fd = openat(dir, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	if (fd < 0 || write(fd, head, head_len) != (ssize_t)head_len || write(fd, p, n) != (ssize_t)n)
		abort();
	close(fd);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	static const uint32_t inventory[] = { 0x58313116U }, ids[] = { 0x54564319U, 0x54432030U },
			      files[] = { 0x54564319U, 0x56303138U }, fdinfo[] = { 0x54564319U, 0x56213732U },
			      stats[] = { 0x55105940U, 0x57093306U };
	static int dir = -1;
	struct image_fd one = { 1, 3, 0 };
	struct image_fds sems = { &one, 1 };
	struct image_notes notes = { 0 };
	struct den_err err;

	if (dir < 0) {
		char path[] = "/tmp/den-fuzz-pb.XXXXXX";

		if (!mkdtemp(path) || (dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC)) < 0)
			abort();
	}
	read_all(data, n, 0);
	put(dir, "inventory.img", inventory, sizeof(inventory), data, n);
	put(dir, "ids-1.img", ids, sizeof(ids), data, n);
	put(dir, "files.img", files, sizeof(files), data, n);
	put(dir, "fdinfo-0.img", fdinfo, sizeof(fdinfo), data, n);
	put(dir, "stats-dump", stats, sizeof(stats), data, n);
	put(dir, "den-notes", "", 0, data, n);
	(void)images_adopt(dir, true, &err);
	(void)images_mend(dir, &sems, &err);
	(void)images_frozen_ns(dir);
	if (images_notes_read(dir, &notes, &err) == 0)
		seen += strlen(notes.init_key);
	buf_free(&notes.groups);
	return 0;
}
