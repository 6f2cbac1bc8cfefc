/* Secrets, and the placeholders that stand for them. A sealed secret is: created and changed (8
 * bytes each, Unix milliseconds), then the value. */
#include <ctype.h>
#include <openssl/hmac.h>
#include <stdio.h>
#include <string.h>

#include "clock.h"
#include "id.h"
#include "strv.h"
#include "vault.h"

#define HEAD 16
#define GET_NAMES_MAX 64
#define GET_BYTES_MAX (512U << 10)
#define PLACEHOLDER_LEN 40

static int secret_name_check(const char *name, struct den_err *err)
{
	size_t n =
		strspn(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-");

	if (!n || name[n] || n > NAME_LEN_MAX || strchr("0123456789.-", name[0]))
		return den_fail(err, DEN_INVALID, 0,
			"a secret's name is 1 to 64 of A-Z a-z 0-9 _ . -, and begins with a letter "
			"or _");
	return 0;
}

static int name_member(const json_t *req, const char **ret, struct den_err *err)
{
	if (member_text(req, "name", 1024, true, ret, err) < 0)
		return -1;
	return secret_name_check(*ret, err);
}

/* ---- set, rotate ---- */

/* Appends the value to what is sealed; gives its length or -1. */
static ssize_t value_member(const json_t *req, uint8_t *to, struct den_err *err)
{
	const json_t *j = json_object_get(req, "value");
	size_t len = json_string_length(j);
	ssize_t n;

	if (!json_is_string(j))
		return den_fail(err, DEN_INVALID, 0, "'value' must be there, in base64");
	if (len > B64_SIZE(VALUE_MAX))
		return den_fail(err, DEN_LIMIT, 0, "the value has more than %u bytes", VALUE_MAX);
	n = b64_get(to, VALUE_MAX, json_string_value(j), len, B64_STD);
	if (n < 0)
		return den_fail(err, DEN_INVALID, 0, "'value' is not base64 of at most %u bytes",
			VALUE_MAX);
	if (n == 0)
		return den_fail(err, DEN_INVALID, 0, "the value is empty");
	if (n < VALUE_MIN)
		return den_fail(err, DEN_INVALID, 0,
			"the value has %zd bytes; a secret has %d or more: a shorter one can be guessed, and "
			"answers from its host would have the same letters replaced where they mean "
			"something else",
			n, VALUE_MIN);
	for (ssize_t i = 0; i < n; i++)
		if (to[i] == '\0' || to[i] == '\r' || to[i] == '\n')
			return den_fail(err, DEN_INVALID, 0,
				"the value has a line break or a NUL in it: in a header it would "
				"begin another; "
				"encode it (base64) and have it decoded where it is used");
	return n;
}

static int secret_put(
	struct vault *v, json_t *req, bool must_exist, json_t *ret, struct den_err *err)
{
	auto_secure uint8_t *p = secure_alloc(HEAD + VALUE_MAX, err), *old = NULL;
	int64_t now = clock_wall_ms(), created = now;
	auto_strv names = NULL;
	const char *name;
	bool exists;
	size_t old_n;
	ssize_t n;

	if (!p || name_member(req, &name, err) < 0 || (n = value_member(req, p + HEAD, err)) < 0 ||
		vault_lock(v, err) < 0)
		return -1;
	exists = seal_exists(v, SEAL_SECRET, name);
	if (must_exist && !exists)
		return den_fail(err, DEN_NOT_FOUND, 0,
			"no secret '%s' to rotate; 'den secret set %s' makes it", name, name);
	if (!exists &&
		(seal_names(v, SEAL_SECRET, &names, err) < 0 || strv_len(names) >= SECRETS_MAX))
		return names ? den_fail(err, DEN_LIMIT, 0, "there are %d secrets already",
				       SECRETS_MAX)
			     : -1;
	/* one that cannot be read any more is begun anew */
	if (exists && seal_read(v, SEAL_SECRET, name, &old, &old_n, err) == 0 && old_n > HEAD)
		created = (int64_t)get_u64(old);
	put_u64(p, (uint64_t)created);
	put_u64(p + 8, (uint64_t)now);
	if (seal_write(v, SEAL_SECRET, name, p, HEAD + (size_t)n, err) < 0)
		return den_wrap(err, "secret '%s'", name);
	json_object_set_new(ret, "name", json_string(name));
	json_object_set_new(ret, "created_ms", json_integer(created));
	json_object_set_new(ret, "changed_ms", json_integer(now));
	json_object_set_new(ret, "replaced", json_boolean(exists));
	return 0;
}

int op_secret_set(struct vault *v, json_t *req, json_t *ret, struct den_err *err)
{
	return secret_put(v, req, false, ret, err);
}

int op_secret_rotate(struct vault *v, json_t *req, json_t *ret, struct den_err *err)
{
	return secret_put(v, req, true, ret, err);
}

/* ---- list, remove, get ---- */

static int secret_read(
	const struct vault *v, const char *name, uint8_t **ret, size_t *ret_n, struct den_err *err)
{
	if (seal_read(v, SEAL_SECRET, name, ret, ret_n, err) < 0)
		return -1;
	if (*ret_n > HEAD)
		return 0;
	OPENSSL_secure_free(*ret);
	*ret = NULL;
	return den_fail(err, DEN_CONFLICT, 0, "the secret '%s' is too short", name);
}

int op_secret_list(struct vault *v, json_t *req, json_t *ret, struct den_err *err)
{
	json_t *list = json_array();
	auto_strv names = NULL;

	(void)req;
	json_object_set_new(ret, "secrets", list);
	if (seal_names(v, SEAL_SECRET, &names, err) < 0)
		return -1;
	for (size_t i = 0; names && names[i]; i++) {
		auto_secure uint8_t *p = NULL;
		struct den_err why = { 0 };
		json_t *o;
		size_t n;

		if (secret_name_check(names[i], NULL) < 0)
			continue; /* somebody's own file */
		if (secret_read(v, names[i], &p, &n, &why) < 0 && why.code == DEN_NOT_FOUND)
			continue; /* went meanwhile */
		o = json_object();
		json_array_append_new(list, o);
		json_object_set_new(o, "name", json_string(names[i]));
		if (p) {
			json_object_set_new(o, "created_ms", json_integer((json_int_t)get_u64(p)));
			json_object_set_new(
				o, "changed_ms", json_integer((json_int_t)get_u64(p + 8)));
		} else {
			json_object_set_new(o, "damaged", json_string(why.msg));
		}
	}
	return 0;
}

int op_secret_remove(struct vault *v, json_t *req, json_t *ret, struct den_err *err)
{
	const char *name;

	if (name_member(req, &name, err) < 0 || seal_remove(v, SEAL_SECRET, name, err) < 0)
		return -1;
	json_object_set_new(ret, "name", json_string(name));
	return 0;
}

static int get_one(
	const struct vault *v, const char *name, json_t *values, size_t *bytes, struct den_err *err)
{
	auto_secure uint8_t *p = NULL;
	auto_secure char *text = NULL;
	size_t n;

	if (secret_name_check(name, err) < 0)
		return -1;
	if (secret_read(v, name, &p, &n, err) < 0)
		return -1;
	n -= HEAD;
	*bytes += n;
	if (*bytes > GET_BYTES_MAX)
		return den_fail(err, DEN_LIMIT, 0,
			"these secrets have more than %u bytes; ask for fewer at once",
			GET_BYTES_MAX);
	text = secure_alloc(B64_SIZE(n), err);
	if (!text)
		return -1;
	b64_put(text, p + HEAD, n, B64_STD);
	if (json_object_set_new(values, name, json_string(text)) < 0)
		return den_fail(err, DEN_LIMIT, 0, "memory for secrets");
	return 0;
}

int op_secret_get(struct vault *v, json_t *req, json_t *ret, struct den_err *err)
{
	const json_t *names = json_object_get(req, "names"), *name;
	json_t *values = json_object();
	size_t i, bytes = 0;

	json_object_set_new(ret, "values", values);
	if (!json_is_array(names) || !json_array_size(names) ||
		json_array_size(names) > GET_NAMES_MAX)
		return den_fail(err, DEN_INVALID, 0, "'names' must be a list of 1 to %d names",
			GET_NAMES_MAX);
	json_array_foreach((json_t *)names, i, name)
	{
		if (!json_is_string(name))
			return den_fail(err, DEN_INVALID, 0, "'names' must be a list of texts");
		if (get_one(v, json_string_value(name), values, &bytes, err) < 0)
			return -1;
	}
	return 0;
}

/* ---- placeholders ---- */

/* Even over 36 letters: bytes from 252 up are passed over. */
static bool letters(const uint8_t *p, size_t n, char *out, size_t *have)
{
	for (size_t i = 0; i < n && *have < PLACEHOLDER_LEN; i++)
		if (p[i] < 252)
			out[(*have)++] = "abcdefghijklmnopqrstuvwxyz0123456789"[p[i] % 36];
	return *have == PLACEHOLDER_LEN;
}

/*
 * The same for the same box, secret and salt, so a restarted gate knows it again without a file; to
 * everybody without the master key it is random, and says nothing of the value.
 */
static int placeholder_make(const struct vault *v, const char *box, const char *name,
	const char *salt, char *out, struct den_err *err)
{
	auto_secure uint8_t *key = secure_alloc(32, err);
	size_t have = 0;
	char text[512];

	if (!key || vault_derive(v, "den placeholder 1", "", key, 32, err) < 0)
		return -1;
	for (unsigned round = 0;; round++) {
		uint8_t mac[64];
		unsigned n = sizeof(mac);
		int len = snprintf(text, sizeof(text), "%s/%s/%u/%s", box, name, round, salt);

		if (!HMAC(EVP_sha512(), key, 32, (const uint8_t *)text, (size_t)len, mac, &n))
			return crypto_fail(err, "placeholder");
		if (letters(mac, n, out, &have))
			return 0;
	}
}

int op_placeholder(struct vault *v, json_t *req, json_t *ret, struct den_err *err)
{
	const char *box, *name, *salt, *prefix;
	char text[32 + 4 + PLACEHOLDER_LEN + 1];
	struct box_id id;
	size_t n;

	if (member_text(req, "box", 64, true, &box, err) < 0 || box_id_parse(box, &id, err) < 0 ||
		name_member(req, &name, err) < 0 ||
		member_text(req, "salt", 128, false, &salt, err) < 0 ||
		member_text(req, "prefix", 32, false, &prefix, err) < 0)
		return -1;
	for (const char *p = prefix ? prefix : ""; *p; p++)
		if (!isascii(*p) || (!isalnum(*p) && *p != '-' && *p != '_'))
			return den_fail(
				err, DEN_INVALID, 0, "'prefix' is letters, digits, - and _");
	n = (size_t)snprintf(text, sizeof(text), "%sden_", prefix ? prefix : "");
	if (placeholder_make(v, id.s, name, salt ? salt : "", text + n, err) < 0)
		return -1;
	text[n + PLACEHOLDER_LEN] = '\0';
	json_object_set_new(ret, "placeholder", json_string(text));
	return 0;
}
