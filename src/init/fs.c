/*
 * The table of file operations and what they share.
 *
 *   fs_file.c    read write           fs_change.c  mkdir remove chmod chown
 *   fs_look.c    stat list            fs_move.c    move
 *   fs_watch.c   watch                fs_tar.c     tarout tarin
 *   fs_xattr.c   extended attributes, for write, stat and list
 */
#include "fs_run.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "fd.h"
#include "fs_ops.h"
#include "mem.h"
#include "strv.h"

#define ARGS_MAX 4

static const struct op {
	const char *name;
	int min, max;	   /* arguments after the name */
	int at;		   /* which of them is flags; 0: none */
	const char *flags; /* letters that it may have */
	int (*run)(char *const *arg, struct den_err *err);
} ops[] = {
	{ "read", 1, 3, 0, "", fs_read },
	{ "write", 1, 4 + FS_XATTRS_MAX, 3, "ap", fs_write },
	{ "stat", 1, 3, 2, "l", fs_stat },
	{ "list", 1, 4, 3, "f", fs_list },
	{ "mkdir", 1, 3, 3, "p", fs_mkdir },
	{ "move", 2, 3, 3, "np", fs_move },
	{ "remove", 1, 2, 2, "rf", fs_remove },
	{ "chmod", 2, 3, 3, "r", fs_chmod },
	{ "chown", 2, 3, 3, "rl", fs_chown },
	{ "watch", 1, 2, 2, "r", fs_watch },
	{ "tarout", 1, 2, 2, "c", fs_tarout },
	{ "tarin", 1, 2, 2, "pw", fs_tarin },
};

int fs_run(char *const *argv, struct den_err *err)
{
	char *arg[ARGS_MAX + FS_XATTRS_MAX + 1] = { "", "", "", "" };
	int n = (int)MIN(strv_len(argv), 1024U) - 1;
	const struct op *op = NULL;

	for (size_t i = 0; n >= 0 && i < ARRAY_SIZE(ops); i++)
		if (!strcmp(argv[0], ops[i].name))
			op = &ops[i];
	if (!op)
		return den_fail(
			err, DEN_UNSUPPORTED, 0, "no file operation '%s'", n < 0 ? "" : argv[0]);
	if (n < op->min || n > op->max)
		return den_fail(err, DEN_INVALID, 0, "%s takes %d to %d arguments, not %d",
			op->name, op->min, op->max, n);
	for (int i = 0; i < n; i++)
		arg[i] = argv[i + 1];
	if (op->at && strspn(arg[op->at - 1], op->flags) != strlen(arg[op->at - 1]))
		return den_fail(err, DEN_INVALID, 0, "%s has no flags '%s', only '%s'", op->name,
			arg[op->at - 1], op->flags);
	if (!arg[0][0])
		return den_fail(err, DEN_INVALID, 0, "%s: the path is empty", op->name);
	umask(0); /* modes are what they were asked to be */
	return op->run(arg, err);
}

bool fs_flag(const char *flags, char c)
{
	return strchr(flags, c) != NULL;
}

int fs_mode(const char *text, mode_t instead, mode_t *ret, struct den_err *err)
{
	mode_t mode = 0;

	if (!*text) {
		*ret = instead;
		return 0;
	}
	for (const char *p = text; *p; p++) {
		if (*p < '0' || *p > '7' || p - text > 7)
			return den_fail(err, DEN_INVALID, 0,
				"'%s' is not a mode; write it like 644 or 0755", text);
		mode = mode << 3 | (mode_t)(*p - '0');
	}
	if (mode > 07777)
		return den_fail(err, DEN_INVALID, 0, "mode '%s' is more than 7777", text);
	*ret = mode;
	return 0;
}

int fs_split(const char *path, int *dirfd, char base[static 256], struct den_err *err)
{
	auto_free char *copy = mem_strdup(path);
	size_t n = strlen(copy);
	const char *name, *dir;
	char *slash;

	while (n > 1 && copy[n - 1] == '/')
		copy[--n] = '\0';
	slash = strrchr(copy, '/');
	name = slash ? slash + 1 : copy;
	if (!*name || !strcmp(name, ".") || !strcmp(name, ".."))
		return den_fail(err, DEN_INVALID, 0, "'%s' does not end in a name", path);
	if (strlen(name) > 255)
		return den_fail(err, DEN_INVALID, ENAMETOOLONG, "'%s'", path);
	memcpy(base, name, strlen(name) + 1);
	if (slash)
		*slash = '\0';
	dir = !slash ? "." : slash == copy ? "/" : copy;
	*dirfd = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (*dirfd < 0)
		return den_fail_sys(err, errno, "'%s'", dir);
	return 0;
}

/* A directory that may be there already. */
static int dir_make(const char *path, struct den_err *err)
{
	auto_fd dir = -1;
	char base[256];
	struct stat st;
	int sys;

	if (mkdir(path, 0755) == 0)
		return fs_split(path, &dir, base, err) < 0 ? -1 : fs_sync_dir(dir, err);
	sys = errno; /* of a name that is there it may say EEXIST, EROFS, EACCES, ... */
	if (stat(path, &st) < 0)
		return den_fail_sys(err, sys, "make directory '%s'", path);
	if (!S_ISDIR(st.st_mode))
		return den_fail(err, DEN_CONFLICT, ENOTDIR, "'%s'", path);
	return 0;
}

int fs_mkdir_parents(const char *path, struct den_err *err)
{
	auto_free char *copy = mem_strdup(path);
	size_t n = strlen(copy);

	while (n && copy[n - 1] == '/')
		copy[--n] = '\0';
	while (n && copy[n - 1] != '/')
		copy[--n] = '\0';
	for (char *p = copy + strspn(copy, "/"); *p; p += strspn(p, "/")) {
		char saved;

		p += strcspn(p, "/");
		saved = *p;
		*p = '\0';
		if (dir_make(copy, err) < 0)
			return -1;
		*p = saved;
	}
	return 0;
}

int fs_sync_dir(int dirfd, struct den_err *err)
{
	auto_fd fd = openat(dirfd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	/* One may be allowed to write to a directory but not to read it, and then cannot sync
	 * it. */
	if (fd < 0 && (errno == EACCES || errno == EPERM || errno == ENOENT))
		return 0;
	if (fd < 0 || (fsync(fd) < 0 && errno != EINVAL && errno != EROFS))
		return den_fail_sys(err, errno, "write directory to disk");
	return 0;
}

int fs_read_some(int fd, void *buf, size_t cap, size_t *ret, struct den_err *err)
{
	ssize_t n;

	do
		n = read(fd, buf, cap);
	while (n < 0 && errno == EINTR);
	if (n < 0)
		return den_fail_sys(err, errno, "read");
	*ret = (size_t)n;
	return 0;
}
