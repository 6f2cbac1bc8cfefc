/* Signatures of file addresses: who has one may read or write that one path until it expires. */
#pragma once

#define SIGNED_SIZE 48

/* "v1_" and base64 of the hash; op: "read" or "write"; expires: Unix seconds as text, NULL: never */
void signed_make(const char *path, const char *op, const char *user, const char *token, const char *expires,
	char out[static SIGNED_SIZE]);
