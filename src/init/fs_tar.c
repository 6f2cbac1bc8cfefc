/* tarout, tarin */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "fd.h"
#include "fs_ops.h"
#include "mem.h"
#include "tree.h"

static int to_stdout(const void *p, size_t n, void *user, struct den_err *err)
{
	return fd_write_all(1, p, n, err);
}

static ssize_t from_stdin(void *buf, size_t cap, void *user, struct den_err *err)
{
	size_t n;

	return fs_read_some(0, buf, cap, &n, err) < 0 ? -1 : (ssize_t)n;
}

/* A path that ends in no name ("/", ".", "a/..") has only contents. A link is packed as a link,
 * unless its contents are asked for, or it is written "link/". */
int fs_tarout(char *const *arg, struct den_err *err)
{
	struct tree_pack_opt opt = { .xattrs = TREE_XATTR_USER };
	size_t n = strlen(arg[0]);
	auto_fd dir = -1;
	char base[256];

	opt.follow = fs_flag(arg[1], 'c') || arg[0][n - 1] == '/';
	if (fs_split(arg[0], &dir, base, err) < 0) {
		if (err->code != DEN_INVALID || err->sys)
			return den_wrap(err, "tar");
		opt.follow = true;
		return tree_pack(AT_FDCWD, arg[0], &opt, to_stdout, NULL, NULL, err);
	}
	if (!fs_flag(arg[1], 'c'))
		opt.top = base;
	return tree_pack(dir, base, &opt, to_stdout, NULL, NULL, err);
}

int fs_tarin(char *const *arg, struct den_err *err)
{
	bool root = geteuid() == 0, layer = fs_flag(arg[1], 'w');
	/* A layer is made of boxes' own files; an archive is anybody's, and gives nobody
	 * capabilities. */
	struct tree_unpack_opt opt = { .owner = root, .special = true, .sync = true,
		.mode_clear = root ? 0 : 06000, .xattrs = layer ? TREE_XATTR_KEPT : TREE_XATTR_USER,
		.layer = layer };
	struct tree_stats stats = { 0 };
	char lost[32];
	char *const mkdir_arg[] = { arg[0], "", "p" };
	auto_fd fd = -1;

	if (fs_flag(arg[1], 'p') && fs_mkdir(mkdir_arg, err) < 0)
		return -1;
	fd = open(arg[0], O_RDONLY | O_DIRECTORY | O_NONBLOCK | O_CLOEXEC);
	if (fd < 0)
		return den_fail(err, errno == ENOTDIR ? DEN_INVALID : den_code_of_errno(errno),
			errno, "unpack into '%s'", arg[0]);
	if (tree_unpack(fd, &opt, from_stdin, NULL, &stats, err) < 0)
		return -1;
	if (!layer || !stats.lost_xattrs)
		return 0;
	snprintf(lost, sizeof(lost), "%llu\n", (unsigned long long)stats.lost_xattrs);
	return to_stdout(lost, strlen(lost), NULL, err);
}
