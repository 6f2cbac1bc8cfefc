#include "signed.h"

#include <stdint.h>
#include <string.h>

#include "b64.h"
#include "sha256.h"

void signed_make(const char *path, const char *op, const char *user, const char *token, const char *expires,
	char out[static SIGNED_SIZE])
{
	const char *const part[] = { path, op, user, token, expires };
	struct sha256 s;
	uint8_t sum[32];
	char text[B64_SIZE(sizeof(sum))];
	size_t n;

	sha256_init(&s);
	for (size_t i = 0; i < 5 && part[i]; i++) {
		if (i)
			sha256_add(&s, ":", 1);
		sha256_add(&s, part[i], strlen(part[i]));
	}
	sha256_end(&s, sum);
	n = b64_put(text, sum, sizeof(sum), B64_STD);
	while (n && text[n - 1] == '=')
		text[--n] = '\0';
	memcpy(out, "v1_", 3);
	memcpy(out + 3, text, n + 1);
}
