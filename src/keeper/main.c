/* Clients, and the way in: den keeper STATE [ID], with the first client on descriptor 3. */
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "clock.h"
#include "fd.h"
#include "gate.h"
#include "keeper.h"
#include "quota.h"
#include "keeper_main.h"

#define FIRST_CLIENT_FD 3

/* ---- clients ---- */

void client_free(struct client *c)
{
	buf_free(&c->conn.rx);
	free(c);
}

static void client_free_cb(struct loop_deferred *d)
{
	struct client *c = CONTAINER_OF(d, struct client, free_later);

	if (c->n_waiting)
		c->left = true;
	else
		client_free(c);
}

static void leave_cb(struct loop_timer *t)
{
	loop_quit(CONTAINER_OF(t, struct keeper, leave)->loop);
}

/* Done with: there is nothing to keep, or nobody to keep it for. Clients of a box that is gone get
 * what was sent to them and no more. */
void keeper_leave_if_done(struct keeper *k)
{
	bool serves = (k->has_box && !k->gone && box_is_up(k)) || !list_empty(&k->jobs);
	bool unsent = false;

	if (k->working) {
		k->leave_due = true;
		return;
	}
	list_for_each(l, &k->clients)
		unsent |= !conn_tx_empty(&CONTAINER_OF(l, struct client, link)->conn);
	if (list_empty(&k->clients) ? !serves : k->gone && !unsent)
		loop_quit(k->loop);
	else if (k->gone && !k->leave.when) {
		k->leave.cb = leave_cb;
		loop_timer_set(k->loop, &k->leave, clock_mono_ns() + 2 * NS_PER_SEC);
	}
}

/* Nobody came for a while: wait with next to nothing in memory. */
static void idle_cb(struct loop_timer *t)
{
	struct keeper *k = CONTAINER_OF(t, struct keeper, idle);

	if (list_empty(&k->clients))
		mem_idle();
}

bool client_went(const struct client *c)
{
	struct pollfd p = { .fd = c->conn.src.fd, .events = POLLRDHUP };

	return c->conn.dead || (poll(&p, 1, 0) > 0 && (p.revents & (POLLRDHUP | POLLHUP | POLLERR)));
}

void client_drop(struct client *c)
{
	struct keeper *k = c->k;
	struct den_err err;

	conn_close(&c->conn);
	list_remove(&c->link);
	if (k->has_box && !k->gone) {
		kexec_client_gone(c);
		merge_client_gone(c);
		memory_forks_done(c);
		if (c->owner && k->working)
			k->delete_due = true;
		else if (c->owner)
			(void)box_delete(k, &err);
		else if (k->ready)
			ready_client_gone(k);
	}
	c->free_later.cb = client_free_cb;
	loop_defer(k->loop, &c->free_later);
	k->idle.cb = idle_cb;
	if (list_empty(&k->clients))
		loop_timer_set(k->loop, &k->idle, clock_mono_ns() + IDLE_MS * NS_PER_MS);
	keeper_leave_if_done(k);
}

static void client_closed(struct conn *conn, const struct den_err *why)
{
	(void)why;
	client_drop(CONTAINER_OF(conn, struct client, conn));
}

static void client_frame(struct conn *conn, const struct wire_frame *f)
{
	struct client *c = CONTAINER_OF(conn, struct client, conn);
	struct den_err err;

	if (f->type == WM_GUEST) {
		c->guest = true; /* for good, and not answered */
		return;
	}
	if (c->guest && guest_check(c, f, &err) < 0) {
		client_refuse(c, f, &err);
		return;
	}
	if (!work_waits(c, f))
		client_handle(c, f);
}

static struct client *client_new(struct keeper *k, int fd, struct den_err *err)
{
	struct client *c = mem_new(struct client);

	c->k = k;
	c->conn.on_frame = client_frame;
	c->conn.on_close = client_closed;
	c->conn.take_fds = true;
	if (conn_open(&c->conn, k->loop, fd, err) < 0) {
		free(c);
		return NULL;
	}
	list_append(&k->clients, &c->link);
	return c;
}

static void relisten_cb(struct loop_timer *t)
{
	struct keeper *k = CONTAINER_OF(t, struct keeper, relisten);

	loop_set_events(k->loop, &k->listen, EPOLLIN);
}

static void accept_cb(struct loop_source *s, uint32_t events)
{
	struct keeper *k = CONTAINER_OF(s, struct keeper, listen);
	int fd = accept4(s->fd, NULL, NULL, SOCK_CLOEXEC);
	struct den_err err;

	(void)events;
	if (fd >= 0) {
		client_new(k, fd, &err);
	} else if (errno == EMFILE || errno == ENFILE || errno == ENOMEM) {
		/* they wait in the queue; asking again at once would only burn time */
		loop_set_events(k->loop, s, 0);
		k->relisten.cb = relisten_cb;
		loop_timer_set(k->loop, &k->relisten, clock_mono_ns() + 200 * NS_PER_MS);
	}
}

/* ---- the way in ---- */

/* Whoever started us may have anything: start from nothing. */
static int clean_process(void)
{
	auto_free char *test = getenv("DEN_TEST") ? mem_strdup(getenv("DEN_TEST")) : NULL;
	auto_free char *runtime = getenv("DEN_RUNTIME") ? mem_strdup(getenv("DEN_RUNTIME")) : NULL;
	sigset_t none;
	int null;

	prctl(PR_SET_NAME, "den-keeper", 0, 0, 0);
	for (int i = 1; i < 32; i++)
		signal(i, SIG_DFL);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	signal(SIGPIPE, SIG_IGN);
	signal(SIGHUP, SIG_IGN);
	signal(SIGINT, SIG_IGN);
	clearenv();
	setenv("PATH", "/usr/sbin:/usr/bin:/sbin:/bin", 1);
	if (test)
		setenv("DEN_TEST", test, 1);
	if (runtime)
		setenv("DEN_RUNTIME", runtime, 1);
	if (chdir("/") < 0)
		return -1;
	umask(077);
	setsid();
	null = open("/dev/null", O_RDWR | O_CLOEXEC);
	for (int i = 0; i < 3; i++)
		if (dup2(null, i) < 0)
			return -1;
	fd_close_from(FIRST_CLIENT_FD + 1);
	fcntl(FIRST_CLIENT_FD, F_SETFD, FD_CLOEXEC);
	mallopt(M_TRIM_THRESHOLD, 64 << 10);
	mallopt(M_MMAP_THRESHOLD, 32 << 10); /* buffers go back to the system when they are freed */
	return 0;
}

static int keeper_run(struct keeper *k, const char *state, const char *id, struct den_err *err)
{
	struct box_id box;
	struct client *c;

	if (loop_new(&k->loop, err) < 0 || store_open(state, true, &k->store, err) < 0)
		return -1;
	if (id) {
		if (box_id_parse(id, &box, err) < 0 || box_open(k, &box, err) < 0)
			return -1;
	}
	c = client_new(k, FIRST_CLIENT_FD, err);
	if (!c)
		return -1;
	if (id) /* the caller waits for this before it sends: a keeper that lost the race says so */
		conn_ok(&c->conn, 0);
	return loop_run(k->loop, err);
}

static bool is_another(const struct box_id *id, void *user)
{
	const struct keeper *k = user;

	return strcmp(id->s, k->id.s) != 0;
}

/* Of a box that is deleted, when nobody waits any more. */
static void remove_rest(struct keeper *k)
{
	struct den_err ignored;

	if (k->ops && k->wall.left)
		(void)k->ops->sweep(k->store->tag, is_another, k, NULL, &ignored);
	home_remove(k);
	(void)box_empty_trash(k->store, &k->id, &ignored);
}

int keeper_main(const char *state, const char *id)
{
	struct keeper *k = mem_new(struct keeper);
	struct den_err err;

	if (clean_process() < 0)
		return 1;
	list_init(&k->clients);
	list_init(&k->chans);
	list_init(&k->execs);
	list_init(&k->jobs);
	list_init(&k->waiting);
	k->old_mntns = k->boxfd = k->lock = k->fsfd = k->image_lock = k->wall.pidfd = k->wall.mntns = k->wall.door = -1;
	k->row.slot = UINT64_MAX;
	k->listen = (struct loop_source){ .fd = -1, .events = EPOLLIN, .cb = accept_cb };
	if (keeper_run(k, state, id, &err) < 0) {
		auto_buf b = { 0 }, frame = { 0 };

		wire_put_err(&b, &err);
		wire_frame_put(&frame, WM_FAIL, 0, b.p, (uint32_t)b.len);
		(void)!write(FIRST_CLIENT_FD, frame.p, frame.len);
		feed_last();
		if (k->in_trash)
			remove_rest(k); /* release() at exit */
		return 1;
	}
	/* Whoever waited has been answered. */
	if (!k->gone)
		box_settle(k);
	list_for_each(l, &k->clients)
		conn_close(&CONTAINER_OF(l, struct client, link)->conn);
	feed_last();
	if ((k->sweep.when || k->sweep_due) && !k->gone)
		(void)home_sweep(k, &err); /* of a rollback a moment ago */
	if (k->in_trash) {
		k->ops->release(&k->wall);
		remove_rest(k);
	}
	return 0; /* the process ends here: memory goes with it */
}
