/* Pipes and FIFOs with bytes in them, and somebody who waits for one. */
#include "memory.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/stat.h>

#define IN_PIPE 10000

static int p_bytes[2], p_full[2], p_half[2], p_ask[2], p_reply[2];
static int p_full_bytes;

static void pipe_setup(const char *argument)
{
	char byte;

	(void)argument;
	MUST(pipe2(p_bytes, O_CLOEXEC) == 0 && writes(p_bytes[1], IN_PIPE, 1));
	MUST(fcntl(p_bytes[0], F_SETPIPE_SZ, 131072) == 131072);
	MUST(pipe2(p_full, O_NONBLOCK) == 0);
	while (write(p_full[1], "0123456789abcdef", 16) == 16)
		p_full_bytes += 16;
	/* Nobody can write any more: some bytes, then the end. */
	MUST(pipe(p_half) == 0 && writes(p_half[1], 100, 2));
	close(p_half[1]);
	/* A child that waits in read(). */
	MUST(pipe(p_ask) == 0 && pipe(p_reply) == 0);
	if (fork() == 0) {
		close(p_ask[1]);
		while (read(p_ask[0], &byte, 1) == 1) {
			byte++;
			if (write(p_reply[1], &byte, 1) != 1)
				break;
		}
		_exit(0);
	}
	close(p_ask[0]);
	close(p_reply[1]);
}

static void pipe_check(void)
{
	struct pollfd half = { .fd = p_half[0], .events = POLLIN };
	int n = -1;

	CHECK(ioctl(p_bytes[0], FIONREAD, &n) == 0);
	IS(n, IN_PIPE);
	CHECK(reads(p_bytes[0], IN_PIPE, 1 + steps));
	CHECK(writes(p_bytes[1], IN_PIPE, 1 + steps));
	IS(fcntl(p_bytes[0], F_GETPIPE_SZ), 131072);
	IS(fcntl(p_bytes[0], F_GETFD), FD_CLOEXEC);
	IS(fcntl(p_bytes[0], F_GETFL) & O_NONBLOCK, 0);
	IS(fcntl(p_full[0], F_GETFL) & O_NONBLOCK, O_NONBLOCK);
	CHECK(ioctl(p_full[0], FIONREAD, &n) == 0);
	IS(n, p_full_bytes);
	CHECK(write(p_full[1], "x", 1) < 0 && errno == EAGAIN);
	CHECK(ioctl(p_half[0], FIONREAD, &n) == 0);
	IS(n, 100);
	IS(poll(&half, 1, 0), 1);
	IS(half.revents, POLLIN | POLLHUP);
	CHECK(answers(p_ask[1], p_reply[0], 'a'));
}

static void pipe_step(void)
{
	CHECK(reads(p_bytes[0], IN_PIPE, steps));
	CHECK(writes(p_bytes[1], IN_PIPE, 1 + steps));
}

const struct subject subject_pipe = { "pipe", pipe_setup, pipe_check, pipe_step, NULL };

/* ---- FIFOs ---- */

static int q_both, q_read, q_write;

static void fifo_setup(const char *argument)
{
	(void)argument;
	MUST(mkfifo("both", 0600) == 0 && mkfifo("split", 0600) == 0);
	q_both = open("both", O_RDWR);
	q_read = open("split", O_RDONLY | O_NONBLOCK);
	q_write = open("split", O_WRONLY);
	MUST(q_both >= 0 && q_read >= 0 && q_write >= 0);
	MUST(writes(q_both, 700, 1) && writes(q_write, 800, 2));
}

static void fifo_check(void)
{
	int n = -1, fd;

	CHECK(reads(q_both, 700, 1) && writes(q_both, 700, 1));
	CHECK(ioctl(q_read, FIONREAD, &n) == 0);
	IS(n, 800);
	CHECK(reads(q_read, 800, 2) && writes(q_write, 800, 2));
	/* It is still the one that has the name. */
	fd = open("both", O_WRONLY | O_NONBLOCK);
	CHECK(fd >= 0 && writes(fd, 1, 3));
	close(fd);
	CHECK(reads(q_both, 700, 1) && reads(q_both, 1, 3) && writes(q_both, 700, 1));
}

const struct subject subject_fifo = { "fifo", fifo_setup, fifo_check, NULL, NULL };
