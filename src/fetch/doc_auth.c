/* JSON around logging in: tokens, refusals, the file with passwords. */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "base64.h"
#include "doc.h"
#include "doc_json.h"
#include "mem.h"

#define TOKEN_MAX 32768

int token_parse(const char *text, size_t n, char **ret, struct den_err *err)
{
	auto_json *j = NULL;
	const char *token;

	if (doc_load(text, n, &j, err) < 0)
		return -1;
	token = doc_string(j, "token");
	if (!token || !*token)
		token = doc_string(j, "access_token");
	if (!token || !*token || strlen(token) > TOKEN_MAX)
		return den_fail(err, DEN_INVALID, 0, "it holds no token");
	for (const char *p = token; *p; p++) /* it becomes a header's value */
		if (!isgraph((unsigned char)*p))
			return den_fail(
				err, DEN_INVALID, 0, "its token has a character that no token has");
	*ret = mem_strdup(token);
	return 0;
}

void refusal_parse(const char *text, size_t n, char ret[static 120])
{
	auto_json *j = NULL;
	const json_t *first;
	const char *message, *code;

	ret[0] = '\0';
	if (doc_load(text, n, &j, NULL) < 0)
		return;
	first = json_array_get(json_object_get(j, "errors"), 0);
	message = doc_string(first, "message");
	code = doc_string(first, "code");
	if (message && *message)
		snprintf(ret, 120, "%s", message);
	else if (code)
		snprintf(ret, 120, "%s", code);
}

static char *string_dup(const json_t *object, const char *key)
{
	const char *s = doc_string(object, key);

	return s && *s ? mem_strdup(s) : NULL;
}

static int login_get(const json_t *entry, struct login *l, struct den_err *err)
{
	const char *packed = doc_string(entry, "auth"), *colon;
	auto_buf plain = { 0 };

	l->bearer = string_dup(entry, "registrytoken");
	l->refresh = string_dup(entry, "identitytoken");
	l->user = string_dup(entry, "username");
	l->password = string_dup(entry, "password");
	if (!packed || !*packed || (l->user && l->password))
		return 0;
	if (base64_get(packed, &plain) < 0 || strlen(buf_str(&plain)) != plain.len)
		return den_fail(err, DEN_INVALID, 0, "its 'auth' is not base64 of a text");
	colon = strchr(buf_str(&plain), ':');
	if (!colon)
		return den_fail(err, DEN_INVALID, 0, "its 'auth' is not base64 of USER:PASSWORD");
	free(l->user);
	free(l->password);
	l->user = mem_strndup(plain.p, (size_t)(colon - plain.p));
	l->password = mem_strdup(colon + 1);
	return 0;
}

/* How much of the image's name a key says: 0, nothing. Keys are "host", "host/team" or
 * "host/team/tool", of which the longest counts, or "https://host/v1/", which means the host. */
static size_t key_fits(const char *key, const char *host, const char *name)
{
	size_t n = strlen(host);

	if (!strncmp(key, "https://", 8) || !strncmp(key, "http://", 7)) {
		key = strchr(key, '/') + 2;
		return !strncmp(key, host, n) && (!key[n] || key[n] == '/') ? n : 0;
	}
	n = strlen(key);
	return n && !strncmp(key, name, n) && (!name[n] || name[n] == '/') ? n : 0;
}

int auth_file_parse(const char *text, size_t n, const char *host, const char *repo,
	struct login *ret, bool *helper, struct den_err *err)
{
	json_t *auths, *entry = NULL, *value;
	struct login l = { 0 };
	auto_json *j = NULL;
	auto_buf name = { 0 };
	const char *key;
	size_t best = 0;

	if (doc_load(text, n, &j, err) < 0)
		return -1;
	buf_addf(&name, "%s/%s", host, repo);
	auths = json_object_get(j, "auths");
	json_object_foreach(auths, key, value)
	{
		size_t fits = key_fits(key, host, buf_str(&name));

		/* of two that mean the host, its plain name */
		if (fits > best || (fits && fits == best && !strcmp(key, host))) {
			entry = value;
			best = fits;
		}
	}
	if (entry && login_get(entry, &l, err) < 0) {
		login_free(&l);
		return den_wrap(err, "entry for '%.60s'", host);
	}
	*helper = doc_string(j, "credsStore") ||
		  json_object_get(json_object_get(j, "credHelpers"), host);
	*ret = l;
	return 0;
}

static void secret_free(char **s)
{
	if (*s)
		explicit_bzero(*s, strlen(*s));
	free(*s);
	*s = NULL;
}

void login_free(struct login *l)
{
	secret_free(&l->user);
	secret_free(&l->password);
	secret_free(&l->bearer);
	secret_free(&l->refresh);
}
