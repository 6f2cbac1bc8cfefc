/* The keys themselves, in serve.db: for auth.c, /v1/keys and `den key`. */
#pragma once

#include <stddef.h>

#include "auth.h"

#define KEY_TEXT 45 /* "e2b_", 40 hexadecimal digits, NUL */

enum key_scope {
	SCOPE_BOXES = 1,     /* make, use and remove boxes; includes read */
	SCOPE_READ = 2,	     /* look at boxes, files and events */
	SCOPE_SECRETS = 4,   /* secrets and policies that grant them */
	SCOPE_TEMPLATES = 8, /* make and remove templates */
	SCOPE_ADMIN = 16,    /* everything, of all organisations, and keys */
};
#define SCOPE_DEFAULT (SCOPE_BOXES | SCOPE_READ | SCOPE_SECRETS | SCOPE_TEMPLATES)

struct key_info {
	struct who who;
	int64_t created_ms, revoked_ms; /* revoked 0: it works */
};

int keys_start(struct den_err *err); /* its tables */
/* A new key; org NULL: "default", name NULL: none, scopes 0: SCOPE_DEFAULT. Its text is told here and never again. */
int keys_create(const char *org, const char *name, uint32_t scopes, const struct quota *q, char ret_text[static KEY_TEXT],
	struct key_info *ret, struct den_err *err);
/* org NULL: of all. Oldest first; free() *ret */
int keys_list(const char *org, struct key_info **ret, size_t *n, struct den_err *err);
/* By id; org NULL: of any. Takes effect at once, also in other processes. DEN_NOT_FOUND */
int keys_revoke(const char *org, const char *id, struct den_err *err);
/* Makes the first key if there never was one; ret_text "" if there was. */
int keys_first(char ret_text[static KEY_TEXT], struct den_err *err);
/* By the SHA-256 of a key's 40 digits; also gives revoked ones. */
int keys_find(const uint8_t hash[static 32], struct key_info *ret, struct den_err *err);
int keys_by_id(const char *id, struct key_info *ret, struct den_err *err);

/* "boxes", "read", ...; 0: no such scope */
uint32_t key_scope_parse(const char *name);
/* Calls fn for the name of each. */
void key_scope_each(uint32_t scopes, void (*fn)(const char *name, void *user), void *user);
/* a-z 0-9 -, at most 32, begins with a letter */
int key_org_check(const char *org, struct den_err *err);
/* The digits' hash, if text is shaped like a key. */
bool key_hash(const char *text, uint8_t ret[static 32]);
