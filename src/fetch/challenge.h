/* WWW-Authenticate: what a registry wants before it answers. */
#pragma once

enum challenge_kind { CHALLENGE_NONE, CHALLENGE_BASIC, CHALLENGE_BEARER }; /* the better one last */

struct challenge {
	enum challenge_kind kind;
	char realm[1024]; /* of a bearer: where tokens are given out */
	char service[256];
	char scope[512];
};

/* Reads one header's value, which may hold several challenges, and keeps the best of them and of
 * what *c holds already. What it does not understand, or what is too long, it leaves out. */
void challenge_add(struct challenge *c, const char *value);
