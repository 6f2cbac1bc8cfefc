/* Time: what is to happen later happens then, and no clock goes back. */
#include "memory.h"

#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <time.h>

#define SECOND 1000000000LL
#define HOUR (3600 * SECOND)
/* How much later than due something may be found on a busy machine. */
#define LATE (20 * SECOND)

/* ---- timers ---- */

static volatile sig_atomic_t alarms, posix_ticks;
static timer_t t_tick, t_far;
static int fd_far, fd_wall;
static int64_t far_due, wall_due;

static void on_alarm(int sig)
{
	(void)sig;
	alarms++;
}

static void on_posix(int sig)
{
	(void)sig;
	posix_ticks++;
}

static struct itimerspec every(int64_t first, int64_t interval)
{
	struct itimerspec s;

	s.it_value.tv_sec = first / SECOND;
	s.it_value.tv_nsec = first % SECOND;
	s.it_interval.tv_sec = interval / SECOND;
	s.it_interval.tv_nsec = interval % SECOND;
	return s;
}

static int64_t left(const struct itimerspec *s)
{
	return s->it_value.tv_sec * SECOND + s->it_value.tv_nsec;
}

static int64_t wall_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_REALTIME, &t);
	return t.tv_sec * SECOND + t.tv_nsec;
}

static void timers_setup(const char *argument)
{
	struct itimerval v = { { 0, 50000 }, { 0, 50000 } }, cpu = { { 0, 0 }, { 5000, 0 } };
	struct sigevent e = { .sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGRTMIN + 1 };
	struct itimerspec tick = every(30000000, 30000000), far = every(HOUR, 0);
	struct sigaction a = { .sa_handler = on_alarm, .sa_flags = SA_RESTART },
			 p = { .sa_handler = on_posix, .sa_flags = SA_RESTART };

	(void)argument;
	MUST(sigaction(SIGALRM, &a, NULL) == 0 && sigaction(SIGRTMIN + 1, &p, NULL) == 0);
	MUST(setitimer(ITIMER_REAL, &v, NULL) == 0 && setitimer(ITIMER_VIRTUAL, &cpu, NULL) == 0);
	MUST(timer_create(CLOCK_MONOTONIC, &e, &t_tick) == 0 &&
		timer_settime(t_tick, 0, &tick, NULL) == 0);
	MUST(timer_create(CLOCK_MONOTONIC, &e, &t_far) == 0 &&
		timer_settime(t_far, 0, &far, NULL) == 0);
	fd_far = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC);
	fd_wall = timerfd_create(CLOCK_REALTIME, 0);
	far_due = mono_ns() + HOUR;
	wall_due = wall_ns() + HOUR;
	far = every(far_due, 0);
	MUST(fd_far >= 0 && timerfd_settime(fd_far, TFD_TIMER_ABSTIME, &far, NULL) == 0);
	far = every(wall_due, 0);
	MUST(fd_wall >= 0 && timerfd_settime(fd_wall, TFD_TIMER_ABSTIME, &far, NULL) == 0);
}

/* Waits until a counter has moved on by two. */
static bool moves(volatile sig_atomic_t *n)
{
	sig_atomic_t from = *n;
	int64_t end = mono_ns() + LATE;

	while (*n < from + 2 && mono_ns() < end)
		nap_ms(5);
	return *n >= from + 2;
}

/* It may be late by the time that it was put away, never early. */
static void near(const char *what, int64_t got, int64_t want)
{
	if (got < want - SECOND || got > HOUR)
		wrong("%s: %lld ms left, not %lld", what, (long long)got / 1000000, (long long)want / 1000000);
}

static void timers_check(void)
{
	struct itimerspec s = { 0 };
	struct itimerval v;

	CHECK(moves(&alarms));
	CHECK(moves(&posix_ticks));
	CHECK(timer_gettime(t_far, &s) == 0);
	near("a POSIX timer", left(&s), far_due - mono_ns());
	CHECK(timerfd_gettime(fd_far, &s) == 0);
	near("a timerfd", left(&s), far_due - mono_ns());
	CHECK(timerfd_gettime(fd_wall, &s) == 0);
	near("a timerfd of the wall clock", left(&s), wall_due - wall_ns());
	CHECK(!readable(fd_far, 0) && !readable(fd_wall, 0));
	CHECK(timer_gettime(t_tick, &s) == 0);
	IS(s.it_interval.tv_nsec, 30000000);
	CHECK(getitimer(ITIMER_REAL, &v) == 0);
	IS(v.it_interval.tv_usec, 50000);
	CHECK(getitimer(ITIMER_VIRTUAL, &v) == 0);
	CHECK(v.it_value.tv_sec > 4000 && v.it_value.tv_sec <= 5000);
}

const struct subject subject_timers = { "timers", timers_setup, timers_check, NULL, NULL };

/* ---- timerfd: it ticks, whether anybody looks or not ---- */

static int fd_tick;

static void timerfd_setup(const char *argument)
{
	struct itimerspec tick = every(30000000, 30000000);

	(void)argument;
	fd_tick = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK);
	MUST(fd_tick >= 0 && timerfd_settime(fd_tick, 0, &tick, NULL) == 0);
}

static void timerfd_check(void)
{
	struct itimerspec s = { 0 };
	uint64_t n = 0;

	for (int i = 0; i < 3; i++) {
		CHECK(readable(fd_tick, 5000));
		CHECK(read(fd_tick, &n, 8) == 8);
		CHECK(n >= 1);
	}
	CHECK(timerfd_gettime(fd_tick, &s) == 0);
	IS(s.it_interval.tv_nsec, 30000000);
	nap_ms(40); /* and again it is due */
}

const struct subject subject_timerfd = { "timerfd", timerfd_setup, timerfd_check, NULL, NULL };

/* ---- sleep: calls that wait, each for a time; none may return early or with an error ---- */

#define NAP (300 * 1000000LL)

enum { SLEEP_RELATIVE, SLEEP_ABSOLUTE, SLEEP_POLL, SLEEP_FUTEX, SLEEPS };

static volatile unsigned naps[SLEEPS], naps_seen[SLEEPS];
static volatile long nap_wrong[SLEEPS];

static long nap(uintptr_t kind, int64_t due)
{
	static uint32_t word;
	const struct timespec rel = { NAP / SECOND, NAP % SECOND };
	struct timespec at = { due / SECOND, due % SECOND };

	switch (kind) {
	case SLEEP_RELATIVE:
		return clock_nanosleep(CLOCK_MONOTONIC, 0, &rel, NULL);
	case SLEEP_ABSOLUTE:
		return clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL);
	case SLEEP_POLL:
		return poll(NULL, 0, NAP / 1000000) == 0 ? 0 : errno;
	default:
		return syscall(SYS_futex, &word, FUTEX_WAIT, 0, &rel, NULL, 0) < 0 &&
				       errno == ETIMEDOUT
			       ? 0
			       : errno + 1000;
	}
}

static void *sleeper(void *arg)
{
	uintptr_t kind = (uintptr_t)arg;

	for (;;) {
		int64_t due = mono_ns() + NAP;
		long r = nap(kind, due);

		if (r)
			nap_wrong[kind] = r;
		else if (mono_ns() < due - 2000000)
			nap_wrong[kind] = 9999;
		naps[kind]++;
	}
	return NULL;
}

static void sleep_setup(const char *argument)
{
	pthread_t t;

	(void)argument;
	for (uintptr_t i = 0; i < SLEEPS; i++)
		MUST(pthread_create(&t, NULL, sleeper, (void *)i) == 0);
}

static void sleep_check(void)
{
	int64_t end = mono_ns() + LATE;

	for (int i = 0; i < SLEEPS; i++) {
		while (naps[i] == naps_seen[i] && mono_ns() < end)
			nap_ms(2);
		if (naps[i] == naps_seen[i])
			wrong("sleeper %d does not wake", i);
		naps_seen[i] = naps[i];
		/* 9999: early. A call with a time of its own may be interrupted by being carried, as by a signal; one
		 * that waits for a point in time goes on. */
		if (nap_wrong[i] && (i == SLEEP_ABSOLUTE || nap_wrong[i] % 1000 != EINTR))
			wrong("sleeper %d: %ld", i, nap_wrong[i]);
	}
}

const struct subject subject_sleep = { "sleep", sleep_setup, sleep_check, NULL, NULL };

/* ---- clock: looks each two milliseconds; "gap" is the longest between two looks since the last "gap" ---- */

static volatile int64_t clock_last, clock_gap, clock_back;
static volatile uint64_t clock_looks, clock_seen;

static void *look(void *arg)
{
	int64_t boot_last = 0;

	(void)arg;
	for (;;) {
		struct timespec b;
		int64_t now = mono_ns(), boot;

		clock_gettime(CLOCK_BOOTTIME, &b);
		boot = b.tv_sec * SECOND + b.tv_nsec;
		if ((clock_last && now < clock_last) || boot < boot_last)
			clock_back = now - clock_last;
		if (clock_last && now - clock_last > clock_gap)
			clock_gap = now - clock_last;
		clock_last = now;
		boot_last = boot;
		clock_looks++;
		nap_ms(2);
	}
	return NULL;
}

static void clock_setup(const char *argument)
{
	pthread_t t;

	(void)argument;
	MUST(pthread_create(&t, NULL, look, NULL) == 0);
}

static void clock_check(void)
{
	int64_t end = mono_ns() + LATE;

	while (clock_looks < clock_seen + 3 && mono_ns() < end)
		nap_ms(1);
	CHECK(clock_looks > clock_seen);
	clock_seen = clock_looks;
	if (clock_back)
		wrong("a clock went back by %lld ns", (long long)-clock_back);
}

static bool clock_word(const char *word, char *answer, size_t size)
{
	if (strcmp(word, "gap") != 0)
		return false;
	snprintf(answer, size, "%lld", (long long)(clock_gap / 1000000));
	clock_gap = 0;
	return true;
}

const struct subject subject_clock = { "clock", clock_setup, clock_check, NULL, clock_word };
