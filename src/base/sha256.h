/* SHA-256 (FIPS 180-4). Of our own: den is static, and libcrypto's constructors cost each start of
 * den more than its whole parsing (docs/decisions/0010-images.md). */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct sha256 {
	uint32_t h[8];
	uint64_t len;
	uint8_t block[64];
};
void sha256_init(struct sha256 *s);
void sha256_add(struct sha256 *s, const void *p, size_t n);
void sha256_end(struct sha256 *s, uint8_t ret[static 32]);
void sha256_hex(struct sha256 *s, char ret[static 65]); /* ends it */
/* The half that runs where the processor has no instructions for it; a test compares the two. h is
 * in the state of struct sha256, n counts blocks of 64 bytes. */
void sha256_blocks_portable(uint32_t h[static 8], const uint8_t *p, size_t n);
