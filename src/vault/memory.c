#include <errno.h>
#include <openssl/err.h>
#include <string.h>
#include <sys/resource.h>

#include "vault.h"

/* Four times the longest request: its text, what is parsed of it, what is made of that. */
#define HEAP_SIZE (8U << 20)

static void *heap_alloc(size_t n)
{
	return OPENSSL_secure_malloc(n);
}

static void heap_free(void *p)
{
	OPENSSL_secure_free(p); /* wipes it */
}

int memory_begin(struct den_err *err)
{
	struct rlimit lim;

	if (getrlimit(RLIMIT_MEMLOCK, &lim) == 0) {
		lim.rlim_cur = lim.rlim_max;
		setrlimit(RLIMIT_MEMLOCK, &lim);
	}
	/* the host's openssl.cnf has no say here */
	if (!OPENSSL_init_crypto(OPENSSL_INIT_NO_LOAD_CONFIG, NULL))
		return crypto_fail(err, "start OpenSSL");
	/* 2: made, but the system does not let us lock it: then it can be swapped, as any
	 * program's */
	if (!CRYPTO_secure_malloc_init(HEAP_SIZE, 64))
		return den_fail(err, DEN_LIMIT, ENOMEM, "memory for secrets");
	json_set_alloc_funcs(heap_alloc, heap_free);
	return 0;
}

void *secure_alloc(size_t n, struct den_err *err)
{
	void *p = OPENSSL_secure_zalloc(n ? n : 1);

	if (!p)
		den_fail(err, DEN_LIMIT, ENOMEM, "memory for secrets");
	return p;
}

int crypto_fail(struct den_err *err, const char *what)
{
	char text[160];

	ERR_error_string_n(ERR_get_error(), text, sizeof(text));
	return den_fail(err, DEN_INTERNAL, 0, "%s: %s", what, text);
}
