#include "net_args.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "fd.h"
#include "mem.h"
#include "parse.h"
#include "policy.h"
#include "srt.h"
#include "strv.h"

static void json_freep(json_t **j)
{
	json_decref(*j);
}
#define auto_json __attribute__((cleanup(json_freep))) json_t *

void net_args_free(struct net_args *n)
{
	free(n->policy);
	free(n->name);
	*n = (struct net_args){ 0 };
}

bool net_policy_is_file(const char *text)
{
	size_t n = strlen(text);

	return strchr(text, '/') || !strcmp(text, "-") || (n > 5 && !strcmp(text + n - 5, ".json"));
}

/* Texts become JSON unchecked: where one is not UTF-8, writing the whole fails, and nothing is lost
 * silently. */

/* ---- secrets --------------------------------------------------------------------------------- */

static int bad_secret(const char *text, struct den_err *err)
{
	return den_fail(err, DEN_INVALID, 0,
		"'%.80s': write it like KEY@api.example.com:header=x-api-key or "
		"KEY@example.com:8443:bearer",
		text);
}

/* "sigv4=KEYID[/REGION/SERVICE]" */
static int sigv4_where(const char *value, json_t *j, struct den_err *err)
{
	static const char *const keys[] = { "access_key", "region", "service" };

	for (size_t i = 0; i < ARRAY_SIZE(keys); i++) {
		size_t n = strcspn(value, "/");

		if (!n)
			return den_fail(err, DEN_INVALID, 0,
				"sigv4 is written sigv4=KEYID or sigv4=KEYID/REGION/SERVICE");
		json_object_set_new(j, keys[i], json_stringn_nocheck(value, n));
		value += n;
		if (!*value && i != 1)
			return 0;
		value += *value == '/';
	}
	return den_fail(
		err, DEN_INVALID, 0, "sigv4 is written sigv4=KEYID or sigv4=KEYID/REGION/SERVICE");
}

static int one_where(const char *text, json_t *j, json_t *in, struct den_err *err)
{
	static const char *const words[] = { "header", "bearer", "basic", "query", "body", "sigv4",
		"env" };
	const char *eq = strchr(text, '='), *value = eq ? eq + 1 : NULL, *near;
	auto_free char *word = eq ? mem_strndup(text, (size_t)(eq - text)) : mem_strdup(text);
	auto_buf place = { 0 };

	if (!strcmp(word, "env") && value && *value) {
		json_object_set_new(j, "env", json_string_nocheck(value));
		return 0;
	}
	if (!strcmp(word, "sigv4") && value) {
		json_array_append_new(in, json_string_nocheck("sigv4"));
		return sigv4_where(value, j, err);
	}
	if ((!strcmp(word, "header") || !strcmp(word, "query")) && value && *value) {
		buf_addf(&place, "%s:%s", word, value);
		json_array_append_new(in, json_string_nocheck(buf_str(&place)));
		return 0;
	}
	if (!value && (!strcmp(word, "bearer") || !strcmp(word, "basic") ||
			      !strcmp(word, "query") || !strcmp(word, "body"))) {
		json_array_append_new(in, json_string_nocheck(word));
		return 0;
	}
	near = parse_nearest(word, words, ARRAY_SIZE(words));
	if (near && strcmp(near, word))
		return den_fail(
			err, DEN_INVALID, 0, "'%.40s' is no place; did you mean '%s'?", text, near);
	return den_fail(err, DEN_INVALID, 0,
		"'%.40s' is no place; there are header=NAME, bearer, basic, query, query=NAME, "
		"body, "
		"sigv4=KEYID, and env=VAR",
		text);
}

int net_secret_parse(const char *text, json_t **ret, struct den_err *err)
{
	auto_json j = json_object();
	json_t *in = json_array();
	const char *at = strchr(text, '@'), *p;
	size_t n;

	json_object_set_new(j, "in", in);
	if (!at || at == text)
		return bad_secret(text, err);
	n = strcspn(at + 1, ":");
	if (!n || !at[1 + n])
		return bad_secret(text, err);
	json_object_set_new(j, "name", json_stringn_nocheck(text, (size_t)(at - text)));
	json_object_set_new(j, "host", json_stringn_nocheck(at + 1, n));
	p = at + 1 + n + 1;
	n = strcspn(p, ":");
	if (n && strspn(p, "0123456789") == n) {
		auto_free char *digits = mem_strndup(p, n);
		uint64_t port;

		if (!p[n])
			return bad_secret(text, err);
		if (parse_u64(digits, 1, 65535, &port, err) < 0)
			return den_wrap(err, "'%.80s': port", text);
		json_object_set_new(j, "port", json_integer((json_int_t)port));
		p += n + 1;
	}
	do {
		auto_free char *where = NULL;

		n = strcspn(p, ",");
		where = mem_strndup(p, n);
		if (one_where(where, j, in, err) < 0)
			return den_wrap(err, "'%.80s'", text);
		p += n;
	} while (*p++ == ',');
	*ret = mem_take(&j);
	return 0;
}

/* ---- the policy ------------------------------------------------------------------------------ */

/* Checks, and puts into canonical form. */
static int canonical(const char *json, size_t n, char **ret, struct den_err *err)
{
	auto_policy p = NULL;
	auto_buf out = { 0 };

	if (policy_parse(json, n, &p, err) < 0)
		return -1;
	policy_print(p, &out);
	*ret = mem_strdup(buf_str(&out));
	return 0;
}

int net_policy_read(const char *path, char **ret, struct den_err *err)
{
	bool in = !strcmp(path, "-");
	auto_free char *text = NULL;
	auto_fd own = in ? -1 : open(path, O_RDONLY | O_CLOEXEC);
	size_t n;

	if (!in && own < 0)
		return den_fail_sys(err, errno, "policy file '%.80s'", path);
	if (fd_read_all(in ? STDIN_FILENO : own, POLICY_JSON_MAX, &text, &n, err) < 0 ||
		canonical(text, n, ret, err) < 0)
		return den_wrap(err, "'%.80s'", in ? "standard input" : path);
	return 0;
}

/* The list of that name in j, made if there is none. */
static json_t *list_of(json_t *j, const char *key)
{
	json_t *list = json_object_get(j, key);

	if (!list) {
		list = json_array();
		json_object_set_new(j, key, list);
	}
	return list;
}

static json_t *object_of(json_t *j, const char *key)
{
	json_t *o = json_object_get(j, key);

	if (!o) {
		o = json_object();
		json_object_set_new(j, key, o);
	}
	return o;
}

/* At the end, unless it is there. */
static void add_text(json_t *list, const char *text)
{
	for (size_t i = 0; i < json_array_size(list); i++)
		if (!strcmp(json_string_value(json_array_get(list, i)), text))
			return;
	json_array_append_new(list, json_string_nocheck(text));
}

/* --allow, --deny: checked one by one, for an error that names the option. */
static int add_rules(json_t *j, const char *key, char *const *rules, struct den_err *err)
{
	for (; rules && *rules; rules++) {
		struct policy_rule r;
		auto_buf text = { 0 };

		if (policy_rule_parse(*rules, key[0] == 'd', false, &r, &text, err) < 0)
			return den_wrap(err, "--%s", key);
		add_text(list_of(j, key), buf_str(&text));
	}
	return 0;
}

/* --drop: the rule goes, whichever list it is in. */
static int drop_rules(json_t *j, char *const *rules, struct den_err *err)
{
	static const char *const keys[] = { "allow", "deny" };

	for (; rules && *rules; rules++) {
		bool found = false;

		for (int deny = 0; deny < 2; deny++) {
			json_t *list = json_object_get(j, keys[deny]);
			struct policy_rule r;
			auto_buf text = { 0 };

			if (policy_rule_parse(*rules, deny, false, &r, &text, NULL) < 0)
				continue;
			for (size_t i = json_array_size(list); i-- > 0;) {
				if (strcmp(json_string_value(json_array_get(list, i)),
					    buf_str(&text)))
					continue;
				json_array_remove(list, i);
				found = true;
			}
		}
		if (!found)
			return den_fail(err, DEN_NOT_FOUND, 0,
				"--drop: there is no rule '%.80s'; 'den policy show BOX' prints "
				"them",
				*rules);
	}
	return 0;
}

static int add_secrets(json_t *j, char *const *secrets, struct den_err *err)
{
	for (; secrets && *secrets; secrets++) {
		json_t *s;

		if (net_secret_parse(*secrets, &s, err) < 0)
			return den_wrap(err, "--secret");
		json_array_append_new(list_of(j, "secrets"), s);
	}
	return 0;
}

/* --trust: texts of files; what is in them is checked with the policy. */
static int add_trust(json_t *j, char *const *paths, struct den_err *err)
{
	json_t *had = json_object_get(j, "trust");

	if (json_is_string(had)) { /* of the policy that is added to */
		json_t *list = json_pack("[O]", had);

		json_object_set_new(j, "trust", list);
	}
	for (; paths && *paths; paths++) {
		auto_fd fd = open(*paths, O_RDONLY | O_CLOEXEC);
		auto_free char *text = NULL;
		auto_policy p = NULL;
		auto_free char *alone = NULL;
		auto_json one = json_object();
		size_t n;

		if (fd < 0)
			return den_fail_sys(err, errno, "--trust '%.80s'", *paths);
		if (fd_read_all(fd, POLICY_TRUST_MAX, &text, &n, err) < 0)
			return den_wrap(err, "--trust '%.80s'", *paths);
		json_object_set_new(one, "trust", json_stringn(text, n));
		alone = json_dumps(one, JSON_COMPACT);
		/* by itself, for an error that names the file */
		if (!alone || !json_object_get(one, "trust"))
			return den_fail(err, DEN_INVALID, 0, "--trust '%.80s': not a text with certificates (PEM)", *paths);
		if (policy_parse(alone, strlen(alone), &p, err) < 0)
			return den_wrap(err, "--trust '%.80s'", *paths);
		add_text(list_of(j, "trust"), p->trust);
	}
	return 0;
}

static void add_limits(json_t *j, const struct args *a)
{
	const struct {
		const char *key;
		uint64_t value;
	} all[] = { { "rate", a->net_rate }, { "bytes", a->net_bytes },
		{ "connections", a->net_conns } };

	for (size_t i = 0; i < ARRAY_SIZE(all); i++)
		if (all[i].value)
			json_object_set_new(object_of(j, "limits"), all[i].key,
				json_integer((json_int_t)all[i].value));
}

static int add_options(json_t *j, const struct args *a, struct den_err *err)
{
	if (a->net && !strcmp(a->net, "open"))
		add_text(list_of(j, "presets"), "open");
	for (char **p = a->presets; p && *p; p++)
		add_text(list_of(j, "presets"), *p);
	for (char **p = a->audiences; p && *p; p++)
		add_text(list_of(object_of(j, "identity"), "audiences"), *p);
	if (a->proxy_env)
		json_object_set_new(j, "proxy_env", json_true());
	add_limits(j, a);
	if (drop_rules(j, a->drop, err) < 0 || add_rules(j, "allow", a->allow, err) < 0 ||
		add_rules(j, "deny", a->deny, err) < 0 || add_secrets(j, a->secrets, err) < 0 ||
		add_trust(j, a->trust, err) < 0)
		return -1;
	return 0;
}

static int add_srt(json_t *j, const char *path, struct den_err *err)
{
	auto_srt s = { 0 };

	if (srt_read(path, false, &s, err) < 0)
		return -1;
	if (s.open)
		add_text(list_of(j, "presets"), "open");
	for (char **r = s.allow; r && *r; r++)
		add_text(list_of(j, "allow"), *r);
	for (char **r = s.deny; r && *r; r++)
		add_text(list_of(j, "deny"), *r);
	return 0;
}

/* Of those that add something to a policy. */
static const char *first_addition(const struct args *a)
{
	const struct {
		bool given;
		const char *name;
	} all[] = { { a->allow, "allow" }, { a->deny, "deny" }, { a->presets, "preset" },
		{ a->net_rate, "net-rate" }, { a->net_bytes, "net-bytes" },
		{ a->net_conns, "net-conns" }, { a->secrets, "secret" },
		{ a->audiences, "audience" }, { a->proxy_env, "proxy-env" },
		{ a->srt_settings, "srt-settings" }, { a->drop, "drop" },
		{ a->trust, "trust" } };

	for (size_t i = 0; i < ARRAY_SIZE(all); i++)
		if (all[i].given)
			return all[i].name;
	return NULL;
}

bool net_args_given(const struct args *a)
{
	return first_addition(a) || a->policy || (a->net && !strcmp(a->net, "open"));
}

static int check_net(const struct args *a, struct den_err *err)
{
	const char *other = first_addition(a);

	if (a->net && !strcmp(a->net, "none") && (other || a->policy))
		return den_fail(err, DEN_INVALID, 0,
			"--net none and --%s contradict each other; leave --net out: what is not "
			"allowed is "
			"closed anyway",
			other ? other : "policy");
	if (a->policy && !net_policy_is_file(a->policy) && (other || a->net))
		return den_fail(err, DEN_INVALID, 0,
			"--policy %.64s is kept for many boxes and taken as it is; --%s cannot "
			"change it. "
			"Copy it: den policy show %.64s >FILE, then --policy ./FILE",
			a->policy, other ? other : "net", a->policy);
	return 0;
}

int net_args_make(const struct args *a, const char *base, struct net_args *ret, struct den_err *err)
{
	auto_free char *file = NULL, *dump = NULL;
	auto_json j = NULL;

	if (check_net(a, err) < 0)
		return -1;
	if (!net_args_given(a))
		return 0;
	if (a->policy && !net_policy_is_file(a->policy)) {
		ret->name = mem_strdup(a->policy);
		return 0;
	}
	if (a->policy && net_policy_read(a->policy, &file, err) < 0)
		return den_wrap(err, "--policy");
	if (file || (base && !a->clear))
		j = json_loads(file ? file : base, 0, NULL);
	if (!j)
		j = json_object();
	if (a->srt_settings && add_srt(j, a->srt_settings, err) < 0)
		return den_wrap(err, "--srt-settings");
	if (add_options(j, a, err) < 0)
		return -1;
	dump = json_dumps(j, JSON_COMPACT);
	if (!dump)
		return den_fail(err, DEN_INVALID, 0, "the network options are not UTF-8");
	return canonical(dump, strlen(dump), &ret->policy, err);
}
