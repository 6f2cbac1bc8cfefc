/*
 * multipart/form-data, as it comes: a state machine that is given bytes and says what they are. It holds a
 * part's headers (8 KiB at most) and nothing else, whatever the length of the body. No I/O.
 *
 *   PREAMBLE -> AFTER    first delimiter; what came before it is dropped
 *   AFTER    -> HEADERS  the delimiter's line ended
 *   AFTER    -> DONE     "--" followed: MULTIPART_END
 *   HEADERS  -> DATA     empty line: MULTIPART_PART
 *   DATA     -> AFTER    delimiter: MULTIPART_PART_END
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "err.h"

#define MULTIPART_HEAD_MAX 8192
#define MULTIPART_PARTS_MAX 10000

enum multipart_event {
	MULTIPART_MORE,	    /* all that was given is used up */
	MULTIPART_PART,	    /* a part begins: m->name, m->filename */
	MULTIPART_DATA,	    /* m->data, m->len: valid until the next call */
	MULTIPART_PART_END, /* it is complete */
	MULTIPART_END,	    /* all are */
};

struct multipart {
	enum { MP_PREAMBLE, MP_AFTER, MP_HEADERS, MP_DATA, MP_DONE } state;
	char delim[80]; /* CR LF "--" and the boundary */
	size_t n_delim;
	size_t match; /* so many bytes of it were just seen */
	unsigned dashes;
	bool cr;
	char *head; /* MULTIPART_HEAD_MAX */
	size_t n_head;
	unsigned parts;
	/* of the part under way; NULL: it has none */
	char *name, *filename;
	const char *data;
	size_t len;
};

/* type: the request's Content-Type. DEN_INVALID: not this kind, or no good boundary */
int multipart_init(struct multipart *m, const char *type, struct den_err *err);
void multipart_free(struct multipart *m);
#define auto_multipart __attribute__((cleanup(multipart_free))) struct multipart
/* The next event from the bytes at *p, which moves on, *n likewise; -1: malformed, or too much. Call it until it
 * says MULTIPART_MORE, then again with more bytes. The body ended before MULTIPART_END: it was cut short. */
int multipart_next(struct multipart *m, const char **p, size_t *n, struct den_err *err);
/* The value of a parameter ("boundary", "filename") of a header as `form-data; name="x"`; NULL: none. free() it.
 * %22 %0D %0A and \" are what browsers and curl write for characters that cannot stand there. */
char *multipart_param(const char *value, const char *name);
