/* Secrets and identity: the clerk passes these on to den-vault. */
#include <stdlib.h>
#include <string.h>

#include "b64.h"
#include "json.h"
#include "lib.h"
#include "mem.h"

#define VALUE_MAX (64U << 10)
#define ASK_ROOM (B64_SIZE(VALUE_MAX) + 4096)

/* A request of texts: names and values in turn; a NULL value is left out. */
static int vault_ask(struct den *d, const char *op, const char *const *pairs, struct buf *out,
	struct den_err *err)
{
	struct json j = { 0 };
	auto_buf req = { 0 };
	int r;

	buf_reserve(&j.b, ASK_ROOM); /* growing would leave copies of a secret behind */
	buf_reserve(&req, ASK_ROOM);
	json_open(&j, NULL, '{');
	json_str(&j, "op", op);
	for (; pairs && pairs[0]; pairs += 2)
		if (pairs[1])
			json_str(&j, pairs[0], pairs[1]);
	json_close(&j, '}');
	wire_put_bytes(&req, F_CONFIG, j.b.p, j.b.len);
	r = clerk_ask(d, WM_VAULT, &req, 0, out, err);
	explicit_bzero(j.b.p, j.b.len);
	explicit_bzero(req.p, req.len);
	buf_free(&j.b);
	return r;
}

static int answer_text(const struct buf *b, uint16_t tag, char **ret, struct den_err *err)
{
	struct wire_reader rd = wire_reader(b->p, b->len);
	struct wire_value v;

	if (!ret)
		return 0;
	while (wire_next(&rd, &v, NULL) > 0)
		if (v.tag == tag)
			return wire_str(&v, WIRE_MAX_PAYLOAD, ret, err);
	return den_fail(err, DEN_INTERNAL, 0, "the answer lacks what was asked for");
}

/* ---- secrets ---- */

static int secret_put(struct den *d, const char *op, const char *name, const void *value,
	size_t len, struct den_err *err)
{
	auto_free char *text = NULL;
	const char *pairs[] = { "name", name, "value", NULL, NULL };
	auto_buf out = { 0 };
	int r;

	if (!name || len > VALUE_MAX)
		return name ? den_fail(err, DEN_LIMIT, 0,
				      "the value of a secret has at most %u bytes", VALUE_MAX)
			    : den_fail(err, DEN_INVALID, 0, "which secret?");
	text = mem_alloc(B64_SIZE(len));
	b64_put(text, value, len, B64_STD);
	pairs[3] = text;
	r = vault_ask(d, op, pairs, &out, err);
	explicit_bzero(text, B64_SIZE(len));
	return r < 0 ? -1 : net_reload(d, &out, err);
}

int den_secret_set(
	struct den *d, const char *name, const void *value, size_t len, struct den_err *err)
{
	return secret_put(d, "secret.set", name, value, len, err);
}

int den_secret_rotate(
	struct den *d, const char *name, const void *value, size_t len, struct den_err *err)
{
	return secret_put(d, "secret.rotate", name, value, len, err);
}

int den_secret_remove(struct den *d, const char *name, struct den_err *err)
{
	auto_buf out = { 0 };

	if (vault_ask(d, "secret.remove", (const char *const[]){ "name", name, NULL }, &out, err) < 0)
		return -1;
	return net_reload(d, &out, err);
}

static int secret_read(const struct wire_value *rec, struct den_secret *s, struct den_err *err)
{
	struct wire_reader rd = wire_reader(rec->p, rec->len);
	auto_free char *name = NULL, *damaged = NULL;
	struct wire_value v;
	uint64_t u;
	int r;

	while ((r = wire_next(&rd, &v, err)) > 0) {
		if (v.tag == F_NAME || v.tag == F_DETAIL) {
			if (wire_str(&v, 1024, v.tag == F_NAME ? &name : &damaged, err) < 0)
				return -1;
			continue;
		}
		if (wire_u64(&v, INT64_MAX, &u, err) < 0)
			return -1;
		if (v.tag == F_CREATED_MS)
			s->created_ms = (int64_t)u;
		else if (v.tag == F_MTIME_NS)
			s->changed_ms = (int64_t)(u / 1000000);
		else
			return wire_unexpected(&v, err);
	}
	if (r < 0 || !name)
		return r < 0 ? -1 : den_fail(err, DEN_INTERNAL, 0, "a secret without a name");
	s->name = mem_take(&name);
	s->damaged = mem_take(&damaged);
	return 0;
}

int den_secret_list(struct den *d, struct den_secret **ret, size_t *ret_n, struct den_err *err)
{
	struct den_secret *list = mem_zalloc(1);
	struct wire_reader rd;
	struct wire_value v;
	auto_buf out = { 0 };
	size_t n = 0;

	if (vault_ask(d, "secret.list", NULL, &out, err) < 0) {
		free(list);
		return -1;
	}
	rd = wire_reader(out.p, out.len);
	while (wire_next(&rd, &v, NULL) > 0) {
		if (v.tag != F_RECORD)
			continue;
		list = mem_realloc(list, (n + 1) * sizeof(*list));
		list[n] = (struct den_secret){ 0 };
		if (secret_read(&v, &list[n], err) < 0) {
			den_secrets_free(list, n);
			return -1;
		}
		n++;
	}
	*ret = list;
	*ret_n = n;
	return 0;
}

void den_secrets_free(struct den_secret *s, size_t n)
{
	for (size_t i = 0; s && i < n; i++) {
		free((char *)s[i].name);
		free((char *)s[i].damaged);
	}
	free(s);
}

/* ---- identity ---- */

int den_token(
	struct den_box *box, const char *audience, const char *alg, char **ret, struct den_err *err)
{
	auto_buf req = { 0 }, out = { 0 };

	wire_put_str(&req, F_NAME, audience);
	wire_put_str(&req, F_RULE, alg);
	return box_ask(box, WM_TOKEN, &req, 0, &out, err) < 0 ? -1
							      : answer_text(&out, F_MSG, ret, err);
}

int den_ident_jwks(struct den *d, char **ret, struct den_err *err)
{
	auto_buf out = { 0 };

	return vault_ask(d, "ident.jwks", NULL, &out, err) < 0
		       ? -1
		       : answer_text(&out, F_CONFIG, ret, err);
}

int den_ident_openid(struct den *d, const char *issuer, char **ret, struct den_err *err)
{
	const char *const pairs[] = { "issuer", issuer, NULL };
	auto_buf out = { 0 };

	return vault_ask(d, "ident.openid", pairs, &out, err) < 0
		       ? -1
		       : answer_text(&out, F_CONFIG, ret, err);
}

int den_ident_issuer(struct den *d, const char *issuer, char **ret, struct den_err *err)
{
	const char *const pairs[] = { "issuer", issuer, NULL };
	auto_buf out = { 0 };

	return vault_ask(d, "ident.issuer", pairs, &out, err) < 0
		       ? -1
		       : answer_text(&out, F_MSG, ret, err);
}

int den_ident_rotate(struct den *d, const char *alg, char **ret, struct den_err *err)
{
	const char *const pairs[] = { "alg", alg, NULL };
	auto_buf out = { 0 };

	return vault_ask(d, "ident.rotate", pairs, &out, err) < 0
		       ? -1
		       : answer_text(&out, F_CONFIG, ret, err);
}
