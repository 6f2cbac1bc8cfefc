#include "fsop.h"

#include <endian.h>
#include <stdlib.h>
#include <string.h>

#include "mem.h"
#include "strv.h"
#include "wire.h"

const char *const fs_type_str[] = { "unknown", "file", "directory", "symlink", "fifo", "socket",
	"char", "block" };
static_assert(ARRAY_SIZE(fs_type_str) == FS_TYPES, "a type has no name");
const char *const fs_event_str[] = { "", "create", "write", "remove", "rename", "chmod", "lost" };
static_assert(ARRAY_SIZE(fs_event_str) == FS_EVENTS, "an event has no name");

void fs_entry_put(struct buf *b, const struct fs_entry *e)
{
	size_t at = b->len;
	uint32_t len = 0;

	buf_add(b, &len, sizeof(len));
	wire_put_str(b, F_PATH, e->path);
	wire_put_str(b, F_TARGET, e->target);
	wire_put_str(b, F_USER, e->user);
	wire_put_str(b, F_GROUP, e->group);
	wire_put_u64(b, F_TYPE, e->type);
	wire_put_u64(b, F_EVENT, e->event);
	wire_put_u64(b, F_MODE, e->mode);
	wire_put_u64(b, F_UID, e->uid);
	wire_put_u64(b, F_GID, e->gid);
	wire_put_u64(b, F_SIZE, e->size);
	wire_put_u64(b, F_INO, e->ino);
	wire_put_u64(b, F_NLINK, e->nlink);
	wire_put_u64(b, F_MTIME_NS, (uint64_t)e->mtime_ns);
	wire_put_str(b, F_REAL, e->real);
	if (e->link)
		wire_put_u64(b, F_LINK_MODE, e->link_mode);
	for (size_t i = 0; e->xattrs && e->xattrs[i]; i++)
		wire_put_str(b, F_XATTR, e->xattrs[i]);
	len = htole32((uint32_t)(b->len - at - sizeof(len)));
	memcpy(b->p + at, &len, sizeof(len));
}

static int entry_field(const struct wire_value *v, struct fs_entry *e, struct den_err *err)
{
	uint64_t u = 0;

	switch (v->tag) {
	case F_PATH:
		return wire_str(v, 4096 * 2, &e->path, err);
	case F_TARGET:
		return wire_str(v, 4096, &e->target, err);
	case F_USER:
		return wire_str(v, 255, &e->user, err);
	case F_GROUP:
		return wire_str(v, 255, &e->group, err);
	case F_TYPE:
		if (wire_u64(v, FS_TYPES - 1, &u, err) < 0)
			return -1;
		e->type = (enum fs_type)u;
		return 0;
	case F_EVENT:
		if (wire_u64(v, FS_EVENTS - 1, &u, err) < 0)
			return -1;
		e->event = (enum fs_event)u;
		return 0;
	case F_MODE:
		return wire_u64(v, 07777, &e->mode, err);
	case F_UID:
		return wire_u64(v, UINT32_MAX, &e->uid, err);
	case F_GID:
		return wire_u64(v, UINT32_MAX, &e->gid, err);
	case F_SIZE:
		return wire_u64(v, INT64_MAX, &e->size, err);
	case F_INO:
		return wire_u64(v, UINT64_MAX, &e->ino, err);
	case F_NLINK:
		return wire_u64(v, UINT64_MAX, &e->nlink, err);
	case F_MTIME_NS:
		if (wire_u64(v, UINT64_MAX, &u, err) < 0)
			return -1;
		e->mtime_ns = (int64_t)u;
		return 0;
	case F_REAL:
		return wire_str(v, 4096, &e->real, err);
	case F_LINK_MODE:
		e->link = true;
		return wire_u64(v, 07777, &e->link_mode, err);
	case F_XATTR:
		if (memchr(v->p, '\0', v->len) || !memchr(v->p, '=', v->len))
			return den_fail(err, DEN_INVALID, 0, "an extended attribute is no NAME=VALUE");
		strv_addn(&e->xattrs, v->p, v->len);
		return 0;
	default:
		return wire_unexpected(v, err);
	}
}

int fs_entry_get(const char *p, size_t n, struct fs_entry *ret, size_t *used, struct den_err *err)
{
	struct fs_entry e = { 0 };
	struct wire_reader rd;
	struct wire_value v;
	uint32_t len;
	int r;

	if (n < sizeof(len))
		return 0;
	memcpy(&len, p, sizeof(len));
	len = le32toh(len);
	if (len > FSOP_RECORD_MAX)
		return den_fail(err, DEN_INVALID, 0, "file record of %u bytes is too long", len);
	if (n - sizeof(len) < len)
		return 0;
	rd = wire_reader(p + sizeof(len), len);
	while ((r = wire_next(&rd, &v, err)) > 0)
		if (entry_field(&v, &e, err) < 0) {
			r = -1;
			break;
		}
	if (r < 0) {
		fs_entry_free(&e);
		return -1;
	}
	*ret = e;
	*used = sizeof(len) + len;
	return 1;
}

void fs_entry_free(struct fs_entry *e)
{
	free(e->path);
	free(e->target);
	free(e->user);
	free(e->group);
	free(e->real);
	strv_free(e->xattrs);
	*e = (struct fs_entry){ 0 };
}
