#include "pick.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "boxes.h"
#include "mem.h"
#include "parse.h"
#include "serve.h"

#define ENVD_PORT 49983 /* E2B's name for the agent in a box; here it is the dialect envd */

/* ---- the root of it all ---- */

/* A browser goes to the page; a program is told what this is. */
static int root_get(struct req *r, struct den_err *err)
{
	const char *accept = req_header(r, "Accept");

	(void)err;
	if (accept && strstr(accept, "text/html")) {
		req_set(r, "Location", "/ui/");
		return req_reply_empty(r, 302);
	}
	return req_reply_json(r, 200, json_pack("{s:s, s:s, s:s, s:s}", "name", "den", "version", DEN_VERSION, "api", "/v1",
		"openapi", "/v1/openapi.yaml"));
}

static const struct route root_routes[] = {
	{ "GET", "/", root_get, AUTH_NONE, 0, NULL },
};

static void root_fail(struct req *r, const struct den_err *err)
{
	req_reply_json(r, http_status(err->code),
		json_pack("{s:{s:s, s:s}}", "error", "code", den_code_str(err->code), "message", err->msg));
}

static const struct dialect dialect_root = {
	.name = "root",
	.routes = root_routes,
	.n = ARRAY_SIZE(root_routes),
	.fail = root_fail,
};

const struct dialect *const dialects[] = {
	&dialect_root,
	&dialect_base,
	&dialect_v1,
	&dialect_ui,
	&dialect_e2b,
	&dialect_envd,
	&dialect_ports,
	NULL,
};

/* ---- picking ---- */

static bool port_parse(const char *text, uint16_t *ret)
{
	uint64_t v;

	if (parse_u64(text, 1, UINT16_MAX, &v, NULL) < 0)
		return false;
	*ret = (uint16_t)v;
	return true;
}

/* "3000-b-ID.localhost:2600", "3000-iID.den.example" */
static bool host_box(const char *host, char ret_id[static 21], uint16_t *ret_port)
{
	size_t digits = strspn(host, "0123456789"), n;
	char port[8], id[24];

	if (!digits || digits > 5 || host[digits] != '-')
		return false;
	memcpy(port, host, digits);
	port[digits] = '\0';
	host += digits + 1;
	n = strcspn(host, ".:");
	if (n >= sizeof(id))
		return false;
	for (size_t i = 0; i < n; i++) /* names of hosts have no case */
		id[i] = host[i] >= 'A' && host[i] <= 'Z' ? (char)(host[i] | 0x20) : host[i];
	id[n] = '\0';
	return port_parse(port, ret_port) && boxes_id(id, ret_id);
}

/* One label below our domain: where boxes are. What clients of E2B have there of their own is this server. */
static bool below_domain(const char *host)
{
	static const char *const own[] = { "api", "sandbox" };
	size_t label = strcspn(host, ".:"), n;
	const char *rest = host + label + 1;

	if (host[label] != '.' || !serve.domain)
		return false;
	n = strcspn(serve.domain, ":");
	if (strncasecmp(rest, serve.domain, n) || (rest[n] && rest[n] != ':'))
		return false;
	for (size_t i = 0; i < ARRAY_SIZE(own); i++)
		if (strlen(own[i]) == label && !strncasecmp(host, own[i], label))
			return false;
	return true;
}

/* A host that can only be meant as one of a box, and is none's: "3000-nobody.localhost". Elsewhere than below our domain
 * "10-0-0-1.example" is somebody's name for this server. */
static bool host_nobody(const struct req *r)
{
	const char *host = req_header(r, "Host");
	uint16_t port;
	char id[21];

	return host && below_domain(host) && !host_box(host, id, &port);
}

bool pick_box(const struct req *r, char ret_id[static 21], uint16_t *ret_port)
{
	const char *host = req_header(r, "Host"), *id = req_header(r, "E2b-Sandbox-Id"),
		   *port = req_header(r, "E2b-Sandbox-Port");

	if (host && host_box(host, ret_id, ret_port))
		return true;
	if (!id || !boxes_id(id, ret_id))
		return false;
	*ret_port = ENVD_PORT;
	return !port || port_parse(port, ret_port);
}

static bool below(const char *path, const char *top)
{
	size_t n = strlen(top);

	return !strncmp(path, top, n) && (path[n] == '\0' || path[n] == '/');
}

static bool is_one_of(const char *path, const char *const *list)
{
	for (; *list; list++)
		if (!strcmp(path, *list))
			return true;
	return false;
}

const struct dialect *pick(struct req *r)
{
	static const char *const base[] = { "/healthz", "/readyz", "/metrics", NULL };
	const char *path = req_path(r);
	uint16_t port;
	char id[21];

	if (host_nobody(r) && !req_header(r, "E2b-Sandbox-Id"))
		return &dialect_ports; /* which says so */
	if (pick_box(r, id, &port))
		return port == ENVD_PORT ? &dialect_envd : &dialect_ports;
	/* of a box all the same, by its token or a signature: the dialect finds out which. An id that cannot be one
	 * is a box that is not there. */
	if (req_header(r, "E2b-Sandbox-Id") || below(path, "/files") || below(path, "/process.Process") ||
		below(path, "/filesystem.Filesystem"))
		return &dialect_envd;
	if (!strcmp(path, "/"))
		return &dialect_root;
	if (is_one_of(path, base))
		return &dialect_base;
	if (below(path, "/v1"))
		return &dialect_v1;
	if (below(path, "/ui"))
		return &dialect_ui;
	return &dialect_e2b;
}
