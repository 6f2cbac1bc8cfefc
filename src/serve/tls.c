#include "tls.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/bio.h>
#include <openssl/ec.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "buf.h"
#include "fd.h"
#include "mem.h"

#define PEM_MAX (256U << 10)
#define FILE_NAME "serve-tls.pem"
#define DAYS 397	/* what browsers take */
#define DAYS_LEFT 30	/* then a new one is made */

static int read_pem(const char *file, const char *what, char **ret, struct den_err *err)
{
	auto_fd fd = open(file, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return den_fail_sys(err, errno, "%s '%.100s'", what, file);
	if (fd_read_all(fd, PEM_MAX, ret, NULL, err) < 0)
		return den_wrap(err, "%s '%.100s'", what, file);
	return 0;
}

static X509 *pem_cert(const char *text)
{
	BIO *b = BIO_new_mem_buf(text, -1);
	X509 *x = b ? PEM_read_bio_X509(b, NULL, NULL, NULL) : NULL;

	BIO_free(b);
	return x;
}

static EVP_PKEY *pem_key(const char *text)
{
	BIO *b = BIO_new_mem_buf(text, -1);
	EVP_PKEY *k = b ? PEM_read_bio_PrivateKey(b, NULL, NULL, NULL) : NULL;

	BIO_free(b);
	return k;
}

/* A wrong file is told at start, by name, not at the first handshake. */
static int check_pair(const char *cert, const char *key, const char *cert_file, const char *key_file, struct den_err *err)
{
	X509 *x = pem_cert(cert);
	EVP_PKEY *k = pem_key(key);
	int r = 0;

	if (!x)
		r = den_fail(err, DEN_INVALID, 0, "there is no certificate (PEM) in '%.100s'", cert_file);
	else if (!k)
		r = den_fail(err, DEN_INVALID, 0, "there is no private key (PEM, without password) in '%.100s'", key_file);
	else if (X509_check_private_key(x, k) != 1)
		r = den_fail(err, DEN_INVALID, 0, "the key in '%.80s' is not that of the certificate in '%.80s'", key_file, cert_file);
	X509_free(x);
	EVP_PKEY_free(k);
	return r;
}

int tls_load(const char *cert_file, const char *key_file, char **ret_cert, char **ret_key, struct den_err *err)
{
	auto_free char *cert = NULL, *key = NULL;

	if (read_pem(cert_file, "certificate", &cert, err) < 0 || read_pem(key_file, "key", &key, err) < 0 ||
		check_pair(cert, key, cert_file, key_file, err) < 0)
		return -1;
	*ret_cert = mem_take(&cert);
	*ret_key = mem_take(&key);
	return 0;
}

/* ---- our own ---- */

static bool add_extension(X509 *x, int nid, const char *value)
{
	X509_EXTENSION *e = X509V3_EXT_conf_nid(NULL, NULL, nid, value);
	bool ok = e && X509_add_ext(x, e, -1) == 1;

	X509_EXTENSION_free(e);
	return ok;
}

static bool fill(X509 *x, EVP_PKEY *key, const char *name)
{
	X509_NAME *subject = X509_get_subject_name(x);
	auto_buf alt = { 0 };
	uint8_t serial[16];
	BIGNUM *n;
	bool ok;

	buf_addf(&alt, "DNS:%s,DNS:*.%s", name, name);
	if (strcmp(name, "localhost"))
		buf_addstr(&alt, ",DNS:localhost,DNS:*.localhost");
	buf_addstr(&alt, ",IP:127.0.0.1,IP:::1");
	if (RAND_bytes(serial, sizeof(serial)) != 1)
		return false;
	serial[0] &= 0x7f;
	n = BN_bin2bn(serial, sizeof(serial), NULL);
	ok = n && BN_to_ASN1_INTEGER(n, X509_get_serialNumber(x));
	BN_free(n);
	return ok && X509_set_version(x, 2) && X509_gmtime_adj(X509_getm_notBefore(x), -3600) &&
	       X509_gmtime_adj(X509_getm_notAfter(x), DAYS * 86400L) && X509_set_pubkey(x, key) &&
	       X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_UTF8, (const uint8_t *)"den serve", -1, -1, 0) &&
	       X509_set_issuer_name(x, subject) && add_extension(x, NID_basic_constraints, "critical,CA:FALSE") &&
	       add_extension(x, NID_key_usage, "critical,digitalSignature") &&
	       add_extension(x, NID_ext_key_usage, "serverAuth") &&
	       add_extension(x, NID_subject_alt_name, buf_str(&alt)) && X509_sign(x, key, EVP_sha256()) > 0;
}

static char *bio_text(BIO *b)
{
	char *p;
	long n = BIO_get_mem_data(b, &p);

	return n > 0 ? mem_strndup(p, (size_t)n) : NULL;
}

static int make(const char *name, char **ret_cert, char **ret_key, struct den_err *err)
{
	EVP_PKEY *key = EVP_EC_gen("P-256");
	X509 *x = X509_new();
	BIO *c = BIO_new(BIO_s_mem()), *k = BIO_new(BIO_s_mem());
	bool ok = key && x && c && k && fill(x, key, name) && PEM_write_bio_X509(c, x) &&
		  PEM_write_bio_PrivateKey(k, key, NULL, NULL, 0, NULL, NULL);

	if (ok) {
		*ret_cert = bio_text(c);
		*ret_key = bio_text(k);
	}
	BIO_free(c);
	BIO_free(k);
	X509_free(x);
	EVP_PKEY_free(key);
	return ok ? 0 : den_fail(err, DEN_INTERNAL, 0, "a certificate for '%.60s' cannot be made", name);
}

/* Still good for a while, and for this name? */
static bool usable(const char *pem, const char *name)
{
	X509 *x = pem_cert(pem);
	EVP_PKEY *k = pem_key(pem);
	time_t later = time(NULL) + DAYS_LEFT * 86400L;
	bool ok = x && k && X509_check_private_key(x, k) == 1 && X509_check_host(x, name, 0, 0, NULL) == 1 &&
		  X509_cmp_time(X509_get0_notAfter(x), &later) > 0;

	X509_free(x);
	EVP_PKEY_free(k);
	return ok;
}

int tls_self_signed(int state_fd, const char *name, char **ret_cert, char **ret_key, struct den_err *err)
{
	auto_free char *old = NULL, *cert = NULL, *key = NULL;
	auto_fd fd = openat(state_fd, FILE_NAME, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	auto_buf both = { 0 };

	if (fd >= 0 && fd_read_all(fd, PEM_MAX, &old, NULL, NULL) == 0 && usable(old, name)) {
		*ret_cert = mem_strdup(old);
		*ret_key = mem_take(&old);
		return 0;
	}
	if (make(name, &cert, &key, err) < 0)
		return -1;
	buf_addf(&both, "%s%s", cert, key);
	if (file_replace_at(state_fd, FILE_NAME, both.p, both.len, 0600, err) < 0)
		return den_wrap(err, FILE_NAME);
	*ret_cert = mem_take(&cert);
	*ret_key = mem_take(&key);
	return 0;
}
