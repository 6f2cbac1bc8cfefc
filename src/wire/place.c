#include "place.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "buf.h"
#include "fd.h"
#include "mem.h"

static int absolute(const char *path, char **ret, struct den_err *err)
{
	auto_free char *cwd = NULL;
	auto_buf b = { 0 };

	if (path[0] == '/') {
		*ret = mem_strdup(path);
		return 0;
	}
	cwd = getcwd(NULL, 0);
	if (!cwd)
		return den_fail_sys(err, errno, "working directory (give an absolute --state)");
	buf_addf(&b, "%s/%s", cwd, path);
	*ret = mem_strdup(buf_str(&b));
	return 0;
}

int place_state(const char *asked, char **ret, struct den_err *err)
{
	const char *env = getenv("DEN_STATE"), *xdg = getenv("XDG_STATE_HOME"),
		   *home = getenv("HOME");
	auto_buf b = { 0 };

	if (asked && *asked)
		return absolute(asked, ret, err);
	if (env && *env)
		return absolute(env, ret, err);
	if (geteuid() == 0)
		buf_addstr(&b, "/var/lib/den");
	else if (xdg && xdg[0] == '/')
		buf_addf(&b, "%s/den", xdg);
	else if (home && home[0] == '/')
		buf_addf(&b, "%s/.local/state/den", home);
	else
		return den_fail(err, DEN_INVALID, 0,
			"no place for state: HOME is not set; give --state DIR or set DEN_STATE");
	*ret = mem_strdup(buf_str(&b));
	return 0;
}

static int make_parents(const char *path, struct den_err *err)
{
	auto_free char *p = mem_strdup(path);

	for (char *s = p + 1; (s = strchr(s, '/')); s++) {
		*s = '\0';
		if (mkdir(p, 0755) < 0 && errno != EEXIST)
			return den_fail_sys(err, errno, "make '%s'", p);
		*s = '/';
	}
	return 0;
}

/* ext4 puts directories that are made side by side into one group of blocks; where boxes come and
 * go by the hundred it then searches ever longer for an inode that was not freed just now. Told
 * that these are separate trees, it spreads them. Other file systems have no such flag. */
static void spread_boxes(int statefd)
{
	auto_fd fd = openat(statefd, PLACE_BOXES, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	unsigned flags = 0;

	if (fd < 0 || ioctl(fd, FS_IOC_GETFLAGS, &flags) < 0 || (flags & FS_TOPDIR_FL))
		return;
	flags |= FS_TOPDIR_FL;
	(void)ioctl(fd, FS_IOC_SETFLAGS, &flags);
}

int place_open(const char *state, bool create, int *ret_fd, struct den_err *err)
{
	static const char *const sub[] = { PLACE_NAMES, PLACE_IDS, PLACE_LIB, PLACE_TEMPLATES,
		PLACE_TRASH, PLACE_BOXES };
	auto_fd fd = -1;
	struct stat st;

	fd = open(state, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0 && errno == ENOENT && create) {
		if (make_parents(state, err) < 0)
			return den_wrap(err, "state directory");
		if (mkdir(state, 0700) < 0 && errno != EEXIST)
			return den_fail_sys(err, errno, "make state directory '%s'", state);
		fd = open(state, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	}
	if (fd < 0)
		return den_fail_sys(err, errno, "state directory '%s'", state);
	if (fstat(fd, &st) < 0)
		return den_fail_sys(err, errno, "state directory '%s'", state);
	/* Whoever can write here owns the boxes; a directory of somebody else is not ours to
	 * use. */
	if (st.st_uid != geteuid() || (st.st_mode & 022))
		return den_fail(err, DEN_DENIED, 0,
			"state directory '%s' must belong to you and be writable by you alone",
			state);
	if (create && faccessat(fd, PLACE_BOXES, F_OK, 0) < 0) { /* boxes is made last */
		for (size_t i = 0; i < ARRAY_SIZE(sub); i++)
			if (mkdirat(fd, sub[i], 0700) < 0 && errno != EEXIST)
				return den_fail_sys(err, errno, "make '%s/%s'", state, sub[i]);
		spread_boxes(fd);
	}
	*ret_fd = fd_take(&fd);
	return 0;
}

static int resolve_prefix(int statefd, const char *ref, struct box_id *ret, struct den_err *err)
{
	int fd = openat(statefd, PLACE_BOXES, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *d = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *de;
	int found = 0;

	if (!d) {
		fd_close(&fd);
		return den_fail(err, DEN_NOT_FOUND, 0, "no box '%.80s'; 'den ls' lists them", ref);
	}
	while ((de = readdir(d)))
		if (!strncmp(de->d_name, ref, strlen(ref)) &&
			box_id_parse(de->d_name, ret, NULL) == 0)
			found++;
	closedir(d);
	if (found > 1)
		return den_fail(
			err, DEN_INVALID, 0, "'%s' fits %d boxes; give more of the id", ref, found);
	return found ? 0 : den_fail(err, DEN_NOT_FOUND, 0, "no box '%s'; 'den ls' lists them", ref);
}

int place_resolve(int statefd, const char *ref, struct box_id *ret, struct den_err *err)
{
	char path[96], target[32];
	struct box_name name;
	struct box_id id;
	ssize_t n;

	if (box_id_looks(ref))
		return box_id_parse(ref, ret, err);
	if (box_name_parse(ref, &name, err) < 0)
		return -1;
	snprintf(path, sizeof(path), PLACE_NAMES "/%s", name.s);
	n = readlinkat(statefd, path, target, sizeof(target) - 1);
	if (n > 0) {
		target[n] = '\0';
		if (box_id_parse(target, ret, err) < 0)
			return den_wrap(err, "name '%s'", ref);
		return 0;
	}
	/* "i" and the same 18 characters: how E2B's clients are told it */
	if (ref[0] == 'i' && strlen(ref) == sizeof(id.s) - 2) {
		snprintf(path, sizeof(path), "b-%s", ref + 1);
		if (box_id_parse(path, &id, NULL) == 0) {
			*ret = id;
			return 0;
		}
	}
	if (!strncmp(ref, "b-", 2) && strlen(ref) >= 8) {
		if (resolve_prefix(statefd, ref, &id, err) < 0)
			return -1;
		*ret = id;
		return 0;
	}
	return den_fail(err, DEN_NOT_FOUND, 0, "no box '%s'; 'den ls' lists them", ref);
}

int place_box(int statefd, const struct box_id *id, int *ret_fd, struct den_err *err)
{
	char path[64];
	int fd;

	snprintf(path, sizeof(path), PLACE_BOXES "/%s", id->s);
	fd = openat(statefd, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0 && errno == ENOENT)
		return den_fail(err, DEN_NOT_FOUND, 0, "no box '%s'; 'den ls' lists them", id->s);
	if (fd < 0)
		return den_fail_sys(err, errno, "box '%s'", id->s);
	*ret_fd = fd;
	return 0;
}

/* A socket address holds 107 bytes, and state directories may be deeper: go through the
 * descriptor. */
static void address(int dirfd, const char *name, struct sockaddr_un *ret)
{
	*ret = (struct sockaddr_un){ .sun_family = AF_UNIX };
	snprintf(ret->sun_path, sizeof(ret->sun_path), "/proc/self/fd/%d/%s", dirfd, name);
}

int place_connect(int dirfd, const char *name, int *ret_fd, struct den_err *err)
{
	auto_fd fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	struct sockaddr_un a;

	if (fd < 0)
		return den_fail_sys(err, errno, "socket");
	address(dirfd, name, &a);
	if (connect(fd, (struct sockaddr *)&a, sizeof(a)) < 0)
		return den_fail_sys(err, errno, "connect to %s", name);
	*ret_fd = fd_take(&fd);
	return 0;
}

int place_listen(int dirfd, const char *name, int *ret_fd, struct den_err *err)
{
	auto_fd fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	struct sockaddr_un a;

	if (fd < 0)
		return den_fail_sys(err, errno, "socket");
	unlinkat(dirfd, name, 0); /* of a keeper that died; the caller holds the lock */
	address(dirfd, name, &a);
	if (bind(fd, (struct sockaddr *)&a, sizeof(a)) < 0 || listen(fd, 128) < 0)
		return den_fail_sys(err, errno, "listen at %s", name);
	*ret_fd = fd_take(&fd);
	return 0;
}
