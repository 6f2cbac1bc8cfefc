/*
 * The shape of a box: all of what was asked for that decides how it is built, and nothing else.
 *
 * Two boxes of one shape are alike until somebody gives them a name, an owner, labels, a time to live, an
 * environment: so one that was built in advance can become either (docs/decisions/0015-ready.md). The text is
 * canonical: it is the same for what a client asks and for what a keeper has made of that.
 */
#pragma once

#include <stdbool.h>

#include "buf.h"
#include "spec.h"

struct shape {
	char hex[65]; /* digest of the text; names the folder STATE/ready/HEX */
};
/* false: no box can be made ready for this (a fork, a throwaway box, ports of the host). text may be NULL. */
bool shape_of(const struct box_spec *s, struct shape *ret, struct buf *text);
