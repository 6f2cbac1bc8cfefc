/*
 * Where a box's file system is.
 *
 * A box with history lives in the pool: pool/ID/wN is what it writes to, pool/ID/cN are its
 * checkpoints. One without (a throwaway box, --history off) has its changes in boxes/ID itself: that
 * costs neither a subvolume nor the pool's mount.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "clock.h"
#include "fd.h"
#include "history.h"
#include "keeper.h"
#include "place.h"
#include "saved.h"

#define PRINT_AT_ONCE 500

/* ---- pool calls, by one who may touch all files of boxes ---- */

struct pool_call {
	struct pool *pool;
	const char *name, *like, *to;
	bool readonly;
	unsigned max;
	uint64_t value, bytes;
	int result;
};

static int call_snapshot(void *arg, struct den_err *err)
{
	struct pool_call *c = arg;

	return pool_snapshot(c->pool, c->name, c->like, c->to, c->readonly, err);
}

static int call_remove(void *arg, struct den_err *err)
{
	struct pool_call *c = arg;

	return pool_remove(c->pool, c->name, err);
}

static int call_print(void *arg, struct den_err *err)
{
	struct pool_call *c = arg;

	c->result = pool_fingerprint(c->pool, c->name, c->max, &c->value, &c->bytes, err);
	return c->result < 0 ? -1 : 0;
}

int home_snapshot(struct keeper *k, const char *from, const char *like, const char *to, bool readonly,
	struct den_err *err)
{
	struct pool_call c = { .pool = k->pool, .name = from, .like = like, .to = to, .readonly = readonly };

	return work_do(k, call_snapshot, &c, err);
}

int home_discard(struct keeper *k, const char *name, struct den_err *err)
{
	struct pool_call c = { .pool = k->pool, .name = name };

	return work_do(k, call_remove, &c, err);
}

int home_fingerprint(struct keeper *k, unsigned max, uint64_t *ret, struct den_err *err)
{
	/* the call may happen in another process: its answer comes back in shared memory */
	struct pool_call *c = mmap(NULL, sizeof(*c), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	char name[64];
	int r;

	if (c == MAP_FAILED)
		return den_fail_sys(err, errno, "memory");
	if (k->row.info.spec.disk && k->fsfd >= 0 && k->ops->settle(&k->wall, k->fsfd, SETTLE_FLUSH, err) < 0) {
		munmap(c, sizeof(*c));
		return -1;
	}
	home_name(k, 'w', k->row.work, name);
	*c = (struct pool_call){ .pool = k->pool, .name = name, .max = MIN(max, PRINT_AT_ONCE) };
	/* of few files it is told sooner than another process could begin to */
	r = wall_as_box_root(call_print, c, err) < 0 ? -1 : c->result;
	if (r == 0 && max > PRINT_AT_ONCE) {
		c->max = max;
		r = work_do(k, call_print, c, err) < 0 ? -1 : c->result;
	}
	if (r == 2) { /* old kernels: look again when a change would show */
		nanosleep(&(struct timespec){ .tv_nsec = (POOL_RACY_MS + 5) * 1000000L }, NULL);
		r = work_do(k, call_print, c, err) < 0 ? -1 : c->result == 1;
	}
	if (r > 0)
		*ret = c->value;
	k->print_bytes = r > 0 ? c->bytes : 0;
	munmap(c, sizeof(*c));
	return r;
}

/* ---- places ---- */

void home_name(const struct keeper *k, char what, uint64_t number, char out[static 64])
{
	snprintf(out, 64, "%s/%c%llu", k->id.s, what, (unsigned long long)number);
}

static void room_cb(struct loop_timer *t)
{
	struct keeper *k = CONTAINER_OF(t, struct keeper, room);

	if (box_is_up(k))
		home_room(k);
}

void home_room(struct keeper *k)
{
	if (!k->pool || !k->pool->image || !k->row.work || k->gone)
		return;
	k->room.cb = room_cb;
	loop_timer_set(k->loop, &k->room, clock_mono_ns() + pool_room(k->pool) * NS_PER_MS);
}

int home_pool(struct keeper *k, struct den_err *err)
{
	if (!k->pool && pool_open(k->store->fd, k->store->path, NULL, &k->pool, err) < 0)
		return -1;
	if (!k->room.when)
		home_room(k);
	return 0;
}

static int make_tree_dirs(int fd, size_t n_trees, struct den_err *err)
{
	mode_t old = umask(0);
	int r = 0;

	for (size_t t = 0; r == 0 && t < n_trees; t++) {
		char name[16];

		snprintf(name, sizeof(name), "u%zu", t);
		r = mkdirat(fd, name, 0755) < 0 && errno != EEXIST ? -1 : 0;
		snprintf(name, sizeof(name), "w%zu", t);
		if (r == 0)
			r = mkdirat(fd, name, 0700) < 0 && errno != EEXIST ? -1 : 0;
	}
	umask(old);
	return r < 0 ? den_fail_sys(err, errno, "make the box's directories") : 0;
}

int home_make_empty(struct keeper *k, uint64_t work, struct den_err *err)
{
	char name[64];
	auto_fd fd = -1;

	home_name(k, 'w', work, name);
	if (pool_make(k->pool, name, err) < 0)
		return -1;
	fd = openat(k->pool->fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return den_fail_sys(err, errno, "open '%s'", name);
	return make_tree_dirs(fd, k->tmpl.n_trees, err);
}

void home_close(struct keeper *k)
{
	fd_close(&k->fsfd);
	free(k->fs_path);
	k->fs_path = NULL;
}

/* Of a box that was never changed, what lies in its layer may not have reached the disk: make it again, as
 * its number 0 is where it has one. */
static int make_again(struct keeper *k, const char *name, struct den_err *err)
{
	char base[64];

	home_name(k, 'c', 0, base);
	k->print_due = true; /* what was remembered of the lost ones tells nothing of these */
	if (faccessat(k->pool->fd, base, F_OK, AT_SYMLINK_NOFOLLOW) == 0)
		return home_snapshot(k, base, NULL, name, false, err);
	return k->row.info.spec.from ? den_fail(err, DEN_NOT_FOUND, ENOENT, "its files are gone") :
				       home_make_empty(k, k->row.work, err);
}

static int open_work(struct keeper *k, const char *name, struct den_err *err)
{
	int fd = openat(k->pool->fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	if (fd < 0 && errno == ENOENT && !k->row.head && make_again(k, name, err) == 0)
		fd = openat(k->pool->fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd >= 0 && faccessat(fd, "u0", F_OK, AT_SYMLINK_NOFOLLOW) < 0 && !k->row.info.spec.disk &&
		make_tree_dirs(fd, k->tmpl.n_trees, err) < 0)
		fd_close(&fd);
	return fd;
}

int home_open(struct keeper *k, struct den_err *err)
{
	auto_buf path = { 0 };
	char name[64];

	if (k->fsfd >= 0)
		return 0;
	if (!k->row.work) {
		buf_addf(&path, "%s/" PLACE_BOXES "/%s", k->store->path, k->id.s);
		k->fsfd = fcntl(k->boxfd, F_DUPFD_CLOEXEC, 3);
	} else {
		if (home_pool(k, err) < 0)
			return -1;
		home_name(k, 'w', k->row.work, name);
		buf_addf(&path, "%s/%s", k->pool->path, name);
		k->fsfd = open_work(k, name, err);
	}
	if (k->fsfd < 0)
		return den_fail_sys(err, errno, "open the box's file system");
	k->fs_path = mem_strdup(buf_str(&path));
	return 0;
}

bool home_begins_bare(struct keeper *k, const char *box)
{
	struct box_row row = { 0 };
	struct den_err ignored;
	struct box_id id;
	bool bare;

	if (box_id_parse(box, &id, &ignored) < 0 || store_get(k->store, &id, &row, &ignored) < 0)
		return true; /* nobody's any more: nothing can be told of it */
	bare = !row.info.spec.from;
	box_row_free(&row);
	return bare;
}

/* "ID@N" as a name in the pool. Who asks for it knows that it is one. */
static void origin_name(const struct keeper *k, char box[static 32], char name[static 64])
{
	const char *from = k->row.info.spec.from, *at = strchr(from, '@');

	snprintf(box, 32, "%.*s", (int)(at - from), from);
	snprintf(name, 64, "%s/c%s", box, at + 1);
}

/*
 * A fork begins as a copy of a checkpoint of another box, and has that as its own number 0. Where copies
 * cost nothing, that one is made when whoever asked has his answer, before anything else is done with the
 * box; a keeper that dies in between leaves it to the next one (home_make_base()).
 */
static int make_fork(struct keeper *k, struct den_err *err)
{
	char box[32], from[64], c0[64], w1[64];
	const char *at = strchr(k->row.info.spec.from, '@');

	home_name(k, 'c', 0, c0);
	home_name(k, 'w', 1, w1);
	origin_name(k, box, from);
	if (faccessat(k->pool->fd, from, F_OK, AT_SYMLINK_NOFOLLOW) < 0) {
		if (strcmp(at + 1, "0") || !home_begins_bare(k, box))
			return den_fail(err, DEN_NOT_FOUND, 0, "checkpoint %s is gone", k->row.info.spec.from);
		/* its beginning: the template alone. It is kept all the same, for it says where it came from */
		return home_make_empty(k, 1, err) < 0 ? -1 : home_snapshot(k, w1, w1, c0, true, err);
	}
	k->base_due = k->pool->kind == POOL_BTRFS;
	if ((!k->base_due && home_snapshot(k, from, from, c0, true, err) < 0) ||
		home_snapshot(k, k->base_due ? from : c0, k->base_due ? NULL : c0, w1, false, err) < 0)
		return den_wrap(err, "copy checkpoint %s", k->row.info.spec.from);
	return 0;
}

static bool has_row(struct keeper *k, uint64_t number)
{
	struct ckpt *all = NULL;
	struct den_err ignored;
	size_t n = 0;
	bool found;

	if (history_list(k->store, &k->id, &all, &n, &ignored) < 0)
		return false;
	found = history_find(all, n, number);
	ckpts_free(all, n);
	return found;
}

int home_make_base(struct keeper *k, struct den_err *err)
{
	char box[32], from[64], c0[64], w1[64];

	home_name(k, 'c', 0, c0);
	if (!k->row.info.spec.from || faccessat(k->pool->fd, c0, F_OK, AT_SYMLINK_NOFOLLOW) == 0 ||
		(!k->base_due && !has_row(k, 0)))
		return 0;
	origin_name(k, box, from);
	home_name(k, 'w', 1, w1);
	if (faccessat(k->pool->fd, from, F_OK, AT_SYMLINK_NOFOLLOW) == 0)
		return home_snapshot(k, from, NULL, c0, true, err);
	/* the other box went this very moment; nothing was done in this one yet but to start it */
	if (k->row.work == 1 && !k->row.head && !k->row.turn)
		return home_snapshot(k, w1, NULL, c0, true, err);
	return den_fail(err, DEN_NOT_FOUND, 0, "checkpoint %s is gone", k->row.info.spec.from);
}

int home_make(struct keeper *k, struct den_err *err)
{
	struct box_spec *s = &k->row.info.spec;

	k->row.work = 0;
	k->row.next = 1;
	k->row.pending = -1;
	if (s->history == HISTORY_OFF)
		return 0;
	if (home_pool(k, err) < 0)
		return den_wrap(err, "pool");
	k->row.work = 1;
	return s->from ? make_fork(k, err) : home_make_empty(k, 1, err);
}

void home_remove(struct keeper *k)
{
	struct den_err ignored;

	home_close(k);
	if (k->row.work && home_pool(k, &ignored) == 0)
		(void)home_discard(k, k->id.s, &ignored);
}

/* ---- what a crash left ---- */

static bool is_known(const struct keeper *k, const char *name, const struct ckpt *all, size_t n)
{
	char *end;
	uint64_t number = strtoull(name + 1, &end, 10);

	if (name[0] == '.' || *end || end == name + 1)
		return false;
	if (name[0] == 'w')
		return number == k->row.work;
	return name[0] == 'c' && history_find(all, n, number);
}

struct known {
	const struct keeper *k;
	const struct ckpt *all;
	size_t n;
};

static bool has_images(uint64_t number, void *user)
{
	const struct known *w = user;
	const struct ckpt *c = history_find(w->all, w->n, number);

	return (c && c->images) || (w->k->row.info.on_disk && w->k->row.info.images == number);
}

/* Works of rollbacks and checkpoints that were never acknowledged, images that no row speaks of any more. */
int home_sweep(struct keeper *k, struct den_err *err)
{
	struct ckpt *all = NULL;
	struct dirent *de;
	size_t n = 0;
	int fd, r = 0;
	DIR *d;

	if (!k->row.work)
		return 0;
	if (home_pool(k, err) < 0 || history_list(k->store, &k->id, &all, &n, err) < 0)
		return -1;
	fd = openat(k->pool->fd, k->id.s, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	d = fd >= 0 ? fdopendir(fd) : NULL;
	while (d && r == 0 && (de = readdir(d))) {
		char name[320];

		if (!strcmp(de->d_name, ".") || !strcmp(de->d_name, "..") || is_known(k, de->d_name, all, n))
			continue;
		snprintf(name, sizeof(name), "%s/%s", k->id.s, de->d_name);
		r = home_discard(k, name, err);
	}
	if (d)
		closedir(d);
	saved_remove_but(k->store, &k->id, has_images, &(struct known){ k, all, n });
	ckpts_free(all, n);
	return r;
}
