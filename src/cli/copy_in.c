/* From the host into a box. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "copy.h"
#include "fd.h"
#include "mem.h"
#include "tree.h"

struct in_source {
	struct copy *copy;
	struct tree_packer *packer;
	int fd;
};

static ssize_t read_packer(void *buf, size_t cap, void *user, struct den_err *err)
{
	struct in_source *s = user;
	ssize_t n = tree_packer_read(s->packer, buf, cap, err);

	if (n > 0)
		copy_progress(s->copy, (size_t)n);
	return n;
}

static ssize_t read_fd(void *buf, size_t cap, void *user, struct den_err *err)
{
	struct in_source *s = user;
	ssize_t n;

	do
		n = read(s->fd, buf, cap);
	while (n < 0 && errno == EINTR);
	if (n < 0)
		return den_fail_sys(err, errno, "read");
	copy_progress(s->copy, (size_t)n);
	return n;
}

/* The directory of the box that takes it, and the name it gets there; NULL: what is in it goes
 * straight into the directory. */
static int box_target(struct copy *c, const struct place *from, bool is_dir, const struct place *to,
	char **dir, char **name, struct den_err *err)
{
	struct box_file f;
	char *unused;

	if (box_file_stat(c, to->path, &f, err) < 0)
		return -1;
	if (!strcmp(f.type, "directory")) {
		*dir = mem_strdup(to->path);
		if (is_dir && from->contents)
			return 0;
		if (path_split(from->path, &unused, name, err) < 0)
			return -1;
		free(unused);
		return 0;
	}
	if (f.type[0] && (is_dir || to->slash))
		return den_fail(
			err, DEN_CONFLICT, 0, "'%.80s' in the box is no directory", to->path);
	if (!f.type[0] && to->slash && !is_dir)
		return den_fail(err, DEN_NOT_FOUND, 0, "there is no directory '%.80s' in the box",
			to->path);
	return path_split(to->path, dir, name, err);
}

static int send_tree(struct copy *c, const struct place *from, const char *dir, const char *name,
	struct den_err *err)
{
	struct tree_pack_opt opt = {
		.top = name,
		.follow = true,
		.owner = true, /* whoever owned it here means nothing in there: root, or --user */
		.xattrs = TREE_XATTR_USER,
	};
	struct in_source s = { .copy = c };
	int r;

	if (tree_packer_new(AT_FDCWD, from->path, &opt, &s.packer, err) < 0)
		return -1;
	r = den_tar_in(c->box, dir, &c->opt, read_packer, &s, err);
	c->skipped = tree_packer_stats(s.packer)->skipped;
	c->bytes = tree_packer_stats(s.packer)->bytes; /* of files, without what tar adds */
	tree_packer_free(s.packer);
	return r;
}

/* A pipe or a device, as <(command) is one: what can be read from it. */
static int send_bytes(struct copy *c, const struct place *from, const char *dir, const char *name,
	struct den_err *err)
{
	auto_fd fd = open(from->path, O_RDONLY | O_CLOEXEC);
	auto_buf path = { 0 };
	struct in_source s = { .copy = c, .fd = fd };

	if (fd < 0)
		return den_fail_sys(err, errno, "'%.80s'", from->path);
	buf_addf(&path, "%s/%s", dir, name);
	return den_file_write(c->box, buf_str(&path), &c->opt, read_fd, &s, err);
}

int copy_in(struct copy *c, const struct place *from, const struct place *to, struct den_err *err)
{
	auto_free char *dir = NULL, *name = NULL;
	struct in_source in = { .copy = c, .fd = STDIN_FILENO };
	struct stat st;
	bool is_dir;

	if (from->stream) {
		if (isatty(STDIN_FILENO))
			return den_fail(
				err, DEN_INVALID, 0, "'-' reads a tar stream, not a terminal");
		return den_tar_in(c->box, to->path, &c->opt, read_fd, &in, err);
	}
	if (stat(from->path, &st) < 0)
		return den_fail_sys(err, errno, "'%.80s'", from->path);
	is_dir = S_ISDIR(st.st_mode);
	if (!is_dir && from->slash)
		return den_fail(err, DEN_CONFLICT, 0, "'%.80s' is no directory", from->path);
	if (box_target(c, from, is_dir, to, &dir, &name, err) < 0)
		return -1;
	if (is_dir || S_ISREG(st.st_mode))
		return send_tree(c, from, dir, name, err);
	return send_bytes(c, from, dir, name, err);
}
