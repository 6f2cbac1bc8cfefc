/*
 * den-vault: the only program of den that reads secrets and private keys at rest. It is started
 * for one request (JSON on stdin), answers (JSON on stdout) and is gone, so nothing that talks
 * with strangers ever has these files open or a key in memory. docs/vault.md says what is in the
 * files.
 *
 * Invariants
 *  1. What is secret lies in OpenSSL's secure heap: locked if the system lets us, wiped when
 *     freed, in no core dump. jansson allocates there too.
 *  2. A file is made aside, synced and renamed, by one writer at a time: there is the old one or
 *     the new one, whenever the power goes.
 *  3. The master key is made when there is none AND nothing that was sealed with one. It encrypts
 *     nothing itself: each use has a key derived from it.
 */
#pragma once

#include <jansson.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <stdbool.h>
#include <stdint.h>

#include "b64.h"
#include "err.h"

#define MASTER_SIZE 32
#define VALUE_MAX (64U << 10)
#define VALUE_MIN 8
#define NAME_LEN_MAX 64
#define SECRETS_MAX 1000

/* ---- memory.c ---- */

int memory_begin(struct den_err *err);
void *secure_alloc(size_t n, struct den_err *err); /* zeroed; NULL: err set */
static inline void secure_freep(void *p)
{
	OPENSSL_secure_free(*(void **)p);
}
#define auto_secure __attribute__((cleanup(secure_freep)))
static inline void json_freep(json_t **j)
{
	json_decref(*j);
}
#define auto_json __attribute__((cleanup(json_freep)))
/* What OpenSSL says, once; always -1. */
int crypto_fail(struct den_err *err, const char *what);

/* ---- store.c: the directory, the lock, the master key ---- */

struct vault {
	int dir, secrets, keys, lock;
	uint8_t *master; /* secure */
};
int vault_open(const char *state, struct vault *ret, struct den_err *err);
void vault_close(struct vault *v);
/* Before anything is written; held until vault_close(). Idempotent. */
int vault_lock(struct vault *v, struct den_err *err);
/* Replaces or makes dir/name, mode 0600, durable when it returns. With the lock held. */
int vault_write(int dir, const char *name, const void *p, size_t n, struct den_err *err);
/* A key of its own for each purpose: HKDF-SHA256 of the master key, info = label, NUL, context. */
int vault_derive(const struct vault *v, const char *label, const char *context, uint8_t *ret,
	size_t n, struct den_err *err);

/* ---- seal.c: one file, one sealed thing ---- */

enum seal_kind {
	SEAL_SECRET = 's',
	SEAL_KEY = 'k',
};
int seal_write(struct vault *v, enum seal_kind kind, const char *name, const void *p, size_t n,
	struct den_err *err);
/* *ret: secure_alloc()ed. DEN_NOT_FOUND: none; DEN_CONFLICT: not what was written. */
int seal_read(const struct vault *v, enum seal_kind kind, const char *name, uint8_t **ret,
	size_t *ret_n, struct den_err *err);
bool seal_exists(const struct vault *v, enum seal_kind kind, const char *name);
int seal_remove(struct vault *v, enum seal_kind kind, const char *name, struct den_err *err);
/* Names of all, sorted. strv_free() it. */
int seal_names(const struct vault *v, enum seal_kind kind, char ***ret, struct den_err *err);
void put_u64(uint8_t *p, uint64_t v); /* big-endian, as all numbers in the files */
uint64_t get_u64(const uint8_t *p);

/* ---- p256.c ---- */

#define P256_POINT 65 /* uncompressed */
/* Private key and its public point from 48 bytes that look random: reduced, and never zero. */
int p256_derive(const uint8_t wide[static 48], uint8_t ret_scalar[static 32], struct den_err *err);
int p256_public(
	const uint8_t scalar[static 32], uint8_t ret[static P256_POINT], struct den_err *err);
int p256_pkey(const uint8_t scalar[static 32], EVP_PKEY **ret, struct den_err *err);
/* DER signature of SHA-256(p) with a number k of the caller's instead of a random one (the same
 * certificate each time): k belongs to this message and this key alone. */
int p256_sign_with(const uint8_t scalar[static 32], const uint8_t k[static 32], const void *p,
	size_t n, uint8_t *ret, size_t max, size_t *ret_n, struct den_err *err);

/* ---- keys.c: signing keys ---- */

enum sign_alg { ALG_EDDSA = 1, ALG_ES256 = 2 };
struct sign_key {
	char kid[44];
	enum sign_alg alg;
	int64_t created_ms, retired_ms; /* retired 0: signs */
	uint8_t private[32]; /* zero when retired: it is destroyed then */
	uint8_t public[P256_POINT];
	size_t public_len;
};
const char *alg_name(enum sign_alg alg);
int alg_parse(const char *text, enum sign_alg *ret, struct den_err *err);
/* The one that signs; made when there is none. *ret: secure_alloc()ed */
int keys_current(struct vault *v, enum sign_alg alg, struct sign_key **ret, struct den_err *err);
/* All that may have signed a token that is still valid. *ret: secure_alloc()ed array */
int keys_all(const struct vault *v, struct sign_key **ret, size_t *ret_n, struct den_err *err);
/* A new one signs from now on; *made and *retired are arrays that get objects. */
int keys_rotate(
	struct vault *v, enum sign_alg alg, json_t *made, json_t *retired, struct den_err *err);
/* {"crv","kty","x"[,"y"]}: the members of a thumbprint, in its order */
json_t *key_jwk(const struct sign_key *k);
/* As JWS wants it: 64 bytes. */
int key_sign(const struct sign_key *k, const void *p, size_t n, uint8_t ret[static 64],
	struct den_err *err);

#define TOKEN_TTL_DEFAULT 600
#define TOKEN_TTL_MAX 3600
#define CLOCK_SKEW_S 300 /* a verifier's clock may be that far behind */

/* ---- ident.c ---- */

#define ISSUER_MAX 512
/* Who signs: asked if not NULL, else what was set, else a name that cannot be one. */
int issuer_get(const struct vault *v, const char *asked, char ret[static ISSUER_MAX + 1],
	struct den_err *err);

/* ---- member.c ---- */

/* A member that is text of 1 to max bytes without NUL; absent: *ret NULL, or an error if needed. */
int member_text(const json_t *o, const char *key, size_t max, bool needed, const char **ret,
	struct den_err *err);
/* DEN_INVALID for a member that is not in the list (words separated by spaces), with the
 * nearest. */
int members_known(const json_t *o, const char *where, const char *list, struct den_err *err);

/* ---- operations; main.c has checked which members the request has ---- */

int op_secret_set(struct vault *v, json_t *req, json_t *ret, struct den_err *err);
int op_secret_rotate(struct vault *v, json_t *req, json_t *ret, struct den_err *err);
int op_secret_list(struct vault *v, json_t *req, json_t *ret, struct den_err *err);
int op_secret_remove(struct vault *v, json_t *req, json_t *ret, struct den_err *err);
int op_secret_get(struct vault *v, json_t *req, json_t *ret, struct den_err *err);
int op_placeholder(struct vault *v, json_t *req, json_t *ret, struct den_err *err);
int op_box_ca(struct vault *v, json_t *req, json_t *ret, struct den_err *err);
int op_token_sign(struct vault *v, json_t *req, json_t *ret, struct den_err *err);
int op_ident_jwks(struct vault *v, json_t *req, json_t *ret, struct den_err *err);
int op_ident_rotate(struct vault *v, json_t *req, json_t *ret, struct den_err *err);
int op_ident_openid(struct vault *v, json_t *req, json_t *ret, struct den_err *err);
int op_ident_issuer(struct vault *v, json_t *req, json_t *ret, struct den_err *err);
