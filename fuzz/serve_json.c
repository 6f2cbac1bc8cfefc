/* Bodies: what the look before parsing lets through is parsed, and its members are taken by a table. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "json_fields.h"
#include "json_scan.h"
#include "strv.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

struct all {
	bool b, given;
	const char *s;
	uint64_t u;
	int64_t i;
	double d;
	json_t *o, *a, *any;
	char **texts, **map;
};

static const char *const words[] = { "one", "two", NULL };
static const struct field fields[] = {
	{ "b", FIELD_BOOL, offsetof(struct all, b), .given = FIELD_GIVEN(struct all, given) },
	{ "s", FIELD_TEXT, offsetof(struct all, s), .min = 1, .max = 20 },
	{ "w", FIELD_TEXT, offsetof(struct all, s), FIELD_NULL, .words = words },
	{ "u", FIELD_U64, offsetof(struct all, u), .min = 2, .max = 1000 },
	{ "i", FIELD_I64, offsetof(struct all, i), .max = 1000 },
	{ "d", FIELD_REAL, offsetof(struct all, d), .max = 10 },
	{ "o", FIELD_OBJECT, offsetof(struct all, o), .max = 5 },
	{ "a", FIELD_ARRAY, offsetof(struct all, a), .max = 5 },
	{ "any", FIELD_ANY, offsetof(struct all, any) },
	{ "texts", FIELD_TEXTS, offsetof(struct all, texts), .max = 5 },
	{ "map", FIELD_MAP, offsetof(struct all, map) },
};

static void check(bool ok)
{
	if (!ok)
		abort();
}

static size_t depth_of(const json_t *j)
{
	size_t most = 0, i;
	const char *key;
	json_t *v;

	json_array_foreach((json_t *)j, i, v) most = depth_of(v) > most ? depth_of(v) : most;
	json_object_foreach((json_t *)j, key, v) most = depth_of(v) > most ? depth_of(v) : most;
	return json_is_array(j) || json_is_object(j) ? most + 1 : 0;
}

static void take(const json_t *j, bool strict)
{
	struct den_err err = { 0 };
	struct all all = { .u = 7 }, untouched = all;

	if (fields_get(j, fields, sizeof(fields) / sizeof(fields[0]), strict, &all, &err) < 0) {
		check(err.code == DEN_INVALID && err.msg[0] &&
			!memcmp(&all, &untouched, sizeof(all)));
		return;
	}
	check(all.u >= 2 && all.u <= 1000 && all.i >= -1000 && all.i <= 1000 && all.d >= 0 &&
		all.d <= 10);
	check(!all.s || strlen(all.s) <= 20);
	check(strv_len(all.texts) <= 5);
	for (char **m = all.map; m && *m; m++)
		check(strchr(*m, '=') > *m);
	strv_free(all.texts);
	strv_free(all.map);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	struct den_err err = { 0 };
	char *text = strndup((const char *)data, n);
	json_t *j;

	json_decref(json_text(text));
	free(text);
	if (json_read((const char *)data, n, &j, &err) < 0) {
		check(err.msg[0]);
		return 0;
	}
	check(json_is_object(j) && (n > 4096 || depth_of(j) <= JSON_DEPTH_MAX));
	take(j, true);
	take(j, false);
	json_decref(j);
	return 0;
}
