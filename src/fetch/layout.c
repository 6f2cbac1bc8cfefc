#include "layout.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>

#include "doc_json.h"
#include "fd.h"
#include "mem.h"

#define PART_NAME_MAX 80

static const char version_text[] = "{\"imageLayoutVersion\":\"1.0.0\"}\n";

/* Opens a directory that is no link; makes it first where that is asked. */
static int dir_open(
	int at, const char *name, bool make, uid_t uid, gid_t gid, int flags, struct den_err *err)
{
	bool made = make && mkdirat(at, name, 0755) == 0;
	int fd;

	if (make && !made && errno != EEXIST)
		return den_fail_sys(err, errno, "make directory '%s'", name);
	fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | flags);
	if (fd < 0)
		return den_fail_sys(err, errno, "open directory '%s'", name);
	if (made && uid != (uid_t)-1 && fchown(fd, uid, gid) < 0) {
		den_fail_sys(err, errno, "give directory '%s' to user %u", name, (unsigned)uid);
		close(fd);
		return -1;
	}
	return fd;
}

int layout_open(
	struct layout *l, const char *path, bool make, uid_t uid, gid_t gid, struct den_err *err)
{
	auto_fd top = dir_open(AT_FDCWD, path, make, uid, gid, 0, err);
	auto_fd mid = -1, blobs = -1;

	if (top < 0)
		return -1;
	if (flock(top, LOCK_EX | LOCK_NB) < 0)
		return errno == EWOULDBLOCK
			       ? den_fail(err, DEN_CONFLICT, 0,
					 "another process works in '%s'; wait for it to end", path)
			       : den_fail_sys(err, errno, "lock '%s'", path);
	mid = dir_open(top, "blobs", make, uid, gid, O_NOFOLLOW, err);
	if (mid < 0)
		return den_wrap(err, "'%s'", path);
	blobs = dir_open(mid, "sha256", make, uid, gid, O_NOFOLLOW, err);
	if (blobs < 0)
		return den_wrap(err, "'%s/blobs'", path);
	l->top = fd_take(&top);
	l->blobs = fd_take(&blobs);
	return 0;
}

void layout_close(struct layout *l)
{
	fd_close(&l->top);
	fd_close(&l->blobs);
}

int file_sum(int fd, uint64_t bytes, struct sha256 *sum, struct den_err *err)
{
	static char chunk[128 * 1024];

	for (uint64_t at = 0; at < bytes;) {
		ssize_t r = pread(fd, chunk, MIN(sizeof(chunk), bytes - at), (off_t)at);

		if (r < 0 && errno == EINTR)
			continue;
		if (r < 0)
			return den_fail_sys(err, errno, "read");
		if (r == 0)
			return den_fail(
				err, DEN_CONFLICT, 0, "it became shorter while it was read");
		sha256_add(sum, chunk, (size_t)r);
		at += (uint64_t)r;
	}
	return 0;
}

static int blob_is_right(
	const struct layout *l, const char *name, const struct descriptor *d, struct den_err *err)
{
	auto_fd fd = openat(l->blobs, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	struct sha256 sum;
	struct digest got;
	struct stat st;

	if (fd < 0 && (errno == ENOENT || errno == ELOOP))
		return 0;
	if (fd < 0 || fstat(fd, &st) < 0)
		return den_fail_sys(err, errno, "blob %.12s", d->digest.hex);
	if (!S_ISREG(st.st_mode) || (uint64_t)st.st_size != d->size)
		return 0;
	sha256_init(&sum);
	if (file_sum(fd, d->size, &sum, err) < 0)
		return den_wrap(err, "blob %.12s", d->digest.hex);
	digest_end(&sum, &got);
	return digest_same(&got, &d->digest);
}

int layout_has(const struct layout *l, const struct descriptor *d, struct den_err *err)
{
	char part[PART_NAME_MAX];
	int r = blob_is_right(l, d->digest.hex, d, err);

	if (r != 0)
		return r;
	/* all of it came, and the end was before it got its name */
	snprintf(part, sizeof(part), ".part-%s", d->digest.hex);
	r = blob_is_right(l, part, d, err);
	if (r > 0 && layout_part_keep(l, &d->digest, err) < 0)
		return -1;
	return r;
}

int layout_blob_open(
	const struct layout *l, const struct descriptor *d, int *ret, struct den_err *err)
{
	auto_fd fd =
		openat(l->blobs, d->digest.hex, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0)
		return den_fail_sys(
			err, errno, "blob %.12s of the layout directory", d->digest.hex);
	if (!S_ISREG(st.st_mode) || (uint64_t)st.st_size != d->size)
		return den_fail(err, DEN_CONFLICT, 0,
			"blob %.12s of the layout directory has %lld bytes, not %llu",
			d->digest.hex, (long long)st.st_size, (unsigned long long)d->size);
	*ret = fd_take(&fd);
	return 0;
}

int layout_blob_read(
	const struct layout *l, const struct descriptor *d, struct buf *ret, struct den_err *err)
{
	auto_fd fd = -1;
	auto_free char *text = NULL;
	struct digest got;
	size_t n;

	if (d->size > DOC_MAX)
		return den_fail(err, DEN_LIMIT, 0, "blob %.12s has more than %u bytes",
			d->digest.hex, DOC_MAX);
	if (layout_blob_open(l, d, &fd, err) < 0 || fd_read_all(fd, DOC_MAX, &text, &n, err) < 0)
		return -1;
	digest_of(text, n, &got);
	if (!digest_same(&got, &d->digest))
		return den_fail(err, DEN_CONFLICT, 0,
			"blob %.12s of the layout directory has another digest", d->digest.hex);
	buf_add(ret, text, n);
	return 0;
}

/* Writes a file under a ".part-" name first. */
static int small_put(int at, const char *name, const void *p, size_t n, struct den_err *err)
{
	char part[PART_NAME_MAX];
	auto_fd fd = -1;

	snprintf(part, sizeof(part), ".part-%s", name);
	unlinkat(at, part, 0);
	fd = openat(at, part, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
	if (fd < 0)
		return den_fail_sys(err, errno, "create '%s'", part);
	if (fd_write_all(fd, p, n, err) < 0) {
		unlinkat(at, part, 0);
		return den_wrap(err, "'%s'", part);
	}
	if (renameat(at, part, at, name) < 0)
		return den_fail_sys(err, errno, "rename to '%s'", name);
	return 0;
}

int layout_blob_put(const struct layout *l, const struct digest *d, const void *p, size_t n,
	struct den_err *err)
{
	return small_put(l->blobs, d->hex, p, n, err);
}

int layout_part_open(const struct layout *l, const struct digest *d, int *ret, struct den_err *err)
{
	char part[PART_NAME_MAX];
	auto_fd fd = -1;
	struct stat st;

	snprintf(part, sizeof(part), ".part-%s", d->hex);
	fd = openat(l->blobs, part, O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0644);
	if (fd < 0 || fstat(fd, &st) < 0)
		return den_fail_sys(err, errno, "create '%.24s...'", part);
	/* a second name for it would let someone else change what was checked */
	if (!S_ISREG(st.st_mode) || st.st_nlink != 1)
		return den_fail(
			err, DEN_CONFLICT, 0, "'%.24s...' is not a file of ours; remove it", part);
	*ret = fd_take(&fd);
	return 0;
}

void layout_part_remove(const struct layout *l, const struct digest *d)
{
	char part[PART_NAME_MAX];

	snprintf(part, sizeof(part), ".part-%s", d->hex);
	unlinkat(l->blobs, part, 0);
}

int layout_part_keep(const struct layout *l, const struct digest *d, struct den_err *err)
{
	char part[PART_NAME_MAX];

	snprintf(part, sizeof(part), ".part-%s", d->hex);
	if (renameat(l->blobs, part, l->blobs, d->hex) < 0)
		return den_fail_sys(err, errno, "rename '%.24s...'", part);
	return 0;
}

static char *index_text(
	const struct descriptor *image, const struct platform *p, const char *ref_name)
{
	char digest[80];
	auto_json *one = NULL, *top = NULL;

	snprintf(digest, sizeof(digest), "sha256:%s", image->digest.hex);
	one = json_pack("{s:s, s:s, s:I}", "mediaType", image->media, "digest", digest, "size",
		(json_int_t)image->size);
	if (p->os[0] && p->arch[0])
		json_object_set_new(one, "platform",
			json_pack("{s:s, s:s, s:s*}", "architecture", p->arch, "os", p->os,
				"variant", p->variant[0] ? p->variant : NULL));
	if (ref_name[0])
		json_object_set_new(one, "annotations",
			json_pack("{s:s}", "org.opencontainers.image.ref.name", ref_name));
	top = json_pack("{s:i, s:s, s:[O]}", "schemaVersion", 2, "mediaType", MEDIA_OCI_INDEX,
		"manifests", one);
	return top ? json_dumps(top, JSON_COMPACT) : NULL;
}

int layout_finish(const struct layout *l, const struct descriptor *image, const struct platform *p,
	const char *ref_name, struct den_err *err)
{
	auto_free char *index = index_text(image, p, ref_name);

	if (!index)
		return den_fail(err, DEN_LIMIT, 0, "out of memory");
	if (small_put(l->top, "oci-layout", version_text, sizeof(version_text) - 1, err) < 0)
		return -1;
	return small_put(l->top, "index.json", index, strlen(index), err);
}

int layout_image(const struct layout *l, struct descriptor *ret, struct den_err *err)
{
	auto_fd fd = openat(l->top, "index.json", O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	auto_free char *text = NULL;
	auto_doc d = { 0 };
	size_t n;

	if (fd < 0)
		return den_fail_sys(err, errno, "this is no OCI image layout: open 'index.json'");
	if (fd_read_all(fd, DOC_MAX, &text, &n, err) < 0 ||
		doc_parse(text, n, MEDIA_OCI_INDEX, &d, err) < 0)
		return den_wrap(err, "index.json");
	if (d.n_entries != 1)
		return den_fail(err, DEN_INVALID, 0,
			"index.json holds %zu images; only a layout directory with one is pushed",
			d.n_entries);
	*ret = d.entries[0].d;
	return 0;
}
