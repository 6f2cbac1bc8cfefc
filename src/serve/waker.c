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
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
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
	pid_t waking;
};

static struct {
	const char *state, *den;
	int fd, sock, sig;
	struct held *all;
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
	struct held *h;

	drop(find(m->id));
	h = mem_new(struct held);
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

static void wake(struct held *h)
{
	char *const argv[] = { (char *)"den", (char *)"resume", (char *)"--quiet",
		(char *)"--state", (char *)w.state, h->id.s, NULL };

	h->waking = fork();
	if (h->waking == 0) {
		sigset_t none;
		int null = open("/dev/null", O_RDWR | O_CLOEXEC);

		sigemptyset(&none);
		sigprocmask(SIG_SETMASK, &none, NULL);
		if (null < 0 || dup2(null, 0) < 0 || dup2(null, 1) < 0)
			_exit(127);
		execv(w.den, argv);
		_exit(127);
	}
	if (h->waking < 0) {
		h->waking = 0;
		h->rest_ns = clock_mono_ns() + REST_MS * NS_PER_MS;
	}
}

/* Who waited is told that it came to nothing. */
static void send_away(struct held *h)
{
	for (uint32_t i = 0; i < h->n; i++) {
		int fd;

		while (h->ports[i].fd >= 0 &&
			(fd = accept4(h->ports[i].fd, NULL, NULL, SOCK_CLOEXEC)) >= 0)
			close(fd);
	}
}

/* Its keeper has taken the ports, or it did not come back. */
static void woken(struct held **p, int status)
{
	struct held *h = *p;
	auto_fd dir = -1;

	h->waking = 0;
	if (place_box(w.fd, &h->id, &dir, NULL) < 0 ||
		(WIFEXITED(status) &&
			(WEXITSTATUS(status) == 0 ||
				WEXITSTATUS(status) == err_exit_status(DEN_CONFLICT) ||
				WEXITSTATUS(status) == err_exit_status(DEN_NOT_FOUND)))) {
		drop(p); /* gone, or running: whoever brought it up before we held them has others */
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
		for (struct held **p = &w.all; *p; p = &(*p)->next)
			if ((*p)->waking == pid) {
				woken(p, status);
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
	int64_t now = clock_mono_ns(), due = INT64_MAX;
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
		for (uint32_t i = 0; i < h->n && !h->waking && !h->rest_ns; i++)
			list[n++] = (struct pollfd){ .fd = h->ports[i].fd, .events = POLLIN };
	}
	if (poll(list, n, due == INT64_MAX ? -1 : (int)MAX((due - now) / NS_PER_MS + 1, 1)) < 0)
		return errno == EINTR ? 0 : -1;
	n = 2;
	for (struct held *h = w.all; h; h = h->next) {
		bool asked = false, looked = !h->waking && !h->rest_ns;

		for (uint32_t i = 0; i < h->n && looked; i++)
			asked |= (list[n++].revents & POLLIN) != 0;
		if (asked)
			wake(h);
	}
	if (list[1].revents)
		on_child();
	if (list[0].revents)
		on_keeper();
	return 0;
}

int waker_run(const char *state, const char *den)
{
	struct den_err err;

	prctl(PR_SET_NAME, "den-waker", 0, 0, 0);
	fd_close_from(3);
	w.state = state;
	w.den = den;
	if (start(&err) < 0) {
		log_line("error", "waker", "%s", err.msg);
		return 1;
	}
	hold_all();
	while (turn() == 0)
		;
	return 1;
}
