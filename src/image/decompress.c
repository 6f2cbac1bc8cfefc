#include "decompress.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fd.h"
#include "mem.h"
#include "parse.h"
#include "work.h"

#define CHUNK (128U << 10)
#define MAGIC_MAX 6
#define PIPE_BYTES (1 << 20)

struct decompress {
	den_source in;
	void *user;
	uint64_t max, given;
	enum decompress_kind kind;
	pid_t pid; /* 0: none */
	int to, from; /* pipes, non-blocking */
	bool in_ended, ended, broken;
	struct den_err why; /* broken: it stays so */
	size_t at, len; /* bytes of chunk that wait */
	char chunk[CHUNK];
};

static const struct {
	enum decompress_kind kind;
	const char *name;
	const char *magic;
	size_t n;
} formats[] = {
	{ DECOMPRESS_GZIP, "gzip", "\x1f\x8b", 2 },
	{ DECOMPRESS_ZSTD, "zstd", "\x28\xb5\x2f\xfd", 4 },
	{ DECOMPRESS_XZ, "xz",
		"\xfd"
		"7zXZ\0",
		6 },
};

const char *decompress_name(enum decompress_kind kind)
{
	for (size_t i = 0; i < ARRAY_SIZE(formats); i++)
		if (formats[i].kind == kind)
			return formats[i].name;
	return "";
}

enum decompress_kind decompress_kind(const struct decompress *d)
{
	return d->kind;
}

static int kind_find(struct decompress *d, struct den_err *err)
{
	while (d->len < MAGIC_MAX) {
		ssize_t n = d->in(d->chunk + d->len, sizeof(d->chunk) - d->len, d->user, err);

		if (n < 0)
			return -1;
		if (n == 0) {
			d->in_ended = true;
			break;
		}
		d->len += (size_t)n;
	}
	for (size_t i = 0; i < ARRAY_SIZE(formats); i++)
		if (d->len >= formats[i].n && !memcmp(d->chunk, formats[i].magic, formats[i].n))
			d->kind = formats[i].kind;
	if (d->len >= 4 && !memcmp(d->chunk, "BZh", 3) && d->chunk[3] >= '1' && d->chunk[3] <= '9')
		return den_fail(err, DEN_UNSUPPORTED, 0,
			"it is compressed with bzip2; give it as bunzip2 makes it, or with gzip, "
			"zstd or xz");
	return 0;
}

static int child_start(struct decompress *d, struct den_err *err)
{
	int to[2], from[2];

	if (pipe2(to, O_CLOEXEC) < 0)
		return den_fail_sys(err, errno, "pipe");
	if (pipe2(from, O_CLOEXEC) < 0) {
		den_fail_sys(err, errno, "pipe");
		close(to[0]);
		close(to[1]);
		return -1;
	}
	d->pid = fork();
	if (d->pid == 0) {
		if (dup2(to[0], 0) < 0 || dup2(from[1], 1) < 0)
			_exit(CHILD_SETUP);
		fd_close_from(2);
		decompress_child(d->kind);
	}
	close(to[0]);
	close(from[1]);
	d->to = to[1];
	d->from = from[0];
	if (d->pid < 0) {
		d->pid = 0;
		return den_fail_sys(err, errno, "fork");
	}
	/* fewer changes between the two; a user over his quota of pipes gets what there is */
	(void)fcntl(d->to, F_SETPIPE_SZ, PIPE_BYTES);
	(void)fcntl(d->from, F_SETPIPE_SZ, PIPE_BYTES);
	if (fd_set_nonblock(d->to, true) < 0 || fd_set_nonblock(d->from, true) < 0)
		return den_fail_sys(err, errno, "pipe");
	return 0;
}

int decompress_new(
	den_source in, void *user, uint64_t max, struct decompress **ret, struct den_err *err)
{
	struct decompress *d = mem_alloc(sizeof(*d));

	memset(d, 0, offsetof(struct decompress, chunk));
	d->in = in;
	d->user = user;
	d->max = max;
	d->to = d->from = -1;
	if (kind_find(d, err) < 0 || (d->kind && child_start(d, err) < 0)) {
		decompress_free(d);
		return -1;
	}
	*ret = d;
	return 0;
}

static int child_verdict(struct decompress *d, struct den_err *err)
{
	const char *name = decompress_name(d->kind);
	int status = 0;

	fd_close(&d->to);
	while (waitpid(d->pid, &status, 0) < 0 && errno == EINTR)
		;
	d->pid = 0;
	if (!WIFEXITED(status))
		return den_fail(err, DEN_DENIED, 0,
			"the %s data made the decompressor do what it may not (signal %d); it is "
			"corrupt or hostile",
			name, WTERMSIG(status));
	switch (WEXITSTATUS(status)) {
	case CHILD_OK:
		return 0;
	case CHILD_TRUNCATED:
		return den_fail(err, DEN_INVALID, 0,
			"the %s data ends too early; it is not complete", name);
	case CHILD_MEMORY:
		return den_fail(
			err, DEN_LIMIT, 0, "the %s data needs too much memory to unpack", name);
	case CHILD_CORRUPT:
		return den_fail(err, DEN_INVALID, 0, "the %s data is corrupt", name);
	default:
		return den_fail(err, DEN_INTERNAL, 0, "the decompressor failed with status %d",
			WEXITSTATUS(status));
	}
}

/* More input for the child, or the end of it. */
static int feed(struct decompress *d, struct den_err *err)
{
	ssize_t n;

	if (d->len == d->at && !d->in_ended) {
		n = d->in(d->chunk, sizeof(d->chunk), d->user, err);
		if (n < 0)
			return -1;
		d->at = 0;
		d->len = (size_t)n;
		d->in_ended = n == 0;
	}
	if (d->len == d->at) {
		fd_close(&d->to);
		return 0;
	}
	n = write(d->to, d->chunk + d->at, d->len - d->at);
	if (n > 0) {
		d->at += (size_t)n;
	} else if (n < 0 && errno == EPIPE) {
		fd_close(&d->to); /* it saw enough: its status tells what was wrong */
	} else if (n < 0 && errno != EAGAIN && errno != EINTR) {
		return den_fail_sys(err, errno, "write to the decompressor");
	}
	return 0;
}

static ssize_t child_read(struct decompress *d, void *buf, size_t cap, struct den_err *err)
{
	for (;;) {
		struct pollfd p[3] = { { d->from, POLLIN, 0 }, { d->to, POLLOUT, 0 },
			{ interrupt_fd(), POLLIN, 0 } };
		ssize_t n;

		if (poll(p, 3, -1) < 0 && errno != EINTR)
			return den_fail_sys(err, errno, "poll");
		if (interrupt_check(err) < 0)
			return -1;
		if (p[0].revents) {
			n = read(d->from, buf, cap);
			if (n > 0)
				return n;
			if (n == 0)
				return child_verdict(d, err);
			if (errno != EAGAIN && errno != EINTR)
				return den_fail_sys(err, errno, "read from the decompressor");
		}
		if (d->to >= 0 && p[1].revents && feed(d, err) < 0)
			return -1;
	}
}

static ssize_t plain_read(struct decompress *d, void *buf, size_t cap, struct den_err *err)
{
	if (d->at < d->len) {
		size_t n = MIN(cap, d->len - d->at);

		memcpy(buf, d->chunk + d->at, n);
		d->at += n;
		return (ssize_t)n;
	}
	return d->in_ended ? 0 : d->in(buf, cap, d->user, err);
}

ssize_t decompress_read(void *buf, size_t cap, void *user, struct den_err *err)
{
	struct decompress *d = user;
	char size[16];
	ssize_t n;

	if (d->broken && err)
		*err = d->why;
	if (d->ended || d->broken)
		return d->broken ? -1 : 0;
	n = d->kind ? child_read(d, buf, cap, &d->why) : plain_read(d, buf, cap, &d->why);
	d->given += n > 0 ? (uint64_t)n : 0;
	if (d->max && d->given > d->max) {
		format_size(d->max, size);
		n = den_fail(&d->why, DEN_LIMIT, 0, "it unpacks to more than %s", size);
	}
	d->ended = n == 0;
	d->broken = n < 0;
	if (d->broken && err)
		*err = d->why;
	return n;
}

void decompress_free(struct decompress *d)
{
	if (!d)
		return;
	fd_close(&d->to);
	fd_close(&d->from);
	if (d->pid > 0) {
		kill(d->pid, SIGKILL);
		while (waitpid(d->pid, NULL, 0) < 0 && errno == EINTR)
			;
	}
	free(d);
}
