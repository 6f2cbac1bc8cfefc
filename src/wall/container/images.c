/*
 * An image begins with two numbers of 32 bits that say what it is (the inventory with one); then come messages, each
 * with its length before it.
 */
#include "images.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "fd.h"
#include "mem.h"
#include "pb.h"

#define COMMON_MAGIC 0x54564319U
#define SERVICE_MAGIC 0x55105940U
#define INVENTORY_MAGIC 0x58313116U
#define STATS_MAGIC 0x57093306U
#define CORE_MAGIC 0x55053847U
#define IDS_MAGIC 0x54432030U
#define SMALL_MAX (1U << 20)

enum { INVENTORY_ROOT_IDS = 3, CORE_IDS = 4, STATS_DUMP = 1, STATS_FREEZING = 1, STATS_FROZEN = 2 };
enum { IDS_PID_NS = 5, IDS_IPC_NS = 7 };

/* The first message of an image; *ret_all is the file. */
static int read_one(int dirfd, const char *name, uint32_t magic1, uint32_t magic2, char **ret_all,
	struct pb_field *ret, struct den_err *err)
{
	auto_fd fd = openat(dirfd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	auto_free char *all = NULL;
	uint32_t head[3] = { 0 };
	size_t n, at = magic1 ? 0 : sizeof(head[0]), len = sizeof(head) - at;

	if (fd < 0)
		return den_fail_sys(err, errno, "image '%s'", name);
	if (fd_read_all(fd, SMALL_MAX, &all, &n, err) < 0)
		return den_wrap(err, "image '%s'", name);
	if (n >= len)
		memcpy((char *)head + at, all, len);
	if (n < len || head[0] != magic1 || head[1] != magic2 || head[2] > n - len)
		return den_fail(err, DEN_INVALID, 0, "image '%s' is damaged", name);
	*ret = (struct pb_field){ .p = (const uint8_t *)all + len, .n = head[2] };
	*ret_all = mem_take(&all);
	return 0;
}

int images_ids(int dirfd, int pid, char **ret_all, struct pb_field *ret, struct den_err *err)
{
	auto_free char *all = NULL;
	struct pb_field core;
	char name[32];

	snprintf(name, sizeof(name), "ids-%d.img", pid);
	if (read_one(dirfd, name, COMMON_MAGIC, IDS_MAGIC, &all, &core, err) == 0) {
		*ret = core;
		*ret_all = mem_take(&all);
		return 0;
	}
	snprintf(name, sizeof(name), "core-%d.img", pid);
	if (read_one(dirfd, name, COMMON_MAGIC, CORE_MAGIC, &all, &core, err) < 0)
		return -1;
	if (!pb_find_bytes(core.p, core.n, CORE_IDS, ret))
		return den_fail(err, DEN_INVALID, 0, "image '%s' has no ids", name);
	*ret_all = mem_take(&all);
	return 0;
}

int images_adopt(int dirfd, bool ipc, struct den_err *err)
{
	auto_free char *inv_all = NULL, *ids_all = NULL;
	auto_buf ids = { 0 }, inv = { 0 };
	struct pb_field inventory, task, f;
	struct pb_reader r;
	uint32_t head[2] = { INVENTORY_MAGIC, 0 };

	if (read_one(dirfd, "inventory.img", 0, INVENTORY_MAGIC, &inv_all, &inventory, err) < 0 ||
		images_ids(dirfd, 1, &ids_all, &task, err) < 0)
		return -1;
	r = pb_reader(task.p, task.n);
	while (pb_next(&r, &f) > 0) {
		if (f.wire != PB_VARINT)
			continue;
		/* vm, files, fs and signals are never those of CRIU */
		if (f.number <= 4)
			pb_put_u64(&ids, f.number, 0);
		else if (f.number == IDS_PID_NS || (ipc && f.number == IDS_IPC_NS))
			pb_put_u64(&ids, f.number, f.u + 1000000);
		else
			pb_put_u64(&ids, f.number, f.u);
	}
	buf_add(&inv, head, sizeof(head));
	r = pb_reader(inventory.p, inventory.n);
	while (pb_next(&r, &f) > 0) {
		if (f.number == INVENTORY_ROOT_IDS)
			pb_put_bytes(&inv, f.number, ids.p, ids.len);
		else
			buf_add(&inv, f.raw, f.raw_len);
	}
	head[1] = (uint32_t)(inv.len - sizeof(head));
	memcpy(inv.p, head, sizeof(head));
	return file_replace_at(dirfd, "inventory.img", inv.p, inv.len, 0600, err);
}

int64_t images_frozen_ns(int dirfd)
{
	auto_free char *all = NULL;
	struct pb_field stats, dump;
	struct den_err err;

	if (read_one(dirfd, "stats-dump", SERVICE_MAGIC, STATS_MAGIC, &all, &stats, &err) < 0 ||
		!pb_find_bytes(stats.p, stats.n, STATS_DUMP, &dump))
		return 0;
	return 1000 * (int64_t)(pb_find_u64(dump.p, dump.n, STATS_FREEZING, 0) +
			       pb_find_u64(dump.p, dump.n, STATS_FROZEN, 0));
}

/* Versions of the notes: who does not know of pages would load such images with zeros. */
enum { WITHOUT_PAGES = 1, WITH_PAGES = 2 };

int images_notes_write(int dirfd, const struct image_notes *n, struct den_err *err)
{
	auto_buf b = { 0 };

	buf_addf(&b, "%d %s %s %d %d\n", n->pages ? WITH_PAGES : WITHOUT_PAGES, n->init_key, n->init_file, n->routes, n->ipc);
	buf_add(&b, n->groups.p, n->groups.len);
	return file_replace_at(dirfd, "den-notes", b.p, b.len, 0600, err);
}

int images_notes_read(int dirfd, struct image_notes *ret, struct den_err *err)
{
	auto_fd fd = openat(dirfd, "den-notes", O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	auto_free char *text = NULL;
	int version = 0, routes = 0, ipc = 0, used = 0;

	if (fd < 0)
		return den_fail_sys(err, errno, "images");
	if (fd_read_all(fd, SMALL_MAX, &text, NULL, err) < 0)
		return den_wrap(err, "images");
	if (sscanf(text, "%d %63s %127s %d %d\n%n", &version, ret->init_key, ret->init_file, &routes, &ipc, &used) != 5 ||
		(version != WITHOUT_PAGES && version != WITH_PAGES) || strchr(ret->init_file, '/') || ret->init_file[0] == '.')
		return den_fail(err, DEN_INVALID, 0, "these images were made by another version of den");
	ret->pages = version == WITH_PAGES;
	ret->routes = routes;
	ret->ipc = ipc;
	buf_addstr(&ret->groups, text + used);
	return 0;
}
