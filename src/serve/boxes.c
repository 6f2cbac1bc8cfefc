/* Boxes as their owners use them: finding, making and removing them, within quotas. index.c knows which there are. */
#include "boxes.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "buf.h"
#include "clock.h"
#include "engine.h"
#include "id.h"
#include "index.h"
#include "info_keep.h"
#include "mem.h"
#include "ports.h"
#include "turnstile.h"
#include "warm.h"

bool boxes_id(const char *text, char ret[static 21])
{
	struct box_id id;
	char spelled[24];

	if (text[0] == 'i' && strlen(text) == 19)
		snprintf(spelled, sizeof(spelled), "b-%s", text + 1);
	else if (strlen(text) == 20)
		strcpy(spelled, text);
	else
		return false;
	if (box_id_parse(spelled, &id, NULL) < 0)
		return false;
	memcpy(ret, id.s, sizeof(id.s));
	return true;
}

/* ---- finding ---- */

static int not_there(const char *ref, struct den_err *err)
{
	return den_fail(err, DEN_NOT_FOUND, 0, "there is no box '%.80s' of yours", ref);
}

static int open_id(struct req *r, const char *id, const char *ref, struct den_box **ret, struct den_err *err)
{
	if (index_gone(id))
		return not_there(ref, err);
	if (den_box_open(req_den(r), id, ret, err) == 0)
		return 0;
	if (err->code != DEN_NOT_FOUND)
		return -1;
	index_forget(id);
	return not_there(ref, err);
}

int boxes_open(struct req *r, const char *ref, struct den_box **ret, struct den_err *err)
{
	const struct who *w = req_who(r);
	char id[21];

	if (!w)
		return den_fail(err, DEN_DENIED, 0, "a key is needed");
	/* made a moment ago by somebody else, it is not in the index yet */
	if (!index_find(w, ref, id) && (!index_renew(req_den(r)) || !index_find(w, ref, id)))
		return not_there(ref, err);
	return open_id(r, id, ref, ret, err);
}

int boxes_open_any(struct req *r, const char *text, struct den_box **ret, struct den_err *err)
{
	char id[21], org[33];

	if (!boxes_id(text, id))
		return not_there(text, err);
	if (boxes_org(id, org) && req_share(r, org, err) < 0)
		return -1;
	return open_id(r, id, text, ret, err);
}

/* ---- making ---- */

/* A box without a limit would have all that is left; one of these is what a key with a quota gets unasked. */
#define DEFAULT_CPU_MILLI 1000U
#define DEFAULT_MEMORY (1ULL << 30)
#define DEFAULT_DISK (4ULL << 30)

static struct turnstile making = TURNSTILE;

static struct index_use use_plain(const struct quota *q, struct den_box_spec *s)
{
	if (q->cpu_milli && !s->cpu_milli)
		s->cpu_milli = MIN(q->cpu_milli, DEFAULT_CPU_MILLI);
	if (q->memory && !s->memory)
		s->memory = MIN(q->memory, DEFAULT_MEMORY);
	if (q->disk && !s->disk)
		s->disk = MIN(q->disk / 2, DEFAULT_DISK); /* what is saved of its programs needs room, too */
	return (struct index_use){ 1, s->cpu_milli, s->memory, s->disk };
}

/* A box of a template with programs has the limits that they were saved with; of what they had none of, one that can be
 * set later is. A limit on disk cannot: their files are where they were. */
static int use_baked(const struct quota *q, const struct den_template *t, struct den_box_spec *s, struct index_use *ret,
	struct den_err *err)
{
	struct den_box_spec like = { .cpu_milli = s->cpu_milli ? s->cpu_milli : t->cpu_milli,
		.memory = s->memory ? s->memory : t->memory,
		.disk = t->disk };

	if (q->disk && !t->disk)
		return den_fail(err, DEN_LIMIT, EDQUOT,
			"this key has a quota of disk, and the template was baked from a box without a limit on it: bake it from "
			"a box that was made with 'disk', or use a key without that quota");
	*ret = use_plain(q, &like);
	s->cpu_milli = like.cpu_milli == t->cpu_milli ? s->cpu_milli : like.cpu_milli;
	s->memory = like.memory == t->memory ? s->memory : like.memory;
	return 0;
}

static int use_of(struct req *r, struct den_box_spec *s, struct index_use *ret, struct den_err *err)
{
	const struct quota *q = &req_who(r)->quota;
	struct den_template *t;
	int res = 0;

	if ((q->cpu_milli || q->memory || q->disk) && s->template_name &&
		den_template_get(req_den(r), s->template_name, &t, NULL) == 0) {
		bool baked = t->baked;

		if (baked)
			res = use_baked(q, t, s, ret, err);
		den_templates_free(t, 1);
		if (baked)
			return res;
	}
	*ret = use_plain(q, s);
	return 0;
}

static void owner_text(const struct who *w, char out[static 64])
{
	snprintf(out, 64, "%s/%s", w->org, w->key);
}

/* What is on disk besides boxes counts, too; who has no such quota need not know. */
static int reserve(struct req *r, const char *owner, const struct index_use *use, struct den_err *err)
{
	struct den_disk_use on_disk = { 0 };

	if (req_who(r)->quota.disk && den_disk_use(req_den(r), owner, &on_disk, err) < 0)
		return -1;
	return index_reserve(req_who(r), use, on_disk.images + on_disk.templates, err);
}

/* What a quota does not allow will not be allowed in a second either: no 429, which clients try again. */
static int refused(struct req *r)
{
	req_set_fail_status(r, 403);
	return -1;
}

int boxes_create(struct req *r, const struct den_box_spec *spec, struct den_box **ret, struct den_err *err)
{
	const struct who *w = req_who(r);
	struct den_box_spec s = *spec;
	struct index_use use;
	char owner[64];
	int res;

	owner_text(w, owner);
	s.owner = owner;
	s.quota = w->quota.disk;
	if (use_of(r, &s, &use, err) < 0)
		return -1;
	if (reserve(r, owner, &use, err) < 0)
		return refused(r);
	warm_asked(&s);
	turnstile_enter(&making, w->org);
	res = den_box_create(req_den(r), &s, ret, err);
	turnstile_leave(&making, w->org);
	warm_done();
	index_reserved(w, &use, res < 0 ? NULL : den_box_id(*ret), s.name, s.labels);
	return res;
}

/* A fork has the limits of its box. One without would use up what the quota is there to keep. */
static int fork_check(const struct quota *q, const struct den_box_info *i, struct den_err *err)
{
	if ((!q->cpu_milli || i->cpu_milli) && (!q->memory || i->memory) && (!q->disk || i->disk))
		return 0;
	return den_fail(err, DEN_LIMIT, 0,
		"the box has no limit of something that this key has a quota of, and so would its fork: "
		"fork it with a key without that quota, or make a box with limits");
}

/* There is room for one: what it takes is reserved until index_reserved(). *info is to be freed. */
static int fork_reserve(struct req *r, struct den_box *box, char owner[static 64], struct den_box_info **info,
	struct index_use *use, struct den_err *err)
{
	const struct who *w = req_who(r);

	if (den_box_info(box, info, err) < 0)
		return -1;
	*use = (struct index_use){ 1, (*info)->cpu_milli, (*info)->memory, (*info)->disk };
	owner_text(w, owner);
	if (fork_check(&w->quota, *info, err) == 0 && reserve(r, owner, use, err) == 0)
		return 0;
	den_box_infos_free(*info, 1);
	return refused(r);
}

/* saved NULL: files alone */
static int fork_box(struct req *r, struct den_box *box, const char *ref, const struct den_box_spec *over,
	struct den_box **ret, struct den_saved **saved, struct den_err *err)
{
	const struct who *w = req_who(r);
	struct den_box_spec s = over ? *over : (struct den_box_spec){ .size = sizeof(s) };
	struct den_box_info *info;
	struct index_use use;
	char owner[64];
	int res;

	if (fork_reserve(r, box, owner, &info, &use, err) < 0)
		return -1;
	s.owner = owner;
	s.quota = w->quota.disk;
	/* who gave the box a time did not mean its copies to live for ever */
	if (!s.expires_ms && info->expires_ms > clock_wall_ms()) {
		s.expires_ms = info->expires_ms;
		s.on_expire = info->on_expire;
	}
	if (!s.idle_ms && info->idle_ms) {
		s.idle_ms = info->idle_ms;
		s.on_idle = info->on_idle;
	}
	turnstile_enter(&making, w->org);
	res = saved ? den_box_fork_full(box, ref, &s, ret, saved, err) : den_box_fork_as(box, ref, &s, ret, err);
	turnstile_leave(&making, w->org);
	index_reserved(w, &use, res < 0 ? NULL : den_box_id(*ret), s.name, s.labels ? s.labels : info->labels);
	den_box_infos_free(info, 1);
	return res;
}

int boxes_fork_as(struct req *r, struct den_box *box, const char *ref, const struct den_box_spec *over,
	struct den_box **ret, struct den_err *err)
{
	return fork_box(r, box, ref, over, ret, NULL, err);
}

int boxes_fork_full(struct req *r, struct den_box *box, const char *ref, const struct den_box_spec *over,
	struct den_box **ret, struct den_saved **saved, struct den_err *err)
{
	return fork_box(r, box, ref, over, ret, saved, err);
}

int boxes_fork_point(struct req *r, struct den_box *box, struct den_saved **ret, struct den_err *err)
{
	const struct who *w = req_who(r);
	struct den_box_info *info;
	struct index_use use;
	char owner[64];
	int res;

	if (fork_reserve(r, box, owner, &info, &use, err) < 0)
		return -1;
	turnstile_enter(&making, w->org);
	res = den_box_fork_point(box, ret, err);
	turnstile_leave(&making, w->org);
	index_reserved(w, &use, NULL, NULL, NULL);
	den_box_infos_free(info, 1);
	return res;
}

int boxes_delete(struct req *r, struct den_box *box, struct den_err *err)
{
	char id[21];

	(void)r;
	snprintf(id, sizeof(id), "%s", den_box_id(box));
	/* a client whose stream ends now looks at once whether the box is there: it is not */
	index_forget(id);
	http_kick_box(id);
	if (den_box_delete(box, true, err) < 0 && err->code != DEN_NOT_FOUND) {
		index_unforget(id);
		return -1;
	}
	(void)ports_forget(id, 0, NULL);
	return 0;
}

/* ---- listing ---- */

static bool is_of(const struct den_box_info *i, const void *user)
{
	const struct who *w = user;
	size_t n = strlen(w->org);

	return w->admin || (i->owner && !strncmp(i->owner, w->org, n) && i->owner[n] == '/');
}

int boxes_list(struct req *r, struct den_box_info **ret, size_t *n, struct den_err *err)
{
	struct den_box_info *all;
	size_t n_all;
	int64_t began = index_clock();

	if (den_list(req_den(r), &all, &n_all, err) < 0)
		return -1;
	index_take(all, n_all, began);
	infos_keep(&all, &n_all, is_of, req_who(r));
	*ret = all;
	*n = n_all;
	return 0;
}

void boxes_kick(const char *id)
{
	http_kick_box(id);
	index_wake();
}
