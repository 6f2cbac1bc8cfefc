/*
 * Programs that are carried: each sets up one kind of state, and can say at any time, again and again,
 * whether all of it is still there. What is carried through a checkpoint must not notice.
 *
 *   memory SUBJECT[=ARGUMENT]   sets it up, prints "ready", and obeys lines on its standard input:
 *                                 check   looks at everything: "ok", or "FAIL: what"
 *                                 step    changes the state: "ok"
 *                                 count   how many steps it made: "ok N"
 *                                 ...     what else the subject knows
 *   memory all SUBJECT...       starts each of them and listens for `memory ask`; one with a / in it is a command
 *                               line of another program that speaks the same protocol
 *   memory ask WORD [SUBJECT]   tells all (or one) and prints their answers; status 1 if one is not "ok"
 *   memory list                 the subjects
 *
 * A check puts back what it took (bytes from a pipe, a signal), so that the next one finds the same.
 */
#pragma once

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

struct subject {
	const char *name;
	void (*setup)(const char *argument); /* NULL argument: none given */
	void (*check)(void);
	void (*step)(void); /* NULL: only the count of steps changes */
	/* Words of its own; NULL: none. Writes its answer after "ok ", or returns false: unknown. */
	bool (*word)(const char *word, char *answer, size_t size);
};

/* How often "step" was said; part of what is carried. */
extern unsigned steps;

/* Remembers what is wrong; the check goes on, and the first is told. */
__attribute__((format(printf, 1, 2))) void wrong(const char *fmt, ...);
/* In setup(): this cannot even begin. */
__attribute__((format(printf, 1, 2), noreturn)) void cannot(const char *fmt, ...);
/* A part that this kernel does not have is left out of the checks, and told at "ready". */
__attribute__((format(printf, 1, 2))) void without(const char *fmt, ...);

#define CHECK(cond) ((cond) ? (void)0 : wrong("%s (%s)", #cond, strerror(errno)))
#define IS(got, want)                                                                              \
	do {                                                                                       \
		long long got_ = (long long)(got), want_ = (long long)(want);                      \
		if (got_ != want_)                                                                 \
			wrong("%s is %lld, not %lld (%s)", #got, got_, want_, strerror(errno));    \
	} while (0)
#define MUST(cond) ((cond) ? (void)0 : cannot("%s: %s", #cond, strerror(errno)))

/* Bytes that only (seed, position) decide. */
uint64_t mix(uint64_t x);
void fill(void *to, size_t n, uint64_t seed);
bool filled(const void *p, size_t n, uint64_t seed);
/* Reads exactly n bytes and says whether they are fill(seed). */
bool reads(int fd, size_t n, uint64_t seed);
/* Writes them all. */
bool writes(int fd, size_t n, uint64_t seed);
/* One byte there, one byte back, within some seconds: whoever reads `to` and answers at `from` lives. */
bool answers(int to, int from, char byte);
/* Is there something to read (or an end) within ms? */
bool readable(int fd, int ms);
/* A child that answers each byte with the next one, until its end of the pair is closed. */
pid_t echoing_child(int *fd);
/* What a child dies of that touches it; 0: it does not. */
int touched(volatile unsigned char *p, bool write);
int64_t mono_ns(void);
void nap_ms(int ms);

extern const struct subject subject_counter, subject_heap, subject_large, subject_inherited, subject_maps, subject_shm, subject_memfd;
extern const struct subject subject_files, subject_deleted, subject_locks, subject_ofd,
	subject_tmpfs;
extern const struct subject subject_pipe, subject_fifo;
extern const struct subject subject_socketpair, subject_unix, subject_dgram, subject_rights;
extern const struct subject subject_tcp, subject_transfer, subject_udp;
extern const struct subject subject_threads, subject_robust;
extern const struct subject subject_children, subject_orphan;
extern const struct subject subject_signals;
extern const struct subject subject_timers, subject_timerfd, subject_sleep, subject_clock;
extern const struct subject subject_events, subject_semaphore, subject_inotify;
extern const struct subject subject_pty, subject_self, subject_user;
