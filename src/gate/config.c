/* What the keeper says at the beginning and with every change, as one object. */
#include <errno.h>
#include <jansson.h>
#include <openssl/crypto.h>
#include <openssl/ssl.h>
#include <string.h>
#include <unistd.h>

#include "b64.h"
#include "gate.h"
#include "mint.h"
#include "tls_ctx.h"
#include "strv.h"

#define ALSO_MAX 64 /* generations of forks with programs; older ones are of no use any more */

#define BUNDLE_MAX (4U << 20)

struct config *config_ref(struct config *c)
{
	c->refs++;
	return c;
}

static void wipe(char *s)
{
	if (s)
		OPENSSL_cleanse(s, strlen(s));
	free(s);
}

void config_unref(struct config *c)
{
	if (!c || --c->refs)
		return;
	policy_free(c->policy);
	free(c->ask);
	free(c->resolv);
	free(c->hosts);
	for (unsigned i = 0; i < c->n_secrets; i++) {
		free(c->secrets[i].name);
		free(c->secrets[i].placeholder);
		wipe(c->secrets[i].value);
		strv_free(c->secrets[i].also);
	}
	free(c->secrets);
	free(c->canary_of);
	canary_free(c->canaries);
	if (c->mint)
		mint_free(c->mint);
	SSL_CTX_free(c->client);
	free(c);
}

static int take_policy(struct config *c, json_t *root, struct den_err *err)
{
	json_t *p = json_object_get(root, "policy");
	char *text = json_is_object(p) ? json_dumps(p, JSON_COMPACT) : NULL;
	int r = text ? policy_parse(text, strlen(text), &c->policy, err) :
		       den_fail(err, DEN_INVALID, 0, "no policy");

	free(text);
	return r;
}

static char *decode(const char *text)
{
	size_t max = strlen(text);
	char *out = mem_zalloc(max + 1);
	ssize_t n = b64_get(out, max, text, max, B64_STD);

	if (n > 0 && !memchr(out, '\0', (size_t)n))
		return out;
	free(out);
	return NULL;
}

static int take_also(struct gate_secret *s, json_t *list, struct den_err *err)
{
	size_t n = json_array_size(list);

	for (size_t i = 0; i < n; i++) {
		const char *mark = json_string_value(json_array_get(list, i));

		if (!mark || !*mark || i >= ALSO_MAX)
			return den_fail(err, DEN_INVALID, 0, "placeholders of '%s'", s->name);
		strv_add(&s->also, mark);
	}
	return 0;
}

/* All that must not get out, and whose each is. */
static void make_canaries(struct config *c)
{
	auto_free const char **marks = NULL;
	unsigned n = 0;

	for (unsigned i = 0; i < c->n_secrets; i++)
		n += 1 + (unsigned)strv_len(c->secrets[i].also);
	marks = mem_zalloc(sizeof(*marks) * (n + 1));
	c->canary_of = mem_zalloc(sizeof(*c->canary_of) * (n + 1));
	for (unsigned i = 0; i < c->n_secrets; i++) {
		const struct gate_secret *s = &c->secrets[i];

		c->canary_of[c->n_canaries] = i;
		marks[c->n_canaries++] = s->placeholder;
		for (size_t k = 0; s->also && s->also[k]; k++) {
			c->canary_of[c->n_canaries] = i;
			marks[c->n_canaries++] = s->also[k];
		}
	}
	c->canaries = canary_new(marks, n);
}

static int take_secrets(struct config *c, json_t *list, struct den_err *err)
{
	size_t n = json_array_size(list);

	if (n != c->policy->n_secrets)
		return den_fail(err, DEN_INVALID, 0, "%zu secrets for %u grants", n, c->policy->n_secrets);
	if (!n)
		return 0;
	c->secrets = mem_zalloc(sizeof(*c->secrets) * n);
	for (size_t i = 0; i < n; i++) {
		const char *name, *mark, *value = NULL;
		json_t *also = NULL;
		char *clear = NULL;

		if (json_unpack(json_array_get(list, i), "{s:s,s:s,s?s,s?o}", "name", &name, "placeholder", &mark,
			    "value64", &value, "also", &also) < 0 || !*mark || (value && !(clear = decode(value))))
			return den_fail(err, DEN_INVALID, 0, "secret %zu", i);
		c->secrets[i] = (struct gate_secret){ mem_strdup(name), mem_strdup(mark), clear, NULL };
		c->n_secrets++;
		if (take_also(&c->secrets[i], also, err) < 0)
			return -1;
	}
	make_canaries(c);
	return 0;
}

static char *copy(json_t *root, const char *key)
{
	const char *s = json_string_value(json_object_get(root, key));

	return mem_strdup(s ? s : "");
}

static int take(struct config *c, json_t *root, struct den_err *err)
{
	const char *key = json_string_value(json_object_get(root, "ca_key"));
	const char *cert = json_string_value(json_object_get(root, "ca_cert"));

	c->generation = (uint64_t)json_integer_value(json_object_get(root, "generation"));
	c->used = (uint64_t)json_integer_value(json_object_get(root, "used"));
	c->ask = copy(root, "ask");
	c->resolv = copy(root, "resolv");
	c->hosts = copy(root, "hosts");
	if (take_policy(c, root, err) < 0 || take_secrets(c, json_object_get(root, "secrets"), err) < 0)
		return -1;
	return key && cert ? mint_new(key, cert, &c->mint, err) : 0;
}

int config_parse(const char *json, size_t len, struct config **ret, struct den_err *err)
{
	json_t *root = json_loadb(json, len, JSON_REJECT_DUPLICATES, NULL);
	struct config *c = mem_new(struct config);
	int r;

	c->refs = 1;
	r = json_is_object(root) ? take(c, root, err) : den_fail(err, DEN_INVALID, 0, "configuration: no JSON");
	json_decref(root);
	if (r < 0) {
		config_unref(c);
		return den_wrap(err, "gate");
	}
	*ret = c;
	return 0;
}

/* Reading the certificates takes milliseconds, so only who needs them pays. */
SSL_CTX *config_client(struct gate *g, struct config *c, struct den_err *err)
{
	auto_free char *pem = NULL;
	const char *trust = c->policy->trust;
	size_t more = trust ? strlen(trust) : 0;
	ssize_t n = 0, got;

	if (c->client)
		return c->client;
	if (g->bundle_fd < 0 && !trust) {
		den_fail(err, DEN_UNSUPPORTED, 0,
			"this host has no certificates to trust; install the package ca-certificates");
		return NULL;
	}
	pem = mem_alloc(BUNDLE_MAX + more + 1);
	while (g->bundle_fd >= 0 && n < (ssize_t)BUNDLE_MAX && (got = pread(g->bundle_fd, pem + n, BUNDLE_MAX - (size_t)n, n)) > 0)
		n += got;
	if (trust) {
		pem[n++] = '\n';
		memcpy(pem + n, trust, more);
		n += (ssize_t)more;
	}
	c->client = tls_client_context(pem, (size_t)n, err);
	return c->client;
}
