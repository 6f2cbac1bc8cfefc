/* A look at JSON before it is parsed, so that what would cost memory or stack never reaches the parser. */
#pragma once

#include <jansson.h>
#include <stddef.h>

#include "err.h"

#define JSON_DEPTH_MAX 32
#define JSON_VALUES_MAX 100000

/* UTF-8, depth, number of values. Says nothing about the grammar. */
int json_scan(const char *p, size_t n, struct den_err *err);
/* Scans and parses an object. Nothing but white space is an empty one. json_decref() */
int json_read(const char *p, size_t n, json_t **ret, struct den_err *err);
