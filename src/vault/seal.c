/* AES-256-GCM over one file; the layout is in docs/vault.md. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <openssl/rand.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "fd.h"
#include "strv.h"
#include "vault.h"

#define MAGIC "den-seal"
#define VERSION 1
#define AT_VERSION 8
#define AT_KIND 9
#define AT_NONCE 12 /* what is before it is authenticated, with the name */
#define AT_TEXT 24
#define NONCE_SIZE 12
#define TAG_SIZE 16
#define PLAIN_MAX (VALUE_MAX + 64)

void put_u64(uint8_t *p, uint64_t v)
{
	for (int i = 0; i < 8; i++)
		p[i] = (uint8_t)(v >> (56 - 8 * i));
}

uint64_t get_u64(const uint8_t *p)
{
	uint64_t v = 0;

	for (int i = 0; i < 8; i++)
		v = v << 8 | p[i];
	return v;
}

static int dir_of(const struct vault *v, enum seal_kind kind)
{
	return kind == SEAL_SECRET ? v->secrets : v->keys;
}

static const char *what_of(enum seal_kind kind)
{
	return kind == SEAL_SECRET ? "secret" : "signing key";
}

/* 1: done; 0: OpenSSL failed, or, opening, it is not what was sealed. f is the whole file. */
static int gcm(const uint8_t key[static 32], bool seal, const char *name, uint8_t *f,
	size_t plain_n, const uint8_t *in, uint8_t *out)
{
	EVP_CIPHER_CTX *c = EVP_CIPHER_CTX_new();
	uint8_t *tag = f + AT_TEXT + plain_n;
	int n, ok;

	ok = c && EVP_CipherInit_ex(c, EVP_aes_256_gcm(), NULL, key, f + AT_NONCE, seal) == 1 &&
	     EVP_CipherUpdate(c, NULL, &n, f, AT_NONCE) == 1 &&
	     EVP_CipherUpdate(c, NULL, &n, (const uint8_t *)name, (int)strlen(name)) == 1 &&
	     EVP_CipherUpdate(c, out, &n, in, (int)plain_n) == 1;
	if (ok && !seal)
		ok = EVP_CIPHER_CTX_ctrl(c, EVP_CTRL_GCM_SET_TAG, TAG_SIZE, tag) == 1;
	ok = ok && EVP_CipherFinal_ex(c, out + plain_n, &n) == 1;
	if (ok && seal)
		ok = EVP_CIPHER_CTX_ctrl(c, EVP_CTRL_GCM_GET_TAG, TAG_SIZE, tag) == 1;
	EVP_CIPHER_CTX_free(c);
	return ok;
}

static uint8_t *seal_key(const struct vault *v, struct den_err *err)
{
	uint8_t *key = secure_alloc(32, err);

	if (key && vault_derive(v, "den seal 1", "", key, 32, err) == 0)
		return key;
	OPENSSL_secure_free(key);
	return NULL;
}

int seal_write(struct vault *v, enum seal_kind kind, const char *name, const void *p, size_t n,
	struct den_err *err)
{
	auto_secure uint8_t *key = NULL, *f = NULL;

	if (n > PLAIN_MAX)
		return den_fail(err, DEN_LIMIT, 0, "too long");
	if (vault_lock(v, err) < 0)
		return -1;
	key = seal_key(v, err);
	f = secure_alloc(AT_TEXT + n + TAG_SIZE, err);
	if (!key || !f)
		return -1;
	memcpy(f, MAGIC, 8);
	f[AT_VERSION] = VERSION;
	f[AT_KIND] = (uint8_t)kind;
	if (RAND_bytes(f + AT_NONCE, NONCE_SIZE) != 1 ||
		!gcm(key, true, name, f, n, p, f + AT_TEXT))
		return crypto_fail(err, "seal");
	return vault_write(dir_of(v, kind), name, f, AT_TEXT + n + TAG_SIZE, err);
}

static int damaged(enum seal_kind kind, const char *name, struct den_err *err)
{
	if (kind == SEAL_SECRET)
		return den_fail(err, DEN_CONFLICT, 0,
			"the secret '%s' was tampered with, or sealed with another key; set it "
			"again "
			"('den secret set %s')",
			name, name);
	return den_fail(err, DEN_CONFLICT, 0,
		"the signing key '%s' was tampered with, or sealed with another key; remove "
		"'vault/keys/%s' and tokens that it signed are no longer verified",
		name, name);
}

/* 1: read; 0: damaged; -1 */
static int file_read(int dir, const char *name, uint8_t **ret, size_t *ret_n, struct den_err *err)
{
	auto_fd fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	auto_secure uint8_t *f = NULL;
	struct stat st;

	if (fd < 0 && errno == ELOOP)
		return 0;
	if (fd < 0 || fstat(fd, &st) < 0)
		return den_fail_sys(err, errno, "open");
	if (!S_ISREG(st.st_mode) || st.st_size < AT_TEXT + TAG_SIZE ||
		st.st_size > AT_TEXT + PLAIN_MAX + TAG_SIZE)
		return 0;
	f = secure_alloc((size_t)st.st_size, err);
	if (!f)
		return -1;
	if (pread(fd, f, (size_t)st.st_size, 0) != st.st_size)
		return 0;
	*ret = f;
	*ret_n = (size_t)st.st_size;
	f = NULL;
	return 1;
}

int seal_read(const struct vault *v, enum seal_kind kind, const char *name, uint8_t **ret,
	size_t *ret_n, struct den_err *err)
{
	auto_secure uint8_t *key = NULL, *f = NULL, *plain = NULL;
	size_t n = 0;
	int r = file_read(dir_of(v, kind), name, &f, &n, err);

	if (r < 0)
		return err->code == DEN_NOT_FOUND
			       ? den_fail(err, DEN_NOT_FOUND, 0, "no %s '%s'", what_of(kind), name)
			       : den_wrap(err, "%s '%s'", what_of(kind), name);
	if (r == 0)
		return damaged(kind, name, err);
	n -= AT_TEXT + TAG_SIZE;
	key = seal_key(v, err);
	plain = secure_alloc(n, err);
	if (!key || !plain)
		return -1;
	if (memcmp(f, MAGIC, 8) || f[AT_KIND] != (uint8_t)kind)
		return damaged(kind, name, err);
	if (f[AT_VERSION] != VERSION)
		return den_fail(err, DEN_UNSUPPORTED, 0,
			"%s '%s' is of format %u; this den knows %d", what_of(kind), name,
			f[AT_VERSION], VERSION);
	if (!gcm(key, false, name, f, n, f + AT_TEXT, plain))
		return damaged(kind, name, err);
	*ret = plain;
	*ret_n = n;
	plain = NULL;
	return 0;
}

bool seal_exists(const struct vault *v, enum seal_kind kind, const char *name)
{
	return faccessat(dir_of(v, kind), name, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

int seal_remove(struct vault *v, enum seal_kind kind, const char *name, struct den_err *err)
{
	if (vault_lock(v, err) < 0)
		return -1;
	if (unlinkat(dir_of(v, kind), name, 0) < 0)
		return errno == ENOENT
			       ? den_fail(err, DEN_NOT_FOUND, 0, "no %s '%s'", what_of(kind), name)
			       : den_fail_sys(err, errno, "remove '%s'", name);
	return fsync(dir_of(v, kind)) < 0 ? den_fail_sys(err, errno, "sync") : 0;
}

static int by_name(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

int seal_names(const struct vault *v, enum seal_kind kind, char ***ret, struct den_err *err)
{
	int fd = openat(dir_of(v, kind), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *d = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *de;
	char **names = NULL;

	if (!d) {
		fd_close(&fd);
		return den_fail_sys(err, errno, "list");
	}
	while ((de = readdir(d)))
		if (de->d_name[0] != '.')
			strv_add(&names, de->d_name);
	closedir(d);
	if (names)
		qsort(names, strv_len(names), sizeof(*names), by_name);
	*ret = names;
	return 0;
}
