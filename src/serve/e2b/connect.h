/*
 * The Connect protocol with its JSON codec, as bytes: what a request's body says and how an answer is
 * written. No I/O, so that it can be fuzzed; envd.h has the half that talks.
 *
 * A unary call is plain JSON both ways. A streaming one is made of envelopes: one byte of flags, four of
 * length (big-endian), then JSON. The last envelope of an answer has the flag CONNECT_END and says how it went.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "buf.h"
#include "err.h"

enum connect_code {
	CONNECT_CANCELED,
	CONNECT_UNKNOWN,
	CONNECT_INVALID_ARGUMENT,
	CONNECT_DEADLINE_EXCEEDED,
	CONNECT_NOT_FOUND,
	CONNECT_ALREADY_EXISTS,
	CONNECT_PERMISSION_DENIED,
	CONNECT_RESOURCE_EXHAUSTED,
	CONNECT_FAILED_PRECONDITION,
	CONNECT_UNIMPLEMENTED,
	CONNECT_INTERNAL,
	CONNECT_UNAVAILABLE,
	CONNECT_UNAUTHENTICATED,
	CONNECT_CODES
};
const char *connect_code_str(enum connect_code c);
int connect_status(enum connect_code c);
enum connect_code connect_code_of(const struct den_err *err);

enum { CONNECT_COMPRESSED = 1, CONNECT_END = 2 };
#define CONNECT_HEAD 5
#define CONNECT_MAX (4U << 20) /* of one message that a client sends */

/* The one message of a request that streams its answer. *ret points into p. */
int connect_open(const void *p, size_t n, const char **ret, size_t *ret_len, struct den_err *err);

/* Envelopes, one after another in b: connect_begin() gives the place, which connect_end() needs. */
size_t connect_begin(struct buf *b, unsigned flags);
void connect_end(struct buf *b, size_t at);
/* {"code":"...","message":"..."}; any bytes of text become valid JSON */
void connect_error(struct buf *b, enum connect_code c, const char *text);
/* The envelope that ends a stream; text NULL: all went well */
void connect_finish(struct buf *b, enum connect_code c, const char *text);

/* Connect-Timeout-Ms: at most ten digits. *ret 0: none was given */
int connect_timeout(const char *header, uint64_t *ret, struct den_err *err);
/* bytes of proto JSON: base64 in either alphabet, padded or not. Added to out. */
int connect_bytes(const char *text, size_t n, struct buf *out, struct den_err *err);
/* Likewise written, into the middle of what is written to b */
void connect_put_bytes(struct buf *b, const void *p, size_t n);
