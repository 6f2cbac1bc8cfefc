#include "key_verb.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "fd.h"
#include "json.h"
#include "keys.h"
#include "mem.h"

int key_fail(const struct settings *s, const struct den_err *err)
{
	struct json j = { 0 };

	if (!s->json) {
		fprintf(stderr, "den: key: %s\n", err->msg);
		return err_exit_status(err->code);
	}
	json_open(&j, NULL, '{');
	json_open(&j, "error", '{');
	json_str(&j, "code", den_code_str(err->code));
	json_str(&j, "message", err->msg);
	json_close(&j, '}');
	json_close(&j, '}');
	fprintf(stderr, "%s\n", buf_str(&j.b));
	buf_free(&j.b);
	return err_exit_status(err->code);
}

static void scope_json(const char *name, void *user)
{
	json_str(user, NULL, name);
}

static void key_json(struct json *j, const struct key_info *k, const char *text)
{
	const struct quota *q = &k->who.quota;

	json_open(j, NULL, '{');
	json_str(j, "id", k->who.key);
	json_str(j, "org", k->who.org);
	json_str(j, "name", k->who.name);
	json_open(j, "scopes", '[');
	key_scope_each(k->who.scopes, scope_json, j);
	json_close(j, ']');
	json_open(j, "quota", '{');
	json_u64(j, "boxes", q->boxes);
	json_u64(j, "cpu_milli", q->cpu_milli);
	json_u64(j, "memory", q->memory);
	json_u64(j, "disk", q->disk);
	json_u64(j, "rate", q->rate);
	json_close(j, '}');
	json_time(j, "created", k->created_ms);
	json_time(j, "revoked", k->revoked_ms);
	if (text)
		json_str(j, "key", text);
	json_close(j, '}');
}

static int print(struct buf *b)
{
	int r;

	buf_addstr(b, "\n");
	r = fd_write_all(STDOUT_FILENO, b->p, b->len, NULL);
	explicit_bzero(b->p, b->len);
	buf_free(b);
	return r < 0 ? 1 : 0;
}

static int create(const struct settings *s, struct den_err *err)
{
	struct json j = { 0 };
	char text[KEY_TEXT];
	struct key_info k;

	if (keys_create(s->org, s->name, s->scopes, &s->quota, text, &k, err) < 0)
		return -1;
	if (s->json)
		key_json(&j, &k, text);
	else
		buf_addstr(&j.b, text);
	explicit_bzero(text, sizeof(text));
	if (!s->json) /* the key alone is on standard output, for scripts */
		fprintf(stderr, "den: key %s of %s, told this once; 'den key revoke %s' ends it\n", k.who.key, k.who.org, k.who.key);
	return print(&j.b);
}

static void scope_text(const char *name, void *user)
{
	struct buf *b = user;

	buf_addf(b, "%s%s", b->len ? "," : "", name);
}

static int list(const struct settings *s, struct den_err *err)
{
	struct json j = { 0 };
	struct key_info *k;
	size_t n;

	if (keys_list(s->org, &k, &n, err) < 0)
		return -1;
	if (s->json) {
		json_open(&j, NULL, '[');
		for (size_t i = 0; i < n; i++)
			key_json(&j, &k[i], NULL);
		json_close(&j, ']');
	} else {
		buf_addf(&j.b, "%-16s  %-16s  %-20s  %-8s  %s", "ID", "ORG", "NAME", "STATE", "SCOPES");
		for (size_t i = 0; i < n; i++) {
			auto_buf scopes = { 0 }, name = { 0 };

			key_scope_each(k[i].who.scopes, scope_text, &scopes);
			text_printable(&name, k[i].who.name, strlen(k[i].who.name));
			buf_addf(&j.b, "\n%-16s  %-16s  %-20s  %-8s  %s", k[i].who.key, k[i].who.org, buf_str(&name),
				k[i].revoked_ms ? "revoked" : "works", buf_str(&scopes));
		}
	}
	free(k);
	return print(&j.b);
}

int key_verb(const struct settings *s)
{
	struct den_err err;
	int r;

	if (!strcmp(s->verb, "create"))
		r = create(s, &err);
	else if (!strcmp(s->verb, "ls"))
		r = list(s, &err);
	else
		r = keys_revoke(s->org, s->id, &err);
	return r < 0 ? key_fail(s, &err) : r;
}
