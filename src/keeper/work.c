/*
 * Work on a box's files that takes its time.
 *
 * On a plain pool a checkpoint, a rollback or a look at what has changed takes as long as there are files.
 * A process of its own does it (work_do()), and inside that call the loop goes on: output of programs
 * flows, questions are answered, clients come. What would change the box, or has to see it as it is when the
 * work is done, waits in line; so does all that the same client sends after it.
 *
 * Such work begins in work_run() alone, which is called from the loop's own level (a timer, or what was put
 * off), never from inside a batch: neither the batch nor a connection that is just being read could bear
 * that the loop goes on below it. Whatever comes up meanwhile and is such work itself is marked as due.
 * A keeper that dies takes the process along: what it was making has no final name yet, or no row.
 */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fd.h"
#include "keeper.h"

#define WAITING_MAX (16U << 20) /* bytes of one client: more than any that keeps to its credit */

struct waiting {
	struct list link;
	struct client *c;
	struct wire_frame f;
	int fds[CONN_MAX_FDS], n_fds; /* came with it */
};

/* ---- who waits ---- */

/* Looks, or concerns programs that run already. */
static bool goes_on(uint8_t type)
{
	switch (type) {
	case WM_HELLO:
	case WM_INFO:
	case WM_STATS:
	case WM_PS:
	case WM_ATTACH:
	case WM_SIGNAL:
	case WM_IN:
	case WM_IN_EOF:
	case WM_CREDIT:
	case WM_RESIZE:
	case WM_DETACH:
		return true;
	default:
		return false;
	}
}

static bool takes_long(uint8_t type)
{
	switch (type) {
	case WM_START:
	case WM_CHECKPOINT:
	case WM_LOG:
	case WM_TAG:
	case WM_ROLLBACK:
	case WM_PRUNE:
	case WM_FORK_POINT:
	case WM_DIFF:
	case WM_MERGE:
	case WM_MERGE_END:
	case WM_COMMIT:
		return true;
	default:
		return false;
	}
}

static bool is_slow(const struct keeper *k)
{
	return k->row.work && k->pool && k->pool->kind == POOL_PLAIN;
}

static void work_cb(struct loop_deferred *d)
{
	work_run(CONTAINER_OF(d, struct keeper, work));
}

void work_due(struct keeper *k)
{
	k->work.cb = work_cb;
	loop_defer(k->loop, &k->work);
}

bool work_waits(struct client *c, const struct wire_frame *f)
{
	struct keeper *k = c->k;
	struct waiting *w;

	if (!c->n_waiting && (k->working ? goes_on(f->type) : !is_slow(k) || !takes_long(f->type)))
		return false;
	if (c->waiting_bytes + f->len > WAITING_MAX) {
		client_drop(c);
		return true;
	}
	w = mem_new(struct waiting);
	w->c = c;
	w->f = *f;
	w->f.p = mem_alloc((size_t)f->len + 1);
	memcpy((char *)w->f.p, f->p, f->len);
	w->n_fds = c->conn.n_rx_fds;
	(void)conn_take_fds(&c->conn, w->fds, w->n_fds);
	c->n_waiting++;
	c->waiting_bytes += f->len;
	list_append(&k->waiting, &w->link);
	work_due(k);
	return true;
}

/* As if it had just come. Of a client that is gone only what ends the box is done: nobody hears of the rest. */
static void handle(struct waiting *w)
{
	struct conn *conn = &w->c->conn;
	int fds[CONN_MAX_FDS], n = conn->n_rx_fds;

	if (conn->dead) {
		if (w->f.type == WM_STOP || w->f.type == WM_DELETE)
			client_handle(w->c, &w->f);
		return;
	}
	memcpy(fds, conn->rx_fds, sizeof(fds)); /* of what it has not said in full yet */
	memcpy(conn->rx_fds, w->fds, sizeof(fds));
	conn->n_rx_fds = w->n_fds;
	w->n_fds = 0;
	client_handle(w->c, &w->f);
	for (int i = 0; i < conn->n_rx_fds; i++)
		close(conn->rx_fds[i]);
	conn->n_rx_fds = conn->dead ? 0 : n;
	memcpy(conn->rx_fds, fds, sizeof(fds));
	for (int i = 0; conn->dead && i < n; i++)
		close(fds[i]);
}

static void next_waiting(struct keeper *k)
{
	struct waiting *w = CONTAINER_OF(k->waiting.next, struct waiting, link);
	struct client *c = w->c;

	list_remove(&w->link);
	handle(w);
	for (int i = 0; i < w->n_fds; i++)
		close(w->fds[i]);
	c->waiting_bytes -= w->f.len;
	if (--c->n_waiting == 0 && c->left)
		client_free(c);
	free((char *)w->f.p);
	free(w);
}

void work_run(struct keeper *k)
{
	struct den_err err;

	if (k->working)
		return; /* it comes to this, too */
	k->working = true;
	for (;;) {
		if (k->merge_lost) {
			k->merge_lost = false;
			merge_lost(k);
		} else if (k->turn_due) {
			k->turn_due = false;
			box_turn_end(k);
		} else if (k->delete_due) {
			k->delete_due = false;
			(void)box_delete(k, &err);
		} else if (!list_empty(&k->waiting)) {
			next_waiting(k);
		} else if (k->sweep_due) {
			k->sweep_due = false;
			fd_close(&k->old_mntns); /* unmounts, and so writes out */
			if (!k->gone)
				(void)home_sweep(k, &err); /* costs space at worst */
		} else {
			break;
		}
	}
	k->working = false;
	if (k->leave_due) {
		k->leave_due = false;
		keeper_leave_if_done(k);
	}
}

/* ---- the work ---- */

struct result {
	int r;
	struct den_err err;
};

struct worker {
	struct loop_source src; /* its pidfd */
	struct keeper *k;
	bool ended;
};

static void worker_cb(struct loop_source *s, uint32_t events)
{
	struct worker *w = CONTAINER_OF(s, struct worker, src);

	(void)events;
	loop_remove(w->k->loop, s);
	w->ended = true;
}

static pid_t worker_start(int (*fn)(void *arg, struct den_err *err), void *arg, struct result *ret)
{
	pid_t self = getpid(), pid = fork();

	if (pid)
		return pid;
	prctl(PR_SET_NAME, "den-job", 0, 0, 0);
	prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
	if (getppid() == self)
		ret->r = wall_as_box_root(fn, arg, &ret->err);
	_exit(0);
}

static void worker_await(struct keeper *k, pid_t pid)
{
	struct worker w = { .k = k };
	struct den_err ignored;

	w.src = (struct loop_source){ .fd = (int)syscall(SYS_pidfd_open, pid, 0), .events = EPOLLIN, .cb = worker_cb };
	if (w.src.fd >= 0 && loop_add(k->loop, &w.src, &ignored) == 0) {
		while (!w.ended && loop_step(k->loop, -1, &ignored) == 0)
			;
		loop_remove(k->loop, &w.src);
	}
	fd_close(&w.src.fd);
	while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		;
}

int work_do(struct keeper *k, int (*fn)(void *arg, struct den_err *err), void *arg, struct den_err *err)
{
	struct result *res;
	pid_t pid;
	int r;

	if (!k->working || !is_slow(k))
		return wall_as_box_root(fn, arg, err);
	res = mmap(NULL, sizeof(*res), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (res == MAP_FAILED)
		return den_fail_sys(err, errno, "memory");
	res->r = 1;
	pid = worker_start(fn, arg, res);
	if (pid < 0) {
		munmap(res, sizeof(*res));
		return den_fail_sys(err, errno, "fork");
	}
	worker_await(k, pid);
	r = res->r;
	if (r < 0)
		*err = res->err;
	munmap(res, sizeof(*res));
	return r > 0 ? den_fail(err, DEN_INTERNAL, 0, "the process that did it was killed") : r;
}
