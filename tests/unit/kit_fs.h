/* For tests of init's file operations, each in a process of its own as init runs them. */
#pragma once

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "buf.h"
#include "fd.h"
#include "fs_run.h"
#include "fsop.h"
#include "mem.h"
#include "test.h"

static char paths[8][300];

/* A path in the test's directory; eight may be in use at once. */
static inline char *in(const char *name)
{
	static unsigned next;
	char *p = paths[next++ % ARRAY_SIZE(paths)];

	snprintf(p, sizeof(paths[0]), "%s/%s", test_dir(), name);
	return p;
}

static inline void file_make(const char *path, const char *text, mode_t mode)
{
	auto_fd fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	CHECK(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
	CHECK(fchmod(fd, mode) == 0);
}

static inline bool holds(const char *path, const char *text)
{
	auto_fd fd = open(path, O_RDONLY | O_CLOEXEC);
	auto_free char *got = NULL;
	struct den_err err;

	return fd >= 0 && fd_read_all(fd, 1 << 20, &got, NULL, &err) == 0 && !strcmp(got, text);
}

static inline mode_t mode_of(const char *path)
{
	struct stat st;

	CHECK(lstat(path, &st) == 0);
	return st.st_mode;
}

static inline bool missing(const char *path)
{
	struct stat st;

	return lstat(path, &st) < 0 && errno == ENOENT;
}

static inline int names_in(const char *path)
{
	struct stat st;
	char cmd[400];
	FILE *f;
	int n = 0, c;

	CHECK(stat(path, &st) == 0);
	snprintf(cmd, sizeof(cmd), "ls -A '%s'", path);
	f = popen(cmd, "r");
	while ((c = fgetc(f)) != EOF)
		n += c == '\n';
	pclose(f);
	return n;
}

/* Starts an operation with these streams; its error comes through *report. */
static inline pid_t fs_start(int in_fd, int out_fd, int *report, char *const *argv)
{
	int p[2];
	pid_t pid;

	CHECK(pipe2(p, O_CLOEXEC) == 0);
	fflush(NULL);
	pid = fork();
	CHECK(pid >= 0);
	if (pid == 0) {
		struct den_err err = { 0 };
		int r;

		dup2(in_fd, 0);
		dup2(out_fd, 1);
		dup2(p[1], 3);
		fd_close_from(4); /* among them the other ends of its pipes */
		r = fs_run(argv, &err);
		CHECK(r == 0 || err.code != DEN_OK);
		if (write(3, &err, sizeof(err)) != sizeof(err))
			_exit(99);
		exit(r == 0 ? 0 : 1); /* with exit handlers, so that leak checking runs */
	}
	close(p[1]);
	*report = p[0];
	return pid;
}

static inline int fs_end(pid_t pid, int report, struct den_err *err)
{
	int status;

	CHECK(read(report, err, sizeof(*err)) == sizeof(*err));
	close(report);
	CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status));
	CHECK(WEXITSTATUS(status) <= 1);
	return WEXITSTATUS(status) ? -1 : 0;
}

struct result {
	int r;
	struct den_err err;
	struct buf out;
};
static struct result last; /* of the last operation */

static inline int fs_with(const void *input, size_t n, char *const *argv)
{
	auto_fd in_fd = memfd_create("in", MFD_CLOEXEC), out_fd = memfd_create("out", MFD_CLOEXEC);
	pid_t pid;
	int report;

	CHECK(write(in_fd, input, n) == (ssize_t)n && lseek(in_fd, 0, SEEK_SET) == 0);
	pid = fs_start(in_fd, out_fd, &report, argv);
	last.r = fs_end(pid, report, &last.err);
	buf_free(&last.out);
	lseek(out_fd, 0, SEEK_SET);
	CHECK(fd_read_all(out_fd, 64 << 20, &last.out.p, &last.out.len, &last.err) == 0);
	return last.r;
}
#define ARGV(...) ((char *const[]){ __VA_ARGS__, NULL })
#define FS(...) fs_with("", 0, ARGV(__VA_ARGS__))
#define FS_IN(text, ...) fs_with(text, strlen(text), ARGV(__VA_ARGS__))

static inline bool failed_with(int r, enum den_code code)
{
	return r < 0 && last.err.code == code;
}

/* What the last operation listed, as "path path ". */
static inline const char *listed(void)
{
	static struct buf text;
	size_t at = 0, used;
	struct fs_entry e;
	struct den_err err;

	text.len = 0;
	while (at < last.out.len) {
		CHECK(fs_entry_get(last.out.p + at, last.out.len - at, &e, &used, &err) == 1);
		buf_addf(&text, "%s ", e.path);
		fs_entry_free(&e);
		at += used;
	}
	return buf_str(&text);
}

static inline struct fs_entry entry(void)
{
	struct fs_entry e;
	struct den_err err;
	size_t used;

	CHECK(fs_entry_get(last.out.p, last.out.len, &e, &used, &err) == 1 && used == last.out.len);
	return e;
}
