#include "json_fields.h"

#include <string.h>

#include "buf.h"
#include "mem.h"
#include "parse.h"
#include "path.h"
#include "strv.h"

#define TEXT_MAX 65536
#define LIST_MAX 10000

static const char *kind_word(const json_t *v)
{
	switch (json_typeof(v)) {
	case JSON_OBJECT:
		return "an object";
	case JSON_ARRAY:
		return "a list";
	case JSON_STRING:
		return "a text";
	case JSON_INTEGER:
	case JSON_REAL:
		return "a number";
	case JSON_TRUE:
	case JSON_FALSE:
		return "true or false";
	default:
		return "null";
	}
}

static int wrong_kind(const json_t *v, const char *want, struct den_err *err)
{
	return den_fail(err, DEN_INVALID, 0, "must be %s, not %s", want, kind_word(v));
}

static int one_of(const char *s, const char *const *words, struct den_err *err)
{
	auto_buf all = { 0 };

	for (const char *const *w = words; *w; w++) {
		if (!strcmp(*w, s))
			return 0;
		buf_addf(&all, "%s'%s'", w == words ? "" : ", ", *w);
	}
	return den_fail(err, DEN_INVALID, 0, "'%.60s' is none of %s", s, buf_str(&all));
}

static int text_check(const struct field *f, const json_t *v, const char **ret, struct den_err *err)
{
	size_t n = json_string_length(v), max = f->max ? f->max : TEXT_MAX;
	const char *s = json_string_value(v);

	if (!s)
		return wrong_kind(v, "a text", err);
	if (strlen(s) != n)
		return den_fail(err, DEN_INVALID, 0, "holds a NUL character");
	if (n < f->min)
		return f->min == 1 ? den_fail(err, DEN_INVALID, 0, "is empty")
				   : den_fail(err, DEN_INVALID, 0, "is shorter than %zu bytes",
					     (size_t)f->min);
	if (n > max)
		return den_fail(err, DEN_INVALID, 0, "is longer than %zu bytes", max);
	if (f->words && one_of(s, f->words, err) < 0)
		return -1;
	*ret = s;
	return 0;
}

static int count_check(const struct field *f, size_t n, struct den_err *err)
{
	size_t max = f->max ? f->max : LIST_MAX;

	if (n < f->min)
		return f->min == 1 ? den_fail(err, DEN_INVALID, 0, "is empty")
				   : den_fail(err, DEN_INVALID, 0,
					     "has %zu; at least %zu are needed", n, (size_t)f->min);
	if (n > max)
		return den_fail(err, DEN_INVALID, 0, "has %zu; at most %zu are allowed", n, max);
	return 0;
}

static const struct field any_text = { .kind = FIELD_TEXT };

static int texts_get(const struct field *f, const json_t *v, char ***ret, struct den_err *err)
{
	auto_strv all = NULL;

	if (!json_is_array(v))
		return wrong_kind(v, "a list of texts", err);
	if (count_check(f, json_array_size(v), err) < 0)
		return -1;
	for (size_t i = 0; i < json_array_size(v); i++) {
		const char *s;

		if (text_check(&any_text, json_array_get(v, i), &s, err) < 0)
			return den_wrap(err, "[%zu]", i);
		strv_add(&all, s);
	}
	*ret = mem_take(&all);
	return 0;
}

static int map_get(const struct field *f, const json_t *v, char ***ret, struct den_err *err)
{
	auto_strv all = NULL;
	const char *key;
	json_t *value;

	if (!json_is_object(v))
		return wrong_kind(v, "an object of texts", err);
	if (count_check(f, json_object_size(v), err) < 0)
		return -1;
	json_object_foreach((json_t *)v, key, value)
	{
		auto_buf pair = { 0 };
		const char *s;

		if (!*key || strchr(key, '='))
			return den_fail(
				err, DEN_INVALID, 0, "the name '%.60s' is empty or holds '='", key);
		if (text_check(&any_text, value, &s, err) < 0)
			return den_wrap(err, "%.60s", key);
		buf_addf(&pair, "%s=%s", key, s);
		strv_add(&all, buf_str(&pair));
	}
	*ret = mem_take(&all);
	return 0;
}

static int whole_number(const json_t *v, int64_t *ret, struct den_err *err)
{
	double d = json_real_value(v);

	if (json_is_integer(v)) {
		*ret = json_integer_value(v);
		return 0;
	}
	/* 1e3 and 5.0 are whole numbers too, as JavaScript has only one kind */
	if (json_is_real(v) && d > -9e15 && d < 9e15 && d == (double)(int64_t)d) {
		*ret = (int64_t)d;
		return 0;
	}
	return json_is_real(v) ? den_fail(err, DEN_INVALID, 0, "must be a whole number")
			       : wrong_kind(v, "a whole number", err);
}

static int number_get(const struct field *f, const json_t *v, void *to, struct den_err *err)
{
	uint64_t max = f->max ? f->max : INT64_MAX;
	double real = json_number_value(v);
	int64_t n = 0;

	if (f->kind == FIELD_REAL) {
		if (!json_is_number(v))
			return wrong_kind(v, "a number", err);
		if (real < (double)f->min || (f->max && real > (double)f->max))
			return den_fail(err, DEN_INVALID, 0, "must be from %llu to %llu",
				(unsigned long long)f->min, (unsigned long long)f->max);
		if (to)
			*(double *)to = real;
		return 0;
	}
	if (whole_number(v, &n, err) < 0)
		return -1;
	max = MIN(max, INT64_MAX);
	if (f->kind == FIELD_I64 ? n > (int64_t)max || n < -(int64_t)max
				 : n < 0 || (uint64_t)n < f->min || (uint64_t)n > max)
		return den_fail(err, DEN_INVALID, 0, "must be from %s%llu to %llu",
			f->kind == FIELD_I64 ? "-" : "",
			(unsigned long long)(f->kind == FIELD_I64 ? max : f->min),
			(unsigned long long)max);
	if (to && f->kind == FIELD_I64)
		*(int64_t *)to = n;
	else if (to)
		*(uint64_t *)to = (uint64_t)n;
	return 0;
}

static int list_get(const struct field *f, const json_t *v, void *to, struct den_err *err)
{
	auto_strv all = NULL;

	if ((f->kind == FIELD_TEXTS ? texts_get : map_get)(f, v, &all, err) < 0)
		return -1;
	if (to)
		*(char ***)to = mem_take(&all);
	return 0;
}

static int tree_get(const struct field *f, const json_t *v, void *to, struct den_err *err)
{
	if (f->kind == FIELD_OBJECT && !json_is_object(v))
		return wrong_kind(v, "an object", err);
	if (f->kind == FIELD_ARRAY && !json_is_array(v))
		return wrong_kind(v, "a list", err);
	if (f->kind != FIELD_ANY &&
		count_check(f, json_is_array(v) ? json_array_size(v) : json_object_size(v), err) <
			0)
		return -1;
	if (to)
		*(json_t **)to = (json_t *)v;
	return 0;
}

/* to NULL: only looks. */
static int value_get(const struct field *f, const json_t *v, void *to, struct den_err *err)
{
	const char *s;

	switch (f->kind) {
	case FIELD_BOOL:
		if (!json_is_boolean(v))
			return wrong_kind(v, "true or false", err);
		if (to)
			*(bool *)to = json_is_true(v);
		return 0;
	case FIELD_TEXT:
		if (text_check(f, v, &s, err) < 0)
			return -1;
		if (to)
			*(const char **)to = s;
		return 0;
	case FIELD_U64:
	case FIELD_I64:
	case FIELD_REAL:
		return number_get(f, v, to, err);
	case FIELD_TEXTS:
	case FIELD_MAP:
		return list_get(f, v, to, err);
	case FIELD_OBJECT:
	case FIELD_ARRAY:
	case FIELD_ANY:
		return tree_get(f, v, to, err);
	}
	return den_fail(err, DEN_INTERNAL, 0, "a field of no kind");
}

int fields_known(const json_t *j, const char *const *names, struct den_err *err)
{
	const char *key;
	json_t *v;
	int n = 0;

	while (names[n])
		n++;
	json_object_foreach((json_t *)j, key, v)
	{
		const char *near;
		auto_buf all = { 0 };
		int i = 0;

		while (i < n && strcmp(names[i], key))
			i++;
		if (i < n)
			continue;
		near = parse_nearest(key, names, n);
		if (near)
			return den_fail(err, DEN_INVALID, 0,
				"unknown field '%.60s'; did you mean '%s'?", key, near);
		for (i = 0; i < n; i++)
			buf_addf(&all, "%s%s", i ? ", " : "", names[i]);
		return den_fail(err, DEN_INVALID, 0, "unknown field '%.60s'; there %s %.150s", key,
			n ? "are" : "is none here", n ? buf_str(&all) : "");
	}
	return 0;
}

static int known(const json_t *j, const struct field *table, size_t n, struct den_err *err)
{
	const char *names[n + 1];

	for (size_t i = 0; i < n; i++)
		names[i] = table[i].name;
	names[n] = NULL;
	return fields_known(j, names, err);
}

/* The member, or NULL: absent. */
static const json_t *member(const json_t *j, const struct field *f)
{
	const json_t *v = json_object_get(j, f->name);

	return v && json_is_null(v) && (f->flags & FIELD_NULL) ? NULL : v;
}

int fields_get(const json_t *j, const struct field *table, size_t n, bool strict, void *into,
	struct den_err *err)
{
	if (j && !json_is_object(j))
		return wrong_kind(j, "an object", err);
	if (strict && known(j, table, n, err) < 0)
		return -1;
	for (size_t i = 0; i < n; i++) { /* all are looked at before the first is written */
		const json_t *v = member(j, &table[i]);

		if (!v && (table[i].flags & FIELD_MUST))
			return den_fail(err, DEN_INVALID, 0, "'%s' is missing", table[i].name);
		if (v && value_get(&table[i], v, NULL, err) < 0)
			return den_wrap(err, "%s", table[i].name);
	}
	for (size_t i = 0; i < n; i++) {
		const json_t *v = member(j, &table[i]);

		if (v && value_get(&table[i], v, (char *)into + table[i].at, err) < 0)
			return den_wrap(err, "%s", table[i].name);
		if (table[i].given)
			*(bool *)((char *)into + table[i].given - 1) = v != NULL;
	}
	return 0;
}

json_t *json_text(const char *s)
{
	auto_buf out = { 0 };
	size_t n = strlen(s), at;

	while (n && !utf8_valid(s, n, &at)) {
		buf_add(&out, s, at);
		buf_addstr(&out, "\xef\xbf\xbd");
		s += at + 1;
		n -= at + 1;
	}
	buf_add(&out, s, n);
	return json_stringn(out.p ? out.p : "", out.len);
}
