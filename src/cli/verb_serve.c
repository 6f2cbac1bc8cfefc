/* den serve: becomes den-serve */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli.h"
#include "mem.h"
#include "program.h"
#include "serve_run.h"
#include "strv.h"
#include "verbs.h"

void serve_add(char ***argv, const char *option, const char *value)
{
	if (!value)
		return;
	strv_add(argv, option);
	strv_add(argv, value);
}

void serve_add_u64(char ***argv, const char *option, uint64_t value, const char *unit)
{
	char text[32];

	snprintf(text, sizeof(text), "%llu%s", (unsigned long long)value, unit);
	serve_add(argv, option, value ? text : NULL);
}

int serve_run(const struct args *a, char **argv)
{
	auto_strv owned = argv;
	auto_free char *program = program_find("den-serve", DEN_LIBEXEC);
	char self[4096];
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
	struct den_err err;

	if (!program) {
		den_fail(&err, DEN_UNSUPPORTED, 0, "den-serve, the server, is neither beside den nor in " DEN_LIBEXEC);
		return cli_fail(a, &err, "this den was built without it: it needs libmicrohttpd and libwslay");
	}
	serve_add(&owned, "--state", a->state);
	if (n > 0) {
		self[n] = '\0';
		serve_add(&owned, "--den", self);
	}
	if (a->json)
		strv_add(&owned, "--json");
	unsetenv("DEN_EXE"); /* it says what this program is, which is then another */
	execv(program, owned);
	den_fail_sys(&err, errno, "start '%s'", program);
	return cli_fail(a, &err, NULL);
}

static const struct option_def serve_options[] = {
	{ "listen", 'l', OPT_LIST, offsetof(struct args, listen), "ADDR:PORT",
		"where to listen (default: 127.0.0.1:2600); may be repeated" },
	{ "socket", 0, OPT_TEXT, offsetof(struct args, socket), "PATH", "listen on a unix socket, too" },
	{ "domain", 0, OPT_TEXT, offsetof(struct args, domain), "NAME",
		"ports of boxes are at PORT-BOX.NAME (default: localhost:PORT)" },
	{ "url", 0, OPT_TEXT, offsetof(struct args, url), "URL", "how clients reach the server, for links" },
	{ "tls-cert", 0, OPT_TEXT, offsetof(struct args, tls_cert), "FILE", "certificate and chain (PEM)",
		"tls-self-signed" },
	{ "tls-key", 0, OPT_TEXT, offsetof(struct args, tls_key), "FILE", "its private key (PEM)",
		"tls-self-signed" },
	{ "tls-self-signed", 0, OPT_FLAG, offsetof(struct args, tls_self_signed), NULL,
		"make a certificate, and keep it" },
	{ "log", 0, OPT_TEXT, offsetof(struct args, log), "json|text",
		"form of the log on standard error (default: json, text on a terminal)" },
	{ "user", 'u', OPT_TEXT, offsetof(struct args, user), "NAME",
		"as root: who the server becomes (default: den-serve, or an id that nothing else has)" },
	{ "workers", 0, OPT_COUNT, offsetof(struct args, workers), "N", "most requests at the same time" },
	{ "price", 0, OPT_LIST, offsetof(struct args, prices), "NAME=AMOUNT",
		"what cpu-hour, gib-hour, gib-disk-hour, gib-in or gib-out costs; may be repeated" },
	{ "currency", 0, OPT_TEXT, offsetof(struct args, currency), "CODE",
		"of the prices, three letters (default: USD)" },
	{ "warm", 0, OPT_LIST, offsetof(struct args, warm), "TEMPLATE=N",
		"keep N boxes of it ready to be taken; may be repeated" },
	{ "no-templates", 0, OPT_FLAG, offsetof(struct args, no_templates), NULL,
		"do not make the templates 'base' and 'code-interpreter-v1' when they are missing" },
	{ 0 },
};

/* Prices in a unit's environment are for all of them: on the command line they are said anew, not added to. */
static void add_prices(char ***argv, const struct args *a)
{
	const char *env = getenv("DEN_PRICE"), *currency = getenv("DEN_CURRENCY");
	auto_free char *list = NULL;
	char *at = NULL;

	if (a->prices || !env || !*env) {
		for (size_t i = 0; a->prices && a->prices[i]; i++)
			serve_add(argv, "--price", a->prices[i]);
		serve_add(argv, "--currency", a->currency);
		return;
	}
	list = mem_strdup(env);
	for (const char *p = strtok_r(list, " ,", &at); p; p = strtok_r(NULL, " ,", &at))
		serve_add(argv, "--price", p);
	serve_add(argv, "--currency", a->currency ? a->currency : currency && *currency ? currency : NULL);
}

static int serve(const struct args *a)
{
	char **argv = NULL;

	strv_add(&argv, "den-serve");
	for (size_t i = 0; a->listen && a->listen[i]; i++)
		serve_add(&argv, "--listen", a->listen[i]);
	serve_add(&argv, "--socket", a->socket);
	serve_add(&argv, "--domain", a->domain);
	serve_add(&argv, "--url", a->url);
	serve_add(&argv, "--tls-cert", a->tls_cert);
	serve_add(&argv, "--tls-key", a->tls_key);
	serve_add(&argv, "--log", a->log);
	serve_add(&argv, "--user", a->user);
	serve_add_u64(&argv, "--workers", a->workers, "");
	add_prices(&argv, a);
	for (size_t i = 0; a->warm && a->warm[i]; i++)
		serve_add(&argv, "--warm", a->warm[i]);
	if (a->tls_self_signed)
		strv_add(&argv, "--tls-self-signed");
	if (a->no_templates)
		strv_add(&argv, "--no-templates");
	return serve_run(a, argv);
}

const struct verb verb_serve = {
	.name = "serve",
	.summary = "serve boxes over HTTP: an API, E2B's dialect, and a page",
	.help = "Runs until it gets SIGTERM. Boxes go on without it, and are there when it comes "
		"back.\n"
		"The first start makes a key and says how to use it, on the terminal or in\n"
		"STATE/first-key; 'den key' makes more. Programs that use E2B's SDK need\n"
		"E2B_API_KEY, E2B_API_URL and E2B_SANDBOX_URL, and nothing else changed.\n"
		"\n"
		"The server itself has no rights: it becomes a user of its own, sees no files but\n"
		"its own, and starts no programs. Without TLS it belongs on the loopback.\n"
		"\n"
		"Examples:\n"
		"  den serve\n"
		"  den serve --listen 0.0.0.0:443 --domain den.example.com \\\n"
		"            --tls-cert chain.pem --tls-key key.pem\n"
		"  den serve --tls-self-signed --socket /run/den/api.sock\n"
		"  den serve --price cpu-hour=0.05 --price gib-hour=0.01 --currency EUR\n",
	.options = { serve_options },
	.complete = "-",
	.run = serve,
};
