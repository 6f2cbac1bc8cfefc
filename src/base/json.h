/*
 * A JSON writer. Whatever bytes a box made (names, output) become valid JSON: invalid UTF-8 is
 * replaced by U+FFFD, control characters are escaped.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "buf.h"

struct json {
	struct buf b;
	bool comma; /* the next element of the current container needs one */
};

void json_open(
	struct json *j, const char *key, char bracket); /* '{' or '['; key NULL inside an array */
void json_close(struct json *j, char bracket);
void json_str(struct json *j, const char *key, const char *s); /* NULL: null */
void json_bytes(struct json *j, const char *key, const char *s, size_t n);
void json_u64(struct json *j, const char *key, uint64_t v);
void json_i64(struct json *j, const char *key, int64_t v);
void json_bool(struct json *j, const char *key, bool v);
void json_nothing(struct json *j, const char *key);
void json_raw(struct json *j, const char *key, const char *text); /* text is JSON that we made */
/* RFC 3339 in UTC from Unix milliseconds; 0: null */
void json_time(struct json *j, const char *key, int64_t wall_ms);

/* Appends s with everything that could steer a terminal escaped: for listings read by people. */
void text_printable(struct buf *out, const char *s, size_t n);
void format_time(int64_t wall_ms, char out[static 32]);
