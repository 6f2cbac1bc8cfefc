/* The ways in which bytes travel in HTTP heads: base64, hex, percent. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "buf.h"

extern const char encode_base64_alphabet[65]; /* the standard one */
extern const char encode_base64url_alphabet[65];

void encode_base64(struct buf *out, const void *p, size_t n);
/* What base64 of any text is sure to contain if p stands in it `skip` bytes behind a multiple of three:
 * the digits whose six bits are all p's. */
void encode_base64_inside(
	struct buf *out, const char *p, size_t n, unsigned skip, const char *alphabet);
/* Standard alphabet, padding optional but right if it is there. -1: not base64, out is as it was. */
int decode_base64(struct buf *out, const char *p, size_t n);
void encode_hex(struct buf *out, const void *p, size_t n); /* lower case */
int hex_digit(char c); /* 0..15, or -1 */
/* Letters, digits and -._~ stay, and what is in keep; hex digits are upper case. */
void encode_percent(struct buf *out, const char *p, size_t n, const char *keep);
/* %XX becomes its byte, anything else stays; plus: '+' is a space. */
void decode_percent(struct buf *out, const char *p, size_t n, bool plus);
