#include "digest.h"

#include <string.h>

int digest_parse(const char *text, struct digest *ret, struct den_err *err)
{
	static const char prefix[] = "sha256:";
	const char *hex = text + sizeof(prefix) - 1;

	if (strncmp(text, prefix, sizeof(prefix) - 1)) {
		if (!strncmp(text, "sha512:", 7))
			return den_fail(err, DEN_UNSUPPORTED, 0,
				"'%.20s...' is a SHA-512 digest; only sha256 is understood", text);
		return den_fail(err, DEN_INVALID, 0, "'%.80s' is not a digest (sha256:...)", text);
	}
	if (strspn(hex, "0123456789abcdef") != 64 || hex[64])
		return den_fail(err, DEN_INVALID, 0,
			"'%.80s' is not a digest: 64 lower-case hexadecimal digits follow "
			"'sha256:'",
			text);
	memcpy(ret->hex, hex, sizeof(ret->hex));
	return 0;
}

void digest_end(struct sha256 *sum, struct digest *ret)
{
	sha256_hex(sum, ret->hex);
}

void digest_of(const void *p, size_t n, struct digest *ret)
{
	struct sha256 sum;

	sha256_init(&sum);
	sha256_add(&sum, p, n);
	digest_end(&sum, ret);
}

bool digest_same(const struct digest *a, const struct digest *b)
{
	return !memcmp(a->hex, b->hex, sizeof(a->hex));
}
