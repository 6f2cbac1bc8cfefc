/*
 * watch: inotify, over a tree.
 *
 * A watch sees one directory, so each gets its own. A new directory may be filled before its watch
 * is there: after adding the watch its contents are listed and told as created. What arrives
 * between the two would be told twice, so what was listed is remembered until the queue has run
 * dry.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/inotify.h>
#include <unistd.h>

#include "fd.h"
#include "fs_ops.h"
#include "mem.h"
#include "walk.h"

#define WATCHES_MAX 65536U
#define WATCH_BYTES_MAX (64U << 20) /* of their paths */
#define TOLD_MAX 4096
#define MASK (IN_CREATE | IN_MODIFY | IN_CLOSE_WRITE | IN_DELETE | IN_MOVED_FROM | IN_MOVED_TO | \
	IN_ATTRIB | IN_DELETE_SELF | IN_MOVE_SELF | IN_EXCL_UNLINK)

struct watched {
	int wd;
	char *path; /* from the top; "" is the top itself */
};

struct watch {
	/* not kept open: as long as it were, the kernel would not say that it is gone */
	const char *top;
	int ino, top_wd;
	bool top_is_dir, recursive, top_gone;
	struct watched *list; /* ordered by wd: the kernel counts upward */
	size_t n, cap, bytes;
	char **told; /* paths told as created while listing */
	size_t n_told;
	char *last_write; /* path of the last event, if that was a write */
	struct fs_out out;
};

static void watch_free(struct watch *w)
{
	for (size_t i = 0; i < w->n; i++)
		free(w->list[i].path);
	for (size_t i = 0; i < w->n_told; i++)
		free(w->told[i]);
	free(w->list);
	free(w->told);
	free(w->last_write);
	fs_out_free(&w->out);
	fd_close(&w->ino);
}

/* ---- the list of watches --------------------------------------------------------------------- */

static struct watched *watched_find(struct watch *w, int wd)
{
	size_t low = 0, high = w->n;

	while (low < high) {
		size_t mid = low + (high - low) / 2;

		if (w->list[mid].wd == wd)
			return &w->list[mid];
		if (w->list[mid].wd < wd)
			low = mid + 1;
		else
			high = mid;
	}
	return NULL;
}

static void watched_drop(struct watch *w, struct watched *x)
{
	w->bytes -= strlen(x->path);
	free(x->path);
	w->n--;
	memmove(x, x + 1, (size_t)(w->list + w->n - x) * sizeof(*x));
}

static int watched_put(struct watch *w, int wd, const char *path, struct den_err *err)
{
	struct watched *x = watched_find(w, wd);
	size_t at = w->n;

	if (x) { /* the same directory under another name */
		w->bytes += strlen(path) - strlen(x->path);
		free(x->path);
		x->path = mem_strdup(path);
		return 0;
	}
	if (w->n == WATCHES_MAX || w->bytes > WATCH_BYTES_MAX)
		return den_fail(
			err, DEN_LIMIT, 0, "more than %u directories; watch fewer", WATCHES_MAX);
	if (w->n == w->cap) {
		w->cap = w->cap ? w->cap * 2 : 16;
		w->list = mem_realloc(w->list, w->cap * sizeof(*w->list));
	}
	while (at && w->list[at - 1].wd > wd) {
		w->list[at] = w->list[at - 1];
		at--;
	}
	w->list[at] = (struct watched){ wd, mem_strdup(path) };
	w->n++;
	w->bytes += strlen(path);
	return 0;
}

/* 1: it was watched before under this path; 0: it is now, or was gone before it could be */
static int watch_dir(struct watch *w, int dirfd, const char *path, struct den_err *err)
{
	struct watched *x;
	char self[32];
	int wd;

	snprintf(self, sizeof(self), "/proc/self/fd/%d", dirfd);
	wd = inotify_add_watch(w->ino, self, MASK | IN_ONLYDIR);
	if (wd >= 0) {
		x = watched_find(w, wd);
		return x && !strcmp(x->path, path) ? 1 : watched_put(w, wd, path, err);
	}
	if (errno == ENOSPC)
		return den_fail(err, DEN_LIMIT, ENOSPC, "the kernel's limit of watches is reached");
	if (errno == EACCES || errno == ENOENT)
		return 0;
	return den_fail_sys(err, errno, "watch");
}

/* ---- telling --------------------------------------------------------------------------------- */

static int tell(
	struct watch *w, enum fs_event event, const char *path, bool dir, struct den_err *err)
{
	struct fs_entry e = {
		.path = (char *)path, .event = event, .type = dir ? FS_DIR : FS_UNKNOWN
	};

	/* A program that writes in small pieces is one write, as long as nothing else happens. */
	if (event == FS_EV_WRITE && w->last_write && !strcmp(w->last_write, path))
		return 0;
	free(w->last_write);
	w->last_write = event == FS_EV_WRITE ? mem_strdup(path) : NULL;
	return fs_out_entry(&w->out, &e, err);
}

static void told_clear(struct watch *w)
{
	for (size_t i = 0; i < w->n_told; i++)
		free(w->told[i]);
	w->n_told = 0;
}

static void told_add(struct watch *w, const char *path)
{
	if (!w->told)
		w->told = mem_alloc(TOLD_MAX * sizeof(*w->told));
	if (w->n_told < TOLD_MAX) /* beyond: told twice, which is better than not at all */
		w->told[w->n_told++] = mem_strdup(path);
}

static bool told_take(struct watch *w, const char *path)
{
	for (size_t i = 0; i < w->n_told; i++)
		if (!strcmp(w->told[i], path)) {
			free(w->told[i]);
			w->told[i] = w->told[--w->n_told];
			return true;
		}
	return false;
}

/* ---- trees ----------------------------------------------------------------------------------- */

/* Watches what is below a directory that is watched already; tells it as created if asked to. */
static int watch_below(struct watch *w, int dirfd, const char *path, bool news, struct den_err *err)
{
	int fd = openat(dirfd, ".", O_RDONLY | O_DIRECTORY | O_NONBLOCK | O_CLOEXEC);
	struct walk_entry e;
	struct walk *walk;
	int r;

	if (fd < 0)
		return 0;
	if (walk_new(fd, 0, WALK_SKIP_DENIED | WALK_SKIP_KERNEL, &walk, err) < 0)
		return -1;
	while ((r = walk_next(walk, &e, err)) > 0) {
		auto_buf whole = { 0 };
		auto_fd sub = -1;
		bool dir = S_ISDIR(e.st.st_mode);

		if (*path)
			buf_addf(&whole, "%s/", path);
		buf_addstr(&whole, e.path);
		if (whole.len > 4096 * 2) { /* more than a record holds */
			walk_skip(walk);
			continue;
		}
		if (dir) /* before what is in it is listed */
			sub = openat(
				e.dirfd, e.name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		if (sub >= 0 && watch_dir(w, sub, buf_str(&whole), err) < 0) {
			r = -1;
			break;
		}
		if (!news)
			continue;
		told_add(w, buf_str(&whole));
		if (tell(w, FS_EV_CREATE, buf_str(&whole), dir, err) < 0) {
			r = -1;
			break;
		}
	}
	walk_free(walk);
	return r;
}

/* Watches all that is below the top. */
static int watch_top(struct watch *w, struct den_err *err)
{
	auto_fd fd = -1;

	if (!w->recursive || !w->top_is_dir)
		return 0;
	fd = open(w->top, O_PATH | O_DIRECTORY | O_CLOEXEC);
	return fd < 0 ? 0 : watch_below(w, fd, "", false, err);
}

/* A directory came: watch it and tell what is in it by now. */
static int dir_came(struct watch *w, const char *path, struct den_err *err)
{
	auto_fd top = open(w->top, O_PATH | O_DIRECTORY | O_CLOEXEC), fd = -1;
	int r;

	if (top >= 0)
		fd = openat(top, path, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0) /* and went */
		return 0;
	r = watch_dir(w, fd, path, err);
	if (r) /* already known: found while its parent was listed, and listed then */
		return r < 0 ? -1 : 0;
	return watch_below(w, fd, path, true, err);
}

/* A directory was moved away: what happens in it is no longer of interest, and if it was moved to
 * another place here it comes again from there. */
static void dir_went(struct watch *w, const char *path)
{
	size_t n = strlen(path);

	for (size_t i = 0; i < w->n;) {
		struct watched *x = &w->list[i];

		if (!strncmp(x->path, path, n) && (!x->path[n] || x->path[n] == '/')) {
			inotify_rm_watch(w->ino, x->wd);
			watched_drop(w, x);
		} else {
			i++;
		}
	}
}

/* ---- events ---------------------------------------------------------------------------------- */

static int lost(struct watch *w, struct den_err *err)
{
	told_clear(w);
	if (tell(w, FS_EV_LOST, "", false, err) < 0)
		return -1;
	/* Directories may have come unseen. */
	return watch_top(w, err);
}

static int self_event(struct watch *w, const struct inotify_event *ev, struct den_err *err)
{
	if (ev->mask & (IN_DELETE_SELF | IN_MOVE_SELF | IN_UNMOUNT)) {
		if (ev->wd != w->top_wd)
			return 0; /* its parent tells */
		w->top_gone = true;
		return tell(w, ev->mask & IN_MOVE_SELF ? FS_EV_RENAME : FS_EV_REMOVE, "",
			w->top_is_dir, err);
	}
	if (ev->wd != w->top_wd)
		return 0; /* a directory's own attributes: its parent tells those as well */
	if (ev->mask & (IN_MODIFY | IN_CLOSE_WRITE))
		return tell(w, FS_EV_WRITE, "", false, err);
	return ev->mask & IN_ATTRIB ? tell(w, FS_EV_CHMOD, "", w->top_is_dir, err) : 0;
}

static int event(struct watch *w, const struct inotify_event *ev, struct den_err *err)
{
	struct watched *x = watched_find(w, ev->wd);
	auto_buf path = { 0 };
	bool dir = ev->mask & IN_ISDIR;
	const char *p;

	if (ev->mask & IN_Q_OVERFLOW)
		return lost(w, err);
	if (!x)
		return 0; /* still in the queue when the watch was removed */
	if (ev->mask & IN_IGNORED) {
		watched_drop(w, x);
		return 0;
	}
	if (!ev->len || !ev->name[0])
		return self_event(w, ev, err);
	if (*x->path)
		buf_addf(&path, "%s/", x->path);
	buf_addstr(&path, ev->name);
	p = buf_str(&path);
	if (path.len > 4096 * 2)
		return 0;
	if (ev->mask & (IN_CREATE | IN_MOVED_TO)) {
		if (!told_take(w, p) && tell(w, FS_EV_CREATE, p, dir, err) < 0)
			return -1;
		return dir && w->recursive ? dir_came(w, p, err) : 0;
	}
	if (ev->mask & (IN_DELETE | IN_MOVED_FROM)) {
		told_take(w, p);
		if (dir && ev->mask & IN_MOVED_FROM)
			dir_went(w, p);
		return tell(w, ev->mask & IN_DELETE ? FS_EV_REMOVE : FS_EV_RENAME, p, dir, err);
	}
	if (ev->mask & (IN_MODIFY | IN_CLOSE_WRITE))
		return tell(w, FS_EV_WRITE, p, dir, err);
	return ev->mask & IN_ATTRIB ? tell(w, FS_EV_CHMOD, p, dir, err) : 0;
}

static int events(struct watch *w, struct den_err *err)
{
	char buf[64 << 10] __attribute__((aligned(__alignof__(struct inotify_event))));
	ssize_t n = read(w->ino, buf, sizeof(buf));

	if (n < 0)
		return errno == EAGAIN || errno == EINTR ? 0 : den_fail_sys(err, errno, "watch");
	for (char *p = buf; p < buf + n;) {
		const struct inotify_event *ev = (const void *)p;

		if (event(w, ev, err) < 0)
			return -1;
		p += sizeof(*ev) + ev->len;
	}
	free(w->last_write); /* what comes later is news again */
	w->last_write = NULL;
	return fs_out_flush(&w->out, err);
}

static int watch_loop(struct watch *w, struct den_err *err)
{
	struct pollfd p[2] = { { .fd = 0, .events = POLLIN }, { .fd = w->ino, .events = POLLIN } };

	while (!w->top_gone) {
		char ignored[512];

		if (poll(p, 2, w->n_told ? 0 : -1) < 0 && errno != EINTR)
			return den_fail_sys(err, errno, "watch");
		if (p[1].revents) {
			if (events(w, err) < 0)
				return -1;
		} else {
			told_clear(w); /* the queue has run dry */
		}
		if (p[0].revents) {
			ssize_t n = read(0, ignored, sizeof(ignored));

			if (n == 0 || (n < 0 && errno != EINTR && errno != EAGAIN))
				return 0;
		}
	}
	return 0;
}

static int watch_begin(struct watch *w, struct den_err *err)
{
	struct stat st;

	w->ino = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
	if (w->ino < 0)
		return den_fail(err, errno == EMFILE ? DEN_LIMIT : DEN_INTERNAL, errno, "inotify");
	w->top_wd = inotify_add_watch(w->ino, w->top, MASK);
	if (w->top_wd < 0)
		return den_fail_sys(err, errno, "'%s'", w->top);
	if (watched_put(w, w->top_wd, "", err) < 0)
		return -1;
	if (stat(w->top, &st) < 0)
		return den_fail_sys(err, errno, "'%s'", w->top);
	w->top_is_dir = S_ISDIR(st.st_mode);
	return watch_top(w, err);
}

int fs_watch(char *const *arg, struct den_err *err)
{
	struct watch w = { .ino = -1, .top = arg[0], .recursive = fs_flag(arg[1], 'r') };
	struct fs_entry begin = { .path = (char *)"" };
	int r = watch_begin(&w, err);

	if (r == 0)
		r = fs_out_entry(&w.out, &begin, err);
	if (r == 0)
		r = fs_out_flush(&w.out, err);
	if (r == 0)
		r = watch_loop(&w, err);
	if (r == 0)
		r = fs_out_flush(&w.out, err);
	watch_free(&w);
	return r < 0 ? den_wrap(err, "watch") : 0;
}
