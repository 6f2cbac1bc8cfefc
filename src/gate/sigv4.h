/*
 * AWS Signature Version 4. The gate signs what it sends: the box's own signature, made with a
 * placeholder, is worth nothing upstream and is dropped.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include "buf.h"
#include "http.h"

#define SIGV4_ALGORITHM "AWS4-HMAC-SHA256"
#define SIGV4_UNSIGNED "UNSIGNED-PAYLOAD"
#define SIGV4_DATE_SIZE 17 /* "20150830T123600Z" */

/* What the Authorization header of a signed request says. Borrows the header's value. */
struct sigv4_claim {
	const char *access_key, *region, *service, *signed_headers;
	size_t access_key_len, region_len, service_len, signed_headers_len;
};
/* 0; -1: not a well-formed SigV4 authorization. */
int sigv4_claim_parse(const char *value, size_t len, struct sigv4_claim *ret);

struct sigv4_key {
	const char *access_key, *secret;
	const char *region, *service;
};
struct sigv4_request {
	const char *method;
	const char *target; /* as on the wire: path?query */
	size_t target_len;
	const struct http_field *f; /* exactly the fields to sign, host among them */
	unsigned n;
	const char *payload; /* 64 hex digits, or a word such as UNSIGNED-PAYLOAD */
};
void sigv4_date(time_t now, char ret[static SIGV4_DATE_SIZE]);
/* Appends the value of the Authorization header; signature gets its 64 hex digits and a NUL. */
void sigv4_sign(const struct sigv4_request *r, const struct sigv4_key *k,
	const char date[static SIGV4_DATE_SIZE], struct buf *authorization,
	char signature[static 65]);
