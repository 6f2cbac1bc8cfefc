/* Removing from the pool, what is meant to go and what crashes left. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "fd.h"
#include "pool_kinds.h"
#include "strv.h"

#define WAIT_TRIES 150 /* of 20 ms */

/* Out of sight first, by a name that says so, locked so that nobody else begins to free it as
 * well. */
static int remove_at(struct pool *p, int dirfd, const char *name, struct den_err *err)
{
	struct pool_spot gone = { .dirfd = dirfd };
	char temp[32];
	auto_fd lock = -1;

	if (pool_temp_name(POOL_GONE, temp, err) < 0)
		return -1;
	if (renameat(dirfd, name, dirfd, temp) == 0)
		snprintf(gone.name, sizeof(gone.name), "%s", temp);
	else if (errno == ENOSPC ||
		 errno == EDQUOT) /* even a name takes space; removing must still go */
		snprintf(gone.name, sizeof(gone.name), "%s", name);
	else
		return errno == ENOENT ? 0 : den_fail_sys(err, errno, "remove '%s'", name);
	lock = openat(dirfd, gone.name, POOL_OPEN_DIR);
	if (lock >= 0 && flock(lock, LOCK_EX | LOCK_NB) < 0 && errno == EWOULDBLOCK)
		return 0; /* a sweep was here first */
	return p->ops->destroy(p, &gone, err);
}

int pool_remove(struct pool *p, const char *name, struct den_err *err)
{
	auto_spot at = { .dirfd = -1 };
	struct den_err mine;

	if (pool_spot_find(p, name, false, &at, &mine) < 0) {
		if (mine.code == DEN_NOT_FOUND)
			return 0;
	} else if (remove_at(p, at.dirfd, at.name, &mine) == 0) {
		return 0;
	}
	pool_explain(p, &mine);
	if (err)
		*err = mine;
	return den_wrap(err, "remove '%s'", name);
}

struct sweep {
	struct pool *p;
	bool (*alive)(const char *name, void *user);
	void (*removed)(const char *what, void *user);
	void *user;
	struct den_err first;
	bool failed;
	int waited; /* for others, of WAIT_TRIES */
};

/* Somebody else may be freeing it: who sweeps promises that it is done. Not for long, for it may also be
 * somebody who reads it (pool_hold()). */
static bool half_lock(struct sweep *s, int fd, bool gone)
{
	while (flock(fd, LOCK_EX | LOCK_NB) < 0) {
		if (!gone || errno != EWOULDBLOCK || s->waited == WAIT_TRIES)
			return false;
		s->waited++;
		nanosleep(&(struct timespec){ .tv_nsec = 20 * 1000000L }, NULL);
	}
	return true;
}

/* Is a name that starts with '.' nobody's? Whoever makes it locks it, at once (ours) or soon. */
static bool half_is_free(struct sweep *s, int dirfd, const char *name)
{
	bool gone = !strncmp(name, POOL_GONE, strlen(POOL_GONE));
	auto_fd fd = openat(dirfd, name, POOL_OPEN_DIR);
	struct stat st;

	if (fd < 0)
		return errno !=
		       ENOENT; /* no directory, or one closed to us: the attempt will tell */
	if (!half_lock(s, fd, gone))
		return false;
	if (gone || !strncmp(name, POOL_NEW, strlen(POOL_NEW)))
		return true;
	return fstat(fd, &st) == 0 && st.st_mtime + POOL_YOUNG_S < time(NULL);
}

static void sweep_one(struct sweep *s, int dirfd, const char *parent, const char *name)
{
	char what[600];
	struct den_err err;

	snprintf(what, sizeof(what), POOL_DIR "/%s%s%s", parent, *parent ? "/" : "", name);
	if (remove_at(s->p, dirfd, name, &err) < 0) {
		if (!s->failed)
			s->first = err;
		s->failed = true;
	} else if (s->removed) {
		s->removed(what, s->user);
	}
}

/* All names in a directory, so that it is not changed while it is read. */
static int dir_names(int dirfd, char ***ret, struct den_err *err)
{
	auto_fd fd = openat(dirfd, ".", POOL_OPEN_DIR);
	DIR *d = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *de;

	if (!d)
		return den_fail_sys(err, errno, "read the pool");
	fd = -1;
	while ((de = readdir(d)))
		if (strcmp(de->d_name, ".") && strcmp(de->d_name, ".."))
			strv_add(ret, de->d_name);
	closedir(d);
	return 0;
}

static int sweep_halves(struct sweep *s, int dirfd, const char *parent, struct den_err *err)
{
	auto_strv names = NULL;

	if (dir_names(dirfd, &names, err) < 0)
		return -1;
	for (size_t i = 0; names && names[i]; i++)
		if (names[i][0] == '.' && strcmp(names[i], POOL_BALLAST) &&
			half_is_free(s, dirfd, names[i]))
			sweep_one(s, dirfd, parent, names[i]);
	return 0;
}

int pool_sweep(struct pool *p, bool (*alive)(const char *name, void *user), void *user,
	void (*removed)(const char *what, void *user), struct den_err *err)
{
	struct sweep s = { .p = p, .alive = alive, .removed = removed, .user = user };
	auto_strv names = NULL;

	if (dir_names(p->fd, &names, err) < 0 || sweep_halves(&s, p->fd, "", err) < 0)
		return -1;
	for (size_t i = 0; names && names[i]; i++) {
		auto_fd sub = -1;

		if (names[i][0] == '.')
			continue;
		if (strcmp(names[i], "layers") && !alive(names[i], user)) {
			sweep_one(&s, p->fd, "", names[i]);
			continue;
		}
		sub = openat(p->fd, names[i], POOL_OPEN_DIR);
		if (sub >= 0 && sweep_halves(&s, sub, names[i], err) < 0)
			return -1;
	}
	if (s.failed && err)
		*err = s.first;
	return s.failed ? den_wrap(err, "sweep the pool") : 0;
}
