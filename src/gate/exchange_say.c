/* What the box is told when something is refused: a denial teaches. */
#include <stdio.h>
#include <string.h>

#include "exchange_parts.h"
#include "mem.h"

static const char *status_text(int status)
{
	static const struct {
		int status;
		const char *text;
	} texts[] = {
		{ 400, "Bad Request" },
		{ 403, "Forbidden" },
		{ 405, "Method Not Allowed" },
		{ 413, "Content Too Large" },
		{ 431, "Request Header Fields Too Large" },
		{ 502, "Bad Gateway" },
		{ 503, "Service Unavailable" },
		{ 505, "HTTP Version Not Supported" },
	};

	for (unsigned i = 0; i < ARRAY_SIZE(texts); i++)
		if (texts[i].status == status)
			return texts[i].text;
	return "Refused";
}

static void line_put(struct buf *b, const char *name, const char *text)
{
	buf_addstr(b, name);
	for (; *text; text++) /* a rule may hold anything that a person typed */
		buf_addstr(b, (char[]){ *text >= ' ' && *text < 0x7f ? *text : '?', '\0' });
	buf_addstr(b, "\n");
}

static void answer_put(const struct exchange *x, int status, const char *what, const char *detail,
	bool head, struct buf *out)
{
	auto_buf body = { 0 };

	line_put(&body, status >= 500 ? "den: failed: " : "den: refused: ", what);
	if (detail)
		line_put(&body, "detail: ", detail);
	if (x->rule)
		line_put(&body, "rule: ", x->rule);
	if (x->generation)
		buf_addf(&body, "policy generation: %llu\n", (unsigned long long)x->generation);
	if (x->how_to_ask)
		line_put(&body, "how to ask: ", x->how_to_ask);
	buf_addf(out,
		"HTTP/1.1 %d %s\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: "
		"%zu\r\n"
		"Cache-Control: no-store\r\nConnection: close\r\n\r\n",
		status, status_text(status), body.len);
	if (!head)
		buf_add(out, body.p, body.len);
}

int exchange_over(struct exchange *x, const char *why)
{
	x->box = BOX_OVER;
	x->close = true;
	snprintf(x->why, sizeof(x->why), "%s", why);
	return -1;
}

int exchange_say_refusal(struct exchange *x, struct buf *to_box)
{
	if (x->box != BOX_REFUSED || x->asked_n)
		return 0;
	buf_add(to_box, x->refusal.p, x->refusal.len);
	x->box = BOX_OVER;
	x->close = true;
	return -1;
}

static int refuse(
	struct exchange *x, int status, const char *what, const char *detail, struct buf *to_box)
{
	x->refusal.len = 0;
	answer_put(x, status, what, detail, strcmp(x->next.method, "HEAD") == 0, &x->refusal);
	snprintf(x->why, sizeof(x->why), "%s", what);
	x->box = BOX_REFUSED;
	exchange_say_refusal(x, to_box);
	return -1;
}

int exchange_refuse(
	struct exchange *x, int status, const char *what, const char *detail, struct buf *to_box)
{
	if (x->on.denied)
		x->on.denied(x->on.user, what);
	return refuse(x, status, what, detail, to_box);
}

static int cut(
	struct exchange *x, int status, const char *what, const char *detail, struct buf *to_box)
{
	/* This request is the newest: when it is the oldest too, it is its answer that the box waits for. */
	if (x->asked_n == 1 && !x->answering)
		answer_put(x, status, what, detail, false, to_box);
	return exchange_over(x, what);
}

int exchange_busy(struct exchange *x, const char *what, bool partly_out, struct buf *to_box)
{
	static const char detail[] = "send the request again";

	return partly_out ? cut(x, 503, what, detail, to_box) : refuse(x, 503, what, detail, to_box);
}

int exchange_cut(struct exchange *x, int status, const char *what, struct buf *to_box)
{
	if (x->on.denied)
		x->on.denied(x->on.user, what);
	return cut(x, status, what, NULL, to_box);
}

int exchange_incident(
	struct exchange *x, int canary, const char *where, bool partly_out, struct buf *to_box)
{
	static const char what[] =
		"a secret's placeholder where no grant lets it go; this is recorded";

	const char *gone = x->on.gone ? x->on.gone(x->on.user, (unsigned)canary) : NULL;
	char detail[200];

	if (gone) {
		snprintf(detail, sizeof(detail), "there is no secret '%.64s' any more; on the host: den secret set %.64s",
			gone, gone);
		if (x->on.denied)
			x->on.denied(x->on.user, "a secret that was removed");
		return partly_out ? cut(x, 403, "the secret was removed", detail, to_box)
				  : refuse(x, 403, "the secret was removed", detail, to_box);
	}
	if (x->on.incident)
		x->on.incident(x->on.user, (unsigned)canary, where);
	return partly_out ? cut(x, 403, what, where, to_box) : refuse(x, 403, what, where, to_box);
}

int exchange_bad_answer(
	struct exchange *x, const char *what, const char *detail, struct buf *to_box)
{
	if (x->asked_n && !x->answering)
		answer_put(x, 502, what, detail, strcmp(x->asked[x->asked_at].method, "HEAD") == 0,
			to_box);
	return exchange_over(x, what);
}
