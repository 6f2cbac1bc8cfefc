#include "ref.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "parse.h"

#define LOWER "abcdefghijklmnopqrstuvwxyz0123456789"
#define UPPER "ABCDEFGHIJKLMNOPQRSTUVWXYZ"

static int fail_form(const char *text, const char *why, struct den_err *err)
{
	return den_fail(err, DEN_INVALID, 0,
		"'%.80s' is not an image's name: %s; write HOST[:PORT]/NAME[:TAG][@sha256:...]",
		text, why);
}

static bool host_is_loopback(const char *name)
{
	struct in_addr a;

	/* inet_pton() and not inet_aton(): "127.1" and "0x7f.1" are names for it, not addresses */
	if (inet_pton(AF_INET, name, &a) == 1)
		return ntohl(a.s_addr) >> 24 == 127;
	return !strcmp(name, "localhost") || !strcmp(name, "[::1]");
}

/* Checks "name", "name:port", "[v6]:port". */
static int host_check(const char *host, bool *loopback, struct den_err *err)
{
	char name[REF_NAME_MAX + 1];
	struct in6_addr v6;
	const char *port;
	uint64_t v;
	size_t n;

	if (host[0] == '[') {
		n = strcspn(host, "]");
		if (!host[n] || n < 2)
			return den_fail(err, DEN_INVALID, 0, "its host has '[' without ']'");
		snprintf(name, sizeof(name), "%.*s", (int)n - 1, host + 1);
		if (inet_pton(AF_INET6, name, &v6) != 1)
			return den_fail(err, DEN_INVALID, 0, "its host is not an IPv6 address");
		n++;
	} else {
		n = strspn(host, LOWER UPPER ".-");
		if (!n || strchr(".-", host[0]) || strchr(".-", host[n - 1]) || strstr(host, ".."))
			return den_fail(err, DEN_INVALID, 0, "its host is not a host's name");
	}
	snprintf(name, sizeof(name), "%.*s", (int)n, host);
	*loopback = host_is_loopback(name);
	port = host + n;
	if (!*port)
		return 0;
	if (*port != ':' || parse_u64(port + 1, 1, 65535, &v, NULL) < 0)
		return den_fail(err, DEN_INVALID, 0, "its host is not HOST or HOST:PORT");
	return 0;
}

/* Words of lower-case letters and digits, joined by '.', '_', '__', any number of '-', and '/'. */
static bool repo_ok(const char *p)
{
	for (;;) {
		size_t n = strspn(p, LOWER);

		if (!n)
			return false;
		p += n;
		if (!*p)
			return true;
		n = strspn(p, "-");
		if (!n)
			n = *p == '_' ? strspn(p, "_") : 1;
		if (!strchr("._-/", *p) || (*p == '_' && n > 2))
			return false;
		p += n;
	}
}

static bool tag_ok(const char *tag)
{
	size_t n = strspn(tag, LOWER UPPER "_.-");

	return n && !tag[n] && n <= 128 && !strchr(".-", tag[0]);
}

static int version_parse(const char *text, char *rest, struct image_ref *r, struct den_err *err)
{
	char *at = strchr(rest, '@'), *colon;

	if (at) {
		*at = '\0';
		if (digest_parse(at + 1, &r->digest, err) < 0)
			return den_wrap(err, "image's name");
		r->has_digest = true;
	}
	colon = strchr(rest, ':');
	if (colon) {
		*colon = '\0';
		if (!tag_ok(colon + 1))
			return fail_form(
				text, "its tag is not letters, digits, '_', '.', '-'", err);
		snprintf(r->tag, sizeof(r->tag), "%s", colon + 1);
	} else if (!at) {
		snprintf(r->tag, sizeof(r->tag), "latest");
	}
	return 0;
}

int ref_parse(const char *text, struct image_ref *ret, struct den_err *err)
{
	struct image_ref r = { 0 };
	char rest[512];
	const char *slash = strchr(text, '/');
	size_t n = slash ? (size_t)(slash - text) : 0;
	struct den_err why;

	if (strstr(text, "://"))
		return fail_form(text, "it begins with a protocol", err);
	if (n >= sizeof(r.host) || strlen(text) - n >= sizeof(rest))
		return fail_form(text, "it is too long", err);
	memcpy(r.host, text, n);
	/* As everywhere: the first word is a host if it looks like one, and no host is taken for
	 * granted. */
	if (!slash || (!strpbrk(r.host, ".:[") && strcmp(r.host, "localhost")))
		return fail_form(text, "it names no registry", err);
	if (host_check(r.host, &r.loopback, &why) < 0)
		return fail_form(text, why.msg, err);
	snprintf(rest, sizeof(rest), "%s", slash + 1);
	if (version_parse(text, rest, &r, err) < 0)
		return -1;
	if (strlen(rest) >= sizeof(r.repo))
		return fail_form(text, "it is too long", err);
	for (const char *p = rest; *p; p++)
		if (isupper((unsigned char)*p))
			return fail_form(text, "NAME is in lower case", err);
	if (!repo_ok(rest))
		return fail_form(text,
			"NAME is words of letters and digits, joined by '/', '.', '_', '-'", err);
	snprintf(r.repo, sizeof(r.repo), "%s", rest);
	*ret = r;
	return 0;
}

void ref_version(const struct image_ref *r, char ret[static 136])
{
	if (r->has_digest)
		snprintf(ret, 136, "sha256:%s", r->digest.hex);
	else
		snprintf(ret, 136, "%s", r->tag);
}
