/* Who we are to a registry: credentials, and the Authorization that came of them. */
#pragma once

#include <stdbool.h>

#include "challenge.h"
#include "doc.h"
#include "err.h"

struct http;

struct auth {
	struct login login;
	char scope[300]; /* asked for where the registry does not say */
	char *header; /* "Basic ...", "Bearer ..."; NULL: nothing is sent */
	unsigned turn; /* counts the headers, so that one of many refused requests gets a new one */
	bool helper; /* the auth file leaves this host to a program: a hint for the message */
};

/* Answers a challenge: a new header, or an error that says what is missing. home_plain: the
 * registry itself is spoken to without TLS. */
int auth_answer(struct auth *a, const struct challenge *c, bool home_plain, struct http *h,
	struct den_err *err);
void auth_free(struct auth *a);
