/* Writing a file for a user of the box, also where he may not: envd.h says why. */
#include <string.h>

#include "envd.h"
#include "mem.h"

#define REPLAY_MAX (1U << 20) /* more than can be under way before the box has opened the file */

/* Remembers the beginning of what it gives, to give it once more. */
struct replay {
	den_source source;
	void *user;
	struct buf kept;
	size_t at;
	bool lost; /* there was too much */
};

static ssize_t replay_source(void *buf, size_t cap, void *user, struct den_err *err)
{
	struct replay *x = user;
	ssize_t n;

	if (x->at < x->kept.len) {
		cap = MIN(cap, x->kept.len - x->at);
		memcpy(buf, x->kept.p + x->at, cap);
		x->at += cap;
		return (ssize_t)cap;
	}
	n = x->source(buf, cap, x->user, err);
	if (n > 0 && !x->lost && x->kept.len + (size_t)n <= REPLAY_MAX) {
		buf_add(&x->kept, buf, (size_t)n);
		x->at = x->kept.len;
	} else if (n > 0 && !x->lost) {
		x->lost = true;
		buf_free(&x->kept);
		x->at = 0;
	}
	return n;
}

static int seen(const struct den_entry *e, void *user, struct den_err *err)
{
	(void)e;
	(void)err;
	*(bool *)user = true;
	return 0;
}

/* What he may not write root writes, and gives to him. What is replaced keeps its owner. */
static int write_as_root(struct envd *e, const struct person *p, const char *path, struct den_file_opt *opt,
	struct replay *x, struct den_err *err)
{
	bool parents = opt->parents, there = false;

	opt->user = NULL;
	opt->parents = false;
	x->at = 0;
	if (opt->atomic)
		(void)den_file_stat(e->box, path, NULL, seen, &there, err);
	if ((parents && as_person_parents(e, p, path, err) < 0) ||
		den_file_write(e->box, path, opt, replay_source, x, err) < 0)
		return -1;
	return there ? 0 : as_person_chown(e, p, path, err);
}

int as_person_write(struct envd *e, const struct person *p, const char *path, const struct den_file_opt *how,
	den_source source, void *user, struct den_err *err)
{
	struct replay x = { .source = source, .user = user };
	struct den_file_opt opt = *how;
	int r;

	opt.user = p->name;
	r = den_file_write(e->box, path, &opt, replay_source, &x, err);
	if (r < 0 && err->code == DEN_DENIED && !x.lost)
		r = write_as_root(e, p, path, &opt, &x, err);
	buf_free(&x.kept);
	return r;
}
