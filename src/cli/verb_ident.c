/* den ident jwks, openid, issuer, rotate: what others need to verify the tokens of boxes */
#include <stdlib.h>

#include "cli.h"
#include "mem.h"
#include "verbs.h"

/* The answer is a JSON document already. */
static int print_document(const struct args *a, int r, const char *text, const struct den_err *err)
{
	auto_buf out = { 0 };

	if (r < 0)
		return cli_fail(a, err, NULL);
	buf_addf(&out, "%s\n", text);
	return cli_print(a, &out);
}

static int jwks(const struct args *a)
{
	auto_session s = { 0 };
	auto_free char *text = NULL;
	struct den_err err = { 0 };
	int r = cli_open(a, &s.den, &err);

	if (r == 0)
		r = den_ident_jwks(s.den, &text, &err);
	return print_document(a, r, text, &err);
}

static const struct verb verb_ident_jwks = {
	.name = "jwks",
	.summary = "print the public keys that verify tokens",
	.help = "A JWK set (RFC 7517): the keys that sign, and those that did as long as a token "
		"of\n"
		"theirs can be valid.\n"
		"\n"
		"Examples:\n"
		"  den ident jwks > jwks.json\n",
	.complete = "-",
	.run = jwks,
};

static const struct option_def openid_options[] = {
	{ "issuer", 0, OPT_TEXT, offsetof(struct args, issuer), "URL",
		"for this issuer (default: the one that is set)" },
	{ 0 },
};

static int openid(const struct args *a)
{
	auto_session s = { 0 };
	auto_free char *text = NULL;
	struct den_err err = { 0 };
	int r = cli_open(a, &s.den, &err);

	if (r == 0)
		r = den_ident_openid(s.den, a->issuer, &text, &err);
	return print_document(a, r, text, &err);
}

static const struct verb verb_ident_openid = {
	.name = "openid",
	.summary = "print the OIDC discovery document",
	.help = "It belongs at ISSUER/.well-known/openid-configuration, and what 'den ident jwks'\n"
		"prints at ISSUER/.well-known/jwks.json.\n"
		"\n"
		"Examples:\n"
		"  den ident openid\n"
		"  den ident openid --issuer https://id.example.com\n",
	.options = { openid_options },
	.complete = "-",
	.run = openid,
};

static int issuer(const struct args *a)
{
	auto_session s = { 0 };
	auto_free char *text = NULL;
	struct den_err err = { 0 };
	struct json j = { 0 };

	if (cli_open(a, &s.den, &err) < 0 ||
		den_ident_issuer(s.den, a->n_words ? a->words[0] : NULL, &text, &err) < 0)
		return cli_fail(a, &err, NULL);
	if (!a->json)
		return print_document(a, 0, text, &err);
	json_open(&j, NULL, '{');
	json_str(&j, "issuer", text);
	json_close(&j, '}');
	return cli_print_json(a, &j);
}

static const struct verb verb_ident_issuer = {
	.name = "issuer",
	.words = "[URL]",
	.summary = "tell or set who tokens say they are from",
	.help = "An https URL without '/' at its end, below which the two documents are served.\n"
		"Until one is set it is a name that nobody can have, https://den.invalid.\n"
		"\n"
		"Examples:\n"
		"  den ident issuer https://id.example.com\n"
		"  den ident issuer\n",
	.max_words = 1,
	.complete = "-",
	.run = issuer,
};

static const struct option_def rotate_options[] = {
	{ "alg", 0, OPT_TEXT, offsetof(struct args, alg), "EdDSA|ES256",
		"only of this algorithm (default: both)" },
	{ 0 },
};

static int rotate(const struct args *a)
{
	auto_session s = { 0 };
	auto_free char *text = NULL;
	struct den_err err = { 0 };
	int r = cli_open(a, &s.den, &err);

	if (r == 0)
		r = den_ident_rotate(s.den, a->alg, &text, &err);
	if (r == 0 && a->quiet)
		return 0;
	return print_document(a, r, text, &err);
}

static const struct verb verb_ident_rotate = {
	.name = "rotate",
	.summary = "sign with new keys from now on",
	.help = "The private half of an old key is destroyed; its public half stays in 'den ident\n"
		"jwks' until the last token that it signed has ended. Prints which keys were made\n"
		"and which retired, as JSON.\n"
		"\n"
		"Examples:\n"
		"  den ident rotate\n"
		"  den ident rotate --alg ES256\n",
	.options = { rotate_options },
	.complete = "-",
	.run = rotate,
};

static const struct verb *const ident_verbs[] = {
	&verb_ident_jwks,
	&verb_ident_openid,
	&verb_ident_issuer,
	&verb_ident_rotate,
	NULL,
};

const struct verb verb_ident = {
	.name = "ident",
	.words = "...",
	.summary = "tell others how to verify the tokens of boxes",
	.help = "Tokens are signed with keys that are made on first use and never leave the "
		"vault.\n"
		"\n"
		"Examples:\n"
		"  den ident jwks                                  the public keys\n"
		"  den ident issuer https://id.example.com         who they are from\n"
		"  den ident rotate\n",
	.subs = ident_verbs,
};
