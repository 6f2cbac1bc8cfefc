/* den-vault STATE: one request from stdin, its answer to stdout, 0 or 1. */
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "fd.h"
#include "mem.h"
#include "vault.h"

#define REQUEST_MAX (1U << 20)
#define FILE_MAX (1U << 20) /* of a file that we write */

static const struct {
	const char *op, *members;
	int (*run)(struct vault *v, json_t *req, json_t *ret, struct den_err *err);
} operations[] = {
	{ "secret.set", "op name value", op_secret_set },
	{ "secret.rotate", "op name value", op_secret_rotate },
	{ "secret.list", "op", op_secret_list },
	{ "secret.remove", "op name", op_secret_remove },
	{ "secret.get", "op names", op_secret_get },
	{ "placeholder", "op box name salt prefix", op_placeholder },
	{ "box_ca", "op box not_before", op_box_ca },
	{ "token.sign", "op alg ttl claims", op_token_sign },
	{ "ident.jwks", "op", op_ident_jwks },
	{ "ident.rotate", "op alg", op_ident_rotate },
	{ "ident.openid", "op issuer", op_ident_openid },
	{ "ident.issuer", "op issuer", op_ident_issuer },
};

/* ---- reading a request ---- */

static int request_read(json_t **ret, struct den_err *err)
{
	auto_secure char *p = secure_alloc(4096, err);
	size_t cap = 4096, n = 0;
	json_error_t why;
	ssize_t r;

	while (p) {
		auto_secure char *old = NULL;

		r = read(STDIN_FILENO, p + n, cap - n);
		if (r < 0 && errno == EINTR)
			continue;
		if (r < 0)
			return den_fail_sys(err, errno, "read the request");
		if (r == 0)
			break;
		n += (size_t)r;
		if (n < cap)
			continue;
		if (cap >= REQUEST_MAX)
			return den_fail(err, DEN_LIMIT, 0, "the request has more than %u bytes",
				REQUEST_MAX);
		old = p;
		p = secure_alloc(cap * 2, err);
		if (p)
			memcpy(p, old, n);
		cap *= 2;
	}
	if (!p)
		return -1;
	*ret = json_loadb(p, n, JSON_REJECT_DUPLICATES, &why);
	if (!*ret) /* where, and nothing of what: it may be a secret */
		return den_fail(err, DEN_INVALID, 0, "the request is no JSON (line %d, column %d)",
			why.line, why.column);
	if (!json_is_object(*ret))
		return den_fail(err, DEN_INVALID, 0, "the request is no JSON object");
	return 0;
}

/* ---- answering ---- */

struct out {
	char *p;
	size_t n;
};
#define OUT_CAP (64U << 10)

static int out_piece(const char *p, size_t n, void *user)
{
	struct out *o = user;

	while (n) {
		size_t part = MIN(n, OUT_CAP - o->n);

		memcpy(o->p + o->n, p, part);
		o->n += part;
		p += part;
		n -= part;
		if (o->n == OUT_CAP) {
			if (fd_write_all(STDOUT_FILENO, o->p, o->n, NULL) < 0)
				return -1;
			o->n = 0;
		}
	}
	return 0;
}

static int answer(json_t *j)
{
	struct out o = { .p = OPENSSL_secure_malloc(OUT_CAP) };
	int r = -1;

	if (o.p && j && json_dump_callback(j, out_piece, &o, JSON_COMPACT) == 0 &&
		out_piece("\n", 1, &o) == 0)
		r = fd_write_all(STDOUT_FILENO, o.p, o.n, NULL);
	OPENSSL_secure_free(o.p);
	return r;
}

static int answer_failure(const struct den_err *err)
{
	auto_json json_t *j = json_pack(
		"{s:{s:s, s:s}}", "error", "code", den_code_str(err->code), "message", err->msg);

	if (!j) /* a message that quotes bytes which are no UTF-8 */
		j = json_pack("{s:{s:s, s:s}}", "error", "code", den_code_str(err->code), "message",
			"the request makes no sense");
	return answer(j);
}

/* ---- the way in ---- */

/*
 * Before the first byte is read. Capabilities: the files are ours, nothing else is needed; but
 * locking memory is done before.
 */
static int lock_down(struct den_err *err)
{
	struct __user_cap_header_struct h = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct d[2] = { 0 };
	struct rlimit none = { 0, 0 }, files = { 16, 16 }, size = { FILE_MAX, FILE_MAX };

	for (int fd = 0; fd <= 2; fd++) /* a file of ours must not become stdout */
		if (fcntl(fd, F_GETFD) < 0 && errno == EBADF)
			(void)!open("/dev/null", O_RDWR);
	fd_close_from(3);
	signal(SIGPIPE, SIG_IGN);
	signal(SIGXFSZ, SIG_IGN);
	clearenv();
	umask(077);
	setrlimit(RLIMIT_CORE, &none);
	setrlimit(RLIMIT_NPROC, &none);
	setrlimit(RLIMIT_FSIZE, &size);
	setrlimit(RLIMIT_NOFILE, &files);
	if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		return den_fail_sys(err, errno, "give up rights");
	if (memory_begin(err) < 0)
		return -1;
	return syscall(SYS_capset, &h, d) < 0 ? den_fail_sys(err, errno, "give up rights") : 0;
}

static int operate(const char *state, json_t *req, json_t *ret, struct den_err *err)
{
	struct vault v;
	const char *op;
	int r;

	if (member_text(req, "op", 32, true, &op, err) < 0)
		return -1;
	for (size_t i = 0; i < ARRAY_SIZE(operations); i++) {
		if (strcmp(operations[i].op, op))
			continue;
		if (members_known(req, op, operations[i].members, err) < 0)
			return -1;
		if (vault_open(state, &v, err) < 0)
			return den_wrap(err, "vault");
		r = operations[i].run(&v, req, ret, err);
		vault_close(&v);
		return r;
	}
	return den_fail(err, DEN_INVALID, 0, "'%s' is no operation of the vault", op);
}

int main(int argc, char **argv)
{
	auto_json json_t *req = NULL, *ret = NULL, *whole = NULL;
	struct den_err err = { 0 };
	int r = lock_down(&err);

	if (r == 0 && argc != 2)
		r = den_fail(&err, DEN_INVALID, 0,
			"den-vault STATE, with a request on stdin; den runs it");
	if (r == 0)
		r = request_read(&req, &err);
	if (r == 0) {
		ret = json_object();
		r = operate(argv[1], req, ret, &err);
	}
	if (r == 0) {
		whole = json_pack("{s:O}", "ok", ret);
		if (!whole)
			r = den_fail(&err, DEN_LIMIT, 0, "the answer is too long");
	}
	if (r < 0) {
		(void)answer_failure(&err);
		return 1;
	}
	return answer(whole) < 0;
}
