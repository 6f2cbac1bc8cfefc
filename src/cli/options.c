#include "options.h"

#include <stdio.h>
#include <string.h>

#include "mem.h"
#include "parse.h"
#include "strv.h"

/* Remembered for what a table alone cannot tell: given twice, contradictions, args_given(). */
struct option_seen {
	const struct option_def *def;
	const char *text;
};

void args_init(struct args *a)
{
	*a = (struct args){ .rm = true };
}

void args_free(struct args *a)
{
	strv_free(a->env);
	strv_free(a->env_files);
	strv_free(a->mounts);
	strv_free(a->paths);
	strv_free(a->build_args);
	strv_free(a->allow);
	strv_free(a->deny);
	strv_free(a->presets);
	strv_free(a->secrets);
	strv_free(a->audiences);
	strv_free(a->drop);
	strv_free(a->trust);
	strv_free(a->labels);
	strv_free(a->listen);
	strv_free(a->scopes);
	strv_free(a->prices);
	free(a->words);
	free(a->seen);
	args_init(a);
}

bool args_given(const struct args *a, const char *name)
{
	for (size_t i = 0; i < a->n_seen; i++)
		if (!strcmp(a->seen[i].def->name, name))
			return true;
	return false;
}

static const struct option_def *find_name(
	const struct option_def *const *tables, const char *name, size_t n)
{
	for (; *tables; tables++)
		for (const struct option_def *d = *tables; d->name; d++)
			if (!strncmp(d->name, name, n) && !d->name[n])
				return d;
	return NULL;
}

static const struct option_def *find_letter(const struct option_def *const *tables, char letter)
{
	for (; *tables; tables++)
		for (const struct option_def *d = *tables; d->name; d++)
			if (d->letter == letter)
				return d;
	return NULL;
}

static int fail_unknown(
	const struct option_def *const *tables, const char *name, size_t n, struct den_err *err)
{
	const char *names[128], *near;
	char text[64];
	int count = 0;

	for (; *tables; tables++)
		for (const struct option_def *d = *tables; d->name && count < 128; d++)
			names[count++] = d->name;
	snprintf(text, sizeof(text), "%.*s", (int)MIN(n, sizeof(text) - 1), name);
	near = parse_nearest(text, names, count);
	if (near)
		return den_fail(
			err, DEN_INVALID, 0, "unknown option --%s; did you mean --%s?", text, near);
	return den_fail(err, DEN_INVALID, 0, "unknown option --%s", text);
}

static int parse_bool(const char *text, bool *ret, struct den_err *err)
{
	static const char *const words[2][4] = { { "false", "no", "off", "0" },
		{ "true", "yes", "on", "1" } };

	for (int v = 0; v < 2; v++) {
		for (size_t i = 0; i < ARRAY_SIZE(words[v]); i++) {
			if (!strcmp(text, words[v][i])) {
				*ret = v;
				return 0;
			}
		}
	}
	return den_fail(err, DEN_INVALID, 0, "'%.60s' is neither true nor false", text);
}

static int set_value(
	const struct option_def *d, const char *text, struct args *a, struct den_err *err)
{
	void *field = (char *)a + d->field;

	switch (d->kind) {
	case OPT_FLAG:
		*(bool *)field = true;
		return 0;
	case OPT_BOOL:
		*(bool *)field = true;
		return text ? parse_bool(text, field, err) : 0;
	case OPT_TEXT:
		if (!text[0])
			return den_fail(err, DEN_INVALID, 0, "the value is empty");
		*(const char **)field = text;
		return 0;
	case OPT_LIST:
		strv_add(field, text);
		return 0;
	case OPT_COUNT:
		return parse_u64(text, 1, UINT64_MAX >> 1, field, err);
	case OPT_NUMBER:
		return parse_u64(text, 0, UINT64_MAX >> 1, field, err);
	case OPT_SIZE:
		return parse_size(text, field, err);
	case OPT_GRACE:
		if (!strcmp(text, "0")) {
			*(uint64_t *)field = 0;
			return 0;
		}
		return parse_duration(text, field, err);
	case OPT_DURATION:
		return parse_duration(text, field, err);
	case OPT_CPUS:
		return parse_cpus(text, field, err);
	case OPT_SIGNAL:
		return parse_signal(text, field, err);
	}
	return den_fail(err, DEN_INTERNAL, 0, "option of an unknown kind");
}

/* Remembers the option and sets its field. A value that was given twice and differently is a slip:
 * which one is meant cannot be known. */
static int take(const struct option_def *d, const char *text, struct args *a, struct den_err *err)
{
	for (size_t i = 0; i < a->n_seen && d->kind != OPT_LIST; i++) {
		const char *old = a->seen[i].text;

		if (a->seen[i].def == d && strcmp(old ? old : "true", text ? text : "true"))
			return den_fail(err, DEN_INVALID, 0,
				"--%s is given twice: '%.60s' and '%.60s'", d->name,
				old ? old : "true", text ? text : "true");
	}
	if (set_value(d, text, a, err) < 0)
		return den_wrap(err, "--%s", d->name);
	a->seen = mem_realloc(a->seen, (a->n_seen + 1) * sizeof(*a->seen));
	a->seen[a->n_seen++] = (struct option_seen){ d, text };
	return 0;
}

/* The value that stands in the next word. One that looks like an option is more likely a forgotten
 * value. */
static int next_value(const struct option_def *d, int argc, char **argv, int *i, const char **ret,
	struct den_err *err)
{
	if (*i + 1 >= argc)
		return den_fail(err, DEN_INVALID, 0, "--%s needs a value: --%s %s", d->name,
			d->name, d->arg);
	if (argv[*i + 1][0] == '-' && argv[*i + 1][1])
		return den_fail(err, DEN_INVALID, 0,
			"--%s needs a value: --%s %s (if '%.60s' is meant: --%s=%.60s)", d->name,
			d->name, d->arg, argv[*i + 1], d->name, argv[*i + 1]);
	*ret = argv[++*i];
	return 0;
}

static int parse_long(const struct option_def *const *tables, int argc, char **argv, int *i,
	struct args *a, struct den_err *err)
{
	const char *name = argv[*i] + 2, *value = strchr(name, '=');
	size_t n = value ? (size_t)(value - name) : strlen(name);
	const struct option_def *d = find_name(tables, name, n);

	if (!d)
		return fail_unknown(tables, name, n, err);
	if (value)
		value++;
	if (value && d->kind == OPT_FLAG)
		return den_fail(err, DEN_INVALID, 0, "--%s takes no value", d->name);
	if (!value && d->kind != OPT_FLAG && d->kind != OPT_BOOL &&
		next_value(d, argc, argv, i, &value, err) < 0)
		return -1;
	return take(d, value, a, err);
}

/* "-it", "-e K=V", "-eK=V": flags, of which the last may take a value. */
static int parse_letters(const struct option_def *const *tables, int argc, char **argv, int *i,
	struct args *a, struct den_err *err)
{
	for (const char *p = argv[*i] + 1; *p; p++) {
		const struct option_def *d = find_letter(tables, *p);
		const char *value = NULL;
		bool flag = d && (d->kind == OPT_FLAG || d->kind == OPT_BOOL);

		if (!d && (unsigned char)*p > 0x20 && (unsigned char)*p < 0x7f)
			return den_fail(err, DEN_INVALID, 0, "unknown option -%c", *p);
		if (!d)
			return den_fail(err, DEN_INVALID, 0, "unknown option '%.60s'", argv[*i]);
		if (!flag) {
			if (p[1])
				value = p + 1;
			else if (next_value(d, argc, argv, i, &value, err) < 0)
				return -1;
		}
		if (take(d, value, a, err) < 0)
			return -1;
		if (!flag || a->help)
			return 0;
	}
	return 0;
}

static int check_contradictions(const struct args *a, struct den_err *err)
{
	for (size_t i = 0; i < a->n_seen; i++) {
		const char *p = a->seen[i].def->not_with;

		while (p && *p) {
			size_t n = strcspn(p, " ");

			for (size_t j = 0; j < a->n_seen; j++) {
				const char *other = a->seen[j].def->name;

				if (!strncmp(other, p, n) && !other[n])
					return den_fail(err, DEN_INVALID, 0,
						"--%s and --%s contradict each other; give one of "
						"them",
						a->seen[i].def->name, other);
			}
			p += n + (p[n] == ' ');
		}
	}
	return 0;
}

int options_parse(const struct option_def *const *tables, int command_at, int argc, char **argv,
	struct args *a, struct den_err *err)
{
	bool options = true;

	free(a->words);
	a->words = mem_zalloc(((size_t)argc + 1) * sizeof(*a->words));
	a->n_words = 0;
	for (int i = 0; i < argc; i++) {
		const char *word = argv[i];
		int r;

		if (command_at >= 0 && a->n_words > command_at)
			options = false;
		if (!options || word[0] != '-' || !word[1]) {
			a->words[a->n_words++] = argv[i];
			continue;
		}
		if (!strcmp(word, "--")) {
			options = false;
			continue;
		}
		if (word[1] == '-')
			r = parse_long(tables, argc, argv, &i, a, err);
		else
			r = parse_letters(tables, argc, argv, &i, a, err);
		if (r < 0)
			return -1;
		if (a->help)
			return 0;
	}
	return check_contradictions(a, err);
}
