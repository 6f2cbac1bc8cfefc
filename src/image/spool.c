#include "spool.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "fd.h"
#include "mem.h"
#include "work.h"

#define CHUNK (128U << 10)

int spool_new(struct den_err *err)
{
	const char *dir = getenv("TMPDIR");
	auto_free char *name = NULL;
	int fd;

	if (!dir || !*dir)
		dir = access("/var/tmp", W_OK) == 0 ? "/var/tmp" : "/tmp";
	fd = open(dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	if (fd >= 0)
		return fd;
	/* not every file system has files without names */
	if (asprintf(&name, "%s/den-XXXXXX", dir) < 0)
		return den_fail(err, DEN_INTERNAL, ENOMEM, "temporary file");
	fd = mkostemp(name, O_CLOEXEC);
	if (fd < 0)
		return den_fail_sys(err, errno, "temporary file in '%.100s' (set TMPDIR)", dir);
	unlink(name);
	return fd;
}

int spool_fill(int fd, den_source source, void *user, uint64_t *ret_len, struct den_err *err)
{
	auto_free char *buf = mem_alloc(CHUNK);
	uint64_t len = 0;
	ssize_t n;

	while ((n = source(buf, CHUNK, user, err)) > 0) {
		if (interrupt_check(err) < 0)
			return -1;
		if (fd_write_all(fd, buf, (size_t)n, err) < 0)
			return den_wrap(err, "temporary file (set TMPDIR to a place with room)");
		len += (uint64_t)n;
	}
	if (n < 0)
		return -1;
	if (ret_len)
		*ret_len = len;
	return 0;
}

int spool_read(int fd, uint64_t at, void *buf, size_t n, struct den_err *err)
{
	struct stretch s = { fd, at, n };

	for (size_t have = 0; have < n;) {
		ssize_t r = stretch_read((char *)buf + have, n - have, &s, err);

		if (r < 0)
			return -1;
		if (r == 0)
			return den_fail(err, DEN_INVALID, 0, "it is shorter than it says");
		have += (size_t)r;
	}
	return 0;
}

ssize_t stretch_read(void *buf, size_t cap, void *user, struct den_err *err)
{
	struct stretch *s = user;
	ssize_t n;

	if (!s->left)
		return 0;
	do
		n = pread(s->fd, buf, MIN(cap, s->left), (off_t)s->at);
	while (n < 0 && errno == EINTR);
	if (n < 0)
		return den_fail_sys(err, errno, "read");
	s->at += (uint64_t)n;
	s->left -= (uint64_t)n;
	return n;
}
