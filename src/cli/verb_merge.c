#include <stdio.h>
#include <string.h>

#include "cli.h"
#include "mem.h"
#include "points.h"
#include "strv.h"
#include "verbs.h"

static const struct option_def merge_options[] = {
	{ "into", 0, OPT_TEXT, offsetof(struct args, into), "BOX",
		"the box to bring it into (default: the one that it was forked from)" },
	{ "ours", 0, OPT_FLAG, offsetof(struct args, ours), NULL,
		"where both changed the same, that box's version stays", "theirs" },
	{ "theirs", 0, OPT_FLAG, offsetof(struct args, theirs), NULL,
		"the fork's version is taken" },
	{ "path", 0, OPT_LIST, offsetof(struct args, paths), "PATH=ours|theirs",
		"the same for a path and all below; may be repeated" },
	{ 0 },
};

struct merge {
	const struct args *args;
	char *into; /* as the user would write it */
	char **paths; /* what the rules point to */
	struct den_merge_rule *rules;
	size_t n_rules;
	struct buf list; /* conflicts for people */
	struct json json; /* conflicts for programs */
	char *first; /* path of one, for the hint */
};

static void merge_free(struct merge *m)
{
	free(m->into);
	strv_free(m->paths);
	free(m->rules);
	buf_free(&m->list);
	buf_free(&m->json.b);
	free(m->first);
}

/* The last rule that fits decides, so what goes for everything stands first. */
static int make_rules(struct merge *m, struct den_err *err)
{
	const struct args *a = m->args;
	size_t n = strv_len(a->paths);

	m->rules = mem_zalloc((n + 1) * sizeof(*m->rules));
	if (a->ours || a->theirs)
		m->rules[m->n_rules++] = (struct den_merge_rule){ NULL, a->theirs };
	for (size_t i = 0; i < n; i++) {
		const char *eq = strrchr(a->paths[i], '=');
		bool theirs = eq && !strcmp(eq, "=theirs");

		if (a->paths[i][0] != '/' || (!theirs && !(eq && !strcmp(eq, "=ours"))))
			return den_fail(err, DEN_INVALID, 0,
				"--path: '%.80s'; write it like --path=/etc/passwd=theirs or "
				"--path=/srv=ours",
				a->paths[i]);
		strv_addn(&m->paths, a->paths[i], (size_t)(eq - a->paths[i]));
		m->rules[m->n_rules++].theirs = theirs;
	}
	for (size_t i = 0; i < n; i++) /* the vector stays where it is from now on */
		m->rules[m->n_rules - n + i].path = m->paths[i];
	return 0;
}

/* The box that the fork came from, as "ID@N" of its beginning tells. */
static int find_origin(struct merge *m, struct den_box *fork, struct den_err *err)
{
	auto_points p = { 0 };
	const char *origin;

	if (points_read(fork, &p, err) < 0)
		return -1;
	origin = points_origin(&p);
	if (!origin)
		return den_fail(err, DEN_INVALID, 0,
			"'%.60s' was not forked from a box; say which one with --into BOX",
			m->args->words[0]);
	m->into = mem_strndup(origin, strcspn(origin, "@"));
	return 0;
}

static int on_conflict(const char *path, const char *why, void *user, struct den_err *err)
{
	struct merge *m = user;
	auto_buf full = { 0 };

	(void)err;
	buf_addf(&full, "%s%s", path[0] == '/' ? "" : "/", path);
	buf_addstr(&m->list, "C ");
	text_printable(&m->list, full.p, full.len);
	buf_addf(&m->list, " (%s)\n", why);
	json_open(&m->json, NULL, '{');
	json_bytes(&m->json, "path", full.p, full.len);
	json_str(&m->json, "why", why);
	json_close(&m->json, '}');
	if (!m->first)
		m->first = mem_strdup(buf_str(&full));
	return 0;
}

static int print_json(struct merge *m, struct den_box *into, const struct den_merge_result *r)
{
	struct json j = { 0 };

	json_open(&j, NULL, '{');
	json_str(&j, "fork", m->args->words[0]);
	json_str(&j, "into", den_box_id(into));
	if (r->checkpoint < 0)
		json_nothing(&j, "checkpoint");
	else
		json_i64(&j, "checkpoint", r->checkpoint);
	json_u64(&j, "taken", r->taken);
	json_u64(&j, "merged", r->merged);
	json_u64(&j, "agreed", r->agreed);
	json_u64(&j, "kept", r->kept);
	json_u64(&j, "lost_attributes", r->lost);
	json_open(&j, "conflicts", '[');
	buf_add(&j.b, m->json.b.p, m->json.b.len);
	j.comma = m->json.b.len > 0;
	json_close(&j, ']');
	json_close(&j, '}');
	return cli_print_json(m->args, &j);
}

static void count(struct buf *out, uint64_t n, const char *what)
{
	if (n)
		buf_addf(out, "%s%llu %s", out->len ? ", " : "", (unsigned long long)n, what);
}

static int print_done(struct merge *m, const struct den_merge_result *r)
{
	auto_buf out = { 0 }, counts = { 0 };

	count(&counts, r->taken, "taken");
	count(&counts, r->merged, "merged by line");
	count(&counts, r->agreed, "the same already");
	count(&counts, r->kept, "left as they were");
	if (m->args->quiet && r->checkpoint >= 0)
		buf_addf(&out, "%lld\n", (long long)r->checkpoint);
	else if (r->checkpoint < 0 && !m->args->quiet)
		buf_addf(&out, "nothing to bring into %s%s%s%s\n", m->into, counts.len ? " (" : "",
			buf_str(&counts), counts.len ? ")" : "");
	else if (!m->args->quiet)
		buf_addf(&out, "merged into %s as checkpoint %lld: %s\nto undo this: den undo %s\n",
			m->into, (long long)r->checkpoint, buf_str(&counts), m->into);
	return cli_print(m->args, &out);
}

static int merge_into(struct merge *m, struct den_box *into)
{
	struct den_merge_result r = { .checkpoint = -1 };
	struct den_err err = { 0 };
	auto_buf hint = { 0 };
	int status;

	if (den_merge(into, m->args->words[0], m->rules, m->n_rules, on_conflict, m, &r, &err) ==
		0) {
		if (r.lost)
			cli_note(m->args,
				"%llu attributes of files (capabilities, access lists or user.*) "
				"could not be set in %s; "
				"the fork has them",
				(unsigned long long)r.lost, m->into);
		return m->args->json ? print_json(m, into, &r) : print_done(m, &r);
	}
	if (!m->first)
		return history_fail(m->args, &err);
	status = m->args->json ? print_json(m, into, &r) : cli_print(m->args, &m->list);
	buf_addstr(&hint, "decide with --ours or --theirs, or for one path: --path=");
	text_printable(&hint, m->first, strlen(m->first));
	buf_addstr(&hint, "=theirs");
	if (status)
		return status;
	return cli_fail(m->args, &err, buf_str(&hint));
}

/* People know it by that. */
static void use_name(struct merge *m, struct den_box *into)
{
	struct den_box_info *info = NULL;

	if (den_box_info(into, &info, NULL) < 0)
		return;
	if (info->name) {
		free(m->into);
		m->into = mem_strdup(info->name);
	}
	den_box_infos_free(info, 1);
}

static int merge_open(struct merge *m, struct session *s, struct den_err *err)
{
	const struct args *a = m->args;
	int r;

	if (make_rules(m, err) < 0 || cli_open(a, &s->den, err) < 0)
		return -1;
	if (a->into) {
		m->into = mem_strdup(a->into);
		return den_box_open(s->den, a->into, &s->box, err);
	}
	if (den_box_open(s->den, a->words[0], &s->box, err) < 0)
		return -1;
	r = find_origin(m, s->box, err);
	den_box_close(s->box);
	s->box = NULL;
	if (r < 0)
		return -1;
	if (den_box_open(s->den, m->into, &s->box, err) < 0)
		return den_wrap(err, "the box that '%.40s' was forked from", a->words[0]);
	use_name(m, s->box);
	return 0;
}

static int merge(const struct args *a)
{
	auto_session s = { 0 };
	struct merge m = { .args = a };
	struct den_err err = { 0 };
	int status;

	if (merge_open(&m, &s, &err) < 0)
		status = history_fail(a, &err);
	else
		status = merge_into(&m, s.box);
	merge_free(&m);
	return status;
}

const struct verb verb_merge = {
	.name = "merge",
	.words = "FORK",
	.summary = "bring what a fork changed into the box it came from",
	.help = "What the fork changed since they were the same last, and the box did not. Text\n"
		"files that both changed are merged by line. Where that cannot be, the paths are\n"
		"listed, nothing at all is changed, and the exit status is 4; --ours (the box's),\n"
		"--theirs (the fork's) or --path decide. A merge is one turn: 'den undo' takes it\n"
		"back. Programs go on running. The fork stays, and can be merged again.\n"
		"\n"
		"Examples:\n"
		"  den merge try                                into the box that try came from\n"
		"  den merge --into web try                     into another that shares its past\n"
		"  den merge --theirs try                       the fork is right where they "
		"differ\n"
		"  den merge --ours --path=/srv/app=theirs try  only in /srv/app\n",
	.options = { merge_options },
	.min_words = 1,
	.max_words = 1,
	.complete = "b",
	.run = merge,
};
