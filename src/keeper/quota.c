#include "quota.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "fd.h"
#include "parse.h"
#include "saved_size.h"

struct adding {
	struct store *s;
	const char *owner;
	struct quota_use use;
	struct saved_seen seen;
};

static int add_row(const struct box_row *row, void *user, struct den_err *err)
{
	const struct box_info *i = &row->info;
	struct adding *a = user;
	struct box_id id;

	if (!i->spec.owner || strcmp(i->spec.owner, a->owner) || i->state == BOX_DELETING)
		return 0;
	if (box_id_parse(i->spec.id, &id, err) < 0)
		return -1;
	if (i->spec.flags & BOX_SEED)
		a->use.templates += i->file_bytes;
	else
		a->use.boxes += i->spec.disk;
	a->use.images += saved_disk(a->s, &id, &a->seen);
	return 0;
}

int quota_use(struct store *s, const char *owner, struct quota_use *ret, struct den_err *err)
{
	struct adding a = { .s = s, .owner = owner };
	int r = store_each(s, add_row, &a, err);

	saved_seen_free(&a.seen);
	if (r == 0)
		*ret = a.use;
	return r;
}

int quota_room(struct keeper *k, uint64_t more, struct den_err *err)
{
	const struct box_spec *s = &k->row.info.spec;
	char quota[24], boxes[24], rest[24], need[24];
	struct quota_use u;

	if (!s->quota || !s->owner)
		return 0;
	if (quota_use(k->store, s->owner, &u, err) < 0)
		return -1;
	if (u.boxes + u.images + u.templates + more <= s->quota)
		return 0;
	format_size(s->quota, quota);
	format_size(u.boxes, boxes);
	format_size(u.images + u.templates, rest);
	format_size(more, need);
	return den_fail(err, DEN_LIMIT, EDQUOT,
		"the owner's disk quota is %s; boxes have %s, saved programs and templates %s, and "
		"this needs about %s "
		"more: remove boxes, full checkpoints or templates",
		quota, boxes, rest, need);
}

/* "RssAnon:     1234 kB" */
static uint64_t status_kb(const char *text, const char *name)
{
	const char *at = strstr(text, name);

	return at ? strtoull(at + strlen(name), NULL, 10) : 0;
}

uint64_t quota_estimate(struct keeper *k)
{
	auto_free pid_t *pids = NULL;
	struct box_stats st = { 0 };
	struct den_err ignored;
	uint64_t anon = 0, shared = 0;
	size_t n = 0;

	if (k->ops->own_kernel || k->ops->pids(&k->wall, &pids, &n, &ignored) < 0)
		return k->ops->stats(&k->wall, &st, &ignored) < 0 ? 0 : st.mem;
	for (size_t i = 0; i < n; i++) {
		char path[32], text[4096];
		ssize_t len;
		auto_fd fd = -1;

		snprintf(path, sizeof(path), "/proc/%d/status", (int)pids[i]);
		fd = open(path, O_RDONLY | O_CLOEXEC);
		len = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
		if (len <= 0)
			continue;
		text[len] = '\0';
		anon += status_kb(text, "\nRssAnon:");
		shared = MAX(shared,
			status_kb(text, "\nRssShmem:")); /* most often the same for all of them */
	}
	return (anon + shared) << 10;
}

/* Where there is a limit, all is in one file. Of copies that share their blocks one is counted. */
uint64_t quota_files(struct keeper *k)
{
	uint64_t sum = 0;

	for (size_t i = 0; i < (k->pool->kind == POOL_BTRFS ? 1 : 2); i++) {
		char name[64], path[96];
		struct stat st;

		home_name(k, i ? 'w' : 'c', i, name);
		snprintf(path, sizeof(path), "%s/disk.img", name);
		if (fstatat(k->pool->fd, path, &st, AT_SYMLINK_NOFOLLOW) == 0)
			sum += (uint64_t)st.st_blocks * 512;
	}
	return sum;
}

int clerk_disk_use(
	struct client *c, const struct wire_frame *f, struct buf *out, struct den_err *err)
{
	auto_free char *owner = NULL;
	struct quota_use u;

	if (field_str(f, F_OWNER, SPEC_MAX_OWNER, &owner, err) < 0 ||
		quota_use(c->k->store, owner ? owner : "", &u, err) < 0)
		return -1;
	wire_put_u64(out, F_DISK, u.boxes);
	wire_put_u64(out, F_IMAGE_BYTES, u.images);
	wire_put_u64(out, F_FILE_BYTES, u.templates);
	return 0;
}
