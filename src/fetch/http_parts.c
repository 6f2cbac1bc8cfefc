#include "http_parts.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>

#include "doc.h"
#include "fd.h"
#include "parse.h"

#define CONNECT_SEC 15L
#define CONNECT_QUICK_SEC 5L
#define SMALL_SEC 120L /* a whole small answer */
#define STALL_BYTES 256L /* a second: less is standing still */
#define HEAD_MAX (256U << 10) /* bytes of all headers */
#define REFUSAL_KEPT (16U << 10) /* of a refusal's text */
#define REFUSAL_MAX (1U << 20)

static bool is_good(long status)
{
	return status >= 200 && status < 300;
}

/* ---- what comes */

static void range_read(struct http_req *r, const char *v)
{
	unsigned long long from, to, total = 0;
	char star[2] = "";

	r->has_range = sscanf(v, "bytes %llu-%llu/%llu", &from, &to, &total) == 3 ||
		       sscanf(v, "bytes %llu-%llu/%1[*]", &from, &to, star) == 3;
	if (!r->has_range)
		return;
	r->range_from = from;
	r->range_total = star[0] ? 0 : total;
}

static void answer_forget(struct http_req *r)
{
	free(mem_take(&r->location));
	r->content_type[0] = r->range[0] = '\0';
	r->has_digest = r->has_range = r->head_told = false;
	r->length = -1;
	r->challenge = (struct challenge){ 0 };
	r->body.len = 0;
	r->refusal_bytes = 0;
}

static void header_read(struct http_req *r, const char *name, char *v)
{
	uint64_t n;

	if (!strcasecmp(name, "content-type")) {
		v[strcspn(v, "; \t")] = '\0';
		snprintf(r->content_type, sizeof(r->content_type), "%s", v);
	} else if (!strcasecmp(name, "content-length")) {
		if (parse_u64(v, 0, INT64_MAX, &n, NULL) == 0)
			r->length = (int64_t)n;
	} else if (!strcasecmp(name, "content-range")) {
		range_read(r, v);
	} else if (!strcasecmp(name, "docker-content-digest")) {
		r->has_digest = digest_parse(v, &r->digest, NULL) == 0;
	} else if (!strcasecmp(name, "www-authenticate")) {
		challenge_add(&r->challenge, v);
	} else if (!strcasecmp(name, "range")) {
		snprintf(r->range, sizeof(r->range), "%s", v);
	} else if (!strcasecmp(name, "location")) {
		free(r->location);
		r->location = mem_strdup(v);
	}
}

static size_t on_header(char *p, size_t one, size_t n, void *user)
{
	struct http_req *r = user;
	char line[URL_MAX + 64], *colon, *v;
	size_t end;

	(void)one;
	r->head_bytes += n;
	if (r->head_bytes > HEAD_MAX) {
		den_fail(&r->err, DEN_LIMIT, 0, "the registry's headers never end");
		return 0;
	}
	if (n >= sizeof(line))
		return n; /* too long to be one of ours */
	memcpy(line, p, n);
	line[n] = '\0';
	if (!strncmp(line, "HTTP/", 5)) { /* of a 1xx before, or of the answer */
		answer_forget(r);
		return n;
	}
	colon = strchr(line, ':');
	if (!colon)
		return n;
	*colon = '\0';
	v = colon + 1 + strspn(colon + 1, " \t");
	for (end = strlen(v); end && isspace((unsigned char)v[end - 1]);)
		v[--end] = '\0';
	header_read(r, line, v);
	return n;
}

static int head_tell(struct http_req *r)
{
	if (r->head_told)
		return 0;
	r->head_told = true;
	return r->head ? r->head(r, &r->err) : 0;
}

static int good_data(struct http_req *r, const void *p, size_t n)
{
	if (head_tell(r) < 0)
		return -1;
	r->moved = true;
	if (r->data)
		return r->data(r, p, n, &r->err);
	if (r->body.len + n > DOC_MAX)
		return den_fail(&r->err, DEN_LIMIT, 0,
			"the registry's answer has more than %u bytes", DOC_MAX);
	buf_add(&r->body, p, n);
	return 0;
}

static size_t on_data(char *p, size_t one, size_t n, void *user)
{
	struct http_req *r = user;
	long status = 0;

	(void)one;
	curl_easy_getinfo(r->easy, CURLINFO_RESPONSE_CODE, &status);
	r->status = status;
	if (is_good(status))
		return good_data(r, p, n) < 0 ? 0 : n;
	r->refusal_bytes += n;
	if (r->refusal_bytes > REFUSAL_MAX) {
		den_fail(&r->err, DEN_LIMIT, 0,
			"the registry answers %ld with a text that never ends", status);
		return 0;
	}
	if (r->body.len + n <= REFUSAL_KEPT)
		buf_add(&r->body, p, n);
	return n;
}

void req_answered(struct http_req *r)
{
	char *resolved = NULL;

	curl_easy_getinfo(r->easy, CURLINFO_RESPONSE_CODE, &r->status);
	if (r->err.code)
		return;
	if (is_good(r->status) && head_tell(r) < 0)
		return;
	/* only these lead on: elsewhere it is for people, and often wrong behind a proxy */
	if (r->status != 202 && (r->status < 300 || r->status > 399))
		free(mem_take(&r->location));
	if (r->location &&
		url_follow(r->at ? r->at : r->url, r->location, &resolved, &r->err) == 0) {
		free(r->location);
		r->location = resolved;
	}
}

/* ---- what goes out */

static size_t on_read(char *p, size_t one, size_t n, void *user)
{
	struct http_req *r = user;
	uint64_t left = r->body_len - r->sent_bytes;
	ssize_t got;

	n = MIN(n * one, left);
	if (!n)
		return 0;
	if (r->body_mem) {
		memcpy(p, (const char *)r->body_mem + r->sent_bytes, n);
		got = (ssize_t)n;
	} else {
		do
			got = pread(r->body_fd, p, n, (off_t)(r->body_at + r->sent_bytes));
		while (got < 0 && errno == EINTR);
	}
	if (got <= 0) {
		den_fail(&r->err, DEN_CONFLICT, got < 0 ? errno : 0,
			"a file of the layout directory changed");
		return CURL_READFUNC_ABORT;
	}
	r->sent_bytes += (uint64_t)got;
	if (r->sent)
		r->sent(r, (size_t)got);
	return (size_t)got;
}

static int on_seek(void *user, curl_off_t offset, int origin)
{
	struct http_req *r = user;

	if (origin != SEEK_SET || offset < 0 || (uint64_t)offset > r->body_len)
		return CURL_SEEKFUNC_CANTSEEK;
	r->sent_bytes = (uint64_t)offset;
	return CURL_SEEKFUNC_OK;
}

static void header_add(struct http_req *r, const char *name, const char *value)
{
	auto_buf b = { 0 };

	buf_addf(&b, "%s%s%s", name, value ? ": " : "", value ? value : "");
	r->headers = curl_slist_append(r->headers, buf_str(&b));
	if (!strcmp(name, "Authorization"))
		explicit_bzero(b.p, b.len);
}

static void set_method(struct http_req *r)
{
	CURL *e = r->easy;

	switch (r->method) {
	case HTTP_GET:
		break;
	case HTTP_HEAD:
		curl_easy_setopt(e, CURLOPT_NOBODY, 1L);
		break;
	case HTTP_POST:
		curl_easy_setopt(e, CURLOPT_POST, 1L);
		curl_easy_setopt(e, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)r->body_len);
		break;
	case HTTP_PATCH:
		curl_easy_setopt(e, CURLOPT_CUSTOMREQUEST, "PATCH");
		/* fall through */
	case HTTP_PUT:
		curl_easy_setopt(e, CURLOPT_UPLOAD, 1L);
		curl_easy_setopt(e, CURLOPT_INFILESIZE_LARGE, (curl_off_t)r->body_len);
		break;
	}
	curl_easy_setopt(e, CURLOPT_READFUNCTION, on_read);
	curl_easy_setopt(e, CURLOPT_READDATA, r);
	curl_easy_setopt(e, CURLOPT_SEEKFUNCTION, on_seek);
	curl_easy_setopt(e, CURLOPT_SEEKDATA, r);
}

static void set_headers(struct http *h, struct http_req *r)
{
	const char *auth = r->bare ? r->authorization : r->foreign ? NULL : h->auth->header;
	char range[32];

	r->login_turn = h->auth->turn;
	if (auth)
		header_add(r, "Authorization", auth);
	if (r->accept)
		header_add(r, "Accept", r->accept);
	if (r->type)
		header_add(r, "Content-Type", r->type);
	if (r->content_range[0])
		header_add(r, "Content-Range", r->content_range);
	header_add(r,
		"Expect:", NULL); /* waiting for permission costs a second where it is not known */
	curl_easy_setopt(r->easy, CURLOPT_HTTPHEADER, r->headers);
	if (r->from) {
		snprintf(range, sizeof(range), "%llu-", (unsigned long long)r->from);
		curl_easy_setopt(r->easy, CURLOPT_RANGE, range);
	}
}

/* ---- where it may lead to */

static bool is_inside(const struct sockaddr *a)
{
	uint32_t v4;

	if (a->sa_family == AF_INET) {
		v4 = ntohl(((const struct sockaddr_in *)a)->sin_addr.s_addr);
	} else if (a->sa_family == AF_INET6) {
		const struct in6_addr *v6 = &((const struct sockaddr_in6 *)a)->sin6_addr;

		if (!IN6_IS_ADDR_V4MAPPED(v6))
			return IN6_IS_ADDR_LOOPBACK(v6) || IN6_IS_ADDR_LINKLOCAL(v6) ||
			       IN6_IS_ADDR_UNSPECIFIED(v6);
		memcpy(&v4, &v6->s6_addr[12], sizeof(v4));
		v4 = ntohl(v4);
	} else {
		return true;
	}
	return v4 >> 24 == 127 || v4 >> 24 == 0 ||
	       v4 >> 16 == 0xa9fe; /* 169.254: link-local, metadata */
}

/* A registry somewhere else names other places (redirects, token servers). These must not be this
 * machine's own services: the address is looked at, since any name can stand for it. */
static curl_socket_t on_socket(void *user, curlsocktype purpose, struct curl_sockaddr *a)
{
	struct http_req *r = user;

	(void)purpose;
	if (is_inside(&a->addr)) {
		den_fail(&r->err, DEN_DENIED, 0,
			"the registry leads to an address of this machine or of its link: refused");
		return CURL_SOCKET_BAD;
	}
	return socket(a->family, a->socktype | SOCK_CLOEXEC, a->protocol);
}

static bool has_proxy(void)
{
	static const char *const names[] = { "http_proxy", "https_proxy", "HTTPS_PROXY",
		"all_proxy", "ALL_PROXY" };

	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		if (getenv(names[i]) && *getenv(names[i]))
			return true;
	return false;
}

static void set_limits(struct http *h, struct http_req *r)
{
	bool upload = r->method == HTTP_PUT || r->method == HTTP_PATCH;
	CURL *e = r->easy;

	curl_easy_setopt(e, CURLOPT_PROTOCOLS_STR, "http,https");
	curl_easy_setopt(e, CURLOPT_FOLLOWLOCATION, 0L);
	curl_easy_setopt(e, CURLOPT_CONNECTTIMEOUT, r->quick ? CONNECT_QUICK_SEC : CONNECT_SEC);
	/* after the last byte of an upload the registry may think for a while */
	curl_easy_setopt(e, CURLOPT_LOW_SPEED_LIMIT, STALL_BYTES);
	curl_easy_setopt(e, CURLOPT_LOW_SPEED_TIME, (long)h->opt.stall_sec * (upload ? 10 : 1));
	if (!r->data && !upload)
		curl_easy_setopt(e, CURLOPT_TIMEOUT, SMALL_SEC);
	/* with a proxy the address is the proxy's, which its owner chose */
	if (r->foreign && !h->opt.loopback && !has_proxy()) {
		curl_easy_setopt(e, CURLOPT_OPENSOCKETFUNCTION, on_socket);
		curl_easy_setopt(e, CURLOPT_OPENSOCKETDATA, r);
	}
	if (h->opt.ca) {
		struct curl_blob pem = {
			.data = (void *)h->opt.ca, .len = h->opt.ca_len, .flags = CURL_BLOB_NOCOPY
		};

		curl_easy_setopt(e, CURLOPT_CAINFO_BLOB, &pem);
		curl_easy_setopt(e, CURLOPT_CAPATH, NULL);
	}
}

int req_set_up(struct http *h, struct http_req *r, struct den_err *err)
{
	const char *url = r->at ? r->at : r->url;
	struct origin o;

	r->err = (struct den_err){ 0 };
	r->code = CURLE_OK;
	r->status = 0;
	r->sent_bytes = r->head_bytes = 0;
	r->moved = false;
	r->curl_text[0] = '\0';
	answer_forget(r);
	if (url_origin(url, &o, err) < 0)
		return -1;
	r->foreign = !origin_same(&o, &h->home);
	r->easy = curl_easy_init();
	if (!r->easy)
		return den_fail(err, DEN_LIMIT, 0, "libcurl takes no further request");
	curl_easy_setopt(r->easy, CURLOPT_URL, url);
	curl_easy_setopt(r->easy, CURLOPT_PRIVATE, r);
	curl_easy_setopt(r->easy, CURLOPT_NOSIGNAL, 1L);
	curl_easy_setopt(r->easy, CURLOPT_USERAGENT, "den/" DEN_VERSION_TEXT);
	curl_easy_setopt(r->easy, CURLOPT_ERRORBUFFER, r->curl_text);
	curl_easy_setopt(r->easy, CURLOPT_SUPPRESS_CONNECT_HEADERS, 1L);
	curl_easy_setopt(r->easy, CURLOPT_DISALLOW_USERNAME_IN_URL, 1L);
	curl_easy_setopt(r->easy, CURLOPT_BUFFERSIZE, 256L << 10);
	curl_easy_setopt(r->easy, CURLOPT_HEADERFUNCTION, on_header);
	curl_easy_setopt(r->easy, CURLOPT_HEADERDATA, r);
	curl_easy_setopt(r->easy, CURLOPT_WRITEFUNCTION, on_data);
	curl_easy_setopt(r->easy, CURLOPT_WRITEDATA, r);
	set_limits(h, r);
	set_method(r);
	set_headers(h, r);
	return 0;
}

int http_code_fail(const struct http_req *r, struct den_err *err)
{
	const char *why = r->curl_text[0] ? r->curl_text : curl_easy_strerror(r->code);
	struct origin o = { 0 };

	url_origin(r->at ? r->at : r->url, &o, NULL);
	switch (r->code) {
	case CURLE_COULDNT_RESOLVE_HOST:
		return den_fail(err, DEN_NOT_FOUND, 0,
			"there is no host '%.80s'; check its spelling, and that there is a network",
			o.host);
	case CURLE_COULDNT_RESOLVE_PROXY:
		return den_fail(err, DEN_NOT_FOUND, 0, "the proxy is not found; check https_proxy");
	case CURLE_COULDNT_CONNECT:
		return den_fail(err, DEN_NOT_FOUND, 0,
			"nothing answers at %.80s port %s; is the registry running?", o.host,
			o.port);
	case CURLE_PEER_FAILED_VERIFICATION:
	case CURLE_SSL_CACERT_BADFILE:
		return den_fail(err, DEN_DENIED, 0,
			"%.60s is not trusted: %.70s; give its authority's certificate with --ca "
			"FILE",
			o.host, why);
	case CURLE_SSL_CONNECT_ERROR:
		return den_fail(err, DEN_UNSUPPORTED, 0,
			"%.60s does not speak https: %.70s; --plain-http is for a registry without "
			"TLS",
			o.host, why);
	case CURLE_OPERATION_TIMEDOUT:
		return den_fail(err, DEN_TIMEOUT, 0, "%.60s is too slow: %.90s; try again later",
			o.host, why);
	default:
		return den_fail(err, DEN_TIMEOUT, 0,
			"connection with %.60s: %.100s; try again later", o.host, why);
	}
}
