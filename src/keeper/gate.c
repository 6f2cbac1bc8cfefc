#include "gate.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "clock.h"
#include "control.h"
#include "fd.h"
#include "place.h"
#include "program.h"
#include "strv.h"

#define ANSWER_MS 15000
#define SOCKETS_ASKED 16 /* a unix socket holds some of them, and no more */
#define RETRY_NS (100 * NS_PER_MS)
#define RETRY_MAX_NS (5 * NS_PER_SEC)
#define STEADY_NS (10 * NS_PER_SEC) /* one that lived so long did not die of how it was started */
#define BUNDLE "/etc/ssl/certs/ca-certificates.crt"

bool gate_needed(const struct keeper *k)
{
	return k->gate && (policy_opens_anything(k->gate->policy) || k->gate->policy->identity.audiences ||
		(k->row.info.spec.publish && k->row.info.spec.publish[0]));
}

/* ---- processes ---- */

/* Starts den-gate with these descriptors as 0, 1, 2, 3 and 4. */
static int spawn(char *const argv[], const int fds[5], pid_t *ret, struct den_err *err)
{
	auto_free char *program = program_find("den-gate", DEN_LIBEXEC);
	char *env[] = { NULL };
	posix_spawn_file_actions_t acts;
	int r = 0, high[5];

	if (!program)
		return den_fail(err, DEN_UNSUPPORTED, 0,
			"den-gate, the way to the network, is neither beside den nor in " DEN_LIBEXEC);
	posix_spawn_file_actions_init(&acts);
	for (int i = 0; i < 5; i++) /* out of the way of the numbers that they are to have */
		high[i] = fcntl(fds[i], F_DUPFD_CLOEXEC, 16);
	for (int i = 0; i < 5 && !r; i++)
		r = posix_spawn_file_actions_adddup2(&acts, high[i], i);
	if (!r)
		r = posix_spawn(ret, program, &acts, NULL, argv, env);
	posix_spawn_file_actions_destroy(&acts);
	for (int i = 0; i < 5; i++)
		fd_close(&high[i]);
	return r ? den_fail_sys(err, r, "run '%.120s'", program) : 0;
}

/* A tool that does its work and ends: what it printed is what went wrong. */
static int run_tool(int init, char *const argv[], int in, int sock, struct den_err *err)
{
	int said[2], status = 1, fds[5];
	char text[200] = "";
	ssize_t n;
	pid_t pid;

	if (pipe2(said, O_CLOEXEC) < 0)
		return den_fail_sys(err, errno, "pipe");
	memcpy(fds, (int[5]){ in, said[1], said[1], sock, init }, sizeof(fds));
	if (spawn(argv, fds, &pid, err) < 0) {
		close(said[0]);
		close(said[1]);
		return -1;
	}
	close(said[1]);
	n = read(said[0], text, sizeof(text) - 1); /* it ends soon: the end of file is its end */
	if (n > 0)
		text[strcspn(text, "\n")] = '\0';
	close(said[0]);
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
		return 0;
	return den_fail(err, DEN_INTERNAL, 0, "%s: %s", argv[1], n > 0 ? text : "it was killed");
}

int gate_probe(struct den_err *err)
{
	char *argv[] = { (char *)"den-gate", (char *)"probe", NULL };
	auto_fd null = open("/dev/null", O_RDWR | O_CLOEXEC);

	return null < 0 ? den_fail_sys(err, errno, "open /dev/null") : run_tool(null, argv, null, null, err);
}

/* Routes, redirections and sockets in the box's namespace; *ret: where the gate gets the sockets. */
static int plumb(struct kgate *g, int *ret, struct den_err *err)
{
	char *argv[] = { (char *)"den-gate", (char *)"plumb", NULL };
	auto_fd in = memfd_create("policy", MFD_CLOEXEC);
	auto_buf text = { 0 };
	int pair[2], r;

	policy_print(g->policy, &text);
	if (in < 0 || fd_write_all(in, text.p, text.len, err) < 0 || lseek(in, 0, SEEK_SET) < 0)
		return den_fail_sys(err, errno, "policy for the gate");
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return den_fail_sys(err, errno, "socketpair");
	r = run_tool(g->k->wall.pidfd, argv, in, pair[0], err);
	close(pair[0]);
	if (r < 0) {
		close(pair[1]);
		return -1;
	}
	*ret = pair[1];
	return 0;
}

int gate_dial(struct keeper *k, unsigned n, uint16_t port, int sock, struct den_err *err)
{
	char count[12], to[8], *argv[] = { (char *)"den-gate", (char *)"dial", count, port ? to : NULL, NULL };
	auto_fd null = open("/dev/null", O_RDWR | O_CLOEXEC);

	snprintf(count, sizeof(count), "%u", n);
	snprintf(to, sizeof(to), "%u", port);
	if (null < 0)
		return den_fail_sys(err, errno, "open /dev/null");
	return run_tool(k->wall.pidfd, argv, null, sock, err);
}

static int start_process(struct kgate *g, struct den_err *err)
{
	char *argv[] = { (char *)"den-gate", (char *)"serve", NULL };
	auto_fd null = open("/dev/null", O_RDWR | O_CLOEXEC), listen = -1;
	int fds[5];

	if (null < 0)
		return den_fail_sys(err, errno, "open /dev/null");
	if (place_listen(g->k->boxfd, GATE_SOCK, &listen, err) < 0)
		return -1;
	memcpy(fds, (int[5]){ null, null, null, listen, g->k->wall.pidfd }, sizeof(fds));
	return spawn(argv, fds, &g->pid, err);
}

/* ---- the connection ---- */

static void on_lost(struct kgate *g);

static int send_sockets(struct kgate *g)
{
	struct den_err err;
	int pair[2];

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return -1;
	if (gate_dial(g->k, SOCKETS_ASKED, 0, pair[0], &err) < 0) {
		gate_note(g, "gate", err.msg);
		conn_send(&g->ctl, WM_GATE_SOCKETS, 0, NULL, 0);
	} else {
		conn_send_fds(&g->ctl, WM_GATE_SOCKETS, 0, NULL, 0, &pair[1], 1);
	}
	close(pair[0]);
	close(pair[1]);
	return 0;
}

static void send_token(struct kgate *g, const struct wire_frame *f)
{
	auto_free char *audience = NULL, *alg = NULL, *token = NULL;
	struct den_err err = { 0 };
	auto_buf b = { 0 };

	wire_put_u64(&b, F_NUMBER, field_u64(f, F_NUMBER, 0));
	if (field_str(f, F_NAME, 512, &audience, &err) < 0 || field_str(f, F_RULE, 16, &alg, &err) < 0 || !audience ||
		token_kept(g, audience, alg ? alg : "EdDSA", &token, &err) < 0)
		wire_put_str(&b, F_REASON, err.msg);
	else
		wire_put_str(&b, F_MSG, token);
	conn_send_buf(&g->ctl, WM_GATE_TOKEN, 0, &b);
}

static void on_frame(struct conn *c, const struct wire_frame *f)
{
	struct kgate *g = CONTAINER_OF(c, struct kgate, ctl);

	switch (f->type) {
	case WM_OK:
		g->answered = true;
		g->result = 0;
		g->ended = field_u64(f, F_COUNT, 0);
		break;
	case WM_FAIL:
		g->answered = true;
		g->result = wire_get_err(f->p, f->len, &g->answer);
		break;
	case WM_GATE_RECORD:
		gate_record(g, f);
		break;
	case WM_GATE_TOKEN:
		send_token(g, f);
		break;
	case WM_GATE_SOCKETS:
		(void)send_sockets(g);
		break;
	default:
		break;
	}
}

static void on_close(struct conn *c, const struct den_err *why)
{
	(void)why;
	on_lost(CONTAINER_OF(c, struct kgate, ctl));
}

/* A gate that another keeper started is not our child: the kernel says which process listens. */
static void find_process(struct kgate *g, int fd)
{
	struct ucred who;
	socklen_t len = sizeof(who);
	char path[32], name[16] = "";
	auto_fd comm = -1;

	if (g->pid > 0 || getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &len) < 0 || who.pid <= 0)
		return;
	fd_close(&g->pidfd);
	g->pidfd = (int)syscall(SYS_pidfd_open, who.pid, 0);
	/* it says den-gate from its first moment on; before that it had no time to serve anybody */
	snprintf(path, sizeof(path), "/proc/%d/comm", who.pid);
	comm = open(path, O_RDONLY | O_CLOEXEC);
	if (comm < 0 || read(comm, name, sizeof(name) - 1) <= 0 || strcmp(name, "den-gate\n"))
		fd_close(&g->pidfd);
}

/* Connects; somebody listens there, now or in a moment. */
static int meet(struct kgate *g, struct den_err *err)
{
	int fd;

	if (place_connect(g->k->boxfd, GATE_SOCK, &fd, err) < 0)
		return -1;
	find_process(g, fd);
	g->ctl = (struct conn){ .on_frame = on_frame, .on_close = on_close };
	if (conn_open(&g->ctl, g->k->loop, fd, err) < 0)
		return -1;
	g->up = true;
	g->since = clock_mono_ns();
	return 0;
}

int gate_ask(struct kgate *g, uint8_t type, const struct buf *b, const int *fds, int n, struct den_err *err)
{
	int64_t until = clock_mono_ns() + ANSWER_MS * NS_PER_MS;

	if (!g->up)
		return den_fail(err, DEN_INTERNAL, 0, "the gate is not there");
	g->answered = false;
	conn_send_fds(&g->ctl, type, 0, b ? b->p : NULL, b ? b->len : 0, fds, n);
	while (g->up && !g->answered) {
		struct pollfd p = { .fd = g->ctl.src.fd, .events = (short)(POLLIN | (conn_tx_empty(&g->ctl) ? 0 : POLLOUT)) };
		int64_t left = until - clock_mono_ns();

		if (left <= 0) { /* an answer that comes later must not be taken for the next one's */
			on_lost(g);
			return den_fail(err, DEN_TIMEOUT, 0, "the gate gives no answer");
		}
		/* this connection alone is looked after: nobody else's request comes in between */
		if (poll(&p, 1, (int)(left / NS_PER_MS) + 1) > 0)
			g->ctl.src.cb(&g->ctl.src, (uint32_t)p.revents);
	}
	if (!g->answered)
		return den_fail(err, DEN_INTERNAL, 0, "the gate ended");
	if (g->result < 0)
		*err = g->answer;
	return g->result;
}

/* ---- up and down ---- */

/* Whatever becomes of it: when it is not there, nothing listens. */
static void end_process(struct kgate *g)
{
	if (g->up)
		conn_close(&g->ctl);
	g->up = false;
	if (g->pid > 0) {
		kill(g->pid, SIGKILL); /* our child, and not reaped: the number is still its own */
		while (waitpid(g->pid, NULL, 0) < 0 && errno == EINTR)
			;
	}
	g->pid = 0;
	if (g->pidfd >= 0) {
		struct pollfd gone = { .fd = g->pidfd, .events = POLLIN };

		syscall(SYS_pidfd_send_signal, g->pidfd, SIGKILL, NULL, 0);
		(void)poll(&gone, 1, ANSWER_MS); /* killed: it ends as soon as it is its turn */
		fd_close(&g->pidfd);
	}
	unlinkat(g->k->boxfd, GATE_SOCK, 0);
}

static int identity_listen(struct kgate *g, int *ret, struct den_err *err)
{
	auto_fd dir = openat(g->k->boxfd, GATE_RUN, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (dir < 0)
		return den_fail_sys(err, errno, "open '%s'", GATE_RUN);
	if (place_listen(dir, "identity.sock", ret, err) < 0)
		return -1;
	/* any user of the box: it speaks for the box, not for one of them */
	if (fchmodat(dir, "identity.sock", 0666, 0) < 0)
		return den_fail_sys(err, errno, "open identity.sock to the box");
	return 0;
}

static int setup(struct kgate *g, struct den_err *err)
{
	auto_fd sockets = -1, bundle = -1, identity = -1;
	int fds[3], n = 0, r;
	uint64_t flags = 0, ended;
	auto_buf b = { 0 }, config = { 0 };

	if (plumb(g, &sockets, err) < 0)
		return -1;
	if (g->policy->identity.audiences && identity_listen(g, &identity, err) < 0)
		return -1;
	if (g->terminates)
		bundle = open(BUNDLE, O_RDONLY | O_CLOEXEC);
	fds[n++] = sockets;
	flags = GATE_FD_PLUMB;
	if (bundle >= 0) {
		fds[n++] = bundle;
		flags |= GATE_FD_BUNDLE;
	}
	if (identity >= 0) {
		fds[n++] = identity;
		flags |= GATE_FD_IDENTITY;
	}
	if (gate_config(g, &config, err) < 0)
		return -1;
	buf_reserve(&b, config.len + 64);
	wire_put_bytes(&b, F_CONFIG, config.p, config.len);
	wire_put_u64(&b, F_FLAGS, flags);
	r = gate_ask(g, WM_GATE_SETUP, &b, fds, n, err);
	explicit_bzero(config.p, config.len);
	explicit_bzero(b.p, b.len);
	if (r < 0)
		return -1;
	ended = g->ended; /* before other answers come */
	r = ports_publish(g, err);
	g->ended = ended;
	return r;
}

static int bring_up(struct kgate *g, struct den_err *err)
{
	if (!g->up && (start_process(g, err) < 0 || meet(g, err) < 0))
		return -1;
	return setup(g, err);
}

static void retry_cb(struct loop_timer *t)
{
	struct kgate *g = CONTAINER_OF(t, struct kgate, retry);
	struct den_err err;

	if (!box_is_up(g->k) || g->k->gone || !gate_needed(g->k))
		return;
	if (gate_load(g, &err) == 0 && bring_up(g, &err) == 0) {
		gate_note(g, "gate", "started again");
		return;
	}
	gate_note(g, "gate", err.msg);
	end_process(g);
	on_lost(g);
}

/* It died. The box has no network until the next one is up. */
static void on_lost(struct kgate *g)
{
	int64_t now = clock_mono_ns();

	end_process(g);
	if (!box_is_up(g->k) || g->k->gone)
		return;
	if (g->since && now - g->since >= STEADY_NS)
		g->failures = 0;
	g->since = 0;
	g->retry.cb = retry_cb;
	loop_timer_set(g->k->loop, &g->retry, now + MIN(RETRY_NS << MIN(g->failures, 6U), RETRY_MAX_NS));
	g->failures++;
}

int gate_prepare(struct keeper *k, struct den_err *err)
{
	if (!k->gate) {
		k->gate = mem_new(struct kgate);
		k->gate->k = k;
		k->gate->journal.fd = k->gate->pidfd = -1;
	}
	if (mkdirat(k->boxfd, GATE_RUN, 0755) < 0 && errno != EEXIST)
		return den_fail_sys(err, errno, "make '%s'", GATE_RUN);
	if (fchmodat(k->boxfd, GATE_RUN, 0755, 0) < 0) /* whatever the umask */
		return den_fail_sys(err, errno, "make '%s'", GATE_RUN);
	k->gate->strict = !box_is_up(k); /* one that runs may have lost one meanwhile */
	return gate_load(k->gate, err) < 0 ? -1 : gate_files(k->gate, err);
}

int gate_up(struct keeper *k, struct den_err *err)
{
	struct kgate *g = k->gate;

	g->failures = 0;
	if (!gate_needed(k))
		return 0;
	if (bring_up(g, err) < 0) {
		end_process(g);
		return den_wrap(err, "network");
	}
	return 0;
}

void gate_adopt(struct keeper *k)
{
	struct den_err err, none;
	bool known = gate_prepare(k, &err) == 0;

	if (!k->gate)
		return;
	if (!known)
		gate_note(k->gate, "gate", err.msg);
	if (meet(k->gate, &none) < 0) {
		if (known && gate_needed(k))
			on_lost(k->gate);
		return;
	}
	/* Closed: what cannot be understood must not be served. And the one who wrote that nothing is allowed
	 * may have died before it was so. */
	if (!known || !gate_needed(k)) {
		end_process(k->gate);
		return;
	}
	if (setup(k->gate, &err) < 0) {
		gate_note(k->gate, "gate", err.msg);
		on_lost(k->gate);
	}
}

void gate_down(struct keeper *k)
{
	if (!k->gate)
		return;
	loop_timer_clear(&k->gate->retry);
	loop_timer_clear(&k->gate->show);
	end_process(k->gate);
	gate_record_end(k->gate);
}

int gate_change(struct keeper *k, uint64_t *ret, struct den_err *err)
{
	struct kgate *g = k->gate;
	struct den_err why;

	*ret = 0;
	if (!g)
		return 0;
	if (gate_files(g, err) < 0) {
		end_process(g); /* closed, not as it was before */
		return -1;
	}
	if (!box_is_up(k))
		return 0;
	loop_timer_clear(&g->retry);
	if (!gate_needed(k)) {
		end_process(g);
		return 0;
	}
	if (bring_up(g, &why) < 0) {
		end_process(g);
		on_lost(g);
		*err = why;
		return den_wrap(err, "the new policy is written, and nothing gets out until the gate is up");
	}
	*ret = g->ended;
	return 0;
}
