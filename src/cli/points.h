/* Checkpoints and changes on the command line: naming, finding and showing them. */
#pragma once

#include "cli.h"

/* "BOX@REF", split at the last '@'. */
struct spot {
	char *box;
	char *ref; /* NULL: none was given */
};
int spot_parse(const char *text, struct spot *ret, struct den_err *err);
void spot_free(struct spot *s);
#define auto_spot __attribute__((cleanup(spot_free))) struct spot
/* Parses the word and opens the box; gives 0, or the exit status of a failure that it told. */
int spot_open(const struct args *a, const char *word, struct spot *ret, struct session *s);

/* All checkpoints of a box, oldest first. */
struct points {
	struct den_checkpoint *v;
	size_t n;
};
int points_read(struct den_box *box, struct points *ret, struct den_err *err);
void points_free(struct points *p);
#define auto_points __attribute__((cleanup(points_free))) struct points
const struct den_checkpoint *points_number(const struct points *p, int64_t number);
const struct den_checkpoint *points_head(const struct points *p);
/* By reference as in den.h; NULL is head. "now" is none. */
const struct den_checkpoint *points_find(
	const struct points *p, const char *ref, struct den_err *err);
/* "ID@N" that the box was forked from; NULL: it is no fork. */
const char *points_origin(const struct points *p);

/* What it is about, in one line of at most `wide` columns (0: all of it); may be any bytes. */
void point_text(struct buf *out, const struct den_checkpoint *c, size_t wide);
/* "12 (turn 9: make install)", printable */
void point_brief(struct buf *out, const struct den_checkpoint *c);
void point_json(struct json *j, const char *key, const struct den_checkpoint *c);

/* "M /etc/passwd (mode)" and a newline, printable. */
void change_line(struct buf *out, const struct den_change *c);
void change_json(struct json *j, const char *key, const struct den_change *c);

/* cli_fail() with the hint that fits a box without history. */
int history_fail(const struct args *a, const struct den_err *err);
/* After a rollback: tells where the box is now and how to get back; gives the exit status. */
int rollback_tell(const struct args *a, struct den_box *box, uint64_t before);
