/*
 * What a program in a box answers: hostile bytes, read by the gate's strict parsers. No I/O: the caller puts bytes
 * in and takes the head, then payload, out. (A folder of its own, because the gate's http.h is not ours.)
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct upstream;

struct upstream *upstream_new(const char *method); /* of the request that is answered; kept */
void upstream_free(struct upstream *u);
static inline void upstream_freep(struct upstream **u)
{
	upstream_free(*u);
}
#define auto_upstream __attribute__((cleanup(upstream_freep))) struct upstream

/* Where to put bytes that came; *ret_room 0: take something out first. Then how many were put. */
char *upstream_room(struct upstream *u, size_t *ret_room);
void upstream_put(struct upstream *u, size_t n);

/* 1: the head of the final answer is there (100 and the like are skipped); 0: more bytes are needed; -1: it is no
 * HTTP, *why (static) says how. */
int upstream_head(struct upstream *u, const char **why);
int upstream_status(const struct upstream *u);
int64_t upstream_length(const struct upstream *u); /* -1: not known before its end */
bool upstream_no_body(const struct upstream *u);   /* HEAD, 204, 304 */
/* Fields that are meant for the client: not those of the connection, nor lengths. NUL-terminated for the call. */
void upstream_each(const struct upstream *u, void (*fn)(const char *name, const char *value, void *user), void *user);
/* The value of the first field of this name, copied; false: none, or longer than cap. */
bool upstream_find(const struct upstream *u, const char *name, char *out, size_t cap);

/* 1: *p, *n is payload, valid until upstream_room(); 0: more bytes are needed; 2: the end; -1: bad. */
int upstream_body(struct upstream *u, const char **p, size_t *n);
/* No more bytes will come: true: that was the end of a body without a length. */
bool upstream_closed(struct upstream *u);
/* What came behind the head, for an upgrade. */
const char *upstream_rest(const struct upstream *u, size_t *n);
