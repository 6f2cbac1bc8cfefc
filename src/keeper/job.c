/*
 * Long work on what boxes made (comparing, merging, packing, hashing trees) runs in a process of its
 * own: the keeper goes on serving, and what a hostile tree could do to the code that reads it, it does to
 * a process that can read files and write to one socket.
 *
 * The client sends a socket along with its request and reads frames from it: WM_OUT (bytes), WM_RECORD
 * (fields), then WM_OK or WM_FAIL. The job writes to it directly, so a slow client slows the job alone.
 */
#include "job.h"

#include <errno.h>
#include <linux/capability.h>
#include <linux/sockios.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fd.h"

#define JOBS_MAX 8
#define READER_GONE_MS 30000

struct job {
	struct list link;
	struct keeper *k;
	struct loop_source src; /* its pidfd */
	struct loop_deferred free_later;
	pid_t pid;
	job_done done;
	void *user;
};

/* ---- in the job ---- */

/* Waits until the socket takes more. Its reader may be slow, but must read: there are few jobs to be had,
 * and nobody else would end this one. */
static int await_reader(int out, struct den_err *err)
{
	struct pollfd p = { .fd = out, .events = POLLOUT };
	int before = 0, now = 0, r;

	do {
		(void)ioctl(out, SIOCOUTQ, &before);
		r = poll(&p, 1, READER_GONE_MS);
		(void)ioctl(out, SIOCOUTQ, &now); /* room enough to be told of is more than a byte */
	} while ((r < 0 && errno == EINTR) || (r == 0 && now < before));
	if (r < 0)
		return den_fail_sys(err, errno, "wait for the reader");
	return r > 0 ? 0 : den_fail(err, DEN_TIMEOUT, 0, "nobody read the answer for %d s", READER_GONE_MS / 1000);
}

static int send_all(int out, const char *p, size_t n, struct den_err *err)
{
	while (n) {
		ssize_t r = send(out, p, n, MSG_DONTWAIT | MSG_NOSIGNAL);

		if (r >= 0) {
			p += r;
			n -= (size_t)r;
		} else if (errno == EAGAIN) {
			if (await_reader(out, err) < 0)
				return -1;
		} else if (errno != EINTR) {
			return den_fail_sys(err, errno, "send");
		}
	}
	return 0;
}

static int job_frame(int out, uint8_t type, const void *p, size_t n, struct den_err *err)
{
	auto_buf b = { 0 };

	wire_frame_put(&b, type, 0, p, (uint32_t)n);
	return send_all(out, b.p, b.len, err);
}

int job_data(const void *p, size_t n, void *user, struct den_err *err)
{
	const struct job_out *out = user;
	const char *s = p;

	while (n) {
		size_t part = MIN(n, (size_t)WIRE_MAX_DATA);

		if (job_frame(out->fd, WM_OUT, s, part, err) < 0)
			return -1;
		s += part;
		n -= part;
	}
	return 0;
}

int job_record(const struct job_out *out, const struct buf *fields, struct den_err *err)
{
	return job_frame(out->fd, WM_RECORD, fields->p, fields->len, err);
}

/* From here on it reads what strangers made: it may read every file, and nothing else. */
static int confine(struct den_err *err)
{
	struct __user_cap_header_struct h = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct d[2] = { 0 };
	struct rlimit none = { 0, 0 };

	d[0].effective = d[0].permitted = geteuid() == 0 ? 1U << CAP_DAC_READ_SEARCH : 0;
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || syscall(SYS_capset, &h, d) < 0)
		return den_fail_sys(err, errno, "give up rights");
	setrlimit(RLIMIT_FSIZE, &none);
	setrlimit(RLIMIT_CORE, &none);
	return 0;
}

struct running {
	const struct job_spec *spec;
	struct job_out out;
};

static int job_body(void *arg, struct den_err *err)
{
	struct running *r = arg;

	if (r->spec->prepare && r->spec->prepare(r->spec->arg, err) < 0)
		return -1;
	if (!r->spec->writes && confine(err) < 0)
		return -1;
	return r->spec->run(r->spec->arg, &r->out, err);
}

static void job_child(const struct job_spec *spec, int out)
{
	struct running r = { spec, { .fd = out } };
	struct den_err err = { 0 };
	auto_buf b = { 0 };
	int bad;

	prctl(PR_SET_NAME, "den-job", 0, 0, 0);
	prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
	bad = wall_as_box_root(job_body, &r, &err) < 0;
	if (bad)
		wire_put_err(&b, &err);
	/* who did not read so far does not read this either */
	if ((bad || !spec->quiet) && err.code != DEN_TIMEOUT)
		(void)job_frame(out, bad ? WM_FAIL : WM_OK, b.p, b.len, &err);
	_exit(bad ? 1 : 0);
}

/* ---- in the keeper ---- */

static void job_free_cb(struct loop_deferred *d)
{
	free(CONTAINER_OF(d, struct job, free_later));
}

static void job_ended(struct loop_source *src, uint32_t events)
{
	struct job *j = CONTAINER_OF(src, struct job, src);
	struct keeper *k = j->k;
	int status = 1;

	(void)events;
	while (waitpid(j->pid, &status, 0) < 0 && errno == EINTR)
		;
	loop_remove(k->loop, &j->src);
	fd_close(&j->src.fd);
	list_remove(&j->link);
	if (j->done)
		j->done(k, j->user, WIFEXITED(status) && WEXITSTATUS(status) == 0);
	j->free_later.cb = job_free_cb;
	loop_defer(k->loop, &j->free_later);
	keeper_leave_if_done(k);
}

int job_start(struct keeper *k, const struct job_spec *spec, int out, job_done done, void *user,
	struct den_err *err)
{
	struct job *j;
	unsigned n = 0;
	pid_t pid;

	list_for_each(l, &k->jobs)
		n++;
	if (n >= JOBS_MAX)
		return den_fail(err, DEN_LIMIT, 0, "%d such requests are under way for this box already", JOBS_MAX);
	store_let_go(k->store); /* it may open it */
	pid = fork();
	if (pid == 0)
		job_child(spec, out);
	if (pid < 0)
		return den_fail_sys(err, errno, "fork");
	j = mem_new(struct job);
	j->k = k;
	j->pid = pid;
	j->done = done;
	j->user = user;
	j->src = (struct loop_source){ .fd = (int)syscall(SYS_pidfd_open, pid, 0), .events = EPOLLIN, .cb = job_ended };
	list_append(&k->jobs, &j->link);
	if (j->src.fd < 0 || loop_add(k->loop, &j->src, err) < 0) {
		kill(pid, SIGKILL);
		list_remove(&j->link);
		while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
			;
		free(j);
		return -1;
	}
	return 0;
}

int job_stream(struct client *c, int *ret, struct den_err *err)
{
	socklen_t len = sizeof(int);
	int type;

	if (conn_take_fds(&c->conn, ret, 1) < 0 || getsockopt(*ret, SOL_SOCKET, SO_TYPE, &type, &len) < 0)
		return den_fail(err, DEN_INVALID, 0, "the request needs a socket for its answer");
	/* the other end may be anything: blocking writes to it happen in the job, never here */
	return 0;
}
