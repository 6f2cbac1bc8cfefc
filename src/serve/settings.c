#include "settings.h"

#include <stddef.h>
#include <string.h>

#include "keys.h"
#include "mem.h"
#include "parse.h"

enum kind { TEXT, FLAG, NUMBER, SIZE, CPUS, DURATION, LISTEN, SCOPE, PRICE, WARM };

static const struct {
	const char *name;
	enum kind kind;
	size_t field;
} options[] = {
#define O(name, kind, field) { name, kind, offsetof(struct settings, field) }
	O("state", TEXT, state),
	O("den", TEXT, den),
	O("listen", LISTEN, listen),
	O("socket", TEXT, socket),
	O("domain", TEXT, domain),
	O("url", TEXT, url),
	O("tls-cert", TEXT, tls_cert),
	O("tls-key", TEXT, tls_key),
	O("tls-self-signed", FLAG, tls_self_signed),
	O("log", TEXT, log),
	O("user", TEXT, user),
	O("no-templates", FLAG, no_templates),
	O("workers", NUMBER, workers),
	O("grace", DURATION, grace_ms),
	O("price", PRICE, prices),
	O("currency", TEXT, prices.currency),
	O("warm", WARM, warm),
	O("routes", FLAG, routes),
	O("json", FLAG, json),
	O("org", TEXT, org),
	O("name", TEXT, name),
	O("scope", SCOPE, scopes),
	O("boxes", NUMBER, quota.boxes),
	O("cpus", CPUS, quota.cpu_milli),
	O("memory", SIZE, quota.memory),
	O("disk", SIZE, quota.disk),
	O("rate", NUMBER, quota.rate),
	O("help", FLAG, help),
#undef O
};

static int take(struct settings *s, size_t i, const char *value, struct den_err *err)
{
	void *field = (char *)s + options[i].field;
	uint32_t bit;

	switch (options[i].kind) {
	case FLAG:
		*(bool *)field = true;
		return 0;
	case TEXT:
		*(const char **)field = value;
		return 0;
	case NUMBER:
		return parse_u64(value, 1, INT32_MAX, field, err);
	case SIZE:
		return parse_size(value, field, err);
	case CPUS:
		return parse_cpus(value, field, err);
	case DURATION:
		return parse_duration(value, field, err);
	case LISTEN:
		if (s->n_listen == LISTEN_MAX)
			return den_fail(err, DEN_INVALID, 0, "more than %d addresses", LISTEN_MAX);
		s->listen[s->n_listen++] = value;
		return 0;
	case PRICE:
		return price_parse(value, field, err);
	case WARM:
		if (s->n_warm == WARM_MAX)
			return den_fail(err, DEN_INVALID, 0, "more than %d templates", WARM_MAX);
		return warm_parse(value, &s->warm[s->n_warm++], err);
	case SCOPE:
		bit = key_scope_parse(value);
		s->scopes |= bit;
		return bit ? 0
			   : den_fail(err, DEN_INVALID, 0, "there is no scope '%.40s'; there are: boxes read secrets templates admin",
				     value);
	}
	return -1;
}

static int take_option(struct settings *s, const char *name, const char *value, int *ret_used, struct den_err *err)
{
	for (size_t i = 0; i < ARRAY_SIZE(options); i++) {
		if (strcmp(name, options[i].name))
			continue;
		*ret_used = options[i].kind != FLAG;
		if (*ret_used && !value)
			return den_fail(err, DEN_INVALID, 0, "--%s needs a value", name);
		return take(s, i, value, err) < 0 ? den_wrap(err, "--%s", name) : 0;
	}
	return den_fail(err, DEN_INVALID, 0, "there is no option --%.40s; see 'den serve --help'", name);
}

static int take_word(struct settings *s, const char *word, int n, struct den_err *err)
{
	static const char *const verbs[] = { "create", "ls", "revoke" };

	if (n == 0 && !strcmp(word, "key"))
		return 0;
	for (size_t i = 0; n == 1 && i < ARRAY_SIZE(verbs); i++)
		if (!strcmp(word, verbs[i])) {
			s->verb = verbs[i];
			return 0;
		}
	if (n == 2 && s->verb && !strcmp(s->verb, "revoke")) {
		s->id = word;
		return 0;
	}
	return den_fail(err, DEN_INVALID, 0, "'%.40s' is not understood; den-serve is started by 'den serve'", word);
}

static int check(const struct settings *s, struct den_err *err)
{
	if (!s->tls_cert != !s->tls_key)
		return den_fail(err, DEN_INVALID, 0, "--tls-cert and --tls-key belong together");
	if (s->tls_cert && s->tls_self_signed)
		return den_fail(err, DEN_INVALID, 0, "--tls-self-signed makes its own: leave out --tls-cert or it");
	if (s->log && strcmp(s->log, "json") && strcmp(s->log, "text"))
		return den_fail(err, DEN_INVALID, 0, "--log is json or text, not '%.20s'", s->log);
	if (s->domain && (!*s->domain || strspn(s->domain, "abcdefghijklmnopqrstuvwxyz0123456789.-:") != strlen(s->domain)))
		return den_fail(err, DEN_INVALID, 0, "--domain is a name like den.example.com, in small letters");
	if (s->prices.currency && !currency_ok(s->prices.currency))
		return den_fail(err, DEN_INVALID, 0, "--currency is three capital letters like USD, not '%.20s'",
			s->prices.currency);
	if (s->prices.currency && !s->prices.given)
		return den_fail(err, DEN_INVALID, 0, "--currency says nothing without --price");
	if (s->verb && !strcmp(s->verb, "revoke") && !s->id)
		return den_fail(err, DEN_INVALID, 0, "which key? 'den key ls' lists them");
	return 0;
}

int settings_parse(int argc, char **argv, struct settings *ret, struct den_err *err)
{
	struct settings s = { 0 };
	int words = 0;

	for (int i = 1; i < argc; i++) {
		int used = 0;

		if (strncmp(argv[i], "--", 2)) {
			if (take_word(&s, argv[i], words++, err) < 0)
				return -1;
			continue;
		}
		if (take_option(&s, argv[i] + 2, argv[i + 1], &used, err) < 0)
			return -1;
		i += used;
	}
	if (check(&s, err) < 0)
		return -1;
	*ret = s;
	return 0;
}
