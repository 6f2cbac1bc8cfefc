/*
 * The native API, /v1: translates into libden calls and nothing else. What its handlers share. The route table is
 * routes.c, docs/api/openapi.yaml is its manual.
 *
 * What a box made is any bytes, and JSON is UTF-8. A name is told as text; where it is no UTF-8, unreadable parts
 * become U+FFFD there and "KEY_b64" has it exactly. Query and members that take a path take KEY_b64 too.
 */
#pragma once

#include "http.h"
#include "json_fields.h"

/* Refuses query parameters that are not listed: if (!QUERY(r, err, "limit", "cursor",)) return -1; */
#define QUERY(r, err, ...) req_query_known(r, (const char *const[]){ __VA_ARGS__ NULL }, err)
int v1_no_body(struct req *r, struct den_err *err); /* an empty one, or {} */
bool v1_flag(const struct req *r, const char *name, bool *ret,
	struct den_err *err); /* "1" "true" "0" "false" */

/* ---- a box's time ---- */
#define V1_FOREVER (1ULL << 52) /* the most milliseconds */
extern const char *const v1_words_expire[]; /* "delete" "pause" "pause-disk" "stop" */

/* ---- values ---- */
json_t *v1_text(const char *s); /* NULL: null */
json_t *v1_textn(const char *s, size_t n);
json_t *v1_base64(const void *p, size_t n);
bool v1_is_utf8(const char *s, size_t n);
void v1_put(json_t *o, const char *key, const char *s); /* and key_b64 where that is needed */
json_t *v1_time(int64_t ms); /* RFC 3339; 0: null */
json_t *v1_count(uint64_t v); /* 0: null */
json_t *v1_strings(const char *const *v);
json_t *v1_map(const char *const *v); /* "K=V" each */
int v1_time_parse(const char *text, int64_t *ret_ms,
	struct den_err *err); /* RFC 3339, or Unix milliseconds */
json_t *v1_result(const struct den_exec_result *res); /* how an exec ended */
json_t *v1_saved_json(const struct den_saved *s); /* a full checkpoint */
json_t *v1_error(const struct req *r, const struct den_err *err);

/* ---- the box of the path ---- */
/* By id, or by name as its organisation sees it (auth_name()). */
int v1_open(struct req *r, const char *ref, struct den_box **ret, struct den_err *err);
int v1_box(struct req *r, struct den_box **ret, struct den_err *err);
json_t *v1_box_json(const struct req *r, const struct den_box_info *i);
int v1_reply_box(struct req *r, int status, struct den_box *box, struct den_err *err);
/* A path from the query (NAME or NAME_b64); *ret NULL if absent and not must. free() */
int v1_query_path(struct req *r, const char *name, bool must, char **ret, struct den_err *err);
/* The same from a JSON object. */
int v1_path_member(const json_t *o, const char *name, char **ret, struct den_err *err);

/* ---- answers of unknown length ---- */
/* Held back until 32 KiB are there, so that a failure before is an answer in words; then streamed. */
struct v1_out {
	struct req *r;
	const char *type;
	struct buf held;
	bool begun;
};
int v1_out_add(struct v1_out *o, const void *p, size_t n, struct den_err *err);
int v1_out_end(struct v1_out *o, struct den_err *err);
int v1_out_sink(const void *p, size_t n, void *user, struct den_err *err); /* user: struct v1_out */
/* {"KEY":[ ... ]} of elements that come one by one. */
int v1_list_add(struct v1_out *o, const char *key, json_t *take, struct den_err *err);
int v1_list_end(struct v1_out *o, const char *key, struct den_err *err);

/* ---- lists by pages ---- */
/* ?limit (1..1000, 100) and ?cursor (where the next page begins, opaque). Gives [*from, *to) of n elements and puts
 * "next_cursor" into o. */
int v1_page(struct req *r, json_t *o, size_t n, size_t *from, size_t *to, struct den_err *err);

/* ---- server-sent events ---- */
#define SSE_KEEPALIVE_MS 15000
int sse_begin(struct req *r, struct den_err *err);
/* id NULL: none; data is taken */
int sse_send(struct req *r, const char *id, const char *event, json_t *data, struct den_err *err);
int sse_keepalive(struct req *r, struct den_err *err);
