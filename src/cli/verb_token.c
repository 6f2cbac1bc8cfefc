#include <stdlib.h>

#include "cli.h"
#include "mem.h"
#include "verbs.h"

static const struct option_def token_options[] = {
	{ "audience", 0, OPT_TEXT, offsetof(struct args, audience), "NAME",
		"for whom; the box's policy must grant it" },
	{ "alg", 0, OPT_TEXT, offsetof(struct args, alg), "EdDSA|ES256",
		"how it is signed (default: EdDSA)" },
	{ 0 },
};

static int token(const struct args *a)
{
	auto_session s = { 0 };
	auto_free char *text = NULL;
	struct den_err err = { 0 };
	struct json j = { 0 };
	auto_buf out = { 0 };
	int status;

	if (!a->audience) {
		den_fail(&err, DEN_INVALID, 0, "for whom? give --audience NAME");
		return cli_fail(a, &err, NULL);
	}
	status = session_open(&s, a, a->words[0]);
	if (status)
		return status;
	if (den_token(s.box, a->audience, a->alg, &text, &err) < 0)
		return cli_fail(a, &err, NULL);
	if (a->json) {
		json_open(&j, NULL, '{');
		json_str(&j, "token", text);
		json_close(&j, '}');
		return cli_print_json(a, &j);
	}
	buf_addf(&out, "%s\n", text);
	return cli_print(a, &out);
}

const struct verb verb_token = {
	.name = "token",
	.words = "BOX",
	.summary = "make a token that says who a box is",
	.help = "A token (JWT) lives for 10 minutes and names the box, its template, its policy's\n"
		"generation, organisation, task and scopes. 'den ident jwks' has the keys that\n"
		"verify it.\n"
		"\n"
		"Examples:\n"
		"  den token web --audience https://api.internal\n"
		"  den token web --audience https://api.internal --alg ES256\n",
	.options = { token_options },
	.min_words = 1,
	.max_words = 1,
	.complete = "b",
	.run = token,
};
