/*
 * What CRIU's image of open files says wrongly, put right:
 *   a timerfd with an interval that was due and not read   comes back stopped: it is due again at once
 *   a timerfd that was set to a moment			    comes back up to a second early: what is left of its time is
 *							    what the image has, so it is set to that
 *   an eventfd with EFD_SEMAPHORE			    comes back without: the highest bit of its counter says so
 *							    to criu_shim.c
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "fd.h"
#include "images.h"
#include "mem.h"
#include "pb.h"

#define COMMON_MAGIC 0x54564319U
#define FILES_MAGIC 0x56303138U
#define FDINFO_MAGIC 0x56213732U
#define FILES_MAX (256U << 20)

enum { FILE_TYPE = 1, FILE_ID = 2, FILE_EVENTFD = 8, FILE_TIMERFD = 12 };
enum { EVENTFD_COUNTER = 4, TIMERFD_FLAGS = 6, TIMERFD_VSEC = 7, TIMERFD_VNSEC = 8, TIMERFD_ISEC = 9, TIMERFD_INSEC = 10 };
enum { FDINFO_ID = 1, FDINFO_FD = 4, IDS_FILES = 2 };

struct messages {
	char *all;
	size_t n, at;
};

static int messages_open(int dirfd, const char *name, uint32_t magic, struct messages *ret, struct den_err *err)
{
	auto_fd fd = openat(dirfd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	uint32_t head[2];

	*ret = (struct messages){ 0 };
	if (fd < 0)
		return den_fail_sys(err, errno, "image '%s'", name);
	if (fd_read_all(fd, FILES_MAX, &ret->all, &ret->n, err) < 0)
		return den_wrap(err, "image '%s'", name);
	if (ret->n >= sizeof(head))
		memcpy(head, ret->all, sizeof(head));
	if (ret->n < sizeof(head) || head[0] != COMMON_MAGIC || head[1] != magic) {
		free(ret->all);
		return den_fail(err, DEN_INVALID, 0, "image '%s' is damaged", name);
	}
	ret->at = sizeof(head);
	return 0;
}

/* 1, 0 at the end, -1: damaged. */
static int messages_next(struct messages *m, struct pb_field *ret)
{
	uint32_t len;

	if (m->at == m->n)
		return 0;
	if (m->n - m->at < sizeof(len))
		return -1;
	memcpy(&len, m->all + m->at, sizeof(len));
	m->at += sizeof(len);
	if (len > m->n - m->at)
		return -1;
	*ret = (struct pb_field){ .p = (const uint8_t *)m->all + m->at, .n = len };
	m->at += len;
	return 1;
}

static bool is_semaphore(uint64_t id, const struct image_fds *sems)
{
	for (size_t i = 0; i < sems->n; i++)
		if (sems->v[i].id && sems->v[i].id == id)
			return true;
	return false;
}

/* *out gets the message, changed; false: it is right as it is. */
static bool mend_timerfd(const struct pb_field *t, struct buf *out)
{
	struct pb_reader r = pb_reader(t->p, t->n);
	struct pb_field f;

	bool due = !pb_find_u64(t->p, t->n, TIMERFD_VSEC, 0) && !pb_find_u64(t->p, t->n, TIMERFD_VNSEC, 0) &&
		   (pb_find_u64(t->p, t->n, TIMERFD_ISEC, 0) || pb_find_u64(t->p, t->n, TIMERFD_INSEC, 0));
	bool absolute = pb_find_u64(t->p, t->n, TIMERFD_FLAGS, 0) & TFD_TIMER_ABSTIME;

	if (!due && !absolute)
		return false;
	while (pb_next(&r, &f) > 0) {
		if (f.number == TIMERFD_VNSEC && due)
			pb_put_u64(out, TIMERFD_VNSEC, 1);
		else if (f.number == TIMERFD_FLAGS)
			pb_put_u64(out, TIMERFD_FLAGS, f.u & ~(uint64_t)TFD_TIMER_ABSTIME);
		else
			buf_add(out, f.raw, f.raw_len);
	}
	return true;
}

static void mend_eventfd(const struct pb_field *e, struct buf *out)
{
	struct pb_reader r = pb_reader(e->p, e->n);
	struct pb_field f;

	while (pb_next(&r, &f) > 0) {
		if (f.number == EVENTFD_COUNTER)
			pb_put_u64(out, EVENTFD_COUNTER, f.u | 0x80000000U);
		else
			buf_add(out, f.raw, f.raw_len);
	}
}

/* One file: appended to *out as it is to be; true if that is something else. */
static bool mend_file(const struct pb_field *file, const struct image_fds *sems, struct buf *out)
{
	bool semaphore = is_semaphore(pb_find_u64(file->p, file->n, FILE_ID, 0), sems), changed = false;
	struct pb_reader r = pb_reader(file->p, file->n);
	struct pb_field f;

	while (pb_next(&r, &f) > 0) {
		auto_buf b = { 0 };

		if (f.number == FILE_TIMERFD && f.wire == PB_BYTES && mend_timerfd(&f, &b)) {
			pb_put_bytes(out, FILE_TIMERFD, b.p, b.len);
			changed = true;
		} else if (f.number == FILE_EVENTFD && f.wire == PB_BYTES && semaphore) {
			mend_eventfd(&f, &b);
			pb_put_bytes(out, FILE_EVENTFD, b.p, b.len);
			changed = true;
		} else {
			buf_add(out, f.raw, f.raw_len);
		}
	}
	return changed;
}

/* What a descriptor of a process is called in the image of files. */
static int find_id(int dirfd, struct image_fd *fd, struct den_err *err)
{
	auto_free char *all = NULL;
	struct pb_field ids, f;
	struct messages m;
	char name[64];

	if (images_ids(dirfd, fd->pid, &all, &ids, err) < 0)
		return -1;
	snprintf(name, sizeof(name), "fdinfo-%llu.img",
		(unsigned long long)pb_find_u64(ids.p, ids.n, IDS_FILES, 0));
	if (messages_open(dirfd, name, FDINFO_MAGIC, &m, err) < 0)
		return -1;
	while (messages_next(&m, &f) > 0)
		if (pb_find_u64(f.p, f.n, FDINFO_FD, UINT64_MAX) == (uint64_t)fd->fd)
			fd->id = pb_find_u64(f.p, f.n, FDINFO_ID, 0);
	free(m.all);
	return 0;
}

int images_mend(int dirfd, struct image_fds *sems, struct den_err *err)
{
	auto_free char *all = NULL;
	auto_buf out = { 0 };
	struct messages m;
	struct pb_field f;
	bool changed = false;
	int r;

	for (size_t i = 0; i < sems->n; i++)
		if (find_id(dirfd, &sems->v[i], err) < 0)
			return -1;
	if (messages_open(dirfd, "files.img", FILES_MAGIC, &m, err) < 0)
		return -1;
	all = m.all;
	buf_add(&out, all, m.at);
	while ((r = messages_next(&m, &f)) > 0) {
		size_t at = out.len;
		uint32_t len = 0;

		buf_add(&out, &len, sizeof(len));
		changed |= mend_file(&f, sems, &out);
		len = (uint32_t)(out.len - at - sizeof(len));
		memcpy(out.p + at, &len, sizeof(len));
	}
	if (r < 0)
		return den_fail(err, DEN_INVALID, 0, "image 'files.img' is damaged");
	return changed ? file_replace_at(dirfd, "files.img", out.p, out.len, 0600, err) : 0;
}
