#include "store.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "buf.h"
#include "fd.h"
#include "mem.h"
#include "place.h"
#include "proc.h"

/* ---- room ---- */

#define RESERVE "reserve"
#define RESERVE_BYTES (4LL << 20)
#define RESERVE_STEP (512LL << 10)
#define ROOM_NEEDED (1ULL << 20)
#define ROOM_PLENTY (256ULL << 20)

static uint64_t room(const struct store *s)
{
	struct statvfs fs;

	return fstatvfs(s->fd, &fs) == 0 ? (uint64_t)fs.f_bavail * fs.f_frsize : UINT64_MAX;
}

static void reserve_give(const struct store *s)
{
	auto_fd fd = openat(s->fd, RESERVE, O_WRONLY | O_NOFOLLOW | O_CLOEXEC);
	struct stat st;

	if (fd < 0 || flock(fd, LOCK_EX) < 0 || fstat(fd, &st) < 0)
		return;
	for (off_t left = st.st_size; left > 0 && room(s) < ROOM_NEEDED;) {
		left = MAX(left - RESERVE_STEP, (off_t)0);
		if (ftruncate(fd, left) < 0)
			return;
	}
}

/* Not worth an error: without it a full disk is told a little earlier. */
static void reserve_take(const struct store *s)
{
	auto_fd fd = openat(s->fd, RESERVE, O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);

	if (fd >= 0)
		(void)!fallocate(fd, 0, 0, RESERVE_BYTES);
}

void store_room(const struct store *s, bool refill)
{
	uint64_t avail = room(s);
	struct stat st;

	if (avail < ROOM_NEEDED)
		reserve_give(s);
	else if (refill && avail >= ROOM_PLENTY &&
		 (fstatat(s->fd, RESERVE, &st, AT_SYMLINK_NOFOLLOW) < 0 ||
			 st.st_size < RESERVE_BYTES))
		reserve_take(s);
}

int store_open(const char *path, bool create, struct store **ret, struct den_err *err)
{
	struct store *s;
	struct stat st;
	auto_fd fd = -1;

	if (place_open(path, create, &fd, err) < 0)
		return -1;
	if (fstat(fd, &st) < 0)
		return den_fail_sys(err, errno, "state directory");
	s = mem_new(struct store);
	s->fd = fd_take(&fd);
	s->path = mem_strdup(path);
	snprintf(s->tag, sizeof(s->tag), "%08x",
		(uint32_t)(st.st_ino * 2654435761U) ^ (uint32_t)(st.st_dev * 40503U));
	store_room(s, true);
	*ret = s;
	return 0;
}

void store_close(struct store *s)
{
	if (!s)
		return;
	fd_close(&s->fd);
	free(s->path);
	free(s);
}

/* ---- claims ---- */

/* A claim that points at a box which is not there any more may be taken over: a box has its
 * directory before its claims, and gives them back after it. */
static bool claim_stale(struct store *s, const char *path)
{
	char target[64], box[96];
	ssize_t n = readlinkat(s->fd, path, target, sizeof(target) - 1);

	if (n < 0)
		return false;
	target[n] = '\0';
	snprintf(box, sizeof(box), PLACE_BOXES "/%s", target);
	return faccessat(s->fd, box, F_OK, AT_SYMLINK_NOFOLLOW) < 0 && errno == ENOENT;
}

static int claim(struct store *s, const char *path, const struct box_id *id)
{
	auto_fd lock = -1;

	if (symlinkat(id->s, s->fd, path) == 0)
		return 0;
	if (errno != EEXIST)
		return -1;
	/* One at a time: who finds it stale must not remove the claim of who found it stale
	 * first. */
	lock = openat(s->fd, PLACE_NAMES, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (lock < 0 || flock(lock, LOCK_EX) < 0)
		return -1;
	if (claim_stale(s, path)) {
		unlinkat(s->fd, path, 0);
		return symlinkat(id->s, s->fd, path);
	}
	errno = EEXIST;
	return -1;
}

/* Only one's own: it may have been found stale and taken by another box. */
static void release(struct store *s, const char *path, const struct box_id *id)
{
	char target[32];
	ssize_t n = readlinkat(s->fd, path, target, sizeof(target) - 1);

	if (n == (ssize_t)strlen(id->s) && !memcmp(target, id->s, (size_t)n))
		unlinkat(s->fd, path, 0);
}

int store_claim_name(
	struct store *s, const char *name, const struct box_id *id, struct den_err *err)
{
	struct box_name n;
	char path[96];

	if (box_name_parse(name, &n, err) < 0)
		return -1;
	snprintf(path, sizeof(path), PLACE_NAMES "/%s", n.s);
	if (claim(s, path, id) == 0)
		return 0;
	if (errno == EEXIST)
		return den_fail(err, DEN_CONFLICT, 0,
			"the name '%s' is taken; 'den rm %s' frees it, or choose another", name,
			name);
	return den_fail_sys(err, errno, "claim name '%s'", name);
}

void store_release_name(struct store *s, const char *name, const struct box_id *id)
{
	char path[96];

	snprintf(path, sizeof(path), PLACE_NAMES "/%s", name);
	release(s, path, id);
}

int store_claim_slot(struct store *s, const struct box_id *id, uint64_t *ret, struct den_err *err)
{
	uint32_t at;
	char path[32];

	if (getrandom(&at, sizeof(at), 0) != sizeof(at))
		return den_fail_sys(err, errno, "getrandom");
	for (uint32_t i = 0; i < STORE_SLOTS; i++) { /* from anywhere: two at once rarely meet */
		uint32_t slot = (at + i) % STORE_SLOTS;

		snprintf(path, sizeof(path), PLACE_IDS "/%u", slot);
		if (claim(s, path, id) == 0) {
			*ret = slot;
			return 0;
		}
		if (errno != EEXIST)
			return den_fail_sys(err, errno, "claim an id range");
	}
	return den_fail(
		err, DEN_LIMIT, 0, "all %u id ranges are in use; remove some boxes", STORE_SLOTS);
}

void store_release_slot(struct store *s, uint64_t slot, const struct box_id *id)
{
	char path[32];

	snprintf(path, sizeof(path), PLACE_IDS "/%u", (unsigned)slot);
	release(s, path, id);
}

/* ---- a box's directory ---- */

static int make_tree_dirs(int boxfd, size_t n_trees)
{
	char path[32];

	for (size_t t = 0; t < n_trees; t++) {
		snprintf(path, sizeof(path), "u%zu", t);
		if (mkdirat(boxfd, path, 0755) < 0)
			return -1;
		snprintf(path, sizeof(path), "w%zu", t);
		if (mkdirat(boxfd, path, 0700) < 0)
			return -1;
	}
	return 0;
}

int store_box_lock(int boxfd, int *ret_lock, struct den_err *err)
{
	auto_fd fd = openat(boxfd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct stat st;

	if (fd < 0)
		return den_fail_sys(err, errno, "lock box");
	if (flock(fd, LOCK_EX | LOCK_NB) < 0)
		return den_fail(err, DEN_CONFLICT, errno, "another keeper has this box");
	/* Whoever had the lock may have deleted the box while we waited for nothing. */
	if (fstat(fd, &st) < 0 || st.st_nlink == 0)
		return den_fail(err, DEN_NOT_FOUND, 0, "the box was just deleted");
	*ret_lock = fd_take(&fd);
	return 0;
}

bool store_box_is(struct store *s, const struct box_id *id, int boxfd)
{
	char path[64];
	struct stat a, b;

	snprintf(path, sizeof(path), PLACE_BOXES "/%s", id->s);
	return fstat(boxfd, &a) == 0 && fstatat(s->fd, path, &b, AT_SYMLINK_NOFOLLOW) == 0 &&
		a.st_ino == b.st_ino && a.st_dev == b.st_dev;
}

int store_box_make(struct store *s, const struct box_id *id, size_t n_trees, int *ret_dir,
	int *ret_lock, struct den_err *err)
{
	char path[64];
	auto_fd dir = -1;
	mode_t old = umask(0);
	int r;

	snprintf(path, sizeof(path), PLACE_BOXES "/%s", id->s);
	r = mkdirat(s->fd, path, 0700);
	if (r == 0)
		dir = openat(s->fd, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (r < 0 || dir < 0)
		den_fail_sys(err, errno, "make box directory");
	else if (store_box_lock(dir, ret_lock, err) == 0) {
		if (make_tree_dirs(dir, n_trees) == 0)
			*ret_dir = fd_take(&dir);
		else {
			r = den_fail_sys(err, errno, "make box directory");
			fd_close(ret_lock);
		}
	} else {
		r = -1;
	}
	umask(old);
	return r < 0 || *ret_dir < 0 ? -1 : 0;
}

int store_box_trash(struct store *s, const struct box_id *id, struct den_err *err)
{
	char from[64], to[64];

	snprintf(from, sizeof(from), PLACE_BOXES "/%s", id->s);
	snprintf(to, sizeof(to), PLACE_TRASH "/%s", id->s);
	if (renameat(s->fd, from, s->fd, to) == 0)
		return 0;
	if (errno == ENOENT && faccessat(s->fd, PLACE_TRASH, F_OK, 0) < 0 &&
		mkdirat(s->fd, PLACE_TRASH, 0700) == 0 && renameat(s->fd, from, s->fd, to) == 0)
		return 0;
	return den_fail_sys(err, errno, "remove box '%s'", id->s);
}

int store_trash_empty(struct store *s, const struct box_id *mine, struct den_err *err)
{
	int fd = openat(s->fd, PLACE_TRASH, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *d = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *de;
	int r = 0;

	while (d && (de = readdir(d))) {
		auto_fd box = -1, lock = -1;
		struct box_id id;

		if (box_id_parse(de->d_name, &id, NULL) < 0)
			continue;
		box = openat(fd, id.s, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		if ((!mine || strcmp(mine->s, id.s)) &&
			(box < 0 || store_box_lock(box, &lock, NULL) < 0))
			continue; /* its own keeper is at it */
		if (tree_remove_at(fd, id.s, err) < 0)
			r = -1;
	}
	if (d)
		closedir(d);
	else
		fd_close(&fd);
	return r;
}

/* ---- its process ---- */

int store_proc_put(int boxfd, const struct box_proc *p, struct den_err *err)
{
	char text[64];
	int n = snprintf(
		text, sizeof(text), "%d %llu\n", (int)p->pid, (unsigned long long)p->start);
	auto_fd fd = openat(boxfd, "init", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	if (fd < 0 || write(fd, text, (size_t)n) != n)
		return den_fail_sys(err, errno, "write process id");
	return 0;
}

int store_proc_get(int boxfd, struct box_proc *ret, int *ret_pidfd)
{
	char text[64];
	unsigned long long start;
	uint64_t now;
	int pid;
	auto_fd fd = -1;

	if (file_read_at(boxfd, "init", text, sizeof(text), NULL) < 0 ||
		sscanf(text, "%d %llu", &pid, &start) != 2)
		return 0;
	fd = (int)syscall(SYS_pidfd_open, pid, 0);
	/* Opened first, checked after: now that we hold it, the number cannot change its
	 * meaning. */
	if (fd < 0 || proc_start_time(pid, &now) < 0 || now != start)
		return 0;
	if (poll(&(struct pollfd){ .fd = fd, .events = POLLIN }, 1, 0) > 0)
		return 0; /* it has ended, and only its parent has not looked yet */
	*ret = (struct box_proc){ pid, start };
	*ret_pidfd = fd_take(&fd);
	return 1;
}

bool store_proc_was(int boxfd)
{
	return faccessat(boxfd, "init", F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

void store_proc_clear(int boxfd)
{
	unlinkat(boxfd, "init", 0);
}

/* ---- init's file ---- */

/*
 * Execute-only: root of a box may run it and never read or trace it. Written aside and renamed, so
 * that nobody runs a part. Written page by page, so that the page cache holds it in small pieces:
 * of a large one every box would have all mapped as soon as it touches any.
 */
static int init_write(
	struct store *s, const char *path, const char *blob, size_t len, struct den_err *err)
{
	char tmp[128];
	auto_fd fd = -1;

	snprintf(tmp, sizeof(tmp), "%s.tmp.%d", path, (int)getpid());
	fd = openat(s->fd, tmp, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0100);
	if (fd < 0)
		return den_fail_sys(err, errno, "create '%s'", tmp);
	for (size_t at = 0; at < len; at += 4096)
		if (fd_write_all(fd, blob + at, MIN(len - at, (size_t)4096), err) < 0)
			goto failed;
	if (fchmod(fd, 0111) < 0 || fsync(fd) < 0) {
		den_fail_sys(err, errno, "write '%s'", path);
		goto failed;
	}
	fd_close(&fd); /* first: what somebody has open for writing cannot be run by who finds it */
	if (renameat(s->fd, tmp, s->fd, path) < 0) {
		den_fail_sys(err, errno, "write '%s'", path);
		goto failed;
	}
	return 0;
failed:
	unlinkat(s->fd, tmp, 0);
	return -1;
}

int store_init_path(struct store *s, const void *blob, size_t len, const char *hash, char **ret,
	struct den_err *err)
{
	auto_buf path = { 0 };
	auto_buf full = { 0 };

	buf_addf(&path, PLACE_LIB "/den-init-%s", hash);
	if (faccessat(s->fd, buf_str(&path), F_OK, 0) < 0) {
		if (init_write(s, buf_str(&path), blob, len, err) < 0)
			return den_wrap(err, "unpack den-init");
	}
	buf_addf(&full, "%s/%s", s->path, buf_str(&path));
	*ret = mem_strdup(buf_str(&full));
	return 0;
}

/* ---- sweeping ---- */

static void sweep_claims(
	struct store *s, const char *dir, void (*removed)(const char *, void *), void *user)
{
	int fd = openat(s->fd, dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *d = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *de;

	while (d && (de = readdir(d))) {
		char path[512];

		snprintf(path, sizeof(path), "%s/%s", dir, de->d_name);
		if (de->d_name[0] != '.' && claim_stale(s, path) && unlinkat(s->fd, path, 0) == 0)
			removed(path, user);
	}
	if (d)
		closedir(d);
	else
		fd_close(&fd);
}

/* den-init of other versions: boxes that run one hold the file itself, nobody needs the name. */
static void sweep_inits(
	struct store *s, const char *hash, void (*removed)(const char *, void *), void *user)
{
	int fd = openat(s->fd, PLACE_LIB, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *d = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *de;

	while (d && (de = readdir(d))) {
		struct stat st;

		if (strncmp(de->d_name, "den-init-", 9) || !strcmp(de->d_name + 9, hash))
			continue;
		if (fstatat(fd, de->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0 ||
			time(NULL) - st.st_mtime <= STORE_YOUNG_S)
			continue;
		if (unlinkat(fd, de->d_name, 0) == 0)
			removed(de->d_name, user);
	}
	if (d)
		closedir(d);
	else
		fd_close(&fd);
}

int store_sweep(struct store *s, const char *init_hash,
	void (*removed)(const char *what, void *user), void *user, struct den_err *err)
{
	(void)err;
	if (unlinkat(s->fd, "memory", AT_REMOVEDIR) == 0 || errno == ENOENT) /* else programs were saved above one */
		sweep_inits(s, init_hash, removed, user);
	sweep_claims(s, PLACE_NAMES, removed, user);
	sweep_claims(s, PLACE_IDS, removed, user);
	return 0;
}
