/* Asking den-vault: one process for one request, with a pipe each way. */
#include "vault.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "clock.h"
#include "fd.h"
#include "gate.h"
#include "program.h"

#define DEADLINE_MS 10000
#define REPLY_MAX (2U << 20)

/* ---- the process ---- */

static int vault_spawn(
	const char *program, const char *state, int in, int out, pid_t *ret, struct den_err *err)
{
	char *argv[] = { (char *)"den-vault", (char *)state, NULL }, *env[] = { NULL };
	posix_spawn_file_actions_t acts;
	int r;

	posix_spawn_file_actions_init(&acts);
	r = posix_spawn_file_actions_adddup2(&acts, in, 0);
	if (!r)
		r = posix_spawn_file_actions_adddup2(&acts, out, 1);
	if (!r)
		r = posix_spawn(ret, program, &acts, NULL, argv, env);
	posix_spawn_file_actions_destroy(&acts);
	return r ? den_fail_sys(err, r, "run '%.120s'", program) : 0;
}

/* Until fd is ready or time is up. */
static int ready(int fd, short events, int64_t deadline, struct den_err *err)
{
	struct pollfd p = { .fd = fd, .events = events };
	int64_t left = (deadline - clock_mono_ns()) / NS_PER_MS;
	int r = poll(&p, 1, left > 0 ? (int)left : 0);

	if (r > 0 || (r < 0 && errno == EINTR))
		return 0;
	return r < 0 ? den_fail_sys(err, errno, "poll")
		     : den_fail(err, DEN_TIMEOUT, 0, "den-vault gave no answer in %d s",
			       DEADLINE_MS / 1000);
}

static int request_send(int fd, const char *p, size_t n, int64_t deadline, struct den_err *err)
{
	fd_set_nonblock(fd, true);
	while (n) {
		ssize_t w = write(fd, p, n);

		if (w > 0) {
			p += w;
			n -= (size_t)w;
		} else if (errno == EPIPE) {
			return 0; /* its answer says why */
		} else if (errno != EAGAIN && errno != EINTR) {
			return den_fail_sys(err, errno, "ask den-vault");
		} else if (ready(fd, POLLOUT, deadline, err) < 0) {
			return -1;
		}
	}
	return 0;
}

static int reply_read(int fd, struct buf *out, int64_t deadline, struct den_err *err)
{
	/* all at once: a buffer that grows leaves copies of a secret behind */
	buf_reserve(out, REPLY_MAX);
	fd_set_nonblock(fd, true);
	for (;;) {
		ssize_t r = read(fd, out->p + out->len, REPLY_MAX - out->len);

		if (r == 0)
			return 0;
		if (r > 0)
			out->len += (size_t)r;
		else if (errno != EAGAIN && errno != EINTR)
			return den_fail_sys(err, errno, "read from den-vault");
		else if (ready(fd, POLLIN, deadline, err) < 0)
			return -1;
		if (out->len == REPLY_MAX)
			return den_fail(err, DEN_INTERNAL, 0, "den-vault's answer is too long");
	}
}

static int vault_run(
	const char *state, const char *request, size_t n, struct buf *reply, struct den_err *err)
{
	auto_free char *program = program_find("den-vault", DEN_LIBEXEC);
	int64_t deadline = clock_mono_ns() + DEADLINE_MS * NS_PER_MS;
	int in[2] = { -1, -1 }, out[2] = { -1, -1 }, r;
	pid_t pid = 0;

	if (!program)
		return den_fail(err, DEN_UNSUPPORTED, 0,
			"den-vault, which keeps secrets, is neither beside den nor "
			"in " DEN_LIBEXEC);
	if (pipe2(in, O_CLOEXEC) < 0 || pipe2(out, O_CLOEXEC) < 0)
		r = den_fail_sys(err, errno, "pipe");
	else
		r = vault_spawn(program, state, in[0], out[1], &pid, err);
	fd_close(&in[0]);
	fd_close(&out[1]);
	if (r == 0)
		r = request_send(in[1], request, n, deadline, err);
	fd_close(&in[1]);
	if (r == 0)
		r = reply_read(out[0], reply, deadline, err);
	fd_close(&out[0]);
	if (pid > 0 && r < 0)
		kill(pid, SIGKILL);
	/* it has closed its output and ends, or was just ended */
	while (pid > 0 && waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		;
	return r;
}

/* ---- JSON ---- */

void vault_wipe(json_t *j)
{
	const char *key;
	json_t *v;
	size_t i;

	if (json_is_string(j)) {
		explicit_bzero((char *)json_string_value(j), json_string_length(j));
	} else if (json_is_object(j)) {
		json_object_foreach(j, key, v) vault_wipe(json_incref(v));
	} else if (json_is_array(j)) {
		json_array_foreach(j, i, v) vault_wipe(json_incref(v));
	}
	json_decref(j);
}

static enum den_code code_of(const char *text)
{
	for (int i = DEN_INVALID; i < ERR_CODES; i++)
		if (text && !strcmp(den_code_str((enum den_code)i), text))
			return (enum den_code)i;
	return DEN_INTERNAL;
}

/* The "ok" of an answer, or its "error". */
static int reply_parse(const struct buf *b, json_t **ret, struct den_err *err)
{
	json_t *whole = json_loadb(b->p ? b->p : "", b->len, JSON_REJECT_DUPLICATES, NULL);
	json_t *ok = json_object_get(whole, "ok"), *bad = json_object_get(whole, "error");
	const char *msg = json_string_value(json_object_get(bad, "message"));
	int r = -1;

	if (json_is_object(ok)) {
		*ret = json_incref(ok);
		r = 0;
	} else if (bad && msg) {
		den_fail(err, code_of(json_string_value(json_object_get(bad, "code"))), 0, "%s",
			msg);
	} else {
		den_fail(err, DEN_INTERNAL, 0, "den-vault ended without an answer");
	}
	json_decref(whole);
	return r;
}

static int text_call(
	const char *state, const char *text, size_t n, json_t **ret, struct den_err *err)
{
	auto_buf reply = { 0 };
	int r = vault_run(state, text, n, &reply, err);

	if (r == 0)
		r = reply_parse(&reply, ret, err);
	if (reply.p)
		explicit_bzero(reply.p, reply.len);
	return r;
}

int vault_call(const char *state, json_t *request, json_t **ret, struct den_err *err)
{
	char *text = json_dumps(request, JSON_COMPACT);
	int r;

	if (!text)
		return den_fail(
			err, DEN_INVALID, 0, "a request to the vault with bytes that are no text");
	r = text_call(state, text, strlen(text), ret, err);
	explicit_bzero(text, strlen(text));
	free(text);
	return r;
}

/* A text of the answer, copied. */
static int text_of(const json_t *j, const char *key, char **ret, struct den_err *err)
{
	const char *s = json_string_value(json_object_get(j, key));

	if (!s)
		return den_fail(err, DEN_INTERNAL, 0, "den-vault's answer has no '%s'", key);
	*ret = mem_strdup(s);
	return 0;
}

/* ---- what the keeper asks ---- */

int vault_secrets(const char *state, const char *const *names, json_t **ret, struct den_err *err)
{
	json_t *list = json_array(),
	       *req = json_pack("{s:s, s:o}", "op", "secret.get", "names", list), *ok = NULL;
	int r;

	for (; names && *names; names++)
		json_array_append_new(list, json_string(*names));
	r = vault_call(state, req, &ok, err);
	json_decref(req);
	if (r < 0)
		return -1;
	if (json_is_object(json_object_get(ok, "values")))
		*ret = json_incref(json_object_get(ok, "values"));
	else
		r = den_fail(err, DEN_INTERNAL, 0, "den-vault's answer has no 'values'");
	json_decref(ok);
	return r;
}

int vault_placeholder(const char *state, const char *box, const char *name, const char *salt,
	const char *prefix, char **ret, struct den_err *err)
{
	json_t *req = json_pack("{s:s, s:s, s:s, s:s*, s:s*}", "op", "placeholder", "box", box,
		"name", name, "salt", salt, "prefix", prefix);
	json_t *ok = NULL;
	int r = vault_call(state, req, &ok, err);

	json_decref(req);
	if (r == 0)
		r = text_of(ok, "placeholder", ret, err);
	json_decref(ok);
	return r;
}

int vault_box_ca(const char *state, const char *box, int64_t created_ms, char **ret_cert,
	char **ret_key, struct den_err *err)
{
	json_t *req = json_pack("{s:s, s:s, s:I}", "op", "box_ca", "box", box, "not_before",
		(json_int_t)(created_ms / 1000));
	auto_free char *cert = NULL;
	json_t *ok = NULL;
	int r = vault_call(state, req, &ok, err);

	json_decref(req);
	if (r == 0)
		r = text_of(ok, "cert", &cert, err);
	if (r == 0)
		r = text_of(ok, "key", ret_key, err);
	if (r == 0)
		*ret_cert = mem_take(&cert);
	vault_wipe(ok);
	return r;
}

/* ---- tokens ---- */

static bool granted(const char *const *list, const char *audience)
{
	for (; list && *list; list++)
		if (!strcmp(*list, audience))
			return true;
	return false;
}

static json_t *den_claims(struct keeper *k, const struct token_grant *g)
{
	const struct box_spec *s = &k->row.info.spec;
	const char *made_of = k->row.version ? k->row.version : s->template_name;
	json_t *o = json_pack("{s:s*, s:s*, s:s, s:s*, s:I}", "org", g->org, "task", g->task, "box",
		k->id.s, "template", made_of, "policy_generation", (json_int_t)g->generation);

	if (g->scopes && *g->scopes) {
		json_t *list = json_array();

		for (size_t i = 0; g->scopes[i]; i++)
			json_array_append_new(list, json_string(g->scopes[i]));
		json_object_set_new(o, "scopes", list);
	}
	if (s->from) /* "ID@N": of a fork */
		json_object_set_new(o, "parent", json_stringn(s->from, strcspn(s->from, "@")));
	return o;
}

int token_make(struct keeper *k, const struct token_grant *g, const char *audience, const char *alg,
	char **ret, struct den_err *err)
{
	json_t *req, *ok = NULL;
	auto_buf sub = { 0 };
	int r;

	if (!granted(g->audiences, audience))
		return den_fail(err, DEN_DENIED, 0,
			"the policy of this box (generation %llu) grants no token for '%.100s'; "
			"add it to "
			"identity.audiences of the policy",
			(unsigned long long)g->generation, audience);
	buf_addf(&sub, "box:%s", k->id.s);
	req = json_pack("{s:s, s:s, s:i, s:{s:s*, s:s, s:s, s:o}}", "op", "token.sign", "alg",
		alg ? alg : "EdDSA", "ttl", g->ttl_s ? (int)g->ttl_s : 600, "claims", "iss",
		g->issuer, "sub", buf_str(&sub), "aud", audience, "den", den_claims(k, g));
	if (!req)
		return den_fail(err, DEN_INVALID, 0, "a claim is no text in UTF-8");
	r = vault_call(k->store->path, req, &ok, err);
	json_decref(req);
	if (r == 0)
		r = text_of(ok, "token", ret, err);
	json_decref(ok);
	return r;
}

int gate_token(struct keeper *k, const char *audience, const char *alg, bool gate, char **ret,
	struct den_err *err)
{
	const struct policy *p = k->gate ? k->gate->policy : NULL;
	struct token_grant g = { .generation = k->row.info.generation };
	const char *const added[] = { audience, NULL };

	if (!k->gate && gate_prepare(k, err) < 0) /* of a box that is down */
		return -1;
	p = k->gate->policy;
	g.org = p->identity.org;
	g.task = p->identity.task;
	g.scopes = (const char *const *)p->identity.scopes;
	g.audiences = (const char *const *)p->identity.audiences;
	for (unsigned i = 0; gate && i < p->identity.n_adds; i++)
		if (!strcmp(p->identity.adds[i].audience, audience))
			g.audiences = added;
	return token_make(k, &g, audience, alg, ret, err);
}

int req_token(struct client *c, const struct wire_frame *f, struct buf *out, struct den_err *err)
{
	auto_free char *audience = NULL, *alg = NULL, *token = NULL;

	if (field_str(f, F_NAME, 512, &audience, err) < 0 ||
		field_str(f, F_RULE, 16, &alg, err) < 0)
		return -1;
	if (!audience || !*audience)
		return den_fail(err, DEN_INVALID, 0, "for which audience?");
	if (gate_token(c->k, audience, alg, false, &token, err) < 0)
		return -1;
	wire_put_str(out, F_MSG, token);
	return 0;
}

/* ---- what clients ask ---- */

/* Clients own the state directory and could read all of it; but no value leaves through here, so
 * that no program of den ever shows one. */
static const struct {
	const char *op;
	bool changes; /* a secret */
} open_to_clients[] = {
	{ "secret.set", true },
	{ "secret.rotate", true },
	{ "secret.remove", true },
	{ "secret.list", false },
	{ "ident.jwks", false },
	{ "ident.rotate", false },
	{ "ident.openid", false },
	{ "ident.issuer", false },
};

/* Lists as fields, for a library that reads no JSON. */
static void put_secrets(const json_t *ok, struct buf *out)
{
	const json_t *list = json_object_get(ok, "secrets"), *s;
	size_t i;

	json_array_foreach((json_t *)list, i, s)
	{
		auto_buf rec = { 0 };

		wire_put_str(&rec, F_NAME, json_string_value(json_object_get(s, "name")));
		wire_put_u64(&rec, F_CREATED_MS,
			(uint64_t)json_integer_value(json_object_get(s, "created_ms")));
		wire_put_u64(&rec, F_MTIME_NS,
			(uint64_t)json_integer_value(json_object_get(s, "changed_ms")) * NS_PER_MS);
		wire_put_str(&rec, F_DETAIL, json_string_value(json_object_get(s, "damaged")));
		wire_put_bytes(out, F_RECORD, rec.p, rec.len);
	}
}

static int put_reply(const json_t *ok, struct buf *out, struct den_err *err)
{
	char *text = json_dumps(ok, JSON_COMPACT);

	if (!text)
		return den_fail(err, DEN_INTERNAL, 0, "den-vault's answer");
	wire_put_str(out, F_CONFIG, text);
	free(text);
	wire_put_str(out, F_MSG, json_string_value(json_object_get(ok, "issuer")));
	put_secrets(ok, out);
	if (out->len > WIRE_MAX_PAYLOAD - 64)
		return den_fail(err, DEN_LIMIT, 0, "the answer is too long");
	return 0;
}

int vault_request_op(const struct wire_frame *f, char **ret, struct den_err *err)
{
	auto_free char *text = NULL;
	json_t *req;
	int r;

	if (field_str(f, F_CONFIG, WIRE_MAX_PAYLOAD, &text, err) < 0)
		return -1;
	req = json_loads(text ? text : "", JSON_REJECT_DUPLICATES, NULL);
	r = json_is_string(json_object_get(req, "op")) ? text_of(req, "op", ret, err) :
							 den_fail(err, DEN_INVALID, 0, "no request to the vault");
	vault_wipe(req);
	if (text)
		explicit_bzero(text, strlen(text));
	return r;
}

int req_vault(struct client *c, const struct wire_frame *f, struct buf *out, struct den_err *err)
{
	auto_free char *text = NULL;
	json_t *req, *ok = NULL;
	const char *op;
	int r = -1;

	if (field_str(f, F_CONFIG, WIRE_MAX_PAYLOAD, &text, err) < 0)
		return -1;
	req = json_loads(text ? text : "", JSON_REJECT_DUPLICATES, NULL);
	op = json_string_value(json_object_get(req, "op"));
	den_fail(err, DEN_DENIED, 0, "'%.40s' is nothing that the vault does for a client",
		op ? op : "");
	for (size_t i = 0; op && i < ARRAY_SIZE(open_to_clients); i++) {
		if (strcmp(open_to_clients[i].op, op))
			continue;
		r = text_call(c->k->store->path, text, strlen(text), &ok, err);
		if (r == 0 && open_to_clients[i].changes)
			r = policy_users(c->k->store,
				json_string_value(json_object_get(req, "name")), NULL, true, out,
				err);
	}
	if (r == 0)
		r = put_reply(ok, out, err);
	json_decref(ok);
	vault_wipe(req);
	if (text)
		explicit_bzero(text, strlen(text));
	return r;
}
