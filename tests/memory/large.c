/* Much memory, of kinds that are easily mixed up: with holes, in parts that may not be written, shared with children, beside
 * what the kernel writes to by itself. */
#include "memory.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#define PAGE 4096UL
#define MB (1UL << 20)
#define GUARD_INSTALL 102 /* madvise(), since Linux 6.13 */

/* ---- holes: every third page is there, and pages that were only read ---- */

#define HOLES_PAGES (8 * MB / PAGE)

static unsigned char *holes;

static void holes_write(void)
{
	for (size_t i = 0; i < HOLES_PAGES; i += 3)
		fill(holes + i * PAGE, PAGE, 20 + i + (i % 30 == 0 ? steps * 100000 : 0));
}

static void holes_check(void)
{
	static const unsigned char zeros[PAGE];

	for (size_t i = 0; i < HOLES_PAGES; i++) {
		const unsigned char *p = holes + i * PAGE;

		if (i % 3 == 0 ? !filled(p, PAGE, 20 + i + (i % 30 == 0 ? steps * 100000 : 0)) : memcmp(p, zeros, PAGE) != 0) {
			wrong("page %zu of %lu with holes is not what it was", i, HOLES_PAGES);
			return;
		}
	}
}

/* ---- parts: one mapping with a part that may only be read, a part that may not be touched, and a guard ---- */

static unsigned char *parts;
static bool has_guard;

static void parts_setup(void)
{
	parts = mmap(NULL, 8 * MB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	MUST(parts != MAP_FAILED);
	fill(parts, 8 * MB, 21);
	MUST(mprotect(parts + 2 * MB, MB, PROT_READ) == 0);
	MUST(mprotect(parts + 4 * MB, MB, PROT_NONE) == 0);
	MUST(madvise(parts + 6 * MB, MB, MADV_DONTNEED) == 0);
	has_guard = madvise(parts + 7 * MB, PAGE, GUARD_INSTALL) == 0;
	if (!has_guard)
		without("guard pages");
}

static void parts_check(void)
{
	unsigned char *copy = malloc(8 * MB);
	static const unsigned char zeros[PAGE];

	MUST(copy);
	fill(copy, 8 * MB, 21);
	CHECK(memcmp(parts, copy, 4 * MB) == 0);
	CHECK(memcmp(parts + 5 * MB, copy + 5 * MB, MB) == 0);
	CHECK(memcmp(parts + 6 * MB, zeros, PAGE) == 0 && memcmp(parts + 7 * MB - PAGE, zeros, PAGE) == 0);
	CHECK(memcmp(parts + 7 * MB + PAGE, copy + 7 * MB + PAGE, MB - PAGE) == 0);
	IS(touched(parts + 2 * MB, true), SIGSEGV);
	IS(touched(parts + 4 * MB, false), SIGSEGV);
	IS(touched(parts + 7 * MB, false), has_guard ? SIGSEGV : 0);
	MUST(mprotect(parts + 4 * MB, MB, PROT_READ) == 0);
	CHECK(memcmp(parts + 4 * MB, copy + 4 * MB, MB) == 0);
	MUST(mprotect(parts + 4 * MB, MB, PROT_NONE) == 0);
	free(copy);
}

/* ---- inherited: a child that has the same memory until one of the two writes ---- */

static unsigned char *inherited;
static int child_fd = -1;

static long rollup(const char *key)
{
	FILE *f = fopen("/proc/self/smaps_rollup", "re");
	char line[128];
	long kb = -1;

	while (f && fgets(line, sizeof(line), f))
		if (!strncmp(line, key, strlen(key)))
			kb = strtol(line + strlen(key), NULL, 10);
	if (f)
		fclose(f);
	return kb;
}

/* 'y': all is there, and most of it shared. */
static char child_says(void)
{
	if (!filled(inherited, 4 * MB, 22) || !filled(inherited + 5 * MB, MB, 24))
		return 'n';
	return rollup("Pss:") > rollup("Rss:") * 3 / 4 ? 's' : 'y';
}

static void inherited_setup(const char *argument)
{
	int pair[2], back[2];
	char c;

	(void)argument;
	inherited = mmap(NULL, 24 * MB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	MUST(inherited != MAP_FAILED && pipe(pair) == 0 && pipe(back) == 0);
	for (int i = 0; i < 6; i++)
		fill(inherited + i * 4 * MB, 4 * MB, 22);
	if (fork() == 0) {
		close(pair[1]);
		fill(inherited + 5 * MB, MB, 24);
		while (read(pair[0], &c, 1) == 1) {
			c = child_says();
			(void)!write(back[1], &c, 1);
		}
		_exit(0);
	}
	close(pair[0]);
	close(back[1]);
	fill(inherited + 9 * MB, MB, 23);
	child_fd = back[0];
	MUST(dup2(pair[1], 200) == 200);
	close(pair[1]);
}

static void inherited_check(void)
{
	char c = 'q';

	CHECK(filled(inherited, 4 * MB, 22));
	CHECK(filled(inherited + 9 * MB, MB, 23));
	CHECK(write(200, &c, 1) == 1 && readable(child_fd, 10000) && read(child_fd, &c, 1) == 1);
	if (c == 's')
		wrong("what a child had from its parent takes memory of its own now");
	else
		IS(c, 'y');
}

const struct subject subject_inherited = { "inherited", inherited_setup, inherited_check, NULL, NULL };

/* ---- what the kernel writes: the number of the processor, for threads and for a program whose heap begins there ---- */

static unsigned char *beside;
static volatile bool thread_wrong, thread_look;
static volatile unsigned thread_looked;

static bool processor_is_right(void)
{
	for (int i = 0; i < 200; i++) {
		unsigned before, after;
		int cpu;

		MUST(syscall(SYS_getcpu, &before, NULL, NULL) == 0);
		cpu = sched_getcpu();
		MUST(syscall(SYS_getcpu, &after, NULL, NULL) == 0);
		if (before == after && cpu != (int)before)
			return false;
	}
	return true;
}

static void *deep(void *arg)
{
	unsigned char stack[3 * MB];

	(void)arg;
	fill(stack, sizeof(stack), 25);
	for (;;) {
		if (thread_look) {
			thread_wrong |= !filled(stack, sizeof(stack), 25) || !processor_is_right();
			thread_look = false;
			thread_looked++;
		}
		nap_ms(1);
	}
	return NULL;
}

static void kernel_check(void)
{
	int64_t end = mono_ns() + 10000000000LL;
	unsigned seen = thread_looked;

	CHECK(processor_is_right());
	CHECK(filled(beside, 4 * MB, 26));
	thread_look = true;
	while (thread_looked == seen && mono_ns() < end)
		nap_ms(1);
	CHECK(thread_looked != seen);
	CHECK(!thread_wrong);
}

/* ---- what the kernel may drop is in no image: with the next restore it is empty ---- */

#define DROPPABLE 0x08 /* mmap(), since Linux 6.11 */

static unsigned char *droppable;
static long first_generation;

static long generation(void)
{
	FILE *f = fopen("/run/den/generation", "re");
	long n = -1;

	if (f) {
		if (fscanf(f, "%ld", &n) != 1)
			n = -1;
		fclose(f);
	}
	return n;
}

static void droppable_setup(void)
{
	droppable = mmap(NULL, 4 * MB, PROT_READ | PROT_WRITE, DROPPABLE | MAP_ANONYMOUS, -1, 0);
	first_generation = generation();
	if (droppable == MAP_FAILED || first_generation < 0) {
		droppable = NULL;
		without("memory that may be dropped");
		return;
	}
	memset(droppable, 1, 4 * MB);
}

static void droppable_check(void)
{
	size_t there = 0;

	for (size_t i = 0; droppable && i < 4 * MB; i += PAGE)
		there += droppable[i] != 0;
	if (droppable && generation() != first_generation)
		IS(there, 0);
}

/* ---- large: all but the child, with whom it would be another matter ---- */

static void large_setup(const char *argument)
{
	pthread_t t;

	(void)argument;
	holes = mmap(NULL, HOLES_PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	MUST(holes != MAP_FAILED);
	holes_write();
	parts_setup();
	droppable_setup();
	beside = sbrk(4 * MB);
	MUST(beside != (void *)-1);
	fill(beside, 4 * MB, 26);
	MUST(pthread_create(&t, NULL, deep, NULL) == 0);
}

static void large_check(void)
{
	holes_check();
	parts_check();
	droppable_check();
	kernel_check();
}

const struct subject subject_large = { "large", large_setup, large_check, holes_write, NULL };
