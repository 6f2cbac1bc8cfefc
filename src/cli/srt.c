#include "srt.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <string.h>
#include <unistd.h>

#include "fd.h"
#include "mem.h"
#include "parse.h"
#include "policy.h"
#include "strv.h"

#define SETTINGS_MAX (1 << 20)
#define DEPTH_DEFAULT 3 /* srt's, of the search for files that it protects */

static void json_freep(json_t **j)
{
	json_decref(*j);
}
#define auto_json __attribute__((cleanup(json_freep))) json_t *

void srt_free(struct srt *s)
{
	strv_free(s->allow);
	strv_free(s->deny);
	strv_free(s->mounts);
	strv_free(s->notes);
	free(s->workdir);
	*s = (struct srt){ 0 };
}

/* ---- domains --------------------------------------------------------------------------------- */

/* What a URL was meant to be. */
static int fail_url(const char *text, struct den_err *err)
{
	const char *host = strstr(text, "://");
	size_t n;

	host = host ? host + 3 : text;
	n = strcspn(host, "/?#");
	return den_fail(err, DEN_INVALID, 0,
		"'%.80s': a domain has no scheme and no path; write '%.*s'", text, (int)MIN(n, 80),
		host);
}

static int check_domain(const char *text, size_t host, bool deny, struct den_err *err)
{
	bool wild = !strncmp(text, "*.", 2);
	const char *name = wild ? text + 2 : text;
	size_t n = wild ? host - 2 : host;

	if (n && name[n - 1] == '.') /* *.com. is as broad as *.com */
		n--;
	if (strstr(text, "://") || strchr(text, '/'))
		return fail_url(text, err);
	if (host == 1 && text[0] == '*' && deny)
		return den_fail(err, DEN_INVALID, 0,
			"'%.80s': what is not in allowedDomains is denied; leave the * out", text);
	if (host == 1 && text[0] == '*')
		return den_fail(err, DEN_INVALID, 0,
			"'%.80s': if all that is public is meant, write \"allowAllDomains\": true",
			text);
	if (memchr(name, '*', n))
		return den_fail(err, DEN_INVALID, 0,
			"'%.80s': a * stands only at the front, as in *.example.com", text);
	if (n == 9 && !strncasecmp(name, "localhost", 9))
		return den_fail(err, DEN_INVALID, 0,
			"'%.80s': localhost is the box itself; a service of the host is reached as "
			"host.den with the option --allow host:PORT",
			text);
	if (!memchr(name, '.', n) && wild)
		return den_fail(err, DEN_INVALID, 0,
			"'%.80s' is too broad; name the domains, like *.example.%.*s", text,
			(int)MIN(n, 60), name);
	if (!memchr(name, '.', n))
		return den_fail(err, DEN_INVALID, 0,
			"'%.80s' is not a domain; a name without a dot is opened with --allow",
			text);
	return 0;
}

int srt_domain(const char *text, bool deny, char **ret, struct den_err *err)
{
	const char *colon = strrchr(text, ':');
	struct policy_rule r;
	auto_buf rule = { 0 }, out = { 0 };

	if (text[0] == '[' ||
		(colon && memchr(text, ':', (size_t)(colon - text)) && !strstr(text, "://")))
		return den_fail(err, DEN_INVALID, 0,
			"'%.80s' is not a domain; addresses are opened with --allow", text);
	if (check_domain(text, colon ? (size_t)(colon - text) : strlen(text), deny, err) < 0)
		return -1;
	/* without a port, srt means all of them */
	buf_addstr(&rule, text);
	if (!colon && !deny)
		buf_addstr(&rule, ":*");
	if (policy_rule_parse(buf_str(&rule), deny, false, &r, &out, err) < 0)
		return -1;
	*ret = mem_strdup(buf_str(&out));
	return 0;
}

/* ---- keys ------------------------------------------------------------------------------------ */

struct reading {
	struct srt *out;
	struct srt_files files;
	bool open;
};

static int texts(const json_t *v, char ***ret, struct den_err *err)
{
	if (!json_is_array(v))
		return den_fail(err, DEN_INVALID, 0, "must be a list, like [ ... ]");
	for (size_t i = 0; i < json_array_size(v); i++) {
		const char *s = json_string_value(json_array_get(v, i));

		if (!s || !*s)
			return den_fail(
				err, DEN_INVALID, 0, "[%zu] must be a text that is not empty", i);
		strv_add(ret, s);
	}
	return 0;
}

static int domains(const json_t *v, bool deny, char ***ret, struct den_err *err)
{
	auto_strv all = NULL;

	if (texts(v, &all, err) < 0)
		return -1;
	for (size_t i = 0; all && all[i]; i++) {
		auto_free char *rule = NULL;

		if (srt_domain(all[i], deny, &rule, err) < 0)
			return den_wrap(err, "[%zu]", i);
		strv_add(ret, rule);
	}
	return 0;
}

static bool flag(const json_t *v, bool *ret, struct den_err *err)
{
	if (!json_is_boolean(v)) {
		den_fail(err, DEN_INVALID, 0, "must be true or false");
		return false;
	}
	*ret = json_is_true(v);
	return true;
}

static int take_allowed(const json_t *v, struct reading *r, struct den_err *err)
{
	return domains(v, false, &r->out->allow, err);
}

static int take_denied(const json_t *v, struct reading *r, struct den_err *err)
{
	return domains(v, true, &r->out->deny, err);
}

static int take_all(const json_t *v, struct reading *r, struct den_err *err)
{
	return flag(v, &r->open, err) ? 0 : -1;
}

static int take_write(const json_t *v, struct reading *r, struct den_err *err)
{
	return texts(v, &r->files.allow_write, err);
}

static int take_deny_write(const json_t *v, struct reading *r, struct den_err *err)
{
	return texts(v, &r->files.deny_write, err);
}

static int take_read(const json_t *v, struct reading *r, struct den_err *err)
{
	return texts(v, &r->files.allow_read, err);
}

static int take_deny_read(const json_t *v, struct reading *r, struct den_err *err)
{
	return texts(v, &r->files.deny_read, err);
}

static int take_git_config(const json_t *v, struct reading *r, struct den_err *err)
{
	return flag(v, &r->files.git_config, err) ? 0 : -1;
}

static int take_depth(const json_t *v, struct reading *r, struct den_err *err)
{
	json_int_t n = json_integer_value(v);

	if (!json_is_integer(v) || n < 1 || n > 10)
		return den_fail(err, DEN_INVALID, 0, "must be a number from 1 to 10");
	r->files.depth = (int)n;
	return 0;
}

enum key_kind {
	KEY_TAKE, /* take() does it */
	KEY_FLAG, /* true or false, and either holds in a box */
	KEY_OFF, /* false holds; true cannot be kept */
	KEY_EMPTY, /* an empty value holds; another cannot be kept */
	KEY_MOOT, /* tells srt how to work, restricts nothing: noted */
	KEY_OBJECT, /* has keys of its own */
};
struct key {
	const char *name;
	enum key_kind kind;
	int (*take)(const json_t *v, struct reading *r, struct den_err *err);
	const char *say; /* OFF, EMPTY: why not, and what to do */
	const struct key *keys;
};

static const struct key network_keys[] = {
	{ "allowedDomains", KEY_TAKE, take_allowed },
	{ "deniedDomains", KEY_TAKE, take_denied },
	{ "allowAllDomains", KEY_TAKE, take_all },
	{ "strictAllowlist", KEY_FLAG }, /* nobody is asked here */
	{ "allowAllUnixSockets", KEY_FLAG }, /* the host's are not there to be reached */
	{ "allowLocalBinding", KEY_FLAG }, /* the box has a loopback of its own */
	{ "deniedDomainReasons", KEY_EMPTY, NULL,
		"'den denials BOX' gives the reasons; leave it out" },
	{ "allowUnixSockets", KEY_EMPTY, NULL,
		"share a socket of the host with --mount SOCKET:SOCKET" },
	{ "allowMachLookup", KEY_EMPTY, NULL, "there is no macOS here; leave it out" },
	{ "httpProxyPort", KEY_EMPTY, NULL,
		"what goes out passes den's own gate; to reach a proxy of the host use --allow "
		"host:PORT" },
	{ "socksProxyPort", KEY_EMPTY, NULL,
		"what goes out passes den's own gate; to reach a proxy of the host use --allow "
		"host:PORT" },
	{ "mitmProxy", KEY_EMPTY, NULL, "den sends nothing through another proxy; leave it out" },
	{ "filterRequest", KEY_EMPTY, NULL, "a file cannot hold a function; leave it out" },
	{ "tlsTerminate", KEY_EMPTY, NULL,
		"TLS is ended for hosts that --secret names; use that instead" },
	{ "parentProxy", KEY_EMPTY, NULL,
		"den connects by itself and cannot go through another proxy" },
	{ 0 },
};

static const struct key filesystem_keys[] = {
	{ "allowWrite", KEY_TAKE, take_write },
	{ "denyWrite", KEY_TAKE, take_deny_write },
	{ "allowRead", KEY_TAKE, take_read },
	{ "denyRead", KEY_TAKE, take_deny_read },
	{ "allowGitConfig", KEY_TAKE, take_git_config },
	{ "disabled", KEY_OFF, NULL,
		"a box always has a file system of its own; share with --mount" },
	{ 0 },
};

static const struct key keys[] = {
	{ "network", KEY_OBJECT, .keys = network_keys },
	{ "filesystem", KEY_OBJECT, .keys = filesystem_keys },
	{ "mandatoryDenySearchDepth", KEY_TAKE, take_depth },
	{ "allowPty", KEY_FLAG }, /* a box has its own terminals */
	{ "credentials", KEY_EMPTY, NULL,
		"keep them with 'den secret set' and grant them with --secret" },
	{ "git", KEY_EMPTY, NULL, "run 'git config --global --add safe.directory DIR' in the box" },
	{ "enableWeakerNestedSandbox", KEY_OFF, NULL, "den has no weaker mode; leave it out" },
	{ "enableWeakerNetworkIsolation", KEY_OFF, NULL, "den has no weaker mode; leave it out" },
	{ "allowAppleEvents", KEY_OFF, NULL, "there is no macOS here; leave it out" },
	{ "ignoreViolations", KEY_MOOT },
	{ "ripgrep", KEY_MOOT },
	{ "seccomp", KEY_MOOT },
	{ "bwrapPath", KEY_MOOT },
	{ "socatPath", KEY_MOOT },
	{ "windows", KEY_MOOT },
	{ 0 },
};

static bool is_empty(const json_t *v)
{
	return json_is_null(v) || json_is_false(v) || (json_is_array(v) && !json_array_size(v)) ||
	       (json_is_object(v) && !json_object_size(v));
}

static int read_object(
	const json_t *j, const struct key *table, struct reading *r, struct den_err *err);

static int read_key(const struct key *k, const json_t *v, struct reading *r, struct den_err *err)
{
	auto_buf note = { 0 };
	bool on;

	switch (k->kind) {
	case KEY_TAKE:
		return k->take(v, r, err);
	case KEY_OBJECT:
		return read_object(v, k->keys, r, err);
	case KEY_FLAG:
		return flag(v, &on, err) ? 0 : -1;
	case KEY_OFF:
		if (!flag(v, &on, err))
			return -1;
		return on ? den_fail(err, DEN_UNSUPPORTED, 0, "%s", k->say) : 0;
	case KEY_EMPTY:
		return is_empty(v) ? 0 : den_fail(err, DEN_UNSUPPORTED, 0, "%s", k->say);
	case KEY_MOOT:
		buf_addf(&note, "'%s' has no meaning here", k->name);
		strv_add(&r->out->notes, buf_str(&note));
		return 0;
	}
	return den_fail(err, DEN_INTERNAL, 0, "key of an unknown kind");
}

static int unknown_key(const char *name, const struct key *table, struct den_err *err)
{
	const char *names[32], *near;
	int n = 0;

	for (; table[n].name && n < 32; n++)
		names[n] = table[n].name;
	near = parse_nearest(name, names, n);
	if (near)
		return den_fail(
			err, DEN_INVALID, 0, "unknown key '%.60s'; did you mean '%s'?", name, near);
	return den_fail(err, DEN_INVALID, 0, "unknown key '%.60s'", name);
}

static int read_object(
	const json_t *j, const struct key *table, struct reading *r, struct den_err *err)
{
	const char *name;
	json_t *v;

	if (!json_is_object(j))
		return den_fail(err, DEN_INVALID, 0, "must be an object, like { ... }");
	json_object_foreach((json_t *)j, name, v)
	{
		const struct key *k = table;

		while (k->name && strcmp(k->name, name))
			k++;
		if (!k->name)
			return unknown_key(name, table, err);
		if (read_key(k, v, r, err) < 0)
			return den_wrap(err, "%s", name);
	}
	return 0;
}

/* ---- the file -------------------------------------------------------------------------------- */

int srt_parse(const char *json, size_t n, bool files, struct srt *ret, struct den_err *err)
{
	auto_srt out = { 0 };
	auto_json j = NULL;
	struct reading r = { .out = &out, .files.depth = DEPTH_DEFAULT };
	json_error_t why;
	int result;

	j = json_loadb(json, n, JSON_REJECT_DUPLICATES, &why);
	if (!j)
		return den_fail(
			err, DEN_INVALID, 0, "not JSON: line %d: %.120s", why.line, why.text);
	result = read_object(j, keys, &r, err);
	if (result == 0 && files)
		result = srt_mounts(&r.files, &out, err);
	strv_free(r.files.allow_write);
	strv_free(r.files.deny_write);
	strv_free(r.files.allow_read);
	strv_free(r.files.deny_read);
	if (result < 0)
		return -1;
	out.open = r.open;
	*ret = out;
	out = (struct srt){ 0 };
	return 0;
}

int srt_read(const char *path, bool files, struct srt *ret, struct den_err *err)
{
	auto_free char *text = NULL;
	auto_fd fd = open(path, O_RDONLY | O_CLOEXEC);
	size_t n;

	if (fd < 0)
		return den_fail_sys(err, errno, "'%.80s'", path);
	if (fd_read_all(fd, SETTINGS_MAX, &text, &n, err) < 0 ||
		srt_parse(text, n, files, ret, err) < 0)
		return den_wrap(err, "'%.80s'", path);
	return 0;
}
