#include "loop.h"

#include <errno.h>
#include <unistd.h>

#include "clock.h"
#include "fd.h"

struct loop {
	int epfd;
	bool quit;
	/* the batch being run, so that a removed source can be blanked */
	struct epoll_event *batch;
	int batch_len;
	struct list timers; /* sorted by when, soonest first; there are few */
	struct list deferred;
	bool wary;
	struct list known; /* if so: all sources */
};

int loop_new(struct loop **ret, struct den_err *err)
{
	struct loop *l;
	int fd = epoll_create1(EPOLL_CLOEXEC);

	if (fd < 0)
		return den_fail_sys(err, errno, "epoll");
	l = mem_new(struct loop);
	l->epfd = fd;
	list_init(&l->timers);
	list_init(&l->deferred);
	list_init(&l->known);
	*ret = l;
	return 0;
}

void loop_free(struct loop *l)
{
	if (!l)
		return;
	close(l->epfd);
	free(l);
}

int loop_add(struct loop *l, struct loop_source *s, struct den_err *err)
{
	struct epoll_event ev = { .events = s->events, .data.ptr = s };

	if (epoll_ctl(l->epfd, EPOLL_CTL_ADD, s->fd, &ev) < 0)
		return den_fail_sys(err, errno, "watch descriptor");
	s->added = true;
	if (l->wary)
		list_append(&l->known, &s->link);
	return 0;
}

void loop_set_events(struct loop *l, struct loop_source *s, uint32_t events)
{
	struct epoll_event ev = { .events = events, .data.ptr = s };

	if (!s->added || s->events == events)
		return;
	if (epoll_ctl(l->epfd, EPOLL_CTL_MOD, s->fd, &ev) == 0)
		s->events = events;
}

void loop_remove(struct loop *l, struct loop_source *s)
{
	if (!s->added)
		return;
	s->added = false;
	if (l->wary)
		list_remove(&s->link);
	epoll_ctl(l->epfd, EPOLL_CTL_DEL, s->fd, NULL);
	for (int i = 0; i < l->batch_len; i++)
		if (l->batch[i].data.ptr == s)
			l->batch[i].data.ptr = NULL;
}

void loop_wary(struct loop *l)
{
	l->wary = true;
}

void loop_renew(struct loop *l)
{
	/* the owner may have plans with low numbers that are free just now */
	int fd = fd_move_up(epoll_create1(EPOLL_CLOEXEC), 16);

	if (fd < 0)
		return;
	list_for_each(p, &l->known) {
		struct loop_source *s = CONTAINER_OF(p, struct loop_source, link);
		struct epoll_event ev = { .events = s->events, .data.ptr = s };

		(void)epoll_ctl(fd, EPOLL_CTL_ADD, s->fd, &ev);
	}
	close(l->epfd);
	l->epfd = fd;
}

static bool is_known(const struct loop *l, const struct loop_source *s)
{
	if (!l->wary)
		return true;
	list_for_each(p, (struct list *)&l->known)
		if (CONTAINER_OF(p, struct loop_source, link) == s)
			return true;
	return false;
}

void loop_timer_set(struct loop *l, struct loop_timer *t, int64_t when_ns)
{
	struct list *at = &l->timers;

	loop_timer_clear(t);
	t->when = when_ns > 0 ? when_ns : 1;
	list_for_each(p, &l->timers) {
		if (CONTAINER_OF(p, struct loop_timer, link)->when > t->when) {
			at = p;
			break;
		}
	}
	list_append(at, &t->link); /* appending to an element puts it just before that element */
}

void loop_timer_clear(struct loop_timer *t)
{
	if (!t->when)
		return;
	t->when = 0;
	list_remove(&t->link);
}

void loop_defer(struct loop *l, struct loop_deferred *d)
{
	if (d->queued)
		return;
	d->queued = true;
	list_append(&l->deferred, &d->link);
}

static void run_deferred(struct loop *l)
{
	while (!list_empty(&l->deferred)) {
		struct loop_deferred *d =
			CONTAINER_OF(l->deferred.next, struct loop_deferred, link);

		list_remove(&d->link);
		d->queued = false;
		d->cb(d);
	}
}

static void run_timers(struct loop *l)
{
	int64_t now = clock_mono_ns();

	while (!list_empty(&l->timers)) {
		struct loop_timer *t = CONTAINER_OF(l->timers.next, struct loop_timer, link);

		if (t->when > now)
			break;
		loop_timer_clear(t);
		t->cb(t);
	}
}

static int next_timeout(const struct loop *l, int timeout_ms)
{
	int64_t ms;

	if (list_empty(&l->timers))
		return timeout_ms;
	ms = CONTAINER_OF(l->timers.next, struct loop_timer, link)->when - clock_mono_ns();
	ms = ms <= 0 ? 0 : (ms + NS_PER_MS - 1) / NS_PER_MS;
	if (ms > 3600 * 1000)
		ms = 3600 * 1000;
	return timeout_ms < 0 || ms < timeout_ms ? (int)ms : timeout_ms;
}

int loop_step(struct loop *l, int timeout_ms, struct den_err *err)
{
	struct epoll_event ev[32];
	bool strange = false;
	int n;

	run_deferred(l);
	n = epoll_wait(l->epfd, ev, ARRAY_SIZE(ev), next_timeout(l, timeout_ms));
	if (n < 0 && errno != EINTR)
		return den_fail_sys(err, errno, "epoll_wait");
	l->batch = ev;
	l->batch_len = n > 0 ? n : 0;
	for (int i = 0; i < l->batch_len; i++) {
		struct loop_source *s = ev[i].data.ptr;

		if (s && is_known(l, s))
			s->cb(s, ev[i].events);
		else if (s) /* it would be reported for ever */
			strange = true;
	}
	l->batch = NULL;
	l->batch_len = 0;
	if (strange)
		loop_renew(l);
	run_timers(l);
	run_deferred(l);
	return 0;
}

int loop_run(struct loop *l, struct den_err *err)
{
	while (!l->quit)
		if (loop_step(l, -1, err) < 0)
			return -1;
	return 0;
}

void loop_quit(struct loop *l)
{
	l->quit = true;
}

int loop_fd(const struct loop *l)
{
	return l->epfd;
}
