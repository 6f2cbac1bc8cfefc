/*
 * Reads and writes files, and says how long it took: the same program on the host, in a box, in another
 * runtime's container. The clock starts and stops inside, so that getting in is not part of it.
 *
 *   io DIR WHAT...         each "label <tab> nanoseconds" on standard output
 *   io DIR run LABEL ARGV  the same for a program, from vfork to its end; its output goes nowhere
 *   io DIR fill NAME BYTES FILES   makes DIR/NAME, nothing timed: FILES files of BYTES together
 *
 * "setup" makes what the others read; "listed" reads the files that DIR/list names. Files are small
 * ones of 1 to 8 KiB, 100 in a directory, and one of 256 MiB; all of it random, so that nothing can be
 * stored in less. "Cold" is: the kernel was told (POSIX_FADV_DONTNEED) to forget the content, while
 * names and inodes stay known.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define BIG (256UL << 20)
#define CHUNK (1UL << 20)
#define BLOCK 4096
#define RANDOM_WARM 20000
#define RANDOM_COLD 1000
#define SMALL 5000
#define PER_DIR 100
#define APPENDS 20000
#define SYNCED 50

static char buffer[CHUNK];
static uint64_t seed = 88172645463325252ULL;

static uint64_t rnd(void)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	return seed ^= seed << 17;
}

static void scramble(char *p, size_t n)
{
	for (size_t i = 0; i + 8 <= n; i += 8) {
		uint64_t v = rnd();

		memcpy(p + i, &v, 8);
	}
}

static int64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

static void tell(const char *label, int64_t since)
{
	printf("%s\t%lld\n", label, (long long)(now_ns() - since));
}

static void die(const char *what)
{
	fprintf(stderr, "io: %s: %s\n", what, strerror(errno));
	exit(1);
}

static int open_or_die(const char *path, int flags)
{
	int fd = open(path, flags | O_CLOEXEC, 0644);

	if (fd < 0)
		die(path);
	return fd;
}

static void close_synced(int fd, bool sync)
{
	if ((sync && fsync(fd) < 0) || close(fd) < 0)
		die("write out");
}

/* ---- files ---- */

static void write_all(int fd, size_t n)
{
	while (n) {
		size_t part = n < CHUNK ? n : CHUNK;
		ssize_t done;

		scramble(buffer, 64); /* no two parts alike */
		done = write(fd, buffer, part);
		if (done <= 0)
			die("write");
		n -= (size_t)done;
	}
}

static void make_file(const char *path, size_t size, bool sync)
{
	int fd = open_or_die(path, O_WRONLY | O_CREAT | O_TRUNC);

	write_all(fd, size);
	close_synced(fd, sync);
}

static size_t small_size(int i)
{
	return 1024 + (size_t)(i * 7919 % 7168);
}

static const char *small_name(const char *top, int i)
{
	static char path[256];

	snprintf(path, sizeof(path), "%s/d%02d/f%05d", top, i / PER_DIR, i);
	return path;
}

static void make_dirs(const char *top, int files)
{
	char path[256];

	if (mkdir(top, 0755) < 0 && errno != EEXIST)
		die(top);
	for (int d = 0; d <= (files - 1) / PER_DIR; d++) {
		snprintf(path, sizeof(path), "%s/d%02d", top, d);
		if (mkdir(path, 0755) < 0 && errno != EEXIST)
			die(path);
	}
}

static void remove_dirs(const char *top, int files)
{
	char path[256];

	for (int d = 0; d <= (files - 1) / PER_DIR; d++) {
		snprintf(path, sizeof(path), "%s/d%02d", top, d);
		rmdir(path);
	}
	rmdir(top);
}

/* What is dirty here is written out: it is not to be part of what comes next. */
static void settle(void)
{
	int fd = open_or_die(".", O_RDONLY | O_DIRECTORY);

	syncfs(fd);
	close(fd);
}

static void setup(void)
{
	make_file("big", BIG, true);
	make_dirs("small", SMALL);
	for (int i = 0; i < SMALL; i++)
		make_file(small_name("small", i), small_size(i), false);
	settle();
}

static void fill(const char *name, size_t bytes, int files)
{
	if (files == 1) {
		make_file(name, bytes, false);
		return;
	}
	make_dirs(name, files);
	for (int i = 0; i < files; i++)
		make_file(small_name(name, i), bytes / (size_t)files, false);
}

/* ---- reading ---- */

static void forget(const char *path)
{
	int fd = open_or_die(path, O_RDONLY);

	posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
	close(fd);
}

static void read_file(const char *path)
{
	int fd = open_or_die(path, O_RDONLY);
	ssize_t n;

	while ((n = read(fd, buffer, 128 << 10)) > 0)
		;
	if (n < 0)
		die(path);
	close(fd);
}

static void read_random(const char *label, int count)
{
	int fd = open_or_die("big", O_RDONLY);
	int64_t since = now_ns();

	for (int i = 0; i < count; i++)
		if (pread(fd, buffer, BLOCK, (off_t)(rnd() % (BIG / BLOCK) * BLOCK)) != BLOCK)
			die("big");
	tell(label, since);
	close(fd);
}

static void read_small(const char *label)
{
	int64_t since = now_ns();

	for (int i = 0; i < SMALL; i++)
		read_file(small_name("small", i));
	tell(label, since);
}

static void stat_small(void)
{
	int64_t since = now_ns();
	struct stat st;

	for (int i = 0; i < SMALL; i++)
		if (stat(small_name("small", i), &st) < 0)
			die("stat");
	tell("stat 5,000 files", since);
}

static void reads(void)
{
	int64_t since;

	forget("big");
	since = now_ns();
	read_file("big");
	tell("read 256 MiB, cold", since);
	since = now_ns();
	read_file("big");
	tell("read 256 MiB, warm", since);
	read_random("20,000 random reads of 4 KiB, warm", RANDOM_WARM);
	forget("big");
	read_random("1,000 random reads of 4 KiB, cold", RANDOM_COLD);
	for (int i = 0; i < SMALL; i++)
		forget(small_name("small", i));
	read_small("read 5,000 small files, cold");
	read_small("read 5,000 small files, warm");
	stat_small();
}

/* Files that were there before: of a template. */
static void listed(void)
{
	static const char *const labels[] = { "read 5,000 files of the template, cold",
		"read 5,000 files of the template, warm" };

	for (int pass = -1; pass < 2; pass++) {
		FILE *f = fopen("list", "re");
		int64_t since = now_ns();
		char path[512];

		if (!f)
			die("list");
		while (fgets(path, sizeof(path), f)) {
			path[strcspn(path, "\n")] = '\0';
			if (pass < 0)
				forget(path);
			else
				read_file(path);
		}
		if (pass >= 0)
			tell(labels[pass], since);
		fclose(f);
	}
}

/* ---- writing ---- */

static void write_big(void)
{
	int64_t since = now_ns();

	make_file("new", BIG, true);
	tell("write 256 MiB and fsync", since);
	if (unlink("new") < 0)
		die("new");
}

static void append(void)
{
	int fd = open_or_die("log", O_WRONLY | O_CREAT | O_TRUNC | O_APPEND);
	int64_t since = now_ns();

	for (int i = 0; i < APPENDS; i++)
		if (write(fd, buffer, 128) != 128)
			die("log");
	close_synced(fd, true);
	tell("20,000 appends of 128 bytes and fsync", since);
	unlink("log");
}

/* Names come, change and go; what is in the files stays in memory, as with any tool that does not sync. */
static void names(void)
{
	char to[300];
	int64_t since;

	make_dirs("many", SMALL);
	since = now_ns();
	for (int i = 0; i < SMALL; i++)
		make_file(small_name("many", i), small_size(i), false);
	tell("create 5,000 small files", since);
	since = now_ns();
	for (int i = 0; i < SMALL; i++) {
		const char *from = small_name("many", i);

		snprintf(to, sizeof(to), "%s.new", from);
		if (rename(from, to) < 0)
			die(from);
	}
	tell("rename 5,000 files", since);
	since = now_ns();
	for (int i = 0; i < SMALL; i++) {
		snprintf(to, sizeof(to), "%s.new", small_name("many", i));
		if (unlink(to) < 0)
			die(to);
	}
	tell("unlink 5,000 files", since);
	remove_dirs("many", SMALL);
}

static void synced(void)
{
	int64_t since;

	make_dirs("synced", SYNCED);
	since = now_ns();
	for (int i = 0; i < SYNCED; i++)
		make_file(small_name("synced", i), small_size(i), true);
	tell("create 50 small files, fsync each", since);
	for (int i = 0; i < SYNCED; i++)
		unlink(small_name("synced", i));
	remove_dirs("synced", SYNCED);
}

static void writes(void)
{
	settle();
	write_big();
	settle();
	append();
	synced();
	settle();
	names();
	settle();
}

/* ---- programs ---- */

static int run(const char *label, char **argv)
{
	extern char **environ;
	posix_spawn_file_actions_t fa;
	int64_t since;
	int status;
	pid_t pid;

	posix_spawn_file_actions_init(&fa);
	posix_spawn_file_actions_addopen(&fa, 0, "/dev/null", O_RDONLY, 0);
	posix_spawn_file_actions_addopen(&fa, 1, "/dev/null", O_WRONLY, 0);
	settle();
	since = now_ns();
	errno = posix_spawnp(&pid, argv[0], &fa, NULL, argv, environ);
	if (errno)
		die(argv[0]);
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	tell(label, since);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

static const struct {
	const char *name;
	void (*run)(void);
} actions[] = {
	{ "setup", setup },
	{ "reads", reads },
	{ "listed", listed },
	{ "writes", writes },
	{ "settle", settle },
};

int main(int argc, char **argv)
{
	size_t n = sizeof(actions) / sizeof(*actions);

	if (argc < 3 || chdir(argv[1]) < 0) {
		fprintf(stderr, "io DIR setup|reads|listed|writes|settle..., io DIR run LABEL ARGV, "
				"io DIR fill NAME BYTES FILES\n");
		return 2;
	}
	seed ^= (uint64_t)now_ns();
	scramble(buffer, sizeof(buffer));
	if (!strcmp(argv[2], "run") && argc > 4)
		return run(argv[3], argv + 4);
	if (!strcmp(argv[2], "fill") && argc == 6) {
		fill(argv[3], strtoul(argv[4], NULL, 10), atoi(argv[5]));
		return 0;
	}
	for (int i = 2; i < argc; i++) {
		size_t a = 0;

		while (a < n && strcmp(argv[i], actions[a].name))
			a++;
		if (a == n) {
			fprintf(stderr, "io: '%s' is nothing that can be done\n", argv[i]);
			return 2;
		}
		actions[a].run();
	}
	return 0;
}
