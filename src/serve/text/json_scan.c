#include "json_scan.h"

#include "path.h"

/* The end of the string whose first quote is at i: the index of its last quote, or n. */
static size_t string_end(const char *p, size_t n, size_t i)
{
	for (i++; i < n && p[i] != '"'; i++)
		if (p[i] == '\\')
			i++;
	return i < n ? i : n;
}

int json_scan(const char *p, size_t n, struct den_err *err)
{
	size_t depth = 0, values = 1, at;

	if (!utf8_valid(p, n, &at))
		return den_fail(err, DEN_INVALID, 0, "the body is not UTF-8 at byte %zu", at);
	for (size_t i = 0; i < n; i++) {
		switch (p[i]) {
		case '"':
			i = string_end(p, n, i);
			break;
		case '{':
		case '[':
			values++;
			if (++depth > JSON_DEPTH_MAX)
				return den_fail(err, DEN_INVALID, 0,
					"the body is nested deeper than %d at byte %zu",
					JSON_DEPTH_MAX, i);
			break;
		case '}':
		case ']':
			depth -= depth > 0;
			break;
		case ',':
			values++;
			break;
		}
		if (values > JSON_VALUES_MAX)
			return den_fail(err, DEN_INVALID, 0, "the body holds more than %d values",
				JSON_VALUES_MAX);
	}
	return 0;
}

int json_read(const char *p, size_t n, json_t **ret, struct den_err *err)
{
	json_error_t e;
	size_t i = 0;
	json_t *j;

	while (i < n && (p[i] == ' ' || p[i] == '\t' || p[i] == '\r' || p[i] == '\n'))
		i++;
	if (i == n) {
		*ret = json_object();
		return *ret ? 0 : den_fail(err, DEN_LIMIT, 0, "no memory for the body");
	}
	if (json_scan(p, n, err) < 0)
		return -1;
	j = json_loadb(p, n, JSON_REJECT_DUPLICATES, &e);
	if (!j)
		return den_fail(err, DEN_INVALID, 0,
			"the body is not JSON: line %d, column %d: %.100s", e.line, e.column,
			e.text);
	if (!json_is_object(j)) {
		json_decref(j);
		return den_fail(err, DEN_INVALID, 0,
			"the body must be a JSON object, like {\"name\": \"value\"}");
	}
	*ret = j;
	return 0;
}
