#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <openssl/core_names.h>
#include <openssl/kdf.h>
#include <openssl/rand.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>

#include "buf.h"
#include "fd.h"
#include "vault.h"

#define NEW ".new" /* what is being written; only one writes at a time, so one name does */

/* ---- directories ---- */

/* What others can change is no vault; what others can read is none any more. */
static int check_private(const struct stat *st, const char *what, mode_t type, struct den_err *err)
{
	if ((st->st_mode & S_IFMT) != type)
		return den_fail(err, DEN_DENIED, 0, "%s is not what den made", what);
	if (st->st_uid != geteuid())
		return den_fail(err, DEN_DENIED, 0,
			"%s belongs to user %u, not to %u, who runs den", what, st->st_uid,
			geteuid());
	if (st->st_mode & 077)
		return den_fail(err, DEN_DENIED, 0,
			"%s is open to others (mode %04o); see who can have read it, then 'chmod "
			"%s' it",
			what, st->st_mode & 07777, type == S_IFDIR ? "700" : "600");
	return 0;
}

/* Looked at before too: what cannot be opened is told for what it is. 1: opened; 0: there is
 * none */
static int private_open(
	int at, const char *name, const char *what, mode_t type, int *ret, struct den_err *err)
{
	int flags = O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC |
		    (type == S_IFDIR ? O_DIRECTORY : 0);
	auto_fd fd = -1;
	struct stat st;

	if (fstatat(at, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ? 0 : den_fail_sys(err, errno, "look at %s", what);
	if (check_private(&st, what, type, err) < 0)
		return -1;
	fd = openat(at, name, flags);
	if (fd < 0 || fstat(fd, &st) < 0)
		return den_fail_sys(err, errno, "open %s", what);
	if (check_private(&st, what, type, err) < 0)
		return -1;
	*ret = fd_take(&fd);
	return 1;
}

static int dir_open(int at, const char *name, int *ret, struct den_err *err)
{
	char what[32];
	int r;

	snprintf(what, sizeof(what), "the directory '%s'", name);
	if (mkdirat(at, name, 0700) == 0) {
		if (fsync(at) < 0)
			return den_fail_sys(err, errno, "sync");
	} else if (errno != EEXIST) {
		return den_fail_sys(err, errno, "make %s", what);
	}
	r = private_open(at, name, what, S_IFDIR, ret, err);
	return r == 0 ? den_fail(err, DEN_NOT_FOUND, ENOENT, "open %s", what) : r < 0 ? -1 : 0;
}

static bool dir_empty(int fd)
{
	int own = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *d = own < 0 ? NULL : fdopendir(own);
	struct dirent *de;
	bool empty = d;

	if (!d)
		fd_close(&own);
	while (d && empty && (de = readdir(d)))
		empty = de->d_name[0] == '.'; /* leftovers of a writer are nothing */
	if (d)
		closedir(d);
	return empty;
}

int vault_lock(struct vault *v, struct den_err *err)
{
	auto_fd fd = -1;

	if (v->lock >= 0)
		return 0;
	fd = openat(v->dir, "lock", O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0)
		return den_fail_sys(err, errno, "open the lock");
	while (flock(fd, LOCK_EX) < 0)
		if (errno != EINTR)
			return den_fail_sys(err, errno, "lock");
	v->lock = fd_take(&fd);
	return 0;
}

int vault_write(int dir, const char *name, const void *p, size_t n, struct den_err *err)
{
	auto_fd fd = -1;

	if (unlinkat(dir, NEW, 0) < 0 && errno != ENOENT) /* of a writer that was killed */
		return den_fail_sys(err, errno, "remove a leftover");
	fd = openat(dir, NEW, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0)
		return den_fail_sys(err, errno, "make a file");
	if (fd_write_all(fd, p, n, err) < 0)
		goto failed;
	if (fsync(fd) < 0) {
		den_fail_sys(err, errno, "sync");
		goto failed;
	}
	if (renameat(dir, NEW, dir, name) < 0) {
		den_fail_sys(err, errno, "rename to '%s'", name);
		goto failed;
	}
	if (fsync(dir) < 0)
		return den_fail_sys(err, errno, "sync");
	return 0;
failed:
	unlinkat(dir, NEW, 0);
	return -1;
}

/* ---- the master key ---- */

/* 1: read; 0: there is none */
static int master_read(struct vault *v, struct den_err *err)
{
	auto_fd fd = -1;
	struct stat st;
	int r = private_open(v->dir, "key", "the key 'vault/key'", S_IFREG, &fd, err);

	if (r <= 0)
		return r;
	if (fstat(fd, &st) < 0 || st.st_size != MASTER_SIZE ||
		pread(fd, v->master, MASTER_SIZE, 0) != MASTER_SIZE)
		return den_fail(err, DEN_CONFLICT, 0,
			"the key 'vault/key' has not its 32 bytes; bring it back from a backup");
	return 1;
}

static int master_make(struct vault *v, struct den_err *err)
{
	int r;

	if (vault_lock(v, err) < 0)
		return -1;
	r = master_read(v, err); /* somebody may have been faster */
	if (r)
		return r < 0 ? -1 : 0;
	if (!dir_empty(v->secrets) || !dir_empty(v->keys))
		return den_fail(err, DEN_CONFLICT, 0,
			"the key 'vault/key' is gone, and what it sealed is not; bring it back "
			"from a backup, "
			"or remove the directory 'vault' and set every secret again");
	if (RAND_priv_bytes(v->master, MASTER_SIZE) != 1)
		return crypto_fail(err, "random bytes");
	return vault_write(v->dir, "key", v->master, MASTER_SIZE, err);
}

int vault_open(const char *state, struct vault *ret, struct den_err *err)
{
	struct vault v = { -1, -1, -1, -1, NULL };
	auto_fd top = open(state, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int r;

	if (top < 0)
		return den_fail_sys(err, errno, "open the state directory '%.120s'", state);
	if (dir_open(top, "vault", &v.dir, err) < 0 ||
		dir_open(v.dir, "secrets", &v.secrets, err) < 0 ||
		dir_open(v.dir, "keys", &v.keys, err) < 0)
		goto failed;
	v.master = secure_alloc(MASTER_SIZE, err);
	if (!v.master)
		goto failed;
	r = master_read(&v, err);
	if (r < 0 || (r == 0 && master_make(&v, err) < 0))
		goto failed;
	*ret = v;
	return 0;
failed:
	vault_close(&v);
	return -1;
}

void vault_close(struct vault *v)
{
	fd_close(&v->dir);
	fd_close(&v->secrets);
	fd_close(&v->keys);
	fd_close(&v->lock);
	OPENSSL_secure_free(v->master);
	v->master = NULL;
}

int vault_derive(const struct vault *v, const char *label, const char *context, uint8_t *ret,
	size_t n, struct den_err *err)
{
	EVP_KDF *kdf = EVP_KDF_fetch(NULL, "HKDF", NULL);
	EVP_KDF_CTX *ctx = kdf ? EVP_KDF_CTX_new(kdf) : NULL;
	auto_buf info = { 0 };
	OSSL_PARAM params[4];
	int ok;

	buf_add(&info, label, strlen(label) + 1);
	buf_addstr(&info, context);
	params[0] = OSSL_PARAM_construct_utf8_string(OSSL_KDF_PARAM_DIGEST, (char *)"SHA256", 0);
	params[1] = OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_KEY, v->master, MASTER_SIZE);
	params[2] = OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_INFO, info.p, info.len);
	params[3] = OSSL_PARAM_construct_end();
	ok = ctx && EVP_KDF_derive(ctx, ret, n, params) == 1;
	EVP_KDF_CTX_free(ctx);
	EVP_KDF_free(kdf);
	return ok ? 0 : crypto_fail(err, "derive a key");
}
