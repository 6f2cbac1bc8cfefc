/* Removing what was saved of programs, also what is being read. */
#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

#include "fd.h"
#include "parse.h"
#include "place.h"
#include "saved_manifest.h"

#define GONE ".gone"
#define WAIT_NS 10000000L
#define WAIT_TRIES 100

static bool remove_alone(struct store *s, const char *path)
{
	auto_fd fd = saved_open_dir(s->fd, path);
	struct den_err ignored;

	if (fd < 0)
		return true;
	if (flock(fd, LOCK_EX | LOCK_NB) < 0)
		return false;
	for (int i = 0; i < 5 && tree_remove_at(s->fd, path, &ignored) < 0; i++)
		; /* saved_seal() may add to it meanwhile */
	return true;
}

/* Who reads it goes on with what it has open, under another name that says what is to become of it. Who has had the
 * lock, to read or to remove, looks for such names when it has let go of it (saved_sweep_box()): so either that one
 * finds it, or the lock was free when it was renamed. */
static void remove_at(struct store *s, const char *dir, const char *name, int *tries)
{
	char path[400], gone[400];

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	if (remove_alone(s, path) || name[0] == '.')
		return;
	for (; tries && *tries > 0; --*tries) { /* who seals it is done in a moment */
		nanosleep(&(struct timespec){ .tv_nsec = WAIT_NS }, NULL);
		if (remove_alone(s, path))
			return;
	}
	snprintf(gone, sizeof(gone), "%s/.%s" GONE, dir, name);
	(void)remove_alone(s, gone);
	(void)renameat(s->fd, path, s->fd, gone);
	(void)remove_alone(s, gone);
}

static bool ends_with(const char *text, const char *end)
{
	size_t n = strlen(text), m = strlen(end);

	return n >= m && !strcmp(text + n - m, end);
}

/* ".N.PID" of a process that is not there */
static bool is_left_over(const char *name)
{
	const char *pid = strrchr(name, '.');
	uint64_t n;

	return name[0] == '.' && pid > name && parse_u64(pid + 1, 1, INT32_MAX, &n, NULL) == 0 &&
	       kill((pid_t)n, 0) < 0 && errno == ESRCH;
}

static DIR *open_box(struct store *s, const struct box_id *id, char dir[static 64])
{
	DIR *d;
	int fd;

	snprintf(dir, 64, SAVED_DIR "/%s", id->s);
	fd = saved_open_dir(s->fd, dir);
	d = fd >= 0 ? fdopendir(fd) : NULL;
	if (!d)
		fd_close(&fd);
	return d;
}

void saved_sweep_box(struct store *s, const struct box_id *id)
{
	char dir[64], box[64], path[400];
	struct dirent *de;
	DIR *d = open_box(s, id, dir);

	while (d && (de = readdir(d))) {
		if (de->d_name[0] != '.' ||
			(!ends_with(de->d_name, GONE) && !is_left_over(de->d_name)))
			continue;
		snprintf(path, sizeof(path), "%s/%s", dir, de->d_name);
		(void)remove_alone(s, path);
	}
	if (d)
		closedir(d);
	snprintf(box, sizeof(box), PLACE_BOXES "/%s", id->s);
	if (faccessat(s->fd, box, F_OK, AT_SYMLINK_NOFOLLOW) < 0 && errno == ENOENT)
		unlinkat(s->fd, dir, AT_REMOVEDIR); /* if that was all */
}

void saved_remove(struct store *s, const struct box_id *id, uint64_t n)
{
	char dir[64], name[24];

	snprintf(dir, sizeof(dir), SAVED_DIR "/%s", id->s);
	snprintf(name, sizeof(name), "%llu", (unsigned long long)n);
	remove_at(s, dir, name, NULL);
	saved_sweep_box(s, id);
}

void saved_remove_but(
	struct store *s, const struct box_id *id, bool (*keep)(uint64_t n, void *user), void *user)
{
	int tries = WAIT_TRIES; /* for all of them together; the box is gone: nobody else waits for this */
	struct dirent *de;
	char dir[64];
	DIR *d = open_box(s, id, dir);

	while (d && (de = readdir(d))) {
		uint64_t n;

		if (!strcmp(de->d_name, ".") || !strcmp(de->d_name, "..") ||
			(keep && (parse_u64(de->d_name, 0, INT64_MAX, &n, NULL) < 0 ||
					 keep(n, user))))
			continue;
		remove_at(s, dir, de->d_name, keep ? NULL : &tries);
	}
	if (d)
		closedir(d);
	saved_sweep_box(s, id);
	if (!keep)
		unlinkat(s->fd, dir, AT_REMOVEDIR); /* if that was all */
}

int saved_sweep(struct store *s, bool (*alive)(const struct box_id *id, void *user), void *user,
	void (*removed)(const char *what, void *user2), void *user2, struct den_err *err)
{
	int fd = saved_open_dir(s->fd, SAVED_DIR);
	struct dirent *de;
	DIR *d;

	if (fd < 0)
		return errno == ENOENT ? 0 : den_fail_sys(err, errno, "read '" SAVED_DIR "'");
	d = fdopendir(fd);
	while (d && (de = readdir(d))) {
		struct box_id id;
		char path[64];

		if (de->d_name[0] == '.' || box_id_parse(de->d_name, &id, NULL) < 0)
			continue;
		if (alive(&id, user)) {
			saved_sweep_box(s, &id);
			continue;
		}
		saved_remove_but(s, &id, NULL, NULL);
		snprintf(path, sizeof(path), SAVED_DIR "/%s", id.s);
		if (faccessat(s->fd, path, F_OK, 0) < 0)
			removed(path, user2);
	}
	if (d)
		closedir(d);
	return 0;
}
