/*
 * Members of a JSON object into a struct, by a table. Every text of a stranger becomes a checked value here;
 * the error says which member, what is wrong with it and what would be right.
 *
 *   struct args { const char *name; uint64_t cpu; bool tty, cpu_given; char **argv; json_t *env; };
 *   static const struct field fields[] = {
 *	{ "name", FIELD_TEXT, offsetof(struct args, name), .max = 64 },
 *	{ "cpu", FIELD_U64, offsetof(struct args, cpu), .min = 10, .max = 64000,
 *		.given = FIELD_GIVEN(struct args, cpu_given) },
 *	{ "argv", FIELD_TEXTS, offsetof(struct args, argv), FIELD_MUST, .min = 1, .max = 1000 },
 *	{ "tty", FIELD_BOOL, offsetof(struct args, tty) },
 *   };
 *   struct args a = { 0 };
 *   if (fields_get(body, fields, ARRAY_SIZE(fields), true, &a, err) < 0) ...
 *   strv_free(a.argv);
 *
 * What is absent leaves the struct as it was, so defaults are set before. On failure nothing is written.
 */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "err.h"

enum field_kind {
	FIELD_BOOL, /* bool */
	FIELD_TEXT, /* const char *, lives as long as the JSON; min..max bytes; no NUL inside */
	FIELD_U64, /* uint64_t, min..max; a number without a fraction */
	FIELD_I64, /* int64_t, 0-max..max */
	FIELD_REAL, /* double, min..max */
	FIELD_OBJECT, /* json_t *, borrowed; min..max members */
	FIELD_ARRAY, /* json_t *, borrowed; min..max elements */
	FIELD_ANY, /* json_t *, borrowed */
	FIELD_TEXTS, /* char **: array of min..max texts; strv_free() */
	FIELD_MAP, /* char **: {"K": "V"} as "K=V", min..max of them, K without '=' and not empty; strv_free() */
};

enum {
	FIELD_MUST = 1, /* absent is an error */
	FIELD_NULL = 2, /* null counts as absent; without it null is an error */
};

struct field {
	const char *name;
	enum field_kind kind;
	size_t at; /* offsetof() in *into */
	unsigned flags;
	uint64_t min,
		max; /* as the kind says; max 0: no bound (but FIELD_TEXT: 64 KiB; lists: 10,000) */
	const char *const *words; /* FIELD_TEXT: one of these, NULL-terminated; NULL: any */
	size_t given; /* FIELD_GIVEN(): a bool that tells whether it was there; 0: nobody asks */
};
#define FIELD_GIVEN(type, member) (offsetof(type, member) + 1)

/* strict: a member that is not in the table is DEN_INVALID, with the nearest that is; otherwise it is ignored.
 * Wrong kinds and bounds are DEN_INVALID either way. j must be an object (NULL: an empty one). */
int fields_get(const json_t *j, const struct field *table, size_t n, bool strict, void *into,
	struct den_err *err);
/* What a strict table would refuse, for nested objects that are read by hand. names: NULL-terminated. */
int fields_known(const json_t *j, const char *const *names, struct den_err *err);

/* A JSON string of any bytes: what is not UTF-8 becomes U+FFFD (json_string() would give NULL). For what a box
 * or a stranger made. */
json_t *json_text(const char *s);
