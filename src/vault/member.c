/* Members of a request. */
#include <stdio.h>
#include <string.h>

#include "parse.h"
#include "vault.h"

int member_text(const json_t *o, const char *key, size_t max, bool needed, const char **ret,
	struct den_err *err)
{
	const json_t *j = json_object_get(o, key);

	if (!j && !needed) {
		*ret = NULL;
		return 0;
	}
	if (!json_is_string(j) || !json_string_length(j) || json_string_length(j) > max)
		return den_fail(
			err, DEN_INVALID, 0, "'%s' must be a text of 1 to %zu bytes", key, max);
	*ret = json_string_value(j); /* jansson lets no NUL in */
	return 0;
}

/* The text of the list, cut into words in buf. */
static int words_of(const char *list, char *buf, size_t cap, const char **words, int max)
{
	int n = 0;

	snprintf(buf, cap, "%s", list);
	for (char *save, *w = strtok_r(buf, " ", &save); w && n < max;
		w = strtok_r(NULL, " ", &save))
		words[n++] = w;
	return n;
}

int members_known(const json_t *o, const char *where, const char *list, struct den_err *err)
{
	const char *words[16], *key, *near;
	json_t *value;
	char buf[128];
	int n = words_of(list, buf, sizeof(buf), words, 16);

	json_object_foreach((json_t *)o, key, value)
	{
		bool known = false;

		for (int i = 0; i < n; i++)
			known |= !strcmp(key, words[i]);
		if (known)
			continue;
		near = parse_nearest(key, words, n);
		return near ? den_fail(err, DEN_INVALID, 0,
				      "%s: unknown member '%.40s'; did you mean '%s'?", where, key,
				      near)
			    : den_fail(err, DEN_INVALID, 0, "%s: unknown member '%.40s'", where,
				      key);
	}
	return 0;
}
