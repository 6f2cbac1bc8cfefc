/* den policy show, ls, schema */
#include <jansson.h>
#include <string.h>

#include "cli.h"
#include "mem.h"
#include "policy.h"
#include "table.h"
#include "verbs.h"

#define NOTHING "{\"version\":1}"

/* ---- show ------------------------------------------------------------------------------------ */

/* On many lines, as people write it. */
static int print_policy(const struct args *a, const char *json)
{
	json_t *j = json_loads(json, 0, NULL);
	auto_free char *text = j ? json_dumps(j, JSON_INDENT(2)) : NULL;
	auto_buf out = { 0 };

	json_decref(j);
	buf_addf(&out, "%s\n", text ? text : json);
	return cli_print(a, &out);
}

static void preset_json(struct json *j, const struct policy_preset *p)
{
	json_open(j, NULL, '{');
	json_str(j, "preset", p->name);
	json_str(j, "summary", p->summary);
	json_open(j, "allow", '[');
	for (const char *const *r = p->rules; *r; r++)
		json_str(j, NULL, *r);
	json_close(j, ']');
	json_close(j, '}');
}

static int show_presets(const struct args *a, const struct policy_preset *one)
{
	struct json j = { 0 };
	auto_buf out = { 0 };

	if (a->json && !one)
		json_open(&j, NULL, '[');
	for (const struct policy_preset *p = policy_presets; p->name; p++) {
		if (one && p != one)
			continue;
		if (a->json) {
			preset_json(&j, p);
			continue;
		}
		buf_addf(&out, "%s# preset %s: %s\n", out.len ? "\n" : "", p->name, p->summary);
		for (const char *const *r = p->rules; *r; r++)
			buf_addf(&out, "%s\n", *r);
	}
	if (!a->json)
		return cli_print(a, &out);
	if (!one)
		json_close(&j, ']');
	return cli_print_json(a, &j);
}

/* The text of a policy stands in the answer as it is: it is JSON. */
static int print_json(
	const struct args *a, const char *policy_text, const char *name, uint64_t generation)
{
	json_t *j = json_object(), *policy = json_loads(policy_text, 0, NULL);
	auto_free char *text = NULL;
	auto_buf out = { 0 };

	json_object_set_new(j, "policy", policy ? policy : json_null());
	json_object_set_new(j, "name", name ? json_string(name) : json_null());
	json_object_set_new(j, "generation", json_integer((json_int_t)generation));
	text = json_dumps(j, JSON_COMPACT);
	json_decref(j);
	buf_addf(&out, "%s\n", text ? text : "{}");
	return cli_print(a, &out);
}

static int show_box(const struct args *a, struct den_box *box)
{
	struct den_policy *p = NULL;
	struct den_err err = { 0 };
	const char *json;
	int status;

	if (den_policy_get(box, &p, &err) < 0)
		return cli_fail(a, &err, NULL);
	json = p->json ? p->json : NOTHING;
	if (!a->json)
		cli_note(a, "generation %llu%s%s", (unsigned long long)p->generation,
			p->name ? ", follows the policy " : "", p->name ? p->name : "");
	status = a->json ? print_json(a, json, p->name, p->generation) : print_policy(a, json);
	den_policy_free(p);
	return status;
}

static int show_stored(const struct args *a, struct den *d, const char *name, const char *hint)
{
	auto_free char *json = NULL;
	struct den_err err = { 0 };

	if (den_policy_load(d, name, &json, &err) < 0)
		return cli_fail(a, &err, err.code == DEN_NOT_FOUND ? hint : NULL);
	return a->json ? print_json(a, json, name, 0) : print_policy(a, json);
}

static int policy_show(const struct args *a)
{
	const struct policy_preset *preset;
	auto_session s = { 0 };
	struct den_err err = { 0 };

	if (!a->n_words)
		return show_presets(a, NULL);
	preset = policy_preset_find(a->words[0]);
	if (preset)
		return show_presets(a, preset);
	if (cli_open(a, &s.den, &err) < 0)
		return cli_fail(a, &err, NULL);
	if (den_box_open(s.den, a->words[0], &s.box, &err) == 0)
		return show_box(a, s.box);
	if (err.code != DEN_NOT_FOUND && err.code != DEN_INVALID)
		return cli_fail(a, &err, NULL);
	return show_stored(a, s.den, a->words[0],
		"no box, stored policy or preset has that name; see 'den ls' and 'den policy ls'");
}

const struct verb verb_policy_show = {
	.name = "show",
	.words = "[BOX|NAME|PRESET]",
	.summary = "print a policy; without a name, all presets",
	.help = "That of a box and a stored one are printed as JSON, which --policy and --file "
		"take\n"
		"again; of a preset, its rules.\n"
		"\n"
		"Examples:\n"
		"  den policy show web          of a box\n"
		"  den policy show registries   of a preset\n"
		"  den policy show --json web | jq .generation\n",
	.max_words = 1,
	.complete = "b",
	.run = policy_show,
};

/* ---- ls -------------------------------------------------------------------------------------- */

static void list_table(struct buf *out, char *const *names)
{
	static const char *const heads[] = { "NAME", "KIND", "WHAT" };
	auto_table t = { .cols = ARRAY_SIZE(heads), .heads = heads };

	for (; names && *names; names++) {
		table_cell(&t, *names);
		table_cell(&t, "stored");
		table_cell(&t, NULL);
	}
	for (const struct policy_preset *p = policy_presets; p->name; p++) {
		table_cell(&t, p->name);
		table_cell(&t, "preset");
		table_cell(&t, p->summary);
	}
	table_print(&t, out);
}

static int policy_ls(const struct args *a)
{
	auto_session s = { 0 };
	char **names = NULL;
	struct den_err err = { 0 };
	struct json j = { 0 };
	auto_buf out = { 0 };

	if (cli_open(a, &s.den, &err) < 0 || den_policy_list(s.den, &names, &err) < 0)
		return cli_fail(a, &err, NULL);
	if (a->json)
		json_open(&j, NULL, '[');
	for (char **n = names; n && *n && (a->json || a->quiet); n++) {
		if (a->json)
			json_str(&j, NULL, *n);
		else
			buf_addf(&out, "%s\n", *n);
	}
	if (a->json)
		json_close(&j, ']');
	else if (!a->quiet)
		list_table(&out, names);
	den_strings_free(names);
	return a->json ? cli_print_json(a, &j) : cli_print(a, &out);
}

const struct verb verb_policy_ls = {
	.name = "ls",
	.summary = "list stored policies and presets",
	.help = "With --json and --quiet, the stored ones alone.\n"
		"\n"
		"Examples:\n"
		"  den policy ls\n",
	.complete = "-",
	.run = policy_ls,
};

/* ---- schema ---------------------------------------------------------------------------------- */

static int policy_schema_print(const struct args *a)
{
	return cli_write(a, policy_schema, strlen(policy_schema));
}

const struct verb verb_policy_schema = {
	.name = "schema",
	.summary = "print the JSON Schema of policies",
	.help = "For editors and checkers; den itself checks more than a schema can say.\n"
		"\n"
		"Examples:\n"
		"  den policy schema >policy.schema.json\n",
	.complete = "-",
	.run = policy_schema_print,
};
