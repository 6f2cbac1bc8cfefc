#include "waker_run.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "clock.h"
#include "den.h"
#include "fd.h"
#include "id.h"
#include "log.h"
#include "mem.h"
#include "place.h"
#include "waker.h"

#define HEAR_S 2 /* a keeper that connected has said it by then */
#define AGAIN_MS 200 /* the gate that had the port may just be ending */
#define AGAIN_MAX 50
#define REST_MS 2000 /* a box that could not be resumed */
#define WAKING_MAX 4 /* boxes that come back at a time: whoever connects to many does not take the machine */
#define WAKE_MS 120000 /* a resume that hangs does not keep its place */
#define AWAY_MAX 512 /* sent away at a time: others are waited for too */
#define NAP_MS 200 /* no descriptor is free */

struct held {
	struct held *next;
	struct box_id id;
	uint32_t n;
	struct {
		uint16_t in, out;
		int fd; /* -1: not ours so far */
	} ports[WAKER_PORTS];
	unsigned tries;
	int64_t again_ns, rest_ns; /* 0: nothing is due */
	bool looked; /* its ports are among those of this turn's poll */
	pid_t woken_by; /* nobody has said since that it is on disk */
};

/* Its box may be held anew, or not at all, before it ends. */
struct waking {
	struct box_id id;
	pid_t pid; /* 0: a free place */
	int64_t until_ns; /* 0: it was killed */
};

static struct {
	const char *state, *den;
	int fd, sock, sig;
	struct held *all;
	struct waking waking[WAKING_MAX];
	struct rlimit files; /* as it was, for those it starts */
} w;

/* ---- ports ---- */

static int port_listen(uint16_t port)
{
	struct sockaddr_in sa = { .sin_family = AF_INET,
		.sin_port = htons(port),
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	auto_fd fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	int on = 1;

	if (fd < 0)
		return -1;
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	if (bind(fd, (struct sockaddr *)&sa, sizeof(sa)) < 0 || listen(fd, 512) < 0)
		return -1;
	return fd_take(&fd);
}

static void ports_try(struct held *h)
{
	bool missing = false;

	for (uint32_t i = 0; i < h->n; i++) {
		if (h->ports[i].fd < 0)
			h->ports[i].fd = port_listen(h->ports[i].out);
		missing |= h->ports[i].fd < 0;
	}
	h->again_ns =
		missing && ++h->tries < AGAIN_MAX ? clock_mono_ns() + AGAIN_MS * NS_PER_MS : 0;
	if (missing && !h->again_ns)
		log_line("warn", "waker",
			"a port of %s on the host is taken: who connects there does not wake it",
			h->id.s);
}

static struct held **find(const char *id)
{
	struct held **p = &w.all;

	while (*p && strcmp((*p)->id.s, id))
		p = &(*p)->next;
	return p;
}

static void drop(struct held **p)
{
	struct held *h = *p;

	if (!h)
		return;
	for (uint32_t i = 0; i < h->n; i++)
		fd_close(&h->ports[i].fd);
	*p = h->next;
	free(h);
}

static void hold(const struct waker_message *m)
{
	struct held **old = find(m->id), *h = mem_new(struct held);

	h->rest_ns = *old ? (*old)->rest_ns : 0;
	drop(old);
	if (box_id_parse(m->id, &h->id, NULL) < 0) {
		free(h);
		return;
	}
	h->n = MIN(m->n, (uint32_t)WAKER_PORTS);
	for (uint32_t i = 0; i < h->n; i++) {
		h->ports[i].in = m->ports[i].in;
		h->ports[i].out = m->ports[i].out;
		h->ports[i].fd = -1;
	}
	h->next = w.all;
	w.all = h;
	ports_try(h);
}

/* ---- keepers ---- */

static void give(int to, struct held **p)
{
	union {
		struct cmsghdr align;
		char room[CMSG_SPACE(WAKER_PORTS * sizeof(int))];
	} control = { 0 };
	struct waker_message m = { .op = WAKER_TAKE };
	struct iovec v = { &m, sizeof(m) };
	struct msghdr h = { .msg_iov = &v, .msg_iovlen = 1 };
	int fds[WAKER_PORTS];

	for (uint32_t i = 0; *p && i < (*p)->n; i++) {
		if ((*p)->ports[i].fd < 0)
			continue;
		fds[m.n] = (*p)->ports[i].fd;
		m.ports[m.n].in = (*p)->ports[i].in;
		m.ports[m.n++].out = (*p)->ports[i].out;
	}
	if (m.n) {
		h.msg_control = &control;
		h.msg_controllen = CMSG_SPACE(m.n * sizeof(int));
		control.align.cmsg_level = SOL_SOCKET;
		control.align.cmsg_type = SCM_RIGHTS;
		control.align.cmsg_len = CMSG_LEN(m.n * sizeof(int));
		memcpy(CMSG_DATA(&control.align), fds, m.n * sizeof(int));
	}
	if (sendmsg(to, &h, MSG_NOSIGNAL) == sizeof(m))
		drop(p);
}

static void on_keeper(void)
{
	auto_fd fd = accept4(w.sock, NULL, NULL, SOCK_CLOEXEC);
	struct timeval wait = { .tv_sec = HEAR_S };
	struct waker_message m;
	struct ucred who;
	socklen_t n = sizeof(who);

	if (fd < 0 && (errno == EMFILE || errno == ENFILE)) /* it would be asked for at once again */
		nanosleep(&(struct timespec){ .tv_nsec = NAP_MS * NS_PER_MS }, NULL);
	if (fd < 0 || getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &n) < 0 || who.uid != geteuid())
		return;
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof(wait));
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &wait, sizeof(wait));
	if (recv(fd, &m, sizeof(m), MSG_WAITALL) != sizeof(m))
		return;
	m.id[sizeof(m.id) - 1] = '\0';
	if (m.op == WAKER_HOLD)
		hold(&m);
	else if (m.op == WAKER_TAKE)
		give(fd, find(m.id));
	else if (m.op == WAKER_DROP)
		drop(find(m.id));
}

/* ---- waking ---- */

static struct waking *waking_free(void)
{
	for (size_t i = 0; i < WAKING_MAX; i++)
		if (!w.waking[i].pid)
			return &w.waking[i];
	return NULL;
}

static bool is_waking(const struct held *h)
{
	for (size_t i = 0; i < WAKING_MAX; i++)
		if (w.waking[i].pid && !strcmp(w.waking[i].id.s, h->id.s))
			return true;
	return false;
}

/* Kills those that hang; when the next is due. */
static int64_t waking_due(int64_t now)
{
	int64_t due = INT64_MAX;

	for (size_t i = 0; i < WAKING_MAX; i++) {
		struct waking *a = &w.waking[i];

		if (!a->pid || !a->until_ns)
			continue;
		if (a->until_ns <= now) {
			log_line("warn", "waker", "the resume of %s hangs: it is ended", a->id.s);
			kill(a->pid, SIGKILL);
			a->until_ns = 0;
		} else {
			due = MIN(due, a->until_ns);
		}
	}
	return due;
}

static void wake(struct held *h, struct waking *place)
{
	char *const argv[] = { (char *)"den", (char *)"resume", (char *)"--quiet",
		(char *)"--state", (char *)w.state, h->id.s, NULL };

	pid_t pid = fork();

	if (pid == 0) {
		sigset_t none;
		int null = open("/dev/null", O_RDWR | O_CLOEXEC);

		sigemptyset(&none);
		sigprocmask(SIG_SETMASK, &none, NULL);
		if (w.files.rlim_max)
			setrlimit(RLIMIT_NOFILE, &w.files);
		if (null < 0 || dup2(null, 0) < 0 || dup2(null, 1) < 0)
			_exit(127);
		execv(w.den, argv);
		_exit(127);
	}
	if (pid < 0) {
		h->rest_ns = clock_mono_ns() + REST_MS * NS_PER_MS;
		return;
	}
	h->woken_by = pid;
	*place = (struct waking){
		.id = h->id, .pid = pid, .until_ns = clock_mono_ns() + WAKE_MS * NS_PER_MS
	};
}

/* Who waited is told that it came to nothing. Whoever is left is, after the rest and another attempt. */
static void send_away(struct held *h)
{
	unsigned n = 0;

	for (uint32_t i = 0; i < h->n; i++) {
		int fd;

		while (n < AWAY_MAX && h->ports[i].fd >= 0 &&
			(fd = accept4(h->ports[i].fd, NULL, NULL, SOCK_CLOEXEC)) >= 0) {
			close(fd);
			n++;
		}
	}
}

/* Its keeper has taken the ports, or it did not come back. */
static void woken(struct held **p, pid_t pid, int status)
{
	struct held *h = *p;
	auto_fd dir = -1;

	if (!h)
		return;
	if (place_box(w.fd, &h->id, &dir, NULL) < 0) {
		drop(p); /* gone; what else is not found is missing of a box that is there */
		return;
	}
	if (WIFEXITED(status) &&
		(WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == err_exit_status(DEN_CONFLICT))) {
		if (h->woken_by == pid) /* else it is on disk again */
			drop(p); /* running: whoever brought it up before we held them has others */
		return;
	}
	log_line("warn", "waker", "%s could not be resumed for who connected to its port", h->id.s);
	send_away(h);
	h->rest_ns = clock_mono_ns() + REST_MS * NS_PER_MS;
}

static void on_child(void)
{
	struct signalfd_siginfo si;
	int status;
	pid_t pid;

	while (read(w.sig, &si, sizeof(si)) == sizeof(si))
		;
	while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
		for (size_t i = 0; i < WAKING_MAX; i++)
			if (w.waking[i].pid == pid) {
				w.waking[i].pid = 0;
				woken(find(w.waking[i].id.s), pid, status);
				break;
			}
}

/* ---- life ---- */

static void hold_all(void)
{
	struct den_options o = { .size = sizeof(o), .state = w.state, .exe = w.den };
	struct den_box_info *infos;
	struct den_err err;
	struct den *d;
	size_t n;

	if (den_open(&o, &d, &err) < 0)
		return;
	if (den_list(d, &infos, &n, &err) < 0) {
		log_line("warn", "waker", "%s", err.msg);
		den_close(d);
		return;
	}
	for (size_t i = 0; i < n; i++) {
		struct waker_message m = { .op = WAKER_HOLD };

		if (!infos[i].on_disk)
			continue;
		snprintf(m.id, sizeof(m.id), "%s", infos[i].id);
		for (const char *const *t = infos[i].publish; t && *t && m.n < WAKER_PORTS; t++) {
			unsigned in, out;

			if (sscanf(*t, "%u=%u", &in, &out) != 2)
				continue;
			m.ports[m.n].in = (uint16_t)in;
			m.ports[m.n++].out = (uint16_t)out;
		}
		if (m.n)
			hold(&m);
	}
	den_box_infos_free(infos, n);
	den_close(d);
}

/* Another server's may be at work: its lock is waited for. */
static int start(struct den_err *err)
{
	sigset_t set;
	int lock;

	sigemptyset(&set);
	sigaddset(&set, SIGCHLD);
	sigprocmask(SIG_BLOCK, &set, NULL);
	w.sig = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	if (w.sig < 0)
		return den_fail_sys(err, errno, "signalfd");
	if (place_open(w.state, true, &w.fd, err) < 0)
		return -1;
	lock = openat(w.fd, WAKER_LOCK, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (lock < 0)
		return den_fail_sys(err, errno, "open " WAKER_LOCK);
	while (flock(lock, LOCK_EX) < 0)
		if (errno != EINTR)
			return den_fail_sys(err, errno, "lock " WAKER_LOCK);
	return place_listen(w.fd, WAKER_SOCK, &w.sock, err);
}

static int64_t turn(void)
{
	static struct pollfd *list;
	static size_t room;
	int64_t now = clock_mono_ns(), due = waking_due(now);
	size_t n = 2, want = 2;

	for (struct held *h = w.all; h; h = h->next)
		want += h->n;
	if (want > room) {
		list = mem_realloc(list, want * sizeof(*list));
		room = want;
	}
	list[0] = (struct pollfd){ .fd = w.sock, .events = POLLIN };
	list[1] = (struct pollfd){ .fd = w.sig, .events = POLLIN };
	for (struct held *h = w.all; h; h = h->next) {
		if (h->again_ns && h->again_ns <= now)
			ports_try(h);
		if (h->rest_ns && h->rest_ns <= now)
			h->rest_ns = 0;
		due = MIN(due, MIN(h->again_ns ? h->again_ns : INT64_MAX,
				       h->rest_ns ? h->rest_ns : INT64_MAX));
		/* while as many come back as may, the end of one is waited for */
		h->looked = waking_free() && !h->rest_ns && !is_waking(h);
		for (uint32_t i = 0; i < h->n && h->looked; i++)
			list[n++] = (struct pollfd){ .fd = h->ports[i].fd, .events = POLLIN };
	}
	if (poll(list, n, due == INT64_MAX ? -1 : (int)MAX((due - now) / NS_PER_MS + 1, 1)) < 0)
		return errno == EINTR ? 0 : -1;
	n = 2;
	for (struct held *h = w.all; h; h = h->next) {
		struct waking *place = waking_free();
		bool asked = false;

		for (uint32_t i = 0; i < h->n && h->looked; i++)
			asked |= (list[n++].revents & POLLIN) != 0;
		if (asked && place)
			wake(h, place);
	}
	/* a keeper whose box did not come back says so before the one that asked it ends */
	if (list[0].revents)
		on_keeper();
	else if (list[1].revents)
		on_child();
	return 0;
}

int waker_run(const char *state, const char *den)
{
	struct den_err err;

	prctl(PR_SET_NAME, "den-waker", 0, 0, 0);
	fd_close_from(3);
	w.state = state;
	w.den = den;
	if (getrlimit(RLIMIT_NOFILE, &w.files) == 0) {
		struct rlimit all = { w.files.rlim_max, w.files.rlim_max };

		setrlimit(RLIMIT_NOFILE, &all);
	}
	if (start(&err) < 0) {
		log_line("error", "waker", "%s", err.msg);
		return 1;
	}
	hold_all();
	while (turn() == 0)
		;
	return 1;
}
