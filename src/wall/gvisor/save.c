/*
 * Saving and loading the programs of a box, with runsc checkpoint and runsc restore.
 *
 * runsc has to run where the box is, so the porter runs it (init/porter.c). It is asked over a socket whose
 * other end it holds itself: a keeper that adopted the box takes that from it.
 *
 * While the sentry is paused its state is written, and with it whatever it had not yet written of the box's files;
 * then the files are copied. So both are of one instant.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "boxlink.h"
#include "clock.h"
#include "container.h"
#include "fd.h"
#include "gvisor.h"
#include "idmap.h"
#include "mem.h"
#include "porter.h"
#include "strv.h"

#define HOLD_MS 20000 /* milliseconds are enough where nothing hangs */
#define SAVE_MS 60000 /* and for each megabyte of memory: */
#define SAVE_MS_MB 50
#define ANSWER_MS 5000 /* for the porter to tell, beyond that */
#define SAVE_TRIES 12
#define SAVE_AGAIN_S 5 /* no further try after that: each holds the box */

/* Images are made and read by root of the box, and are root's on disk. */
static int open_images(const struct plan *p, int dirfd, struct den_err *err)
{
	char link[64], path[4096];
	struct stat st, want;
	auto_fd ns = -1, fd = -1;
	ssize_t n;

	/* by path: the descriptor may be from before this process had a mount namespace of its own */
	snprintf(link, sizeof(link), "/proc/self/fd/%d", dirfd);
	n = readlink(link, path, sizeof(path) - 1);
	path[MAX(n, 0)] = '\0';
	fd = mount_clone(AT_FDCWD, path, err);
	if (fd < 0)
		return -1;
	if (fstat(fd, &st) < 0 || fstat(dirfd, &want) < 0 || st.st_ino != want.st_ino || st.st_dev != want.st_dev)
		return den_fail(err, DEN_INTERNAL, 0, "images: '%.100s' is another directory", path);
	if (idmap_owner_ns(st.st_uid, st.st_gid, p->id_base, &ns, err) < 0 || idmap_mount(fd, ns, "the images", err) < 0)
		return -1;
	return fd_take(&fd);
}

static int send_ask(int to, struct porter_ask *a, int fd, struct den_err *err)
{
	struct iovec v = { a, sizeof(*a) };
	union {
		char bytes[CMSG_SPACE(sizeof(int))];
		struct cmsghdr align;
	} u;
	struct msghdr m = { .msg_iov = &v, .msg_iovlen = 1 };

	if (fd >= 0) {
		struct cmsghdr *h;

		m.msg_control = u.bytes;
		m.msg_controllen = sizeof(u.bytes);
		h = CMSG_FIRSTHDR(&m);
		h->cmsg_level = SOL_SOCKET;
		h->cmsg_type = SCM_RIGHTS;
		h->cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(h), &fd, sizeof(fd));
	}
	return sendmsg(to, &m, MSG_NOSIGNAL) == (ssize_t)sizeof(*a) ? 0 : den_fail_sys(err, errno, "ask the porter");
}

/* What it answers is hostile: bounded, and for people to read. */
static int get_answer(struct wall_box *b, int from, uint32_t number, uint32_t limit_ms, struct den_err *err)
{
	int64_t until = clock_mono_ns() + ((int64_t)limit_ms + ANSWER_MS) * NS_PER_MS;
	struct pollfd p[] = { { .fd = from, .events = POLLIN }, { .fd = b->pidfd, .events = POLLIN } };
	struct porter_answer a;

again:
	if (poll(p, 2, (int)MAX((until - clock_mono_ns()) / NS_PER_MS, 0)) <= 0 || !(p[0].revents & POLLIN))
		return den_fail(err, p[1].revents ? DEN_CONFLICT : DEN_TIMEOUT, 0,
			p[1].revents ? "the box ended meanwhile" : "runsc does not come to an end");
	if (recv(from, &a, sizeof(a), MSG_DONTWAIT) != (ssize_t)sizeof(a))
		return den_fail(err, DEN_INTERNAL, 0, "the porter makes no sense");
	if (a.number != number) { /* what a keeper that died had asked for */
		if (clock_mono_ns() < until)
			goto again;
		return den_fail(err, DEN_TIMEOUT, 0, "runsc does not come to an end");
	}
	a.words[sizeof(a.words) - 1] = '\0';
	for (char *s = a.words; *s; s++)
		if ((unsigned char)*s < ' ' || *s == 0x7f)
			*s = ' ';
	if (a.status && strstr(a.words, "deleted and invalidated"))
		return den_fail(err, DEN_UNSUPPORTED, 0,
			"a program has a file open that was deleted (a here-document of a shell, say), and runsc cannot save that");
	return a.status ? den_fail(err, DEN_INTERNAL, 0, "runsc: %s", a.words) : 0;
}

/* How long saving may take, by what there is to write. */
static uint32_t save_limit(struct wall_box *b)
{
	struct box_stats st = { 0 };
	struct den_err ignored;

	if (container_stats(b, &st, &ignored) < 0)
		return SAVE_MS * 10;
	return (uint32_t)MIN(SAVE_MS + (st.mem >> 20) * SAVE_MS_MB, (uint64_t)INT32_MAX / 2);
}

static int ask(struct wall_box *b, char what, int fd, struct den_err *err)
{
	auto_fd ctl = (int)syscall(SYS_pidfd_getfd, b->pidfd, PORTER_CTL_OTHER, 0);
	struct porter_ask a = { .number = (uint32_t)clock_mono_ns(), .limit_ms = what == 'S' ? save_limit(b) : HOLD_MS,
		.what = what };

	if (ctl < 0)
		return den_fail_sys(err, errno, "reach the porter");
	return send_ask(ctl, &a, fd, err) < 0 ? -1 : get_answer(b, ctl, a.number, a.limit_ms, err);
}

/* Seen from here: a porter that is frozen with its box could not tell. */
bool gvisor_is_parked(struct wall_box *b)
{
	auto_fd door = (int)syscall(SYS_pidfd_getfd, b->pidfd, PORTER_DOOR, 0);
	struct pollfd p = { .fd = door };

	return door >= 0 && poll(&p, 1, 0) > 0 && (p.revents & (POLLHUP | POLLERR));
}

int gvisor_hold(struct wall_box *b, bool on, struct den_err *err)
{
	return ask(b, on ? 'P' : 'R', -1, err);
}

int gvisor_memory(struct den_err *err)
{
	auto_free char *runsc = gvisor_runsc(err);

	if (!runsc)
		return -1;
	return geteuid() == 0 ? 0 : den_fail(err, DEN_UNSUPPORTED, 0, "programs of a gvisor box can be saved by root alone");
}

/* The sentry refuses while it holds a descriptor of the host's ("host.inode is not savable"): its epoll may keep one that
 * was closed, of init's no longer (loop_renew()), of a program's perhaps. Then the programs run on, and it is tried again,
 * for some seconds. */
static int save_state(struct wall_box *b, const struct plan *p, struct wall_saving *s, struct den_err *err)
{
	static const char *const files[] = { "checkpoint.img", "pages.img", "pages_meta.img" };
	int64_t until = clock_mono_ns() + SAVE_AGAIN_S * NS_PER_SEC;

	for (int i = 0;; i++) {
		struct timespec nap = { .tv_nsec = MIN(50 * (i + 1), 200) * NS_PER_MS };
		/* anew each time: who has mounted it takes it along when it ends */
		auto_fd images = open_images(p, s->dirfd, err);

		if (images < 0 || gvisor_hold(b, true, err) < 0)
			return -1;
		if (ask(b, 'S', images, err) == 0)
			return 0;
		if (i == SAVE_TRIES || clock_mono_ns() >= until || !strstr(err->msg, "not savable"))
			return -1;
		if (gvisor_hold(b, false, err) < 0)
			return -1;
		for (size_t f = 0; f < ARRAY_SIZE(files); f++)
			unlinkat(s->dirfd, files[f], 0);
		nanosleep(&nap, NULL);
	}
}

/* Connections over the link, as the kernel at its other end has them: which = "tcp" or "tcp6". */
static unsigned count_connections(pid_t porter, const char *which)
{
	const uint8_t six[16] = { LINK_V6, LINK_BOX_V4 >> 24 & 0xff, LINK_BOX_V4 >> 16 & 0xff, LINK_BOX_V4 >> 8 & 0xff,
		LINK_BOX_V4 & 0xff };
	char path[64], line[512], want[33] = "", remote[40], state[4];
	size_t from = strcmp(which, "tcp") ? 0 : 12;
	unsigned n = 0;
	FILE *f;

	for (size_t i = from; i < sizeof(six); i += 4) {
		uint32_t word;

		memcpy(&word, six + i, 4);
		snprintf(want + strlen(want), sizeof(want) - strlen(want), "%08X", word);
	}
	snprintf(path, sizeof(path), "/proc/%d/net/%s", (int)porter, which);
	f = fopen(path, "re");
	while (f && fgets(line, sizeof(line), f))
		n += sscanf(line, " %*[^ ] %*[^ ] %39[^:]:%*s %3s", remote, state) == 2 && !strcmp(remote, want) &&
			!strcmp(state, "01");
	if (f)
		fclose(f);
	return n;
}

/* They are cut, in what is saved and in what runs on: the sentry lets go of them when it writes its state. */
static void tell_lost(struct wall_saving *s, unsigned n)
{
	char text[100];

	if (!n)
		return;
	snprintf(text, sizeof(text), "%u connection%s to outside the box: closed", n, n == 1 ? "" : "s");
	strv_add(&s->lost, text);
}

int gvisor_save(struct wall_box *b, const struct plan *p, struct wall_saving *s, struct den_err *err)
{
	struct den_err ignored;
	unsigned outside;
	int64_t since;
	int r;

	if (b->host_net)
		return den_fail(err, DEN_UNSUPPORTED, 0, "a box in the host's network cannot be saved with its programs");
	if (gvisor_memory(err) < 0 || gvisor_version(&s->runtime, err) < 0)
		return -1;
	outside = count_connections(b->pid, "tcp") + count_connections(b->pid, "tcp6");
	since = clock_mono_ns();
	r = save_state(b, p, s, err);
	if (r == 0)
		tell_lost(s, outside);
	if (r == 0)
		r = s->frozen(s->user, err);
	/* What is not to go on stays held, by its kernel and by the host's: whoever adopts it lets go of both. */
	if (r == 0 && !s->stay)
		r = container_freeze(b, true, err);
	else if (gvisor_hold(b, false, r < 0 ? &ignored : err) < 0)
		r = -1;
	s->frozen_ns = clock_mono_ns() - since;
	return r;
}

int gvisor_open_images(const struct plan *p, int dirfd, struct den_err *err)
{
	return open_images(p, dirfd, err);
}

/* A door for an init that has closed its own. */
int gvisor_outside(struct wall_box *b, int ret[2], struct den_err *err)
{
	int pair[2];

	ret[0] = ret[1] = -1; /* its kernel tells memory by itself */
	if (b->door >= 0)
		return 0;
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
		return den_fail_sys(err, errno, "socketpair");
	if (ask(b, 'D', pair[0], err) < 0) {
		close(pair[0]);
		close(pair[1]);
		return -1;
	}
	close(pair[0]);
	b->door = pair[1];
	return 0;
}
