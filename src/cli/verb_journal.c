/* What was written down about a box: den journal, and two views of it. */
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "cli.h"
#include "json.h"
#include "mem.h"
#include "table.h"
#include "verbs.h"

static const struct option_def journal_options[] = {
	{ "kind", 0, OPT_TEXT, offsetof(struct args, kind), "KIND",
		"connection, denial, incident, secret, policy or gate" },
	{ "limit", 'n', OPT_NUMBER, offsetof(struct args, limit), "N", "the last N (default: 100; 0: all)" },
	{ 0 },
};

static const struct option_def view_options[] = {
	{ "limit", 'n', OPT_COUNT, offsetof(struct args, limit), "N", "the last N (default: 100)" },
	{ 0 },
};

struct view {
	const struct args *a;
	struct table *t;
	struct buf *out;
	bool kinds; /* a column for the kind */
};

static const char *text_of(const json_t *o, const char *key)
{
	const char *s = json_string_value(json_object_get(o, key));

	return s ? s : "";
}

/* What is worth a look, by kind. */
static void what(const json_t *o, struct buf *b)
{
	const char *kind = text_of(o, "kind");
	json_int_t n = json_integer_value(json_object_get(o, "count"));

	if (!strcmp(kind, "connection"))
		buf_addf(b, "%lld bytes out, %lld in, %lld ms", (long long)json_integer_value(json_object_get(o, "bytes_out")),
			(long long)json_integer_value(json_object_get(o, "bytes_in")),
			(long long)json_integer_value(json_object_get(o, "ms")));
	else if (*text_of(o, "secret"))
		buf_addf(b, "%s in %s", text_of(o, "secret"), text_of(o, "where"));
	else
		buf_addstr(b, *text_of(o, "reason") ? text_of(o, "reason") : text_of(o, "text"));
	if (*text_of(o, "reason") && !strcmp(kind, "connection"))
		buf_addf(b, " (%s)", text_of(o, "reason"));
	if (n > 1)
		buf_addf(b, " (%lld times)", (long long)n);
}

static void row(struct view *v, const json_t *o)
{
	const char *host = *text_of(o, "host") ? text_of(o, "host") : text_of(o, "address");
	json_int_t port = json_integer_value(json_object_get(o, "port"));
	auto_buf b = { 0 }, shown = { 0 };

	what(o, &b);
	text_printable(&shown, b.p ? b.p : "", MIN(b.len, 160));
	table_cell(v->t, text_of(o, "at"));
	if (v->kinds)
		table_cell(v->t, text_of(o, "kind"));
	if (port)
		table_cellf(v->t, "%s:%lld", host, (long long)port);
	else
		table_cell(v->t, host);
	table_cell(v->t, buf_str(&shown));
	table_cell(v->t, text_of(o, "rule"));
}

static int take_line(const void *p, size_t n, void *user, struct den_err *err)
{
	struct view *v = user;
	json_t *o;

	if (v->a->json) { /* lines, as they are: each can be checked against the one before */
		buf_add(v->out, p, n);
		buf_addstr(v->out, "\n");
		return 0;
	}
	o = json_loadb(p, n, 0, NULL);
	if (!o)
		return den_fail(err, DEN_INTERNAL, 0, "the journal has a line that is no JSON");
	row(v, o);
	json_decref(o);
	return 0;
}

static int show(const struct args *a, const char *kind)
{
	static const char *const all[] = { "AT", "KIND", "WHERE", "WHAT", "RULE" };
	static const char *const one[] = { "AT", "WHERE", "WHAT", "RULE" };
	auto_table t = { .cols = kind ? ARRAY_SIZE(one) : ARRAY_SIZE(all), .heads = kind ? one : all };
	auto_session s = { 0 };
	auto_buf out = { 0 };
	struct view v = { a, &t, &out, !kind };
	struct den_err err = { 0 };
	int status = session_open(&s, a, a->words[0]);

	if (status)
		return status;
	if (den_journal(s.box, kind ? kind : a->kind, args_given(a, "limit") ? a->limit : 100, take_line, &v, &err) < 0)
		return cli_fail(a, &err, NULL);
	if (!a->json)
		table_print(&t, &out);
	return cli_print(a, &out);
}

static int journal(const struct args *a)
{
	return show(a, NULL);
}

static int denials(const struct args *a)
{
	return show(a, "denial");
}

static int incidents(const struct args *a)
{
	return show(a, "incident");
}

const struct verb verb_journal = {
	.name = "journal",
	.words = "BOX",
	.summary = "what was written down about a box: connections, denials, secrets used",
	.help = "One line each, oldest first. With --json the lines are as they are kept: each has\n"
		"the SHA-256 of the line before it, so nothing can be taken out unseen.\n"
		"\n"
		"Examples:\n"
		"  den journal web\n"
		"  den journal --kind connection --json web\n",
	.options = { journal_options },
	.min_words = 1,
	.max_words = 1,
	.complete = "b",
	.run = journal,
};

const struct verb verb_denials = {
	.name = "denials",
	.words = "BOX",
	.summary = "what a box wanted to reach and may not",
	.help = "The box finds the same in /run/den/denials. What comes again soon is counted.\n"
		"\n"
		"Examples:\n"
		"  den denials web\n"
		"  den policy set web api.example.com    if it should\n",
	.options = { view_options },
	.min_words = 1,
	.max_words = 1,
	.complete = "b",
	.run = denials,
};

const struct verb verb_incidents = {
	.name = "incidents",
	.words = "BOX",
	.summary = "placeholders of secrets that were on their way to where they don't belong",
	.help = "A placeholder is worth nothing outside, but a program that sends it elsewhere\n"
		"was told to: by a mistake, or by somebody else's words.\n"
		"\n"
		"Examples:\n"
		"  den incidents web\n",
	.options = { view_options },
	.min_words = 1,
	.max_words = 1,
	.complete = "b",
	.run = incidents,
};
