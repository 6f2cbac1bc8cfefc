/* Making a box: what was asked for, checked and completed; claims, files, start, row. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "clock.h"
#include "fd.h"
#include "gate.h"
#include "keeper.h"
#include "strv.h"
#include "volume.h"

/* ---- what was asked for, checked and completed ---- */

static int check_text(const char *what, const char *text, const char *bad, struct den_err *err)
{
	if (text && (text[0] == '\0' || strpbrk(text, bad)))
		return den_fail(err, DEN_INVALID, 0, "%s '%.60s' is not allowed", what, text);
	return 0;
}

static int check_spec(struct box_spec *s, struct den_err *err)
{
	const char *test = getenv("DEN_TEST");

	free(s->id);
	s->id = NULL; /* ours to choose */
	if (s->name && box_name_parse(s->name, &(struct box_name){ { 0 } }, err) < 0)
		return -1;
	if (!s->template_name)
		s->template_name = mem_strdup("host");
	if (!s->wall)
		s->wall = mem_strdup("container");
	if (!s->net)
		s->net = mem_strdup("none");
	if (s->history == HISTORY_DEFAULT)
		s->history = s->flags & BOX_EPHEMERAL ? HISTORY_OFF : HISTORY_ON;
	if (s->history == HISTORY_OFF && !strcmp(s->template_name, "empty"))
		s->history = HISTORY_MANUAL; /* what is unpacked there becomes a layer in the pool */
	s->flags &= ~(uint64_t)BOX_PIDS_DEFAULT;
	if (!s->pids) {
		s->pids = PIDS_DEFAULT;
		s->flags |= BOX_PIDS_DEFAULT;
	}
	if (strcmp(s->net, "none") && strcmp(s->net, "policy") && !(test && !strcmp(s->net, "host-test")))
		return den_fail(err, DEN_UNSUPPORTED, 0, "net '%.40s' is not known: none, or a policy", s->net);
	if (check_text("hostname", s->hostname, " \t\n/", err) < 0)
		return -1;
	if (s->cwd && s->cwd[0] != '/')
		return den_fail(err, DEN_INVALID, 0, "workdir '%.100s' must be absolute", s->cwd);
	for (size_t i = 0; s->env && s->env[i]; i++)
		if (s->env[i][0] == '=' || !strchr(s->env[i], '='))
			return den_fail(err, DEN_INVALID, 0, "env '%.60s' is not NAME=VALUE", s->env[i]);
	for (size_t i = 0; i < s->n_mounts; i++) {
		struct stat st;

		if (!volume_name(s->mounts[i].host) && stat(s->mounts[i].host, &st) < 0)
			return den_fail_sys(err, errno, "mount '%.150s'", s->mounts[i].host);
		if (!strcmp(s->mounts[i].box, "/") || strstr(s->mounts[i].box, "/../"))
			return den_fail(err, DEN_INVALID, 0, "cannot mount at '%.100s'", s->mounts[i].box);
	}
	if (s->memory && s->memory < (4 << 20))
		return den_fail(err, DEN_INVALID, 0, "--memory must be at least 4M");
	return lease_settle(s, err);
}

static void late_row_cb(struct loop_timer *t)
{
	struct keeper *k = CONTAINER_OF(t, struct keeper, late_row);
	struct den_err err;

	/* only so that den ls shows it and den exec finds it; nothing was promised */
	if (listen_for_clients(k, &err) == 0 && box_save(k, &err) == 0)
		fd_close(&k->image_lock);
}

void create_undo(struct keeper *k)
{
	struct den_err ignored;

	if (box_is_up(k))
		box_down(k, NULL);
	if (k->row_written)
		(void)store_delete(k->store, &k->id, &ignored);
	home_close(k);
	fd_close(&k->boxfd);
	k->in_trash = store_box_trash(k->store, &k->id, &ignored) == 0;
	fd_close(&k->image_lock);
	if (k->row.slot != UINT64_MAX)
		store_release_slot(k->store, k->row.slot, &k->id);
}

/* What the template says and the caller did not. */
void create_defaults(struct keeper *k)
{
	struct box_spec *s = &k->row.info.spec;
	char **env = NULL;

	if (!s->user)
		s->user = mem_strdup(k->defaults.user ? k->defaults.user : "root");
	if (!s->cwd && k->defaults.workdir)
		s->cwd = mem_strdup(k->defaults.workdir);
	for (size_t i = 0; k->defaults.env && k->defaults.env[i]; i++)
		strv_env_put(&env, k->defaults.env[i]);
	for (size_t i = 0; s->env && s->env[i]; i++)
		strv_env_put(&env, s->env[i]);
	strv_free(s->env);
	s->env = env;
}

/* A box and, of a fork, its first checkpoint: there together, or not at all. */
int create_row(struct keeper *k, struct den_err *err)
{
	bool fork = k->row.info.spec.from;
	struct ckpt c = { .parent = -1, .created_ms = clock_wall_ms(), .kind = fork ? CKPT_FORK : CKPT_BASE,
		.message = (char *)(fork ? "as it was forked" : "as the template is"), .origin = k->row.info.spec.from };
	char name[64], work[64];

	home_name(k, 'c', 0, name);
	home_name(k, 'w', k->row.work, work);
	/* an ordinary user's first start gave files their owners: that is no change of the box's */
	if (k->row.work && !fork && k->tmpl.owners_path && wall_ids(NULL) == IDS_SHIFTED &&
		home_snapshot(k, work, NULL, name, true, err) < 0)
		return -1;
	if (!k->row.work || (!k->base_due && faccessat(k->pool->fd, name, F_OK, AT_SYMLINK_NOFOLLOW) < 0))
		return box_save(k, err);
	if (history_add(k->store, &k->row, &c, err) < 0)
		return -1;
	k->row_written = true;
	return 0;
}

/* It begins with the programs of another box, as they were at the checkpoint that it is forked from. */
static int create_load(struct keeper *k, struct den_err *err)
{
	const char *from = k->row.info.spec.from, *at = strchr(from, '@');
	auto_free char *id = strndup(from, (size_t)(at - from));
	struct box_id other;

	k->row.info.spec.flags &= ~(uint64_t)BOX_FULL;
	if (box_id_parse(id, &other, err) < 0 || box_announce(k, err) < 0)
		return -1;
	k->announced = false;
	if (memory_load(k, &other, strtoull(at + 1, NULL, 10), err) == 0)
		return 0;
	if (err->code == DEN_NOT_FOUND)
		err->sys = ESTALE; /* images of a loan that is over are gone: whoever asked can have a copy made */
	return -1;
}

int create_build(struct keeper *k, struct den_err *err)
{
	struct box_spec *s = &k->row.info.spec;

	if (open_template(k, err) < 0)
		return -1;
	free(k->row.version);
	k->row.version = mem_strdup(k->tmpl.version);
	create_defaults(k);
	if (store_box_make(k->store, &k->id, s->history == HISTORY_OFF ? k->tmpl.n_trees : 0, &k->boxfd, &k->lock,
		    err) < 0 || home_make(k, err) < 0)
		return -1;
	/* the directory is there and locked: no claim of ours can be taken for a dead one's */
	if (s->name && store_claim_name(k->store, s->name, &k->id, err) < 0)
		return -1;
	if (geteuid() == 0 && store_claim_slot(k->store, &k->id, &k->row.slot, err) < 0)
		return -1;
	if ((s->flags & BOX_FULL ? create_load(k, err) : box_up(k, err)) < 0)
		return -1;
	k->print_due = k->row.work; /* what nobody changed is not a turn's doing */
	box_settle_later(k);
	return 0;
}

static int create_claimed(struct keeper *k, struct client *owner, struct den_err *err)
{
	struct box_spec *s = &k->row.info.spec;

	if (create_build(k, err) < 0 || lease_possible(k, err) < 0)
		return -1;
	if ((s->flags & BOX_EPHEMERAL) && !s->name && !k->row.work) {
		/* Nobody can know of it yet, nothing durable was promised, and a row costs more than
		 * such a box's whole life. */
		k->late_row.cb = late_row_cb;
		loop_timer_set(k->loop, &k->late_row, clock_mono_ns() + ROW_LATE_MS * NS_PER_MS);
	} else if (client_went(owner)) {
		/* Nobody will hear of it; who asks again shall find all that was made for him, or nothing. */
		return den_fail(err, DEN_CONFLICT, ECANCELED, "nobody waits for it any more");
	} else if (listen_for_clients(k, err) < 0 || create_row(k, err) < 0) {
		return -1;
	}
	if (k->row_written) /* else until the row is, or the box is gone: nobody may take the image away */
		fd_close(&k->image_lock);
	owner->owner = s->flags & BOX_EPHEMERAL;
	return 0;
}

int create_settle(struct keeper *k, struct box_spec *s, struct den_err *err)
{
	return check_spec(s, err) < 0 ? -1 : policy_settle(k->store, s, err);
}

/* What a fork has of its own: what was asked for takes the place of what the other box has. */
static void fork_own(struct box_spec *got, struct box_spec *asked)
{
	free(got->name);
	got->name = mem_take(&asked->name);
	free(got->owner);
	got->owner = mem_take(&asked->owner);
	got->quota = asked->quota;
	if (asked->labels) {
		strv_free(got->labels);
		got->labels = asked->labels;
		asked->labels = NULL;
	}
	if (asked->policy || asked->policy_name) {
		free(got->policy);
		free(got->policy_name);
		got->policy = mem_take(&asked->policy);
		got->policy_name = mem_take(&asked->policy_name);
	}
	got->expires_ms = asked->expires_ms;
	got->on_expire = asked->on_expire;
	got->idle_ms = asked->idle_ms;
	got->on_idle = asked->on_idle;
	got->flags = (got->flags & ~(uint64_t)(BOX_EPHEMERAL | BOX_SEED)) | (asked->flags & (BOX_EPHEMERAL | BOX_FULL));
	free(got->from);
	got->from = mem_take(&asked->from);
}

/* What is asked of a box of a template with programs, besides what a fork has of its own. */
static int baked_own(struct box_spec *got, struct box_spec *asked, struct den_err *err)
{
	uint64_t *const limits[][2] = { { &got->cpu_milli, &asked->cpu_milli }, { &got->memory, &asked->memory },
		{ &got->pids, &asked->pids }, { &got->max_runtime_ms, &asked->max_runtime_ms }, { &got->history, &asked->history } };
	char **const texts[][2] = { { &got->user, &asked->user }, { &got->cwd, &asked->cwd },
		{ &got->hostname, &asked->hostname } };

	if (asked->n_mounts || asked->disk || asked->nofile || asked->publish)
		return den_fail(err, DEN_INVALID, 0,
			"a box of a template with programs has its mounts, disk, open files and ports from that");
	/* what a policy asks for takes the place of the template's; this would be passed over, and the network be there */
	if (asked->net && !asked->policy && !asked->policy_name && (got->policy || got->policy_name) &&
		!strcmp(asked->net, "none"))
		return den_fail(err, DEN_INVALID, 0,
			"the programs of this template have a network; ask for a policy that allows nothing instead of none");
	if (asked->wall && strcmp(asked->wall, got->wall))
		return den_fail(err, DEN_INVALID, 0, "this template has programs behind the wall '%s'", got->wall);
	if (asked->history == HISTORY_OFF)
		return den_fail(err, DEN_INVALID, 0, "a box of a template with programs has a history");
	for (size_t i = 0; i < ARRAY_SIZE(limits); i++)
		if (*limits[i][1])
			*limits[i][0] = *limits[i][1];
	for (size_t i = 0; i < ARRAY_SIZE(texts); i++)
		if (*texts[i][1]) {
			free(*texts[i][0]);
			*texts[i][0] = mem_take(texts[i][1]);
		}
	for (size_t i = 0; asked->env && asked->env[i]; i++)
		strv_env_put(&got->env, asked->env[i]);
	got->flags |= asked->flags & BOX_RESEED; /* of what is started from now on */
	return 0;
}

/* What its programs hold of the other box stands here for what it stood there: gate_config.c. */
static void fork_marks(struct keeper *k, const struct box_info *other)
{
	auto_buf b = { 0 };

	buf_addf(&b, "%s %lld", other->spec.id, (long long)other->created_ms);
	strv_free(k->row.info.marks);
	k->row.info.marks = strv_copy((const char *const *)other->marks);
	strv_add(&k->row.info.marks, buf_str(&b));
	k->row.info.restores = other->restores;
}

/* A fork is what the other box is, but for what is its own. A guest's gets no port of the host. */
static int fork_spec(struct keeper *k, bool guest, struct den_err *err)
{
	struct box_spec *s = &k->row.info.spec, got = { 0 };
	const char *at = strchr(s->from, '@');
	auto_free char *id = at ? strndup(s->from, (size_t)(at - s->from)) : NULL;
	struct box_row other = { 0 };
	struct box_id other_id;
	auto_buf b = { 0 };

	if (!at || box_id_parse(id, &other_id, err) < 0 || !at[1] || strspn(at + 1, "0123456789") != strlen(at + 1))
		return den_fail(err, DEN_INVALID, 0, "'%.60s' is no checkpoint; write BOX@NUMBER", s->from);
	if (store_get(k->store, &other_id, &other, err) < 0)
		return -1;
	box_spec_put(&b, &other.info.spec);
	if (box_spec_get(b.p, b.len, &got, err) < 0) {
		box_row_free(&other);
		return -1;
	}
	if ((other.info.spec.flags & BOX_SEED) && s->template_name && baked_own(&got, s, err) < 0) {
		box_spec_free(&got);
		box_row_free(&other);
		return -1;
	}
	fork_own(&got, s);
	if (guest) {
		strv_free(got.publish);
		got.publish = NULL;
	}
	for (size_t i = 0; got.publish && got.publish[i]; i++)
		got.publish[i][strcspn(got.publish[i], "=")] = '\0'; /* outside it gets a port of its own */
	box_spec_free(s);
	*s = got;
	if (other.info.state == BOX_DELETING || !other.work) {
		den_fail(err, DEN_CONFLICT, 0, other.work ? "the box is being deleted" : "that box has no history");
		box_row_free(&other);
		return -1;
	}
	k->row.version = mem_take(&other.version);
	if (s->flags & BOX_FULL)
		fork_marks(k, &other.info);
	box_row_free(&other);
	return 0;
}

int create_from(struct keeper *k, struct den_err *err)
{
	struct box_spec *s = &k->row.info.spec;

	if (fork_spec(k, false, err) < 0)
		return -1;
	k->ops = wall_find(s->wall, err);
	if (!k->ops || box_id_make(&k->id, err) < 0)
		return -1;
	s->id = mem_strdup(k->id.s);
	k->row.info.generation = s->policy || s->policy_name;
	k->row.info.created_ms = clock_wall_ms();
	k->has_box = true;
	return 0;
}

/* While whoever will ask for a fork waits for something else: what takes time and depends on nothing. What fails here does
 * so again when it is needed. */
int req_expect(struct client *c, const struct wire_frame *f, struct buf *out, struct den_err *err)
{
	struct keeper *k = c->k;
	auto_free char *id = NULL;
	struct box_row row = { 0 };
	struct den_err ignored;
	struct box_id box;

	(void)out, (void)err;
	if (k->has_box || field_str(f, F_ID, 64, &id, &ignored) < 0 || !id || box_id_parse(id, &box, &ignored) < 0)
		return 1;
	store_hold(k->store);
	if (store_get(k->store, &box, &row, &ignored) == 0)
		box_row_free(&row);
	if (!k->pool)
		(void)pool_open(k->store->fd, k->store->path, NULL, &k->pool, &ignored);
	return 1;
}

int box_create(struct keeper *k, const char *spec, size_t len, struct client *owner, struct den_err *err)
{
	struct box_spec *s = &k->row.info.spec;
	struct box_id seed;
	int r;

	if (k->has_box)
		return den_fail(err, DEN_CONFLICT, 0, "this keeper has a box already");
	if (box_spec_get(spec, len, s, err) < 0)
		return -1;
	k->row.slot = UINT64_MAX;
	k->row.pending = -1;
	if ((s->flags & BOX_FULL) && !s->from)
		return den_fail(err, DEN_INVALID, 0, "programs of which box?");
	s->flags &= ~(uint64_t)BOX_SEED; /* ours to say */
	if (!s->from && s->template_name && bake_find(k->store, s->template_name, &seed)) {
		s->from = mem_alloc(sizeof(seed.s) + 3);
		sprintf(s->from, "%s@0", seed.s);
		s->flags |= BOX_FULL;
	}
	if ((s->from && fork_spec(k, owner->guest, err) < 0) || (owner->guest && guest_spec(s, err) < 0) ||
		create_settle(k, s, err) < 0)
		return -1;
	k->row.info.generation = s->policy || s->policy_name;
	k->ops = wall_find(s->wall, err);
	if (!k->ops || box_id_make(&k->id, err) < 0)
		return -1;
	s->id = mem_strdup(k->id.s);
	k->row.info.state = BOX_CREATING;
	k->row.info.created_ms = clock_wall_ms();
	k->has_box = true;
	store_hold(k->store); /* one connection to the database for all of it */
	r = create_claimed(k, owner, err);
	store_let_go(k->store);
	if (r < 0) {
		struct den_err why = *err;

		create_undo(k);
		if (s->name)
			store_release_name(k->store, s->name, &k->id);
		*err = why;
		k->gone = true;
		return -1;
	}
	feed_state(k, s->from ? "box.forked" : "box.created");
	feed_state(k, "box.started");
	return 0;
}
