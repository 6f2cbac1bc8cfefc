#include "crew.h"

#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fd.h"
#include "mem.h"

#define ERRNO_MAX 250 /* an exit status has no room for more */
#define URGENT (-15)
#define STOP_MS 100

static int processors(void)
{
	cpu_set_t cpus;

	return sched_getaffinity(0, sizeof(cpus), &cpus) < 0 ? 1 : CPU_COUNT(&cpus);
}

static int labour(void *count, size_t parts, crew_work work, void *user, int who)
{
	for (;;) {
		size_t part = atomic_fetch_add((_Atomic size_t *)count, 1);
		int r;

		if (part >= parts)
			return 0;
		r = work(user, part, who);
		if (r)
			return r;
	}
}

/* Begins on another processor than the one before: a scheduler that sees one of them asleep at the wrong moment lets two
 * take turns on one processor, for longer than all of this takes. After that it is free to move. */
static void spread(int who)
{
	cpu_set_t all, one;
	int nth = 0;

	if (sched_getaffinity(0, sizeof(all), &all) < 0)
		return;
	for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
		if (!CPU_ISSET(cpu, &all) || nth++ != who % CPU_COUNT(&all))
			continue;
		CPU_ZERO(&one);
		CPU_SET(cpu, &one);
		if (sched_setaffinity(0, sizeof(one), &one) == 0)
			(void)sched_setaffinity(0, sizeof(all), &all);
		return;
	}
}

static void kid(pid_t parent, int who, bool urgent)
{
	if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0 || getppid() != parent)
		_exit(EINTR);
	if (urgent)
		setpriority(PRIO_PROCESS, 0, URGENT);
	spread(who);
}

int crew_start(struct crew *c, size_t parts, int max, bool urgent, crew_work work, void *user, struct den_err *err)
{
	pid_t own = getpid();
	int n = MIN(MIN(MAX(processors(), 1), max), CREW_MAX);

	*c = (struct crew){ .count = mmap(NULL, sizeof(size_t), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0) };
	if (c->count == MAP_FAILED) {
		c->count = NULL;
		return den_fail_sys(err, errno, "memory");
	}
	while (c->n < n && (size_t)c->n < parts) {
		pid_t pid = fork();

		if (pid == 0) {
			int r;

			kid(own, c->n, urgent);
			r = labour(c->count, parts, work, user, c->n);
			_exit(MIN(r, ERRNO_MAX));
		}
		if (pid < 0 && c->n) /* fewer take longer */
			break;
		if (pid < 0)
			return den_fail_sys(err, errno, "fork");
		c->kids[c->n++] = pid;
	}
	return 0;
}

bool crew_await(const struct crew *c, bool (*stop)(void *user), void *user)
{
	struct pollfd p[CREW_MAX];
	bool stopped = false;
	int left = c->n;

	for (int i = 0; i < c->n; i++)
		p[i] = (struct pollfd){ .fd = (int)syscall(SYS_pidfd_open, c->kids[i], 0), .events = POLLIN };
	while (left > 0 && !stopped) {
		int n = poll(p, (nfds_t)c->n, STOP_MS);

		stopped = n == 0 && stop(user);
		left = 0;
		for (int i = 0; i < c->n; i++) {
			if (p[i].fd >= 0 && n > 0 && p[i].revents)
				fd_close(&p[i].fd);
			left += p[i].fd >= 0;
		}
	}
	for (int i = 0; i < c->n; i++)
		fd_close(&p[i].fd);
	return !stopped;
}

void crew_end(struct crew *c)
{
	for (int i = 0; i < c->n; i++)
		kill(c->kids[i], SIGKILL); /* ours, and not reaped */
	(void)crew_wait(c, "", NULL);
}

int crew_wait(struct crew *c, const char *what, struct den_err *err)
{
	int r = 0, status;

	for (int i = 0; i < c->n; i++) {
		while (waitpid(c->kids[i], &status, 0) < 0)
			if (errno != EINTR) {
				status = ECHILD << 8;
				break;
			}
		if (status == 0 || r)
			continue;
		r = WIFEXITED(status) && WEXITSTATUS(status) < ERRNO_MAX
			    ? den_fail_sys(err, WEXITSTATUS(status), "%s", what)
			    : den_fail(err, DEN_INTERNAL, 0, "%s: who did it was killed", what);
	}
	if (c->count)
		munmap(c->count, sizeof(size_t));
	*c = (struct crew){ 0 };
	return r;
}
