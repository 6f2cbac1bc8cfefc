/*
 * Init without its keeper, for as long as the box is saved or on disk (init/park.c has its side).
 *
 *   init_park()    init says its last words, which are passed on, and closes the connection: from then on it
 *                  holds nothing from outside
 *   wake_listen()  a socket in boxes/ID/run, which only root of the box may connect to, and which is there only
 *                  while somebody waits
 *   init_wake()    whoever connects there, if he is the process that we know as init, gets the socket on which
 *                  keepers connect and the files of the host's. Then hello, as to any init, and each channel is
 *                  opened again at the byte where it stood, so that its client notices nothing but the pause
 *
 * All of it looks after one connection alone: nobody else's request comes in between.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "clock.h"
#include "fd.h"
#include "gate.h"
#include "keeper.h"
#include "place.h"

#define WAKE_SOCK "wake.sock"
#define PARK_MS 10000 /* a box that is short of processors takes its time, too */
#define WAKE_MS 30000
#define HELLO_MS 10000

/* Runs init's connection until *done, its end, or the time is up. */
void init_attend(struct keeper *k, const bool *done, int64_t ms)
{
	int64_t until = clock_mono_ns() + ms * NS_PER_MS;

	while (k->init_up && !*done && clock_mono_ns() < until) {
		struct pollfd p = { .fd = k->init.src.fd,
			.events = (short)(POLLIN | (conn_tx_empty(&k->init) ? 0 : POLLOUT)) };

		if (poll(&p, 1, 100) > 0)
			k->init.src.cb(&k->init.src, (uint32_t)p.revents);
	}
}

/* Its answer came when nobody waited for it any more: it was short of time, not of will. */
static void late_cb(struct loop_timer *t)
{
	struct keeper *k = CONTAINER_OF(t, struct keeper, late);
	struct den_err err;
	auto_fd fd = -1;

	if (box_is_up(k) && !k->gone && !k->init_up &&
		(wake_listen(k, &fd, &err) < 0 || init_wake(k, &fd, false, &err) < 0))
		box_down(k, err.msg);
}

void init_parked_late(struct keeper *k)
{
	k->park_late = false;
	k->late.cb = late_cb;
	loop_timer_set(k->loop, &k->late, clock_mono_ns());
}

static void put_path(const char *path, void *user)
{
	wire_put_str(user, F_PATH, path);
}

int init_park(struct keeper *k, struct den_err *err)
{
	static const bool never = false;
	auto_buf b = { 0 };

	if (!k->init_up)
		return den_fail(err, DEN_CONFLICT, EAGAIN, "the box is just waking up; try again");
	if (k->park_late)
		return den_fail(err, DEN_TIMEOUT, 0, "the box's init process does not answer");
	k->parked = false;
	if (k->ops->written)
		k->ops->written(&k->wall, put_path, &b);
	conn_send_buf(&k->init, WM_PARK, 0, &b);
	init_attend(k, &never, PARK_MS);
	if (!box_is_up(k))
		return den_fail(err, DEN_CONFLICT, 0, "the box ended meanwhile");
	if (k->init_up || !k->parked) {
		k->park_late = k->init_up;
		return den_fail(err, DEN_TIMEOUT, 0, "the box's init process does not answer");
	}
	loop_timer_clear(&k->kill); /* this once, its silence is no offence */
	return 0;
}

int wake_listen(struct keeper *k, int *ret, struct den_err *err)
{
	auto_fd dir = openat(k->boxfd, GATE_RUN, O_RDONLY | O_DIRECTORY | O_CLOEXEC), fd = -1;
	uid_t root = STORE_ID_BASE + (uid_t)k->row.slot * 65536U;

	if (dir < 0)
		return den_fail_sys(err, errno, "open '%s'", GATE_RUN);
	if (place_listen(dir, WAKE_SOCK, &fd, err) < 0)
		return -1;
	if (fchmodat(dir, WAKE_SOCK, 0600, 0) < 0 ||
		(geteuid() == 0 && k->row.slot != UINT64_MAX &&
			fchownat(dir, WAKE_SOCK, root, root, AT_SYMLINK_NOFOLLOW) < 0))
		return den_fail_sys(err, errno, "open '%s' to the box", WAKE_SOCK);
	*ret = fd_take(&fd);
	return 0;
}

static void wake_unlisten(struct keeper *k, int *fd)
{
	auto_fd dir = openat(k->boxfd, GATE_RUN, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (dir >= 0)
		unlinkat(dir, WAKE_SOCK, 0);
	fd_close(fd);
}

/* Is that the process we know? Behind another wall it has no number of its own here. */
static bool is_init(struct keeper *k, int fd)
{
	struct ucred peer;
	socklen_t n = sizeof(peer);

	if (strcmp(k->ops->name, "container"))
		return true;
	return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &n) == 0 && peer.pid == k->wall.pid;
}

/* The connection of init; -1: none came. */
static int await_caller(struct keeper *k, int listen_fd, struct den_err *err)
{
	int64_t until = clock_mono_ns() + WAKE_MS * NS_PER_MS;

	for (;;) {
		struct pollfd p[] = { { .fd = listen_fd, .events = POLLIN },
			{ .fd = k->wall.pidfd, .events = POLLIN } };
		int64_t left = (until - clock_mono_ns()) / NS_PER_MS;
		auto_fd fd = -1;

		if (left <= 0)
			return den_fail(
				err, DEN_TIMEOUT, 0, "the box's init process does not come back");
		if (poll(p, 2, (int)left) < 0 && errno != EINTR)
			return den_fail_sys(err, errno, "wait for init");
		if (p[1].revents)
			return den_fail(err, DEN_CONFLICT, 0, "the box's init process was killed");
		if (!(p[0].revents & POLLIN))
			continue;
		fd = accept4(listen_fd, NULL, NULL, SOCK_CLOEXEC);
		if (fd >= 0 && is_init(k, fd))
			return fd_take(&fd);
	}
}

static int send_wake(struct keeper *k, int to, int door, const int files[2], struct den_err *err)
{
	const struct box_spec *spec = &k->row.info.spec;
	static const uint64_t flags_of[] = { WAKE_LISTEN, WAKE_MEMINFO, WAKE_MEMUSE };
	const int all[] = { door, files[0], files[1] };
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(sizeof(int) * 3)];
	} control = { 0 };
	auto_buf b = { 0 }, frame = { 0 };
	struct iovec iov;
	struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control.bytes };
	struct cmsghdr *cm;
	uint64_t flags = 0;
	int fds[3], n = 0;

	for (size_t i = 0; i < ARRAY_SIZE(all); i++) {
		if (all[i] < 0)
			continue;
		flags |= flags_of[i];
		fds[n++] = all[i];
	}
	wire_put_u64(&b, F_FLAGS, flags);
	wire_put_u64(&b, F_MEMORY, k->row.info.spec.memory);
	/* for a kernel that is not the host's */
	wire_put_str(&b, F_HOSTNAME,
		spec->hostname ? spec->hostname
		: spec->name   ? spec->name
			       : k->id.s);
	wire_put_str(&b, F_BOOT_ID, k->row.info.boot_id);
	wire_frame_put(&frame, WM_WAKE, 0, b.p, (uint32_t)b.len);
	iov = (struct iovec){ frame.p, frame.len };
	m.msg_controllen = CMSG_SPACE(sizeof(int) * (size_t)n);
	cm = CMSG_FIRSTHDR(&m);
	cm->cmsg_level = SOL_SOCKET;
	cm->cmsg_type = SCM_RIGHTS;
	cm->cmsg_len = CMSG_LEN(sizeof(int) * (size_t)n);
	memcpy(CMSG_DATA(cm), fds, sizeof(int) * (size_t)n);
	/* some bytes into an empty socket: all of them, at once */
	if (sendmsg(to, &m, MSG_NOSIGNAL) != (ssize_t)frame.len)
		return den_fail_sys(err, errno, "give init its sockets");
	return 0;
}

/* Hands over; when the other side has closed the connection, init has what it needs. */
static int hand_over(struct keeper *k, int *listen_fd, struct den_err *err)
{
	auto_fd to = await_caller(k, *listen_fd, err), door = -1, mem = -1, use = -1;
	struct pollfd gone = { .events = POLLIN };
	int files[2] = { -1, -1 };

	if (to < 0 || k->ops->outside(&k->wall, files, err) < 0)
		return -1;
	mem = files[0];
	use = files[1];
	door = fd_take(&k->wall.door); /* behind some walls somebody else listens */
	if (door < 0 && place_listen(k->boxfd, PLACE_INIT_SOCK, &door, err) < 0)
		return -1;
	if (send_wake(k, to, door, files, err) < 0)
		return -1;
	gone.fd = to;
	(void)poll(&gone, 1, HELLO_MS);
	return 0;
}

/* ---- channels ---- */

/* What timers counted stood still, or is of other groups now. */
static void arm_again(struct keeper *k)
{
	list_for_each (l, &k->execs) {
		struct kexec *x = CONTAINER_OF(l, struct kexec, link);

		if (x->ended)
			continue;
		x->refused_before = k->ops->pids_refused(&k->wall);
		x->oom_before = k->row.info.spec.memory ? k->ops->oom_kills(&k->wall) : 0;
		kexec_arm(x);
		if (x->doomed)
			kexec_kill(x, SIGKILL, x->reason);
	}
}

static void rejoin(struct keeper *k, struct chan *ch)
{
	auto_buf b = { 0 };

	ch->again = true;
	wire_put_u64(&b, F_EXEC, ch->x->info.exec);
	wire_put_u64(&b, F_OFF_OUT, ch->off[0]);
	wire_put_u64(&b, F_OFF_ERR, ch->off[1]);
	wire_put_u64(&b, F_CREDIT, ch->credit);
	if (ch->in_sent)
		wire_put_u64(&b, F_SIZE, ch->in_sent);
	if (ch->live || ch->detach)
		wire_put_u64(&b, F_FLAGS, ATTACH_LIVE);
	conn_send_buf(&k->init, WM_ATTACH, ch->ours, &b);
}

/* Whose client did not come along ends no longer with him: it can be attached to. */
static void disown(struct keeper *k, struct kexec *x)
{
	auto_buf b = { 0 };

	x->info.flags &= ~(uint64_t)EXEC_KILL_ON_CLOSE;
	loop_timer_clear(&x->orphan);
	wire_put_u64(&b, F_EXEC, x->info.exec);
	conn_send_buf(&k->init, WM_DISOWN, 0, &b);
}

static void channels(struct keeper *k)
{
	list_for_each (l, &k->execs) {
		struct kexec *x = CONTAINER_OF(l, struct kexec, link);

		if (!x->ended && (x->info.flags & EXEC_KILL_ON_CLOSE) &&
			!(x->info.flags & EXEC_BUILTIN) && !kexec_has_chan(k, x))
			disown(k, x);
	}
	list_for_each (l, &k->chans)
		rejoin(k, CONTAINER_OF(l, struct chan, link));
}

int init_wake(struct keeper *k, int *fd, bool loaded, struct den_err *err)
{
	int r = hand_over(k, fd, err);

	wake_unlisten(k, fd);
	if (r < 0)
		return den_wrap(err, "wake the box");
	k->fresh = false;
	k->init_known = false;
	k->hello_records = 0;
	if (meet_init(k, err) < 0)
		return den_wrap(err, "wake the box");
	init_attend(k, &k->init_known, HELLO_MS);
	if (!k->init_known)
		return den_fail(err, DEN_TIMEOUT, 0, "wake the box: its init process says nothing");
	if (loaded)
		arm_again(k);
	channels(k);
	return 0;
}
