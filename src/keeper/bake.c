/*
 * Templates with programs running.
 *
 * STATE/baked/NAME is a symbolic link to a box, the seed: made like a full fork, but never loaded. It is on disk
 * from its first moment, and what was saved is shared with the box it comes from. A box of that template is a full
 * fork of the seed. The seed goes with its name; one without a name was never acknowledged, or is being removed:
 * swept.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "clock.h"
#include "fd.h"
#include "keeper.h"
#include "quota.h"
#include "saved.h"
#include "strv.h"

#define BAKED "baked"
#define SEED_TRIES 100 /* of 20 ms */

bool bake_find(struct store *s, const char *name, struct box_id *ret)
{
	auto_fd dir = openat(s->fd, BAKED, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	char id[64];
	ssize_t n = dir < 0 || image_name_check(name, NULL) < 0 || strchr(name, '/')
			    ? -1
			    : readlinkat(dir, name, id, sizeof(id) - 1);

	if (n <= 0)
		return false;
	id[n] = '\0';
	return box_id_parse(id, ret, NULL) == 0;
}

bool bake_named(struct store *s, const struct box_id *id)
{
	char **names = bake_names(s);
	bool found = false;

	for (size_t i = 0; names && names[i]; i++) {
		struct box_id seed;

		found |= bake_find(s, names[i], &seed) && !strcmp(seed.s, id->s);
	}
	strv_free(names);
	return found;
}

char **bake_names(struct store *s)
{
	int fd = openat(s->fd, BAKED, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	DIR *d = fd >= 0 ? fdopendir(fd) : NULL;
	struct dirent *de;
	char **out = NULL;

	while (d && (de = readdir(d)))
		if (de->d_name[0] != '.')
			strv_add(&out, de->d_name);
	if (d)
		closedir(d);
	return out;
}

/* The name is the new one's in one step; until then it is the old one's. */
static int take_over(int dir, const char *name, const char *id, struct den_err *err)
{
	char tmp[32];

	snprintf(tmp, sizeof(tmp), ".%s", id);
	if (symlinkat(id, dir, tmp) < 0 || renameat(dir, tmp, dir, name) < 0) {
		int e = errno;

		unlinkat(dir, tmp, 0);
		return den_fail_sys(err, e, "name the template");
	}
	return fsync(dir) < 0 ? den_fail_sys(err, errno, "name the template") : 0;
}

static int claim(struct store *s, const char *name, const char *id, bool replace, struct den_err *err)
{
	auto_fd dir = -1;

	if (mkdirat(s->fd, BAKED, 0700) < 0 && errno != EEXIST)
		return den_fail_sys(err, errno, "make '" BAKED "'");
	dir = openat(s->fd, BAKED, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (dir >= 0 && replace)
		return take_over(dir, name, id, err);
	if (dir < 0 || symlinkat(id, dir, name) < 0)
		return errno == EEXIST ? den_fail(err, DEN_CONFLICT, 0,
						 "there is a template '%s' already; 'den template "
						 "rm %s' removes it",
						 name, name)
				       : den_fail_sys(err, errno, "name the template");
	return fsync(dir) < 0 ? den_fail_sys(err, errno, "name the template") : 0;
}

/* The seed: a box like the other, as it was, that nobody starts. */
static int seed_make(
	struct keeper *k, const struct box_id *other, uint64_t number, struct den_err *err)
{
	struct ckpt c = { .parent = -1,
		.created_ms = clock_wall_ms(),
		.kind = CKPT_FORK,
		.message = (char *)"as it was baked",
		.origin = k->row.info.spec.from };
	auto_saved v = SAVED_NONE;

	if (memory_check(k, other, number, err) < 0 || open_template(k, err) < 0 ||
		store_box_make(k->store, &k->id, 0, &k->boxfd, &k->lock, err) < 0 ||
		home_make(k, err) < 0 || home_make_base(k, err) < 0 ||
		saved_share(k->store, other, number, &k->id, 0, err) < 0 ||
		saved_look(k->store, &k->id, 0, &v, err) < 0 || box_announce(k, err) < 0)
		return -1;
	k->base_due = k->announced = false;
	free(k->row.version);
	k->row.version = mem_strdup(k->tmpl.version);
	k->row.info.state = BOX_PAUSED;
	k->row.info.on_disk = ON_DISK_FULL;
	k->row.info.images = 0;
	k->row.info.file_bytes = quota_files(k);
	k->row.info.stopped_ms = clock_wall_ms();
	c.images = v.bytes;
	if (history_add(k->store, &k->row, &c, err) < 0)
		return -1;
	k->row_written = true;
	return quota_room(k, 0, err);
}

/* It is whose the box is: the server says whose boxes are whose, and a template's room on disk is somebody's. */
static int seed_owner(struct keeper *k, const struct box_id *other, struct den_err *err)
{
	struct box_row row = { 0 };

	if (store_get(k->store, other, &row, err) < 0)
		return -1;
	k->row.info.spec.owner = mem_take(&row.info.spec.owner);
	k->row.info.spec.quota = row.info.spec.quota;
	box_row_free(&row);
	return 0;
}

/* "ID@N" */
static int from_parse(const char *from, struct box_id *id, uint64_t *number, struct den_err *err)
{
	const char *at = from ? strchr(from, '@') : NULL;
	auto_free char *text = at ? mem_strndup(from, (size_t)(at - from)) : NULL;
	char *end;

	if (!at || box_id_parse(text, id, err) < 0)
		return den_fail(err, DEN_INVALID, 0, "bake which checkpoint? BOX@NUMBER");
	*number = strtoull(at + 1, &end, 10);
	return *end || end == at + 1
		       ? den_fail(err, DEN_INVALID, 0, "bake which checkpoint? BOX@NUMBER")
		       : 0;
}

static void seed_plain(struct box_spec *s)
{
	strv_free(s->publish);
	strv_free(s->labels);
	s->publish = s->labels = NULL; /* the owner stays: what the seed takes on disk is his */
	s->expires_ms = s->idle_ms = 0;
	s->flags = (s->flags & BOX_PIDS_DEFAULT) | BOX_SEED;
}

int req_bake(struct client *c, const struct wire_frame *f, struct buf *out, struct den_err *err)
{
	struct keeper *k = c->k;
	auto_free char *name = NULL, *from = NULL;
	struct box_id other, before = { { 0 } };
	uint64_t number = 0, flags = field_u64(f, F_FLAGS, 0);
	bool image, had;
	char old[65];
	int r;

	if (k->has_box)
		return den_fail(err, DEN_CONFLICT, 0, "this keeper has a box already");
	if (field_str(f, F_NAME, 255, &name, err) < 0 || field_str(f, F_FROM, 64, &from, err) < 0 ||
		image_name_check(name ? name : "", err) < 0 ||
		from_parse(from, &other, &number, err) < 0)
		return -1;
	if (flags & ~(uint64_t)BAKE_FLAGS)
		return den_fail(err, DEN_INVALID, 0, "bake it how?");
	image = image_find(k->store, name, old, err) == 0;
	had = bake_find(k->store, name, &before);
	if (strchr(name, '/') || !strcmp(name, "host") || !strcmp(name, "empty") || (image && !flags))
		return den_fail(err, DEN_CONFLICT, 0,
			"'%s' cannot be the name of a template with programs: it is taken, or has "
			"a /",
			name);
	k->row.slot = UINT64_MAX;
	k->row.pending = -1;
	k->row.info.spec.from = mem_take(&from);
	k->row.info.spec.flags = BOX_FULL;
	if (seed_owner(k, &other, err) < 0 || create_from(k, err) < 0)
		return -1;
	seed_plain(&k->row.info.spec);
	k->row.info.state = BOX_CREATING;
	r = seed_make(k, &other, number, err);
	if (r == 0)
		r = claim(k->store, name, k->id.s, flags & BAKE_REPLACE, err);
	if (r < 0) {
		struct den_err why = *err;

		saved_remove_but(k->store, &k->id, NULL, NULL);
		create_undo(k);
		k->gone = true;
		*err = why;
		return -1;
	}
	wire_put_str(out, F_ID, k->id.s);
	if (image && !(flags & BAKE_BESIDE)) /* from here on the programs are what the name means: this can fail */
		(void)image_untag(k->store, name, true, err);
	if (had && (flags & BAKE_REPLACE) && !bake_named(k->store, &before))
		wire_put_str(out, F_RECORD, before.s); /* nameless now: the client deletes it, or den gc */
	return 0;
}

/* Whoever made it, or looked at it, may be just leaving. */
static int open_seed(struct keeper *k, const struct box_id *id, struct den_err *err)
{
	for (int i = 0; box_open(k, id, err) < 0; i++) {
		if (err->sys != EAGAIN || i == SEED_TRIES)
			return -1;
		fd_close(&k->boxfd);
		nanosleep(&(struct timespec){ .tv_nsec = 20 * NS_PER_MS }, NULL);
	}
	return 0;
}

/* A seed goes with its last name. */
static int drop(struct keeper *k, const struct box_id *id, struct den_err *err)
{
	if (bake_named(k->store, id))
		return 0;
	if (open_seed(k, id, err) < 0 || box_delete(k, err) < 0)
		return err->code == DEN_NOT_FOUND
			       ? 0
			       : den_wrap(err, "its name is gone; 'den gc' frees the rest");
	return 0;
}

int bake_remove(struct keeper *k, const char *name, struct den_err *err)
{
	auto_fd dir = openat(k->store->fd, BAKED, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	struct box_id id;

	if (k->has_box || !bake_find(k->store, name, &id))
		return den_fail(err, DEN_NOT_FOUND, 0, "no template '%s'", name);
	if (unlinkat(dir, name, 0) < 0 || fsync(dir) < 0)
		return den_fail_sys(err, errno, "remove the template");
	return drop(k, &id, err);
}

int bake_tag(struct keeper *k, const char *from, const char *name, struct den_err *err)
{
	struct box_id seed;

	if (!bake_find(k->store, from, &seed))
		return den_fail(err, DEN_NOT_FOUND, 0, "no template '%s'", from);
	if (strchr(name, '/'))
		return den_fail(err, DEN_INVALID, 0, "the name of a template with programs has no /");
	return claim(k->store, name, seed.s, false, err);
}
