#include "merge.h"

#include <stdlib.h>
#include <string.h>

#include "change_parts.h"
#include "mem.h"
#include "tar.h"

enum { BASE, OURS, THEIRS };
#define SIDE(s) (1U << (s))
#define ALL_SIDES (SIDE(BASE) | SIDE(OURS) | SIDE(THEIRS))

struct merge {
	const struct view *views[VIEW_SIDES];
	const struct merge_rule *rules;
	size_t n_rules;
	int (*conflict)(const struct merge_conflict *c, void *user, struct den_err *err);
	void *user;
	struct view_walk *walk;
	struct layer_out *out; /* NULL: only count */
	struct merge_result result;
};

static const char why_name[] =
	"a layer cannot say it of its name, which is too long or begins with '.wh.'";

/* ---- comparing ------------------------------------------------------------------------------- */

static bool is_dir(const struct view_entry *e, int side)
{
	return e->node[side].there && S_ISDIR(e->node[side].st.st_mode);
}

static int sides_what(const struct view_entry *e, int a, int b, uint32_t *ret, struct den_err *err)
{
	if (node_compare(e->dir[a], &e->node[a], e->dir[b], &e->node[b], e->name, ret, err) < 0)
		return den_wrap(err, "'%s'", tar_show(e->path).s);
	return 0;
}

/* Is everything below a directory the same on two sides? 1, 0, -1. */
static int below_equal(const struct merge *m, const char *path, int a, int b, struct den_err *err)
{
	struct view_walk *w;
	struct view_entry e;
	int r;

	if (view_walk_new((const struct view *[]){ m->views[a], m->views[b] }, 2, path, &w, err) <
		0)
		return -1;
	while ((r = view_walk_next(w, &e, err)) > 0) {
		struct change c;

		layer_forget_special(&e.node[0]);
		layer_forget_special(&e.node[1]);
		if (!e.node[0].there && !e.node[1].there)
			continue;
		r = change_of(&e, &c, err);
		if (r)
			break;
		view_walk_enter(w, 3, false);
	}
	view_walk_free(w);
	return r < 0 ? -1 : !r;
}

/* With all that is below. 1, 0, -1. */
static int sides_equal(
	const struct merge *m, const struct view_entry *e, int a, int b, struct den_err *err)
{
	uint32_t what;

	if (e->node[a].there != e->node[b].there)
		return 0;
	if (!e->node[a].there)
		return 1;
	if (sides_what(e, a, b, &what, err) < 0)
		return -1;
	if (what)
		return 0;
	return is_dir(e, a) ? below_equal(m, e->path, a, b, err) : 1;
}

/* ---- deciding -------------------------------------------------------------------------------- */

static bool rule_fits(const struct merge_rule *r, const char *path)
{
	size_t n = r->path ? strlen(r->path) : 0;

	return !n || (!strncmp(r->path, path, n) && (!path[n] || path[n] == '/'));
}

static enum merge_choice choice_of(const struct merge *m, const char *path)
{
	for (size_t i = m->n_rules; i; i--)
		if (rule_fits(&m->rules[i - 1], path))
			return m->rules[i - 1].choice;
	return MERGE_ASK;
}

static int conflict_tell(struct merge *m, const char *path, const char *why, struct den_err *err)
{
	struct merge_conflict c = { .path = path, .why = why };

	m->result.conflicts++;
	return m->conflict ? m->conflict(&c, m->user, err) : 0;
}

static int put(struct merge *m, const struct layer_entry *le, struct den_err *err)
{
	return m->out ? layer_put(m->out, le, err) : 0;
}

/* Their version of an entry that is not a directory on both sides. */
static int take(struct merge *m, const struct view_entry *e, struct den_err *err)
{
	const struct view_node *n = &e->node[THEIRS];
	struct layer_entry le = {
		.path = e->path, .name = e->name, .dir = e->dir[THEIRS], .node = n
	};

	if (n->there ? !layer_can_name(e->name) : !layer_can_remove(e->name)) {
		if (choice_of(m, e->path) == MERGE_OURS) {
			m->result.kept++;
			return 0;
		}
		return conflict_tell(m, e->path, why_name, err);
	}
	m->result.taken++;
	if (!n->there)
		return m->out ? layer_put_removal(m->out, e->path, err) : 0;
	/* Of what is in it, ours has nothing: all of it will be taken. */
	view_walk_enter(m->walk, SIDE(THEIRS), true);
	return put(m, &le, err);
}

static int conflict(
	struct merge *m, const struct view_entry *e, const char *why, struct den_err *err)
{
	switch (choice_of(m, e->path)) {
	case MERGE_OURS:
		m->result.kept++;
		return 0;
	case MERGE_THEIRS:
		return take(m, e, err);
	default:
		return conflict_tell(m, e->path, why, err);
	}
}

/* ---- the parts of a node --------------------------------------------------------------------- */

/* What changed: from the base to ours, to theirs, and between the two. */
struct differ {
	uint32_t ours, theirs, both;
};

/* Which side's version of a part it is; -1: both changed it, in different ways. */
static int part_side(const struct differ *d, uint32_t part)
{
	if (!(d->theirs & part) || !(d->both & part))
		return OURS;
	return d->ours & part ? -1 : THEIRS;
}

static const char *part_why(uint32_t part)
{
	switch (part) {
	case CHANGED_MODE:
		return "both sides changed its mode";
	case CHANGED_OWNER:
		return "both sides changed its owner";
	case CHANGED_XATTR:
		return "both sides changed its attributes";
	case CHANGED_TARGET:
		return "both sides changed where it points";
	default:
		return "both sides changed it";
	}
}

/* Everything but a file's content. -1: *why says which part is a conflict. */
static int parts_choose(const struct view_entry *e, const struct differ *d, struct layer_entry *le,
	const char **why)
{
	static const uint32_t parts[] = { CHANGED_MODE, CHANGED_OWNER, CHANGED_XATTR,
		CHANGED_TARGET };

	for (size_t i = 0; i < ARRAY_SIZE(parts); i++) {
		int side = part_side(d, parts[i]);

		if (side < 0) {
			*why = part_why(parts[i]);
			return -1;
		}
		if (parts[i] == CHANGED_MODE) {
			le->mode = &e->node[side];
		} else if (parts[i] == CHANGED_OWNER) {
			le->owner = &e->node[side];
		} else if (parts[i] == CHANGED_XATTR) {
			le->xattr = &e->node[side];
			le->xattr_dir = e->dir[side];
		} else {
			le->node = &e->node[side];
			le->dir = e->dir[side];
		}
	}
	return 0;
}

/* 0: merged, le->text is set, free() it; 1: a conflict, *why; -1. */
static int content_merge(const struct view_entry *e, struct layer_entry *le, const char **why,
	struct den_err *err)
{
	auto_free char *base = NULL, *ours = NULL, *theirs = NULL;
	char **text[] = { &base, &ours, &theirs };
	struct buf merged = { 0 };
	size_t len[3];
	int r = 1;

	*why = "both sides changed it, and it is not a text";
	for (int s = BASE; s <= THEIRS && r > 0; s++)
		r = text_read(e->dir[s], e->name, &e->node[s], text[s], &len[s], err);
	if (r <= 0)
		return r < 0 ? den_wrap(err, "'%s'", tar_show(e->path).s) : 1;
	r = merge_text(base, len[BASE], ours, len[OURS], theirs, len[THEIRS], &merged, err);
	if (r) {
		buf_free(&merged);
		*why = "both sides changed the same lines";
		return r;
	}
	le->text_len = merged.len;
	le->text = buf_str(&merged);
	return 0;
}

/* A file, link or fifo on all three sides. */
static int node_merge(
	struct merge *m, const struct view_entry *e, const struct differ *d, struct den_err *err)
{
	struct layer_entry le = { .path = e->path, .name = e->name };
	int content = part_side(d, CHANGED_CONTENT), r = 0;
	const char *why;

	if (parts_choose(e, d, &le, &why) < 0)
		return conflict(m, e, why, err);
	if (content >= 0 && S_ISREG(e->node[OURS].st.st_mode)) {
		le.node = &e->node[content];
		le.dir = e->dir[content];
	}
	if (content < 0)
		r = content_merge(e, &le, &why, err);
	if (r)
		return r < 0 ? -1 : conflict(m, e, why, err);
	if (content < 0)
		m->result.merged++;
	else if (le.node == &e->node[OURS] && le.mode == le.node && le.owner == le.node &&
		 le.xattr == le.node) {
		m->result.agreed++; /* theirs changed nothing that ours did not change likewise */
		return 0;
	} else
		m->result.taken++;
	if (!S_ISREG(le.node->st.st_mode))
		le.xattr = NULL;
	if (!layer_can_name(e->name))
		r = conflict_tell(m, e->path, why_name, err);
	else
		r = put(m, &le, err);
	free((char *)le.text);
	return r;
}

/* A directory on both sides, and maybe in the base: only itself. */
static int dir_merge(struct merge *m, const struct view_entry *e, struct den_err *err)
{
	struct layer_entry le = { .path = e->path, .name = e->name, .dir = e->dir[OURS],
		.node = &e->node[OURS] };
	bool in_base = is_dir(e, BASE);
	struct differ d = { 0 };
	const char *why;

	if (sides_what(e, OURS, THEIRS, &d.both, err) < 0)
		return -1;
	if (in_base && (sides_what(e, BASE, OURS, &d.ours, err) < 0 ||
			       sides_what(e, BASE, THEIRS, &d.theirs, err) < 0))
		return -1;
	if (!d.both) {
		m->result.agreed += !in_base || d.theirs;
		return 0;
	}
	if (!in_base) /* made on both sides */
		d.ours = d.theirs = d.both;
	if (!d.theirs) {
		m->result.kept++;
		return 0;
	}
	if (parts_choose(e, &d, &le, &why) < 0) {
		switch (choice_of(m, e->path)) {
		case MERGE_OURS:
			m->result.kept++;
			return 0;
		case MERGE_THEIRS:
			le.mode = le.owner = le.xattr = &e->node[THEIRS];
			le.xattr_dir = e->dir[THEIRS];
			break;
		default:
			return conflict_tell(m, e->path, why, err);
		}
	}
	le.node = &e->node[OURS];
	le.dir = e->dir[OURS];
	if (le.mode == le.node && le.owner == le.node && le.xattr == le.node) {
		m->result.agreed++;
		return 0;
	}
	if (!layer_can_name(e->name))
		return conflict_tell(m, e->path, why_name, err);
	m->result.taken++;
	return put(m, &le, err);
}

/* ---- entries --------------------------------------------------------------------------------- */

static const char *why_of(const struct view_entry *e)
{
	if (!e->node[BASE].there)
		return "added on both sides, differently";
	if (!e->node[OURS].there)
		return "removed here, changed there";
	if (!e->node[THEIRS].there)
		return "changed here, removed there";
	return "made something else of on one side, changed on the other";
}

/* Not a directory on both sides. */
static int entry_merge(struct merge *m, const struct view_entry *e, struct den_err *err)
{
	int theirs_same = sides_equal(m, e, BASE, THEIRS, err), ours_same;
	struct differ d;

	ours_same = theirs_same < 0 ? -1 : sides_equal(m, e, BASE, OURS, err);
	if (ours_same < 0)
		return -1;
	if (theirs_same) {
		m->result.kept += !ours_same;
		return 0;
	}
	if (ours_same)
		return take(m, e, err);
	if (!e->node[OURS].there && !e->node[THEIRS].there) {
		m->result.agreed++;
		return 0;
	}
	if (!e->node[OURS].there || !e->node[THEIRS].there)
		return conflict(m, e, why_of(e), err);
	if (sides_what(e, OURS, THEIRS, &d.both, err) < 0)
		return -1;
	if (!d.both) {
		m->result.agreed++;
		return 0;
	}
	if (!e->node[BASE].there || d.both & CHANGED_TYPE)
		return conflict(m, e, why_of(e), err);
	if (sides_what(e, BASE, OURS, &d.ours, err) < 0 ||
		sides_what(e, BASE, THEIRS, &d.theirs, err) < 0)
		return -1;
	if (d.ours & CHANGED_TYPE) /* both made the same other kind of it */
		return conflict(m, e, "both sides made something else of it, differently", err);
	return node_merge(m, e, &d, err);
}

static int entry_step(struct merge *m, struct view_entry *e, struct den_err *err)
{
	for (int s = BASE; s <= THEIRS; s++)
		layer_forget_special(&e->node[s]);
	if (e->mount) {
		view_walk_enter(m->walk, ALL_SIDES, true);
		return 0;
	}
	if (is_dir(e, OURS) && is_dir(e, THEIRS)) {
		view_walk_enter(m->walk, ALL_SIDES, true);
		return dir_merge(m, e, err);
	}
	if (!e->node[BASE].there && !e->node[OURS].there && !e->node[THEIRS].there)
		return 0;
	return entry_merge(m, e, err);
}

int merge_views(const struct view *base, const struct view *ours, const struct view *theirs,
	const struct merge_rule *rules, size_t n_rules,
	int (*conflict_fn)(const struct merge_conflict *c, void *user, struct den_err *err),
	change_sink sink, void *user, struct merge_result *ret, struct den_err *err)
{
	struct merge m = { .views = { base, ours, theirs }, .rules = rules, .n_rules = n_rules,
		.conflict = conflict_fn, .user = user };
	struct layer_out out;
	struct view_entry e;
	int r;

	if (view_walk_new(m.views, VIEW_SIDES, "", &m.walk, err) < 0)
		return den_wrap(err, "merge");
	layer_out_init(&out, sink, user);
	m.out = sink ? &out : NULL;
	while ((r = view_walk_next(m.walk, &e, err)) > 0) {
		if (view_path_is_dens(e.path))
			continue;
		r = entry_step(&m, &e, err);
		if (r < 0)
			break;
	}
	if (r == 0 && m.out)
		r = layer_out_end(&out, err);
	m.result.lost = out.lost;
	layer_out_free(&out);
	view_walk_free(m.walk);
	if (r < 0)
		return den_wrap(err, "merge");
	if (ret)
		*ret = m.result;
	return 0;
}
