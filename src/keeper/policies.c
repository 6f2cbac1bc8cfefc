/* Policies: of boxes, and stored ones that boxes share. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fd.h"
#include "gate.h"
#include "strv.h"

#define PLACE_POLICIES "policies"
#define NEW_NAME ".new.%d" /* no policy can be called so */

/* ---- stored ---- */

static int open_stored(struct store *s, bool create, int *ret, struct den_err *err)
{
	if (create && mkdirat(s->fd, PLACE_POLICIES, 0700) < 0 && errno != EEXIST)
		return den_fail_sys(err, errno, "make '%s'", PLACE_POLICIES);
	*ret = openat(s->fd, PLACE_POLICIES, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return *ret < 0 ? den_fail_sys(err, errno, "open '%s'", PLACE_POLICIES) : 0;
}

/* A name like a box's, so it can be a file's. */
static int check_name(const char *name, struct den_err *err)
{
	return box_name_parse(name ? name : "", &(struct box_name){ { 0 } }, err) < 0 ? den_wrap(err, "policy") : 0;
}

int policy_stored_get(struct store *s, const char *name, char **ret, struct den_err *err)
{
	auto_fd dir = -1, fd = -1;

	if (check_name(name, err) < 0)
		return -1;
	if (open_stored(s, false, &dir, err) == 0)
		fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return den_fail(err, DEN_NOT_FOUND, 0, "no policy '%s'; 'den policy ls' lists them", name);
	return fd_read_all(fd, SPEC_MAX_POLICY, ret, NULL, err);
}

static int canonical(const char *text, struct buf *out, struct den_err *err)
{
	auto_policy p = NULL;

	if (policy_parse(text, strlen(text), &p, err) < 0)
		return -1;
	policy_print(p, out);
	return 0;
}

static int stored_save(struct store *s, const char *name, const char *text, struct den_err *err)
{
	auto_fd dir = -1, fd = -1;
	auto_buf b = { 0 };
	char aside[32];

	if (check_name(name, err) < 0 || canonical(text ? text : "", &b, err) < 0 ||
		open_stored(s, true, &dir, err) < 0)
		return -1;
	/* on disk before it takes the old one's place; another may be saving at the same time */
	snprintf(aside, sizeof(aside), NEW_NAME, (int)getpid());
	fd = openat(dir, aside, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0 || fd_write_all(fd, b.p, b.len, err) < 0 || fsync(fd) < 0 ||
		renameat(dir, aside, dir, name) < 0 || fsync(dir) < 0) {
		int sys = errno;

		unlinkat(dir, aside, 0);
		return den_fail_sys(err, sys, "write policy '%s'", name);
	}
	return 0;
}

static int stored_remove(struct store *s, const char *name, struct den_err *err)
{
	auto_fd dir = -1;
	auto_buf users = { 0 };

	if (check_name(name, err) < 0 || policy_users(s, NULL, name, false, &users, err) < 0)
		return -1;
	if (users.len)
		return den_fail(err, DEN_CONFLICT, 0,
			"boxes follow the policy '%s'; give them another first ('den policy set')", name);
	if (open_stored(s, false, &dir, NULL) < 0 || unlinkat(dir, name, 0) < 0)
		return den_fail(err, DEN_NOT_FOUND, 0, "no policy '%s'", name);
	return fsync(dir) < 0 ? den_fail_sys(err, errno, "remove policy") : 0;
}

static int stored_list(struct store *s, struct buf *out)
{
	auto_fd dir = -1;
	struct dirent *e;
	DIR *d;

	if (open_stored(s, false, &dir, NULL) < 0)
		return 0;
	d = fdopendir(fd_take(&dir));
	while (d && (e = readdir(d)))
		if (e->d_name[0] != '.' && !strstr(e->d_name, ".tmp.") &&
			box_name_parse(e->d_name, &(struct box_name){ { 0 } }, NULL) == 0)
			wire_put_str(out, F_NAME, e->d_name);
	if (d)
		closedir(d);
	return 0;
}

int req_policy_stored(struct client *c, const struct wire_frame *f, struct buf *out, struct den_err *err)
{
	auto_free char *what = NULL, *name = NULL, *text = NULL;
	struct store *s = c->k->store;

	if (field_str(f, F_WHAT, 16, &what, err) < 0 || field_str(f, F_NAME, 63, &name, err) < 0 ||
		field_str(f, F_POLICY, SPEC_MAX_POLICY, &text, err) < 0)
		return -1;
	if (!what || !strcmp(what, "list"))
		return stored_list(s, out);
	if (!strcmp(what, "remove"))
		return stored_remove(s, name, err);
	if (!strcmp(what, "save"))
		return stored_save(s, name, text, err) < 0 ? -1 : policy_users(s, NULL, name, true, out, err);
	if (strcmp(what, "get"))
		return den_fail(err, DEN_INVALID, 0, "'%s' is nothing that can be done with a policy", what);
	if (policy_stored_get(s, name, &text, err) < 0)
		return -1;
	wire_put_str(out, F_POLICY, text);
	return 0;
}

/* ---- who uses what ---- */

struct users {
	struct store *s;
	const char *secret, *stored;
	bool alive; /* those that run: others read it when they start */
	struct buf *out;
};

static bool grants(const char *text, const char *secret)
{
	auto_policy p = NULL;

	if (policy_parse(text, strlen(text), &p, NULL) < 0)
		return false;
	for (unsigned i = 0; i < p->n_secrets; i++)
		if (!strcmp(p->secrets[i].name, secret))
			return true;
	return false;
}

static int user_one(const struct box_row *row, void *user, struct den_err *err)
{
	struct users *u = user;
	const struct box_spec *spec = &row->info.spec;
	auto_free char *text = NULL;
	bool uses;

	(void)err;
	if (u->stored) {
		uses = spec->policy_name && !strcmp(spec->policy_name, u->stored);
	} else {
		if (spec->policy_name)
			(void)policy_stored_get(u->s, spec->policy_name, &text, NULL);
		uses = (text || spec->policy) && grants(text ? text : spec->policy, u->secret);
	}
	if (uses && (!u->alive || row->info.state == BOX_RUNNING || row->info.state == BOX_PAUSED))
		wire_put_str(u->out, F_ID, spec->id);
	return 0;
}

int policy_users(struct store *s, const char *secret, const char *stored, bool alive, struct buf *out,
	struct den_err *err)
{
	struct users u = { s, secret, stored, alive, out };

	return store_each(s, user_one, &u, err);
}

/* ---- of a box ---- */

int policy_settle(struct store *s, struct box_spec *spec, struct den_err *err)
{
	auto_free char *text = NULL;
	auto_buf b = { 0 };

	if (spec->policy && spec->policy_name)
		return den_fail(err, DEN_INVALID, 0, "a box has a policy of its own or a stored one, not both");
	if (spec->policy_name)
		return policy_stored_get(s, spec->policy_name, &text, err);
	if (!spec->policy)
		return 0;
	if (canonical(spec->policy, &b, err) < 0)
		return -1;
	free(spec->policy);
	spec->policy = mem_strdup(buf_str(&b));
	return 0;
}

int req_policy_get(struct client *c, const struct wire_frame *f, struct buf *out, struct den_err *err)
{
	const struct box_spec *s = &c->k->row.info.spec;
	auto_free char *text = NULL;

	(void)f;
	if (s->policy_name && policy_stored_get(c->k->store, s->policy_name, &text, err) < 0)
		return -1;
	wire_put_str(out, F_POLICY, text ? text : s->policy ? s->policy : "{}");
	wire_put_str(out, F_POLICY_NAME, s->policy_name);
	wire_put_u64(out, F_GENERATION, c->k->row.info.generation);
	return 0;
}

static void swap_policy(struct box_spec *a, struct box_spec *b)
{
	char *policy = a->policy, *name = a->policy_name;

	a->policy = b->policy;
	a->policy_name = b->policy_name;
	b->policy = policy;
	b->policy_name = name;
}

/* In memory and on disk, or in neither: what could not be loaded or written is not what the box has. */
static int take_over(struct keeper *k, struct box_spec *want, struct den_err *err)
{
	bool new = want->policy || want->policy_name;
	struct den_err ignored;

	if (new)
		swap_policy(&k->row.info.spec, want);
	k->row.info.generation++;
	if (k->gate && new)
		k->gate->strict = true;
	if ((!k->gate || gate_load(k->gate, err) == 0) && (!k->row_written || box_save(k, err) == 0))
		return 0;
	k->row.info.generation--;
	if (new)
		swap_policy(&k->row.info.spec, want);
	if (k->gate) {
		k->gate->strict = false;
		(void)gate_load(k->gate, &ignored);
	}
	return -1;
}

/* Neither a policy nor a name: what the box has is read anew (a secret or a stored policy changed). */
int req_policy_set(struct client *c, const struct wire_frame *f, struct buf *out, struct den_err *err)
{
	struct keeper *k = c->k;
	struct box_spec *s = &k->row.info.spec, want = { 0 };
	uint64_t ended, now = k->row.info.generation;

	if (field_u64(f, F_GENERATION, now) != now)
		return den_fail(err, DEN_CONFLICT, 0, "somebody else changed the policy meanwhile, it has generation %llu now",
			(unsigned long long)now);
	if (field_str(f, F_POLICY, SPEC_MAX_POLICY, &want.policy, err) < 0 ||
		field_str(f, F_POLICY_NAME, 63, &want.policy_name, err) < 0 ||
		policy_settle(k->store, &want, err) < 0) {
		box_spec_free(&want);
		return -1;
	}
	if (take_over(k, &want, err) < 0) {
		box_spec_free(&want);
		return -1;
	}
	box_spec_free(&want);
	if (gate_change(k, &ended, err) < 0)
		return -1;
	if (k->gate)
		gate_note(k->gate, "policy", s->policy_name ? s->policy_name : s->policy ? s->policy : "{}");
	feed_number(k, "policy.changed", "generation", k->row.info.generation, "name", s->policy_name);
	wire_put_u64(out, F_GENERATION, k->row.info.generation);
	wire_put_u64(out, F_COUNT, ended);
	return 0;
}
