/*
 * The memory of a box whose fork is being made is lent to it: whoever asked is told so (WM_LENT) and makes the fork at
 * once, whose keeper copies it from process to process (wall.h, WALL_LENT). Until then the box is held, and only the
 * borrower is listened to. It is over when he has it, dies, or takes too long, and when whoever asked goes away or says
 * so. Who has it not by then notices, since our end is closed before anything runs again.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include "clock.h"
#include "fault.h"
#include "fd.h"
#include "keeper.h"
#include "memory.h"

#define FIND_MS 5000   /* until somebody comes for it */
#define COPY_MS 120000 /* for as much as a host may have; one that dies is noticed at once */

static int lend_open(int dirfd, struct den_err *err)
{
	int fd;

	if (unlinkat(dirfd, WALL_LENT, 0) < 0 && errno != ENOENT)
		return den_fail_sys(err, errno, "lend memory");
	if (mkfifoat(dirfd, WALL_LENT, 0600) < 0)
		return den_fail_sys(err, errno, "lend memory");
	fd = openat(dirfd, WALL_LENT, O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOFOLLOW);
	return fd < 0 ? den_fail_sys(err, errno, "lend memory") : fd;
}

/* 1: he goes on; 0: it is over. */
static int heard(int fd, bool *found)
{
	char said[8];
	ssize_t n = read(fd, said, sizeof(said));

	if (n < 0)
		return errno == EAGAIN || errno == EINTR;
	for (ssize_t i = 0; i < n; i++) {
		if (said[i] == LENT_DONE)
			return 0;
		*found = true;
	}
	return n > 0;
}

static void lend_await(int fd, int client)
{
	int64_t began = clock_mono_ns();
	bool found = false;

	for (;;) {
		struct pollfd p[] = { { .fd = fd, .events = POLLIN }, { .fd = client, .events = POLLIN | POLLRDHUP } };
		int64_t left = (found ? COPY_MS : FIND_MS) - (clock_mono_ns() - began) / NS_PER_MS;

		if (left <= 0 || (poll(p, 2, (int)left) < 0 && errno != EINTR))
			return;
		if (p[1].revents || (p[0].revents && !heard(fd, &found)))
			return;
	}
}

int memory_lend(struct client *c, uint64_t number, int dirfd, struct den_err *err)
{
	auto_fd fd = lend_open(dirfd, err);
	auto_buf b = { 0 };

	if (fd < 0 || fault("lend", err) < 0)
		return -1;
	wire_put_u64(&b, F_NUMBER, number);
	conn_send_buf(&c->conn, WM_LENT, 0, &b);
	if (!c->conn.dead && fault("unlend", err) == 0)
		lend_await(fd, c->conn.src.fd);
	(void)fault("lent", err);
	return 0;
}

/* The loan is not needed any more; it was over when this was read. */
int req_lent(struct client *c, const struct wire_frame *f, struct buf *out, struct den_err *err)
{
	(void)c, (void)f, (void)out, (void)err;
	return 1;
}
