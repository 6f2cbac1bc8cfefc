/* Within doc*.c and layout.c: jansson, behind the bounds. */
#pragma once

#include <jansson.h>
#include <stddef.h>

#include "err.h"

static inline void json_unrefp(json_t **j)
{
	json_decref(*j);
}
#define auto_json __attribute__((cleanup(json_unrefp))) json_t

/* An object, or an error. */
int doc_load(const char *text, size_t n, json_t **ret, struct den_err *err);
/* A member that is a string; NULL otherwise. */
const char *doc_string(const json_t *object, const char *key);
