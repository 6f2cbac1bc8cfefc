/* In a folder of its own and compiled with the gate's include path: both have a http.h. */
#include "upstream.h"

#include <string.h>
#include <strings.h>

#include "http.h"
#include "http_body.h"
#include "mem.h"

#define ROOM (HTTP_HEAD_MAX + (64U << 10))

struct upstream {
	char method[32];
	char buf[ROOM];
	size_t have, used; /* bytes in buf; of them taken */
	char *head_text;   /* a copy of the head, which the fields point into */
	struct http_head head;
	struct http_body body;
	bool has_head, done;
};

struct upstream *upstream_new(const char *method)
{
	struct upstream *u = mem_alloc(sizeof(*u));

	memset(u, 0, offsetof(struct upstream, buf));
	memset(&u->have, 0, sizeof(*u) - offsetof(struct upstream, have));
	memcpy(u->method, method, MIN(strlen(method), sizeof(u->method) - 1));
	return u;
}

void upstream_free(struct upstream *u)
{
	if (!u)
		return;
	if (u->has_head)
		http_head_free(&u->head);
	free(u->head_text);
	free(u);
}

char *upstream_room(struct upstream *u, size_t *ret_room)
{
	if (u->used) {
		memmove(u->buf, u->buf + u->used, u->have - u->used);
		u->have -= u->used;
		u->used = 0;
	}
	*ret_room = sizeof(u->buf) - u->have;
	return u->buf + u->have;
}

void upstream_put(struct upstream *u, size_t n)
{
	u->have += n;
}

static bool interim(const struct http_head *h)
{
	return h->status < 200 && h->status != 101;
}

int upstream_head(struct upstream *u, const char **why)
{
	while (!u->has_head) {
		struct http_head h;
		size_t n = u->have - u->used;

		switch (http_response_parse(u->buf + u->used, n, u->method, &h, why)) {
		case HTTP_BAD:
			return -1;
		case HTTP_MORE:
			if (n < HTTP_HEAD_MAX)
				return 0;
			*why = "its head is too long";
			return -1;
		case HTTP_OK:
			break;
		}
		n = h.head_len;
		if (!interim(&h)) {
			/* parsed again in memory that stays, since the fields point into it */
			http_head_free(&h);
			u->head_text = mem_alloc(n);
			memcpy(u->head_text, u->buf + u->used, n);
			u->has_head = http_response_parse(u->head_text, n, u->method, &u->head, why) == HTTP_OK;
			if (!u->has_head)
				return -1;
			http_body_init(&u->body, &u->head);
		} else {
			http_head_free(&h);
		}
		u->used += n;
	}
	return 1;
}

int upstream_status(const struct upstream *u)
{
	return u->head.status;
}

int64_t upstream_length(const struct upstream *u)
{
	if (u->head.body == HTTP_BODY_LENGTH && u->head.length <= INT64_MAX)
		return (int64_t)u->head.length;
	return u->head.body == HTTP_BODY_NONE ? 0 : -1;
}

bool upstream_no_body(const struct upstream *u)
{
	return u->head.body == HTTP_BODY_NONE;
}

static bool of_connection(const struct upstream *u, const struct http_field *f)
{
	static const char *const hop[] = { "Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization",
		"Proxy-Connection", "TE", "Trailer", "Transfer-Encoding", "Upgrade", "Content-Length", "Date" };
	char name[128];

	for (size_t i = 0; i < ARRAY_SIZE(hop); i++)
		if (http_field_is(f, hop[i]))
			return true;
	if (f->name_len >= sizeof(name))
		return true;
	memcpy(name, f->name, f->name_len);
	name[f->name_len] = '\0';
	return http_has_token(&u->head, "Connection", name);
}

void upstream_each(const struct upstream *u, void (*fn)(const char *name, const char *value, void *user), void *user)
{
	for (unsigned i = 0; i < u->head.n; i++) {
		const struct http_field *f = &u->head.f[i];
		auto_free char *name = NULL, *value = NULL;

		if (of_connection(u, f))
			continue;
		name = mem_strndup(f->name, f->name_len);
		value = mem_strndup(f->value, f->value_len);
		fn(name, value, user);
	}
}

bool upstream_find(const struct upstream *u, const char *name, char *out, size_t cap)
{
	const struct http_field *f = http_find(&u->head, name);

	if (!f || f->value_len >= cap)
		return false;
	memcpy(out, f->value, f->value_len);
	out[f->value_len] = '\0';
	return true;
}

int upstream_body(struct upstream *u, const char **p, size_t *n)
{
	const char *why;

	if (u->done || http_body_done(&u->body))
		return 2;
	while (u->used < u->have) {
		const char *data = NULL;
		size_t used = 0, len = 0;
		int r = http_body_feed(&u->body, u->buf + u->used, u->have - u->used, &used, &data, &len, &why);

		if (r < 0)
			return -1;
		u->used += used;
		u->done = r == 1;
		if (len) {
			*p = data;
			*n = len;
			return 1;
		}
		if (u->done)
			return 2;
		if (!used)
			break;
	}
	return 0;
}

bool upstream_closed(struct upstream *u)
{
	return u->has_head && (u->done || u->head.body == HTTP_BODY_CLOSE || http_body_done(&u->body));
}

const char *upstream_rest(const struct upstream *u, size_t *n)
{
	*n = u->have - u->used;
	return u->buf + u->used;
}
