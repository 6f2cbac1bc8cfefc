/* The protocol, the one who starts many subjects, and what they share. */
#include "memory.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>

static const struct subject *const subjects[] = {
	&subject_counter,
	&subject_heap,
	&subject_large,
	&subject_inherited,
	&subject_maps,
	&subject_shm,
	&subject_memfd,
	&subject_files,
	&subject_deleted,
	&subject_locks,
	&subject_ofd,
	&subject_tmpfs,
	&subject_pipe,
	&subject_fifo,
	&subject_socketpair,
	&subject_unix,
	&subject_dgram,
	&subject_rights,
	&subject_tcp,
	&subject_transfer,
	&subject_udp,
	&subject_threads,
	&subject_robust,
	&subject_children,
	&subject_orphan,
	&subject_signals,
	&subject_timers, &subject_timerfd,
	&subject_sleep,
	&subject_clock,
	&subject_events,
	&subject_semaphore, &subject_inotify,
	&subject_pty,
	&subject_self,
	&subject_user,
};

#define N_SUBJECTS (sizeof(subjects) / sizeof(subjects[0]))
#define ANSWER_MS 30000
#define LINE 400

unsigned steps;
static char first_wrong[LINE], left_out[LINE];

void wrong(const char *fmt, ...)
{
	va_list ap;

	if (first_wrong[0])
		return;
	va_start(ap, fmt);
	vsnprintf(first_wrong, sizeof(first_wrong), fmt, ap);
	va_end(ap);
}

void cannot(const char *fmt, ...)
{
	va_list ap;

	printf("FAIL: setting up: ");
	va_start(ap, fmt);
	vprintf(fmt, ap);
	va_end(ap);
	printf("\n");
	fflush(stdout);
	_exit(1);
}

void without(const char *fmt, ...)
{
	size_t n = strlen(left_out);
	va_list ap;

	n += (size_t)snprintf(left_out + n, sizeof(left_out) - n, "%s", n ? ", " : " without ");
	va_start(ap, fmt);
	vsnprintf(left_out + n, sizeof(left_out) - n, fmt, ap);
	va_end(ap);
}

uint64_t mix(uint64_t x)
{
	x += 0x9e3779b97f4a7c15u;
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
	return x ^ (x >> 31);
}

void fill(void *to, size_t n, uint64_t seed)
{
	unsigned char *p = to;

	for (size_t i = 0; i < n; i++)
		p[i] = (unsigned char)mix(seed * 1000003 + i);
}

bool filled(const void *at, size_t n, uint64_t seed)
{
	const unsigned char *p = at;

	for (size_t i = 0; i < n; i++)
		if (p[i] != (unsigned char)mix(seed * 1000003 + i)) {
			errno = EILSEQ;
			return false;
		}
	return true;
}

bool readable(int fd, int ms)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };
	int64_t end = mono_ns() + ms * 1000000LL;
	int n;

	do {
		n = poll(&p, 1, ms);
	} while (n < 0 && errno == EINTR && mono_ns() < end);
	return n == 1;
}

bool reads(int fd, size_t n, uint64_t seed)
{
	unsigned char *p = malloc(n);
	size_t have = 0;
	bool ok;

	while (have < n) {
		ssize_t got;

		if (!readable(fd, 5000)) {
			errno = ETIMEDOUT;
			break;
		}
		got = read(fd, p + have, n - have);
		if (got <= 0) {
			if (got == 0)
				errno = ENODATA;
			break;
		}
		have += (size_t)got;
	}
	ok = have == n && filled(p, n, seed);
	free(p);
	return ok;
}

bool writes(int fd, size_t n, uint64_t seed)
{
	unsigned char *p = malloc(n);
	size_t done = 0;

	fill(p, n, seed);
	while (done < n) {
		ssize_t put = write(fd, p + done, n - done);

		if (put <= 0)
			break;
		done += (size_t)put;
	}
	free(p);
	return done == n;
}

bool answers(int to, int from, char byte)
{
	char got = 0;

	if (write(to, &byte, 1) != 1)
		return false;
	if (!readable(from, 5000)) {
		errno = ETIMEDOUT;
		return false;
	}
	if (read(from, &got, 1) != 1)
		return false;
	errno = EILSEQ;
	return got == (char)(byte + 1);
}

pid_t echoing_child(int *fd)
{
	int pair[2];
	pid_t pid;
	char byte;

	MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
	pid = fork();
	MUST(pid >= 0);
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		close(pair[0]);
		while (read(pair[1], &byte, 1) == 1) {
			byte++;
			if (write(pair[1], &byte, 1) != 1)
				break;
		}
		_exit(0);
	}
	close(pair[1]);
	*fd = pair[0];
	return pid;
}

int touched(volatile unsigned char *p, bool write)
{
	int status = 0;
	pid_t pid = fork();

	if (pid == 0) {
		signal(SIGSEGV, SIG_DFL);
		if (write)
			*p = 1;
		else
			status = *p;
		_exit(0);
	}
	waitpid(pid, &status, 0);
	return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

int64_t mono_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000LL + t.tv_nsec;
}

void nap_ms(int ms)
{
	struct timespec t = { ms / 1000, ms % 1000 * 1000000L };

	while (nanosleep(&t, &t) < 0 && errno == EINTR)
		;
}

/* ---- one subject ---- */

static const struct subject *find(const char *name, size_t n)
{
	for (size_t i = 0; i < N_SUBJECTS; i++)
		if (strlen(subjects[i]->name) == n && memcmp(subjects[i]->name, name, n) == 0)
			return subjects[i];
	return NULL;
}

/* Everything a subject leaves is in a directory of its own, on the box's file system. */
static void own_directory(const char *name)
{
	char path[300];
	const char *top = getenv("MEMORY_DIR");

	if (!top)
		top = getenv("HOME");
	snprintf(
		path, sizeof(path), "%s/memory-%s-%d", top ? top : "/var/tmp", name, (int)getpid());
	MUST(mkdir(path, 0755) == 0);
	MUST(chdir(path) == 0);
}

static void obey(const struct subject *s, const char *word)
{
	char answer[LINE] = "";

	first_wrong[0] = '\0';
	if (strcmp(word, "check") == 0)
		s->check();
	else if (strcmp(word, "count") == 0)
		snprintf(answer, sizeof(answer), " %u", steps);
	else if (strcmp(word, "step") == 0) {
		steps++;
		if (s->step)
			s->step();
	} else if (s->word && s->word(word, answer + 1, sizeof(answer) - 1))
		answer[0] = ' ';
	else
		wrong("'%s' is not understood", word);
	if (first_wrong[0])
		printf("FAIL: %s\n", first_wrong);
	else
		printf("ok%s\n", answer);
	fflush(stdout);
}

static int be(const char *spec)
{
	const char *eq = strchr(spec, '=');
	const struct subject *s = find(spec, eq ? (size_t)(eq - spec) : strlen(spec));
	char line[LINE];

	if (!s) {
		printf("FAIL: there is no subject '%s'\n", spec);
		return 2;
	}
	own_directory(s->name);
	s->setup(eq ? eq + 1 : NULL);
	s->check();
	if (first_wrong[0]) {
		printf("FAIL: before it began: %s\n", first_wrong);
		fflush(stdout);
		_exit(1);
	}
	printf("ready%s\n", left_out);
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin)) {
		line[strcspn(line, "\n")] = '\0';
		obey(s, line);
	}
	fflush(stdout);
	/* Children that answer see the end of their pipes; threads end with us. */
	_exit(0);
}

/* ---- many ---- */

struct one {
	char spec[700], name[60];
	pid_t pid;
	int to, from;
};

static socklen_t place(struct sockaddr_un *a)
{
	memset(a, 0, sizeof(*a));
	a->sun_family = AF_UNIX;
	strcpy(a->sun_path + 1, "memory");
	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen("memory"));
}

/* What a command line is called: the last name in it. */
static void call(struct one *o)
{
	const char *p = strrchr(o->spec, '/');
	size_t n;

	p = p ? p + 1 : o->spec;
	n = strspn(p, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._=-");
	snprintf(o->name, sizeof(o->name), "%.*s", n ? (int)n : 7, n ? p : "command");
}

/* One line of it, without its end; false: none came. */
static bool hear(int fd, char *line, size_t size)
{
	size_t n = 0;

	for (;;) {
		char c;

		if (!readable(fd, ANSWER_MS) || read(fd, &c, 1) != 1)
			return false;
		if (c == '\n') {
			line[n] = '\0';
			return true;
		}
		if (n + 1 < size)
			line[n++] = c;
	}
}

static void start(struct one *o)
{
	int in[2], out[2];

	MUST(pipe2(in, O_CLOEXEC) == 0);
	MUST(pipe2(out, O_CLOEXEC) == 0);
	o->pid = fork();
	MUST(o->pid >= 0);
	if (o->pid == 0) {
		dup2(in[0], 0);
		dup2(out[1], 1);
		if (strchr(o->spec, '/'))
			execl("/bin/sh", "sh", "-c", o->spec, (char *)NULL);
		else
			execl("/proc/self/exe", "memory", o->spec, (char *)NULL);
		_exit(127);
	}
	close(in[0]);
	close(out[1]);
	o->to = in[1];
	o->from = out[0];
}

/* The reply to one who asked: "WORD [SUBJECT]" on a line. */
static void serve(int client, struct one *ones, size_t n)
{
	char line[LINE], word[LINE], answer[LINE], *only;

	if (!hear(client, line, sizeof(line)))
		return;
	only = strchr(line, ' ');
	if (only)
		*only++ = '\0';
	snprintf(word, sizeof(word), "%.300s\n", line);
	for (size_t i = 0; i < n; i++)
		if ((!only || strcmp(only, ones[i].name) == 0) &&
			write(ones[i].to, word, strlen(word)) < 0)
			dprintf(2, "%s: %s\n", ones[i].name, strerror(errno));
	for (size_t i = 0; i < n; i++) {
		if (only && strcmp(only, ones[i].name) != 0)
			continue;
		if (!hear(ones[i].from, answer, sizeof(answer))) {
			int status = 0;

			if (waitpid(ones[i].pid, &status, WNOHANG) > 0)
				snprintf(answer, sizeof(answer), "FAIL: it has ended: %#x",
					(unsigned)status);
			else
				snprintf(answer, sizeof(answer), "FAIL: no answer");
		}
		dprintf(client, "%s %s\n", ones[i].name, answer);
	}
}

static int all(char **specs)
{
	static struct one ones[64];
	struct sockaddr_un a;
	int s = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), bad = 0;
	socklen_t len;
	size_t n = 0;

	signal(SIGPIPE, SIG_IGN);
	len = place(&a);
	MUST(s >= 0 && bind(s, (void *)&a, len) == 0 && listen(s, 8) == 0);
	for (; *specs && n < sizeof(ones) / sizeof(ones[0]); specs++, n++) {
		snprintf(ones[n].spec, sizeof(ones[n].spec), "%s", *specs);
		call(&ones[n]);
		start(&ones[n]);
	}
	for (size_t i = 0; i < n; i++) {
		char line[LINE] = "FAIL: ended before it was ready";

		hear(ones[i].from, line, sizeof(line));
		if (strcmp(line, "ready") != 0)
			printf("%s %s\n", ones[i].name, line);
		bad |= strncmp(line, "ready", 5) != 0;
	}
	printf(bad ? "not ready\n" : "ready\n");
	fflush(stdout);
	if (bad)
		return 1;
	for (;;) {
		int client = accept4(s, NULL, NULL, SOCK_CLOEXEC);

		if (client < 0)
			continue;
		serve(client, ones, n);
		close(client);
	}
}

static int ask(const char *word, const char *only)
{
	struct sockaddr_un a;
	int s = socket(AF_UNIX, SOCK_STREAM, 0), bad = 0, lines = 0;
	socklen_t len = place(&a);
	char line[LINE];

	if (s < 0 || connect(s, (void *)&a, len) < 0) {
		perror("memory ask: nobody listens");
		return 2;
	}
	dprintf(s, "%s%s%s\n", word, only ? " " : "", only ? only : "");
	for (; hear(s, line, sizeof(line)); lines++) {
		const char *answer = strchr(line, ' ');

		puts(line);
		bad |= !answer || strncmp(answer, " ok", 3) != 0;
	}
	if (!lines)
		puts("FAIL: nobody answered");
	return bad || !lines;
}

int main(int argc, char **argv)
{
	setvbuf(stdout, NULL, _IOFBF, 0);
	if (argc == 2 && strcmp(argv[1], "list") == 0) {
		for (size_t i = 0; i < N_SUBJECTS; i++)
			puts(subjects[i]->name);
		return 0;
	}
	if (argc > 2 && strcmp(argv[1], "all") == 0)
		return all(argv + 2);
	if ((argc == 3 || argc == 4) && strcmp(argv[1], "ask") == 0)
		return ask(argv[2], argv[3]);
	if (argc == 2)
		return be(argv[1]);
	fprintf(stderr, "usage: memory SUBJECT | all SUBJECT... | ask WORD [SUBJECT] | list\n");
	return 2;
}
