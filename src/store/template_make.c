/* What all parts of making a template do: entries with owners, progress. */
#include "template_make.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "clock.h"
#include "fd.h"
#include "mem.h"

#define TELL_AFTER NS_PER_SEC
#define TELL_EVERY (NS_PER_SEC / 2)

void make_init(struct make *m, int src, int dst, bool idmap, bool id_range)
{
	struct stat st;

	*m = (struct make){ .src = src, .dst = dst, .idmap = idmap, .id_range = id_range };
	m->started = clock_mono_ns();
	/* Inside somebody else's user namespace the host's root looks like nobody. */
	if (fstatat(src, "usr", &st, AT_SYMLINK_NOFOLLOW) == 0 && st.st_uid == NOBODY_ID)
		m->src_owner = NOBODY_ID;
}

void make_free(struct make *m)
{
	free(m->users);
	free(m->groups);
	buf_free(&m->owners);
	buf_free(&m->notes);
	buf_free(&m->secret_names);
}

void make_tell(struct make *m, const char *doing)
{
	int64_t now;
	char text[128];

	if (!m->progress)
		return;
	now = clock_mono_ns();
	if (now - m->started < TELL_AFTER || now - m->told < TELL_EVERY)
		return;
	m->told = now;
	snprintf(text, sizeof(text),
		"making template host (first use): %s, %u directories, %u files", doing, m->dirs,
		m->copied);
	m->progress(text, m->user);
}

int make_own(struct make *m, int dirfd, const char *name, const char *path, unsigned uid,
	unsigned gid, mode_t mode, struct den_err *err)
{
	bool link = S_ISLNK(mode);

	if (m->idmap && fchownat(dirfd, name, uid, gid, AT_SYMLINK_NOFOLLOW) < 0)
		return den_fail_sys(err, errno, "give '%s' to %u:%u", path, uid, gid);
	/* After chown(), which takes the setuid bit away. The caller has just made the entry: what
	 * it says is no link is none. */
	if (!link && fchmodat(dirfd, name, mode & 07777, 0) < 0)
		return den_fail_sys(err, errno, "set mode of '%s'", path);
	if (m->idmap || (uid == 0 && gid == 0) || strchr(path, '\n'))
		return 0;
	if (link)
		buf_addf(&m->owners, "%u %u - %s\n", uid, gid, path);
	else
		buf_addf(&m->owners, "%u %u %o %s\n", uid, gid, mode & 07777, path);
	return 0;
}

int make_dir(struct make *m, const char *path, int *ret_fd, struct den_err *err)
{
	char part[PATH_MAX];
	const char *end = path;
	auto_fd fd = -1;

	while (*end) {
		end += strspn(end, "/");
		end += strcspn(end, "/");
		if ((size_t)(end - path) >= sizeof(part))
			return den_fail(err, DEN_INVALID, ENAMETOOLONG, "make '%s'", path);
		memcpy(part, path, (size_t)(end - path));
		part[end - path] = '\0';
		if (mkdirat(m->dst, part, 0755) == 0) {
			if (make_own(m, m->dst, part, part, 0, 0, 0755, err) < 0)
				return -1;
		} else if (errno != EEXIST) {
			return den_fail_sys(err, errno, "make '%s'", part);
		}
	}
	fd = openat(m->dst, *path ? path : ".", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return den_fail_sys(err, errno, "open '%s'", path);
	*ret_fd = fd_take(&fd);
	return 0;
}

int make_file(struct make *m, const char *path, const char *text, size_t n, unsigned uid,
	unsigned gid, mode_t mode, struct den_err *err)
{
	auto_fd fd =
		openat(m->dst, path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);

	if (fd < 0)
		return den_fail_sys(err, errno, "create '%s'", path);
	if (fd_write_all(fd, text, n, err) < 0)
		return den_wrap(err, "write '%s'", path);
	return make_own(m, m->dst, path, path, uid, gid, mode, err);
}
