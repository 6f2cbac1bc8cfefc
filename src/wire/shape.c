#include "shape.h"

#include <string.h>

#include "mem.h"
#include "sha256.h"

#ifndef DEN_VERSION_TEXT /* den-init is compiled apart, and has no use for this */
#define DEN_VERSION_TEXT ""
#endif

static void line(struct buf *b, const char *what, const char *value)
{
	/* the length comes first, so that no value can look like the next line */
	buf_addf(b, "%s %zu %s\n", what, strlen(value), value);
}

static const char *or_else(const char *text, const char *otherwise)
{
	return text && *text ? text : otherwise;
}

static uint64_t history_of(const struct box_spec *s)
{
	uint64_t h = s->history == HISTORY_DEFAULT ? HISTORY_ON : s->history;

	/* as create.c settles it */
	return h == HISTORY_OFF && s->template_name && !strcmp(s->template_name, "empty")
		       ? HISTORY_MANUAL
		       : h;
}

bool shape_of(const struct box_spec *s, struct shape *ret, struct buf *text)
{
	auto_buf own = { 0 };
	struct buf *b = text ? text : &own;
	struct sha256 sum;
	bool given = s->pids && !(s->flags & BOX_PIDS_DEFAULT);

	/* A throwaway box belongs to one connection from its first moment on; a port outside is one box's alone. */
	if (s->from || s->publish || (s->flags & (BOX_EPHEMERAL | BOX_FULL | BOX_SEED)))
		return false;
	line(b, "den", DEN_VERSION_TEXT);
	line(b, "template", or_else(s->template_name, "host"));
	line(b, "wall", or_else(s->wall, "container"));
	line(b, "net", or_else(s->net, "none"));
	line(b, "policy", s->policy || s->policy_name ? "yes" : "no");
	/* It is in files of the box. One that nobody named is called by its id, which it has already. */
	line(b, "hostname", or_else(s->hostname, or_else(s->name, "")));
	buf_addf(b, "limits %llu %llu %llu %llu\n", (unsigned long long)s->cpu_milli,
		(unsigned long long)s->memory, given ? (unsigned long long)s->pids : 0ULL,
		(unsigned long long)s->disk);
	buf_addf(b, "history %llu\n", (unsigned long long)history_of(s));
	if (s->flags & BOX_RESEED)
		line(b, "reseed", "yes");
	for (size_t i = 0; i < s->n_mounts; i++) {
		line(b, s->mounts[i].ro ? "mount-ro" : "mount", s->mounts[i].host);
		line(b, "at", s->mounts[i].box);
	}
	sha256_init(&sum);
	sha256_add(&sum, b->p, b->len);
	sha256_hex(&sum, ret->hex);
	return true;
}
