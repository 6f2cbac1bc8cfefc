#include "json_in.h"

#include <string.h>

#include "json_text.h"
#include "mem.h"
#include "strv.h"

/* jansson recurses, and its own limit is 2048. */
static int depth_check(const char *p, size_t n, struct den_err *err)
{
	bool text = false;
	unsigned depth = 0;

	for (size_t i = 0; i < n; i++) {
		if (text && p[i] == '\\') {
			i++;
		} else if (p[i] == '"') {
			text = !text;
		} else if (!text && (p[i] == '{' || p[i] == '[')) {
			if (++depth > JSON_IN_DEPTH)
				return den_fail(err, DEN_LIMIT, 0, "JSON is nested deeper than %d",
					JSON_IN_DEPTH);
		} else if (!text && (p[i] == '}' || p[i] == ']') && depth) {
			depth--;
		}
	}
	return 0;
}

int json_in(const char *text, size_t n, json_t **ret, struct den_err *err)
{
	json_error_t why;
	json_t *j;

	if (n > JSON_IN_MAX)
		return den_fail(
			err, DEN_LIMIT, 0, "JSON of %zu bytes; the limit is %u", n, JSON_IN_MAX);
	if (depth_check(text, n, err) < 0)
		return -1;
	j = json_loadb(text, n, JSON_REJECT_DUPLICATES, &why);
	if (!j)
		return den_fail(
			err, DEN_INVALID, 0, "not JSON: line %d: %.80s", why.line, why.text);
	*ret = j;
	return 0;
}

static int member(const json_t *obj, const char *key, json_type type, const char *kind,
	const json_t **ret, struct den_err *err)
{
	const json_t *v;

	if (!json_is_object(obj))
		return den_fail(
			err, DEN_INVALID, 0, "an object is expected where '%s' should be", key);
	v = json_object_get(obj, key);
	*ret = NULL;
	if (!v || json_is_null(v))
		return 0;
	if (json_typeof(v) != type)
		return den_fail(err, DEN_INVALID, 0, "'%s' is not %s", key, kind);
	*ret = v;
	return 0;
}

int json_in_text(const json_t *obj, const char *key, const char **ret, struct den_err *err)
{
	const json_t *v;

	if (member(obj, key, JSON_STRING, "a text", &v, err) < 0)
		return -1;
	*ret = v ? json_string_value(v) : NULL;
	return 0;
}

int json_in_object(const json_t *obj, const char *key, const json_t **ret, struct den_err *err)
{
	return member(obj, key, JSON_OBJECT, "an object", ret, err);
}

int json_in_array(const json_t *obj, const char *key, const json_t **ret, struct den_err *err)
{
	return member(obj, key, JSON_ARRAY, "a list", ret, err);
}

int json_in_texts(const json_t *obj, const char *key, char ***ret, struct den_err *err)
{
	auto_strv v = NULL;
	const json_t *a;

	if (json_in_array(obj, key, &a, err) < 0)
		return -1;
	for (size_t i = 0; a && i < json_array_size(a); i++) {
		const char *s = json_string_value(json_array_get(a, i));

		if (!s)
			return den_fail(err, DEN_INVALID, 0, "'%s' is not a list of texts", key);
		strv_add(&v, s);
	}
	*ret = mem_take(&v);
	return 0;
}

int json_in_size(const json_t *obj, const char *key, uint64_t *ret, struct den_err *err)
{
	const json_t *v;

	if (member(obj, key, JSON_INTEGER, "a whole number", &v, err) < 0)
		return -1;
	if (!v || json_integer_value(v) < 0)
		return den_fail(err, DEN_INVALID, 0, "'%s' is %s", key, v ? "negative" : "missing");
	*ret = (uint64_t)json_integer_value(v);
	return 0;
}

int json_compact(const char *text, char **ret, struct den_err *err)
{
	auto_json j = NULL;

	if (json_in(text, strlen(text), &j, err) < 0)
		return -1;
	*ret = json_dumps(j, JSON_COMPACT);
	return *ret ? 0 : den_fail(err, DEN_INTERNAL, 0, "JSON cannot be written");
}
