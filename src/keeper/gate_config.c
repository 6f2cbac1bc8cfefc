/* What a policy needs besides its rules: secrets and certificates from the vault, files and variables
 * for the box, and all of it in one message for the gate. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fd.h"
#include "gate.h"
#include "parse.h"
#include "strv.h"
#include "vault.h"

#define BUNDLE "/etc/ssl/certs/ca-certificates.crt"
#define BUNDLE_MAX (4U << 20)
#define TEXT_MAX (256U << 10)
#define MARKS_MAX 12
#define PROXY "http://198.18.0.1:3128"

static void drop_secrets(struct kgate *g)
{
	vault_wipe(g->secrets);
	g->secrets = NULL;
	if (g->ca_key)
		explicit_bzero(g->ca_key, strlen(g->ca_key));
	free(g->ca_key);
	g->ca_key = NULL;
}

/* ---- the box's side ---- */

static void env_put(struct kgate *g, const char *name, const char *value)
{
	auto_buf b = { 0 };

	buf_addf(&b, "%s=%s", name, value);
	strv_env_put(&g->env, buf_str(&b));
}

static void env_trust(struct kgate *g)
{
	/* All of it for those too that add to what they have built in: the host may trust more than that. */
	static const char *const bundle[] = { "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE",
		"GIT_SSL_CAINFO", "PIP_CERT", "AWS_CA_BUNDLE", "CARGO_HTTP_CAINFO", "NIX_SSL_CERT_FILE",
		"NODE_EXTRA_CA_CERTS", "DENO_CERT" };

	for (size_t i = 0; i < ARRAY_SIZE(bundle); i++)
		env_put(g, bundle[i], "/run/den/ca-bundle.pem");
}

static void env_proxy(struct kgate *g)
{
	static const char *const names[] = { "http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY" };

	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		env_put(g, names[i], PROXY);
	env_put(g, "no_proxy", "localhost,127.0.0.1,::1");
	env_put(g, "NO_PROXY", "localhost,127.0.0.1,::1");
}

static int write_bundle(const char *own, int dir, struct den_err *err)
{
	auto_fd fd = open(BUNDLE, O_RDONLY | O_CLOEXEC);
	auto_free char *host = NULL;
	auto_buf b = { 0 };
	size_t n;

	if (fd >= 0 && fd_read_all(fd, BUNDLE_MAX, &host, &n, err) == 0)
		buf_add(&b, host, n);
	buf_addf(&b, "%s%s", b.len && b.p[b.len - 1] != '\n' ? "\n" : "", own);
	return file_replace_at(dir, "ca-bundle.pem", b.p, b.len, 0644, err);
}

int gate_files(struct kgate *g, struct den_err *err)
{
	auto_fd dir = openat(g->k->boxfd, GATE_RUN, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	auto_buf own = { 0 };

	if (dir < 0)
		return den_fail_sys(err, errno, "open '%s'", GATE_RUN);
	if (!g->n_denials && faccessat(dir, "denials", F_OK, 0) < 0 &&
		file_replace_at(dir, "denials", "", 0, 0644, err) < 0)
		return -1;
	if (!g->trusts)
		return 0;
	buf_addf(&own, "%s%s", g->ca_cert ? g->ca_cert : "", g->policy->trust ? g->policy->trust : "");
	return file_replace_at(dir, "ca.pem", own.p, own.len, 0644, err) < 0 ? -1 :
										  write_bundle(buf_str(&own), dir, err);
}

/* ---- from the vault ---- */

/* Programs that came from another box hold its placeholders: they stand for the same secrets here. The newest: it is
 * they who are asked for. */
static int load_marks(struct kgate *g, const struct policy_secret *s, json_t *ret, struct den_err *err)
{
	char *const *marks = g->k->row.info.marks;
	size_t n = strv_len(marks);

	for (size_t i = n; i > 0 && n - i < MARKS_MAX; i--) {
		auto_free char *mark = NULL, *id = mem_strndup(marks[i - 1], strcspn(marks[i - 1], " "));

		if (vault_placeholder(g->k->store->path, id, s->name, s->env, NULL, &mark, err) < 0)
			return -1;
		json_array_append_new(ret, json_string(mark));
	}
	return 0;
}

static int load_secret(struct kgate *g, const struct policy_secret *s, json_t *values, struct den_err *err)
{
	json_t *value = json_object_get(values, s->name), *also;
	auto_free char *mark = NULL;

	if (!json_is_string(value) && g->strict)
		return den_fail(err, DEN_NOT_FOUND, 0,
			"the policy grants the secret '%s', which is not there; 'den secret set %s' makes it", s->name,
			s->name);
	if (vault_placeholder(g->k->store->path, g->k->id.s, s->name, s->env, NULL, &mark, err) < 0)
		return -1;
	/* by variable: several hosts may be granted what is in one */
	also = json_array();
	if (load_marks(g, s, also, err) < 0) {
		json_decref(also);
		return -1;
	}
	json_array_append_new(g->secrets, json_pack("{s:s, s:s, s:O*, s:o}", "name", s->name, "placeholder", mark,
		"value64", value, "also", also));
	env_put(g, s->env, mark);
	if (s->access_key)
		env_put(g, "AWS_ACCESS_KEY_ID", s->access_key);
	return 0;
}

/* Those that are there: where one is missing the vault gives none of all, so each is asked for alone. */
static int get_values(struct kgate *g, const char *const *names, json_t **ret, struct den_err *err)
{
	json_t *all;

	if (vault_secrets(g->k->store->path, names, ret, err) == 0)
		return 0;
	if (err->code != DEN_NOT_FOUND)
		return -1;
	all = json_object();
	for (; *names; names++) {
		const char *const one[] = { *names, NULL };
		json_t *value = NULL;

		if (vault_secrets(g->k->store->path, one, &value, err) < 0) {
			if (err->code == DEN_NOT_FOUND)
				continue;
			vault_wipe(all);
			return -1;
		}
		json_object_update(all, value);
		json_decref(value);
	}
	*ret = all;
	return 0;
}

static int load_secrets(struct kgate *g, struct den_err *err)
{
	const struct policy *p = g->policy;
	auto_free const char **names = mem_zalloc(sizeof(*names) * (p->n_secrets + 1));
	json_t *values = NULL;
	int r = 0;

	g->secrets = json_array();
	if (!p->n_secrets)
		return 0;
	for (unsigned i = 0, n = 0; i < p->n_secrets; i++) {
		bool again = false;

		for (unsigned d = 0; d < n; d++)
			again |= !strcmp(names[d], p->secrets[i].name);
		if (!again)
			names[n++] = p->secrets[i].name;
	}
	if (get_values(g, names, &values, err) < 0)
		return -1;
	for (unsigned i = 0; i < p->n_secrets && r == 0; i++)
		r = load_secret(g, &p->secrets[i], values, err);
	json_decref(values); /* the values themselves are in g->secrets, and wiped with it */
	return r;
}

/* The text of the row's policy, of its own or the stored one's. */
static int policy_text(struct kgate *g, char **ret, struct den_err *err)
{
	const struct box_spec *s = &g->k->row.info.spec;

	if (s->policy_name)
		return policy_stored_get(g->k->store, s->policy_name, ret, err);
	*ret = mem_strdup(s->policy ? s->policy : "{}");
	return 0;
}

/* Of the box whose programs it began with, if it did: they have read that one's certificate already. */
static int load_authority(struct kgate *g, struct den_err *err)
{
	const char *first = g->k->row.info.marks ? g->k->row.info.marks[0] : NULL;
	auto_free char *id = first ? mem_strndup(first, strcspn(first, " ")) : mem_strdup(g->k->id.s);
	int64_t since = first ? strtoll(first + strcspn(first, " "), NULL, 10) : g->k->row.info.created_ms;

	return vault_box_ca(g->k->store->path, id, since, &g->ca_cert, &g->ca_key, err);
}

int gate_load(struct kgate *g, struct den_err *err)
{
	auto_free char *text = NULL;
	struct policy *p;

	if (policy_text(g, &text, err) < 0 || policy_parse(text, strlen(text), &p, err) < 0)
		return -1;
	tokens_drop(g); /* they say the generation */
	policy_free(g->policy);
	g->policy = p;
	drop_secrets(g);
	strv_free(g->env);
	g->env = NULL;
	g->terminates = p->n_secrets || p->identity.n_adds;
	g->trusts = g->terminates || p->trust;
	if (load_secrets(g, err) < 0)
		return -1;
	g->strict = false;
	if (p->proxy_env)
		env_proxy(g);
	free(g->ca_cert);
	g->ca_cert = NULL;
	if (g->trusts)
		env_trust(g);
	if (!g->terminates)
		return 0;
	return load_authority(g, err);
}

/* ---- for the gate ---- */

static void put_file(json_t *o, const char *key, const char *path)
{
	auto_fd fd = open(path, O_RDONLY | O_CLOEXEC);
	auto_free char *text = NULL;
	size_t n = 0;

	if (fd < 0 || fd_read_all(fd, TEXT_MAX, &text, &n, NULL) < 0)
		return; /* none: the resolver is on this machine, and no name is fixed */
	json_object_set_new(o, key, json_stringn(text, strlen(text)));
}

static uint64_t used_so_far(struct kgate *g)
{
	char text[24];
	uint64_t n;

	if (!g->used && file_read_at(g->k->boxfd, GATE_USED, text, sizeof(text), NULL) >= 0) {
		text[strcspn(text, "\n")] = '\0';
		if (parse_u64(text, 0, INT64_MAX, &n, NULL) == 0)
			g->used = n;
	}
	return g->used;
}

int gate_config(struct kgate *g, struct buf *out, struct den_err *err)
{
	const struct box_spec *s = &g->k->row.info.spec;
	auto_buf text = { 0 }, ask = { 0 };
	json_t *o, *policy;
	char *all;

	policy_print(g->policy, &text);
	buf_addf(&ask, "on the host: den policy set %s NAME[:PORT]", s->name ? s->name : s->id);
	policy = json_loadb(text.p, text.len, 0, NULL);
	o = json_pack("{s:I, s:o, s:s, s:o, s:s*, s:s*}", "generation", (json_int_t)g->k->row.info.generation, "policy",
		policy, "ask", buf_str(&ask), "secrets", json_deep_copy(g->secrets), "ca_key", g->ca_key, "ca_cert",
		g->ca_cert);
	if (!o)
		return den_fail(err, DEN_INTERNAL, 0, "configuration of the gate");
	json_object_set_new(o, "used", json_integer((json_int_t)used_so_far(g)));
	put_file(o, "resolv", "/etc/resolv.conf");
	put_file(o, "hosts", "/etc/hosts");
	all = json_dumps(o, JSON_COMPACT);
	vault_wipe(o);
	drop_secrets(g);
	if (!all || strlen(all) > WIRE_MAX_PAYLOAD - 256) {
		free(all);
		return den_fail(err, DEN_LIMIT, 0, "the policy is too large for the gate");
	}
	buf_reserve(out, strlen(all) + 1);
	buf_add(out, all, strlen(all));
	explicit_bzero(all, strlen(all));
	free(all);
	return 0;
}
