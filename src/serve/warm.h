/*
 * Boxes that are ready before somebody asks for them (den serve --warm TEMPLATE=N): docs/decisions/0015-ready.md.
 *
 * One thread keeps N of each template ready, of the shape that is asked for most. It makes one at a time, and waits
 * for a moment in which nobody makes a box: who asks now comes before who may ask later.
 */
#pragma once

#include "buf.h"
#include "den.h"
#include "serve.h"

#define WARM_MAX 8

struct warm_setting {
	const char *name; /* "base=4", as it was said; the template is all before the = */
	uint64_t n;
};
/* "TEMPLATE=N" */
int warm_parse(const char *text, struct warm_setting *ret, struct den_err *err);
/* Before the part starts. */
void warm_set(const struct warm_setting *all, size_t n);
/* Somebody asks for this box now, and has it or not. */
void warm_asked(const struct den_box_spec *s);
void warm_done(void);
void warm_gauges(struct buf *b);
extern const struct serve_part warm_part;
