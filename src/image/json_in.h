/* JSON that a stranger wrote, through jansson: bounded in size and depth before it is parsed. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "err.h"

#define JSON_IN_MAX (4U << 20) /* bytes, as the OCI distribution specification bounds manifests */
#define JSON_IN_DEPTH 32

static inline void json_in_freep(json_t **j)
{
	json_decref(*j);
}
#define auto_json __attribute__((cleanup(json_in_freep))) json_t *

/* An object or an array; a key that stands twice is refused, for readers would disagree about
 * it. */
int json_in(const char *text, size_t n, json_t **ret, struct den_err *err);
/* Members of an object. Missing or null: NULL, and 0 is returned; another type is DEN_INVALID. The
 * result belongs to obj. */
int json_in_text(const json_t *obj, const char *key, const char **ret, struct den_err *err);
int json_in_object(const json_t *obj, const char *key, const json_t **ret, struct den_err *err);
int json_in_array(const json_t *obj, const char *key, const json_t **ret, struct den_err *err);
/* An array of texts, copied; NULL when missing. */
int json_in_texts(const json_t *obj, const char *key, char ***ret, struct den_err *err);
/* An integer of 0 or more; missing is DEN_INVALID. */
int json_in_size(const json_t *obj, const char *key, uint64_t *ret, struct den_err *err);
