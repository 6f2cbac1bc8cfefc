#include "id.h"

#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <sys/random.h>

static const char alphabet[] = "abcdefghijklmnopqrstuvwxyz234567";

bool box_id_looks(const char *text)
{
	return strlen(text) == 20 && !strncmp(text, "b-", 2) && strspn(text + 2, alphabet) == 18;
}

int box_id_parse(const char *text, struct box_id *ret, struct den_err *err)
{
	if (!box_id_looks(text))
		return den_fail(err, DEN_INVALID, 0,
			"'%.40s' is not a box id (b- and 18 characters of a-z, 2-7)", text);
	memcpy(ret->s, text, sizeof(ret->s));
	return 0;
}

int box_id_make(struct box_id *ret, struct den_err *err)
{
	uint8_t r[18];

	if (getrandom(r, sizeof(r), 0) != (ssize_t)sizeof(r))
		return den_fail_sys(err, errno, "getrandom");
	ret->s[0] = 'b';
	ret->s[1] = '-';
	for (int i = 0; i < 18; i++)
		ret->s[2 + i] = alphabet[r[i] & 31];
	ret->s[20] = '\0';
	return 0;
}

int box_name_parse(const char *text, struct box_name *ret, struct den_err *err)
{
	static const char ok[] = "abcdefghijklmnopqrstuvwxyz0123456789._-";
	size_t n = strlen(text);

	if (n < 1 || n > 63 || strspn(text, ok) != n || strchr("._-", text[0]))
		return den_fail(err, DEN_INVALID, 0,
			"'%.80s' is not a box name: use a-z, 0-9, '.', '_' and '-', starting with "
			"a "
			"letter or digit, at most 63 characters",
			text);
	if (box_id_looks(text))
		return den_fail(
			err, DEN_INVALID, 0, "name '%s' looks like a box id; choose another", text);
	memcpy(ret->s, text, n + 1);
	return 0;
}
