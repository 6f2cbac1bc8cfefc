/* Descriptors through which things are told: eventfd, signalfd, epoll, inotify. */
#include "memory.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/signalfd.h>
#include <sys/stat.h>

static int e_count, e_signal, e_epoll, e_pipe[2], e_idle[2];

static void watch(int fd, uint32_t events, uint64_t data)
{
	struct epoll_event e = { .events = events, .data.u64 = data };

	MUST(epoll_ctl(e_epoll, EPOLL_CTL_ADD, fd, &e) == 0);
}

static void events_setup(const char *argument)
{
	sigset_t set;

	(void)argument;
	e_count = eventfd(5, EFD_NONBLOCK);
	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	MUST(sigprocmask(SIG_BLOCK, &set, NULL) == 0);
	e_signal = signalfd(-1, &set, 0);
	e_epoll = epoll_create1(EPOLL_CLOEXEC);
	MUST(e_count >= 0 && e_signal >= 0 && e_epoll >= 0);
	MUST(pipe(e_pipe) == 0 && pipe(e_idle) == 0 && writes(e_pipe[1], 10, 1));
	MUST(raise(SIGUSR1) == 0);
	watch(e_pipe[0], EPOLLIN, 0x1111111111ULL);
	watch(e_idle[0], EPOLLIN | EPOLLET, 0x2222222222ULL);
	watch(e_signal, EPOLLIN, 0x3333333333ULL);
}

/* What epoll tells now, as a sum of what was given to it. */
static uint64_t told(int ms)
{
	struct epoll_event e[8];
	int n = epoll_wait(e_epoll, e, 8, ms);
	uint64_t sum = 0;

	for (int i = 0; i < n; i++)
		sum += e[i].data.u64;
	return sum;
}

static void events_check(void)
{
	struct signalfd_siginfo i;
	uint64_t n = 0;

	IS(told(0), 0x4444444444ULL);
	CHECK(writes(e_idle[1], 1, 2));
	IS(told(1000), 0x6666666666ULL);
	IS(told(0), 0x4444444444ULL); /* that one tells once */
	CHECK(reads(e_idle[0], 1, 2));
	CHECK(read(e_count, &n, 8) == 8);
	IS(n, 5);
	CHECK(read(e_count, &n, 8) < 0 && errno == EAGAIN);
	n = 5;
	CHECK(write(e_count, &n, 8) == 8);
	CHECK(readable(e_signal, 0) && read(e_signal, &i, sizeof(i)) == sizeof(i));
	IS(i.ssi_signo, SIGUSR1);
	CHECK(!readable(e_signal, 0));
	CHECK(raise(SIGUSR1) == 0);
}

const struct subject subject_events = { "events", events_setup, events_check, NULL, NULL };

/* ---- semaphore: an eventfd that gives one at a time ---- */

static int e_sem;

static void semaphore_setup(const char *argument)
{
	(void)argument;
	e_sem = eventfd(3, EFD_SEMAPHORE | EFD_CLOEXEC);
	MUST(e_sem >= 0);
}

static void semaphore_check(void)
{
	uint64_t n = 0;

	CHECK(read(e_sem, &n, 8) == 8);
	IS(n, 1);
	n = 1;
	CHECK(write(e_sem, &n, 8) == 8);
	IS(fcntl(e_sem, F_GETFD), FD_CLOEXEC);
}

const struct subject subject_semaphore = { "semaphore", semaphore_setup, semaphore_check, NULL, NULL };

/* ---- inotify: what happens in a directory is told. What was told and not read yet may be lost. ---- */

static int i_fd, i_watch;

static void inotify_setup(const char *argument)
{
	(void)argument;
	MUST(mkdir("watched", 0755) == 0);
	i_fd = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
	MUST(i_fd >= 0);
	i_watch = inotify_add_watch(i_fd, "watched", IN_CREATE | IN_DELETE);
	MUST(i_watch >= 0);
}

static bool tells(uint32_t mask, const char *name)
{
	union {
		struct inotify_event e;
		char room[sizeof(struct inotify_event) + 260];
	} u;

	/* One at a time: the room is for no two of them with our names. */
	return readable(i_fd, 3000) && read(i_fd, &u, sizeof(struct inotify_event) + 32) > 0 &&
	       u.e.wd == i_watch && u.e.mask == mask && strcmp(u.e.name, name) == 0;
}

static void inotify_check(void)
{
	char name[40], path[60];
	int fd;

	while (read(i_fd, &(char[600]){ 0 }, 600) > 0)
		;
	snprintf(name, sizeof(name), "f%09lld-abcdefghijk", (long long)(mono_ns() % 1000000000));
	snprintf(path, sizeof(path), "watched/%s", name);
	fd = open(path, O_WRONLY | O_CREAT | O_EXCL, 0600);
	CHECK(fd >= 0);
	close(fd);
	CHECK(tells(IN_CREATE, name));
	CHECK(unlink(path) == 0);
	CHECK(tells(IN_DELETE, name));
	IS(inotify_add_watch(i_fd, "watched", IN_CREATE | IN_DELETE), i_watch);
}

const struct subject subject_inotify = { "inotify", inotify_setup, inotify_check, NULL, NULL };
