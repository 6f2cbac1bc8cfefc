/*
 * The framing of a body: which of the bytes that come belong to this message, and which of these are
 * payload. Holds no bytes: it can be fed any pieces, and gives the same for all ways to cut them.
 *
 * Chunked (http_body.c has the states; payload_take() ends DATA and LENGTH, the *_step()s do the rest):
 *   SIZE [-> SIZE_PAD] [-> EXTENSION] -> SIZE_LF -> DATA -> DATA_CR -> DATA_LF -> SIZE ...
 *   size 0: SIZE_LF -> TRAILER [-> NAME -> VALUE -> LF -> TRAILER] ... -> END_LF -> DONE
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "http.h"

#define HTTP_TRAILERS_MAX 8192U /* bytes behind the last chunk */

struct http_body {
	uint8_t state;
	bool request;
	uint8_t digits; /* of this chunk's size */
	uint8_t name_len; /* of this trailer's name, and its first bytes */
	char name[20];
	uint32_t extra; /* bytes behind this chunk's size, or of trailers */
	uint32_t trailers; /* fields behind the last chunk: checked, and no payload */
	uint64_t left; /* of this chunk, or of all */
};

void http_body_init(struct http_body *b, const struct http_head *h);
/* Has the message ended? True at once for one without a body. */
bool http_body_done(const struct http_body *b);

/*
 * Takes from @p: *used bytes belong to this message, and the *data_len bytes at *data, a part of them,
 * are payload (often none). 0: call again with what is left, or comes; something was used if n > 0.
 * 1: the message ended, the rest of @p is not its. -1: bad, now and ever after; only *why (static text)
 * is written then, and payload that stood before the bad byte in @p is not handed out.
 *
 * Chunked, of a request: no extensions, no blanks, trailers with the rules of a head and none that
 * would frame or route. Of a response: extensions and blanks behind a size are skipped.
 */
int http_body_feed(struct http_body *b, const char *p, size_t n, size_t *used, const char **data,
	size_t *data_len, const char **why);
