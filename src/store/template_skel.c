/*
 * The layer above a host directory that serves as lower. Overlayfs takes a directory's attributes
 * from the topmost layer that has it and a file's contents from the first that has the name, so
 * this layer changes owners and hides names without copying what is below:
 *
 *   always    - A file that others on the host may neither read nor run, or a directory that they
 *               may not enter, is covered with a whiteout: to the root of a box with id-mapped
 *               mounts it would be readable.
 *             - So are devices, sockets and FIFOs, and usr/local/etc: settings of this site, for
 *               which no allow-list can speak.
 *             - usr/sbin/policy-rc.d tells package scripts not to start services.
 *   idmap     - Nothing else: only directories on the way to such an entry are here.
 *   no idmap  - Every directory over again, owned by the caller, who is root in the box: so that
 *               root in the box can make, replace and remove names in it. With a range of ids the
 *               setuid and setgid programs too: below, they belong to an id that the box lacks, and
 *               the kernel ignores the bits of such a file.
 *
 * What stays impossible without id-mapped mounts: docs/decisions/0003-host-template.md.
 */
#include "template_make.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>

#include "fd.h"
#include "mem.h"

#define DEPTH_MAX 100 /* directories open at once: two descriptors each */
#define SETUID_MAX (64u << 20)
#define DIR_FLAGS (O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)

static const char policy_rc_d[] =
	"#!/bin/sh\n"
	"# A package that is installed in a box does not start its services by itself.\n"
	"exit 101\n";

/* A directory on the way from the top to where the walk is. */
struct frame {
	struct frame *up;
	const char *name;
	const char *path; /* in the box, without leading slash */
	int into; /* where the top is to be made */
	int dst; /* -1 until something has to be put into it */
	struct stat st;
};

struct walk {
	struct make *m;
	dev_t dev;
	bool cloned; /* the walk sees no mounts */
};

static int frame_parent(const struct frame *f)
{
	return f->up ? f->up->dst : f->into;
}

static int frame_need(struct frame *f, struct den_err *err)
{
	if (f->dst >= 0)
		return 0;
	if (f->up && frame_need(f->up, err) < 0)
		return -1;
	if (mkdirat(frame_parent(f), f->name, 0700) < 0)
		return den_fail_sys(err, errno, "make the layer's '%s'", f->path);
	f->dst = openat(frame_parent(f), f->name, DIR_FLAGS);
	if (f->dst < 0)
		return den_fail_sys(err, errno, "open the layer's '%s'", f->path);
	return 0;
}

/* An id of the host as one of the box; what no box has, and what we cannot see, becomes root's. */
static unsigned id_of_box(const struct make *m, unsigned id)
{
	return id > 65535 || (!m->idmap && id == NOBODY_ID) ? 0 : id;
}

/* When all is in it: attributes and times as on the host, where caches compare times. */
static int frame_finish(struct walk *w, struct frame *f, struct den_err *err)
{
	struct timespec times[2] = { f->st.st_atim, f->st.st_mtim };
	mode_t mode = f->st.st_mode & 07777;

	if (f->dst < 0)
		return 0;
	if (!w->m->idmap)
		mode |= 0700; /* else the caller could not remove what is in it */
	if (make_own(w->m, frame_parent(f), f->name, f->path, id_of_box(w->m, f->st.st_uid),
		    id_of_box(w->m, f->st.st_gid), mode, err) < 0)
		return -1;
	futimens(f->dst, times);
	return 0;
}

static int hide(struct walk *w, struct frame *f, const char *name, struct den_err *err)
{
	auto_fd fd = -1;

	if (frame_need(f, err) < 0)
		return -1;
	w->m->hidden++;
	if (mknodat(f->dst, name, S_IFCHR, makedev(0, 0)) == 0)
		return 0;
	/* No whiteouts here (before Linux 5.8, or forbidden): an empty file hides as well. */
	fd = openat(f->dst, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0);
	return fd < 0 ? den_fail_sys(err, errno, "hide '%s/%s'", f->path, name) : 0;
}

static int put_file(struct walk *w, struct frame *f, const char *name, const char *text, size_t n,
	const struct stat *st, struct den_err *err)
{
	auto_free char *path = NULL;
	auto_fd fd = -1;

	if (asprintf(&path, "%s/%s", f->path, name) < 0)
		return den_fail(err, DEN_INTERNAL, ENOMEM, "path");
	if (frame_need(f, err) < 0)
		return -1;
	fd = openat(f->dst, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0)
		return den_fail_sys(err, errno, "create the layer's '%s'", path);
	if (fd_write_all(fd, text, n, err) < 0)
		return den_wrap(err, "'%s'", path);
	return make_own(w->m, f->dst, name, path, id_of_box(w->m, st->st_uid),
		id_of_box(w->m, st->st_gid), st->st_mode & 07777, err);
}

static int copy_setuid(
	struct walk *w, struct frame *f, int src, const char *name, struct den_err *err)
{
	auto_fd fd = openat(src, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	auto_free char *text = NULL;
	struct stat st;
	size_t n;

	/* Only root's: one that is somebody else's would become root's, and be more than it was. */
	if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || st.st_uid != w->m->src_owner ||
		fd_read_all(fd, SETUID_MAX, &text, &n, NULL) < 0)
		return 0; /* it stays what it is: a program without the bit */
	w->m->setuid++;
	return put_file(w, f, name, text, n, &st, err);
}

static int walk_sub(struct walk *w, struct frame *up, int parent, const char *name, int depth,
	struct den_err *err);

static int walk_file(
	struct walk *w, struct frame *f, int src, const char *name, struct den_err *err)
{
	struct stat st;

	if (fstatat(src, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return 0; /* gone meanwhile */
	if (S_ISLNK(st.st_mode))
		return 0;
	if (!S_ISREG(st.st_mode) || !(st.st_mode & 0005))
		return hide(w, f, name, err);
	if ((st.st_mode & 06000) && !w->m->idmap && w->m->id_range)
		return copy_setuid(w, f, src, name, err);
	return 0;
}

static int walk_entries(struct walk *w, struct frame *f, int srcfd, int depth, struct den_err *err)
{
	DIR *d = fdopendir(srcfd);
	bool policy = false;
	struct dirent *de;
	int ret = 0;

	if (!d) {
		close(srcfd);
		return den_fail_sys(err, errno, "list '/%s'", f->path);
	}
	while (ret == 0 && (de = readdir(d))) {
		const char *name = de->d_name;
		unsigned char type = de->d_type;

		if (!strcmp(name, ".") || !strcmp(name, ".."))
			continue;
		if (type == DT_UNKNOWN) {
			struct stat st;

			if (fstatat(srcfd, name, &st, AT_SYMLINK_NOFOLLOW) == 0)
				type = IFTODT(st.st_mode);
		}
		if (type == DT_LNK)
			continue;
		if (!strcmp(f->path, "usr/sbin")) {
			policy |= !strcmp(name, "invoke-rc.d");
			if (!strcmp(name, "policy-rc.d"))
				continue; /* ours goes there, if anything */
		}
		ret = type == DT_DIR ? walk_sub(w, f, srcfd, name, depth + 1, err)
				     : walk_file(w, f, srcfd, name, err);
	}
	closedir(d);
	if (ret == 0 && policy)
		ret = put_file(w, f, "policy-rc.d", policy_rc_d, strlen(policy_rc_d),
			&(struct stat){ .st_mode = 0755 }, err);
	return ret;
}

static bool is_mount_point(int dirfd, const char *path)
{
	struct statx sx;

	return statx(dirfd, path, AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH, STATX_TYPE, &sx) == 0 &&
	       (sx.stx_attributes & STATX_ATTR_MOUNT_ROOT);
}

/* Another file system below: an overlay does not show it, but the directory that it covers. */
static bool is_elsewhere(struct walk *w, struct frame *f, int src)
{
	if (w->cloned || f->st.st_dev == w->dev || !is_mount_point(src, ""))
		return false; /* a subvolume has a device number too, and is shown */
	if (strcmp(f->path, "usr/local") != 0) /* that one becomes a tree */
		buf_addf(&w->m->notes, "/%s: left out: a file system of its own\n", f->path);
	return true;
}

/* Consumes src. */
static int walk_dir(struct walk *w, struct frame *f, int src, int depth, struct den_err *err)
{
	int ret = w->m->idmap && f->up ? 0 : frame_need(f, err);

	make_tell(w->m, "looking through the system's directories");
	w->m->dirs++;
	if (ret == 0 && !is_elsewhere(w, f, src))
		ret = walk_entries(w, f, fd_take(&src), depth, err);
	if (ret == 0)
		ret = frame_finish(w, f, err);
	fd_close(&src);
	fd_close(&f->dst);
	return ret;
}

static int walk_sub(struct walk *w, struct frame *up, int parent, const char *name, int depth,
	struct den_err *err)
{
	struct frame f = { .up = up, .name = name, .dst = -1 };
	auto_fd src = openat(parent, name, DIR_FLAGS);
	auto_free char *path = NULL;

	if (src < 0 && errno != EACCES)
		return 0; /* gone meanwhile */
	if (asprintf(&path, "%s/%s", up->path, name) < 0)
		return den_fail(err, DEN_INTERNAL, ENOMEM, "path");
	f.path = path;
	if (src < 0 || fstat(src, &f.st) < 0 || !(f.st.st_mode & 0001) || depth > DEPTH_MAX ||
		!strcmp(path, "usr/local/etc"))
		return hide(w, up, name, err);
	return walk_dir(w, &f, fd_take(&src), depth, err);
}

/* A copy of the mount without what is mounted on it: just what an overlay shows, so that nothing
 * that is covered now escapes the search for names to hide. */
static int open_bare(int dirfd, const char *path, struct den_err *err)
{
	auto_fd clone = (int)syscall(SYS_open_tree, dirfd, path,
		OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_SYMLINK_NOFOLLOW);
	int fd = clone < 0 ? -1 : openat(clone, ".", DIR_FLAGS);

	return fd < 0 ? den_fail_sys(err, errno, "look below what is mounted on '/%s'", path) : fd;
}

int skel_make(struct make *m, const char *path, int dirfd, const char *name, bool *ret_local,
	struct den_err *err)
{
	struct frame f = { .name = name, .path = path, .into = dirfd, .dst = -1 };
	struct walk w = { .m = m, .cloned = m->idmap };
	auto_fd src = m->idmap ? open_bare(m->src, path, err) : openat(m->src, path, DIR_FLAGS);
	bool local = strcmp(path, "usr") == 0 && is_mount_point(m->src, "usr/local");

	if (src < 0)
		return m->idmap ? -1 : den_fail_sys(err, errno, "open '/%s'", path);
	if (fstat(src, &f.st) < 0)
		return den_fail_sys(err, errno, "stat '/%s'", path);
	w.dev = f.st.st_dev;
	if (walk_dir(&w, &f, fd_take(&src), 0, err) < 0)
		return -1;
	*ret_local = local;
	return 0;
}
