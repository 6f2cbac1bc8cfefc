/*
 * Parked: nothing in the box comes from outside it, so that it can be saved with its programs and loaded
 * again, by another keeper, as another box.
 *
 *   WM_PARK   init_park()  answered, and when that is sent: the socket on which keepers connect, the two
 *             let_go()     files of the host's, and last the keeper's connection are closed
 *   then      park_cb()    every millisecond, and slower after a second, for ever: does somebody listen at
 *                          /run/den/wake.sock? It is looked for before a socket is made, so that one is
 *                          hardly ever there when the box is saved
 *   WM_WAKE   wake_frame() brings what was closed, or the like; then all is as it was, and the keeper says
 *                          hello as to any init
 *
 * Programs run on meanwhile, unless somebody holds them. Their followers are gone with the connection and come
 * back at the byte where they were: what they have not got is kept, however long it takes.
 *
 * Time may have been stopped: the monotonic clock goes on where it was, the other one has jumped. The time that
 * execs may take is about the first.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "clock.h"
#include "fd.h"
#include "init.h"

#define WAKE_SOCK "/run/den/wake.sock"
#define EAGER_MS 1000
#define EAGER_NAP_MS 1
#define NAP_MS 20
#define WAKE_WAIT_MS 2000 /* for the one who listens there to say something */

static void try_later(struct init *in)
{
	int64_t now = clock_mono_ns();
	int64_t nap = now - in->park.since_ns < EAGER_MS * NS_PER_MS ? EAGER_NAP_MS : NAP_MS;

	loop_timer_set(in->loop, &in->park.timer, now + nap * NS_PER_MS);
}

/* ---- waking ---- */

static void drop(struct init *in)
{
	loop_timer_clear(&in->park.patience);
	conn_close(&in->park.conn);
	buf_free(&in->park.conn.rx);
	in->park.dialled = false;
}

/* What was closed, or what takes its place, under the number it has always had. */
static int put_fds(struct conn *c, uint64_t flags)
{
	static const struct {
		uint64_t flag;
		int fd;
	} places[] = { { WAKE_LISTEN, INIT_FD_LISTEN }, { WAKE_MEMINFO, INIT_FD_MEMINFO },
		{ WAKE_MEMUSE, INIT_FD_MEMUSE } };

	for (size_t i = 0; i < ARRAY_SIZE(places); i++) {
		auto_fd fd = -1;

		if (!(flags & places[i].flag))
			continue;
		if (conn_take_fds(c, &fd, 1) < 0)
			return -1;
		if (fd == places[i].fd) /* the lowest number is taken: it may be this one */
			fcntl(fd, F_SETFD, FD_CLOEXEC), (void)fd_take(&fd);
		else if (dup3(fd, places[i].fd, O_CLOEXEC) < 0)
			return -1;
	}
	return 0;
}

/* How much longer the other clock has gone on. */
static int64_t stopped_ms(const struct init *in)
{
	int64_t mono = (clock_mono_ns() - in->park.since_ns) / NS_PER_MS;
	int64_t wall = clock_wall_ms() - in->park.since_ms;

	return MAX(wall - mono, 0);
}

/* Whose programs these are now, where nobody outside can say so to the kernel. */
static void tell_guest(const struct wire_frame *f)
{
	struct wire_reader rd = wire_reader(f->p, f->len);
	char hostname[65] = "", boot_id[37] = "";
	struct wire_value v;

	while (wire_next(&rd, &v, NULL) > 0) {
		if (v.tag == F_HOSTNAME && v.len < sizeof(hostname))
			memcpy(hostname, v.p, v.len);
		else if (v.tag == F_BOOT_ID && v.len < sizeof(boot_id))
			memcpy(boot_id, v.p, v.len);
	}
	guest_wake(hostname, boot_id);
}

static void wake_frame(struct conn *c, const struct wire_frame *f)
{
	struct init *in = CONTAINER_OF(c, struct init, park.conn);
	uint64_t flags = wire_find_u64(f->p, f->len, F_FLAGS, 0);
	struct den_err err;

	if (f->type != WM_WAKE || !(flags & WAKE_LISTEN) || put_fds(c, flags) < 0) {
		drop(in);
		try_later(in);
		return;
	}
	init_reserve();
	if (flags & WAKE_MEMINFO)
		in->memory_limit = wire_find_u64(f->p, f->len, F_MEMORY, in->memory_limit);
	if (in->guest)
		tell_guest(f);
	drop(in);
	loop_timer_clear(&in->park.timer);
	in->parked = false;
	exec_unpark(in, stopped_ms(in));
	in->listen.fd = INIT_FD_LISTEN;
	(void)loop_add(in->loop, &in->listen, &err);
	if (in->orphan_ms)
		loop_timer_set(in->loop, &in->orphan,
			clock_mono_ns() + (int64_t)in->orphan_ms * NS_PER_MS);
	if (in->memory_limit)
		loop_timer_set(in->loop, &in->meminfo, 1);
}

static void wake_closed(struct conn *c, const struct den_err *why)
{
	struct init *in = CONTAINER_OF(c, struct init, park.conn);

	(void)why;
	drop(in);
	try_later(in);
}

static void patience_cb(struct loop_timer *t)
{
	struct init *in = CONTAINER_OF(t, struct init, park.patience);

	drop(in);
	try_later(in);
}

static int dial(void)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX, .sun_path = WAKE_SOCK };
	auto_fd fd = -1;

	if (access(WAKE_SOCK, F_OK) < 0)
		return -1;
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0 || connect(fd, (struct sockaddr *)&a, sizeof(a)) < 0)
		return -1;
	return fd_take(&fd);
}

static void park_cb(struct loop_timer *t)
{
	struct init *in = CONTAINER_OF(t, struct init, park.timer);
	struct den_err err;
	/* above those that it is about to be given */
	int low = in->park.dialled ? -1 : dial(),
	    fd = low >= 0 ? fcntl(low, F_DUPFD_CLOEXEC, INIT_FD_MEMUSE + 1) : -1;

	fd_close(&low);
	if (fd < 0) {
		try_later(in);
		return;
	}
	in->park.conn =
		(struct conn){ .on_frame = wake_frame, .on_close = wake_closed, .take_fds = true };
	if (conn_open(&in->park.conn, in->loop, fd, &err) < 0) {
		try_later(in);
		return;
	}
	in->park.dialled = true;
	in->park.patience.cb = patience_cb;
	loop_timer_set(in->loop, &in->park.patience, clock_mono_ns() + WAKE_WAIT_MS * NS_PER_MS);
}

/* ---- parking ---- */

static void let_go(struct init *in)
{
	loop_remove(in->loop, &in->listen);
	for (int fd = INIT_FD_LISTEN; fd <= INIT_FD_MEMUSE; fd++)
		close(fd);
	in->listen.fd = -1;
	if (in->guest) { /* its kernel may keep something of what is taken out of an epoll, and could not be saved then */
		if (in->keeper)
			loop_remove(in->loop, &in->keeper->src);
		loop_renew(in->loop);
	}
	if (in->keeper) /* last: it is how the keeper knows */
		keeper_gone(in, in->keeper);
	in->park.timer.cb = park_cb;
	try_later(in);
}

/* What was said before is under way, and the answer behind it. */
static void said_cb(struct loop_timer *t)
{
	struct init *in = CONTAINER_OF(t, struct init, park.timer);

	if (in->keeper && !conn_tx_empty(in->keeper))
		try_later(in);
	else
		let_go(in);
}

/* Another keeper came before anything was closed: it knows nothing of what the one before wanted. */
void init_unpark(struct init *in)
{
	loop_timer_clear(&in->park.timer);
	in->parked = false;
	exec_unpark(in, 0);
	if (in->memory_limit)
		loop_timer_set(in->loop, &in->meminfo, 1);
}

void init_park(struct init *in)
{
	in->parked = true;
	in->park.since_ns = clock_mono_ns();
	in->park.since_ms = clock_wall_ms();
	loop_timer_clear(&in->meminfo);
	loop_timer_clear(&in->orphan); /* who saves it may take long */
	exec_park(in); /* nothing is said of them from here on */
	conn_send(in->keeper, WM_PARK, 0, NULL, 0);
	in->park.timer.cb = said_cb;
	said_cb(&in->park.timer);
}
