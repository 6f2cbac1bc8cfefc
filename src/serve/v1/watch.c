/* /v1/events: everything that happens, as server-sent events. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "auth.h"
#include "boxes.h"
#include "events.h"
#include "handlers.h"
#include "mem.h"
#include "parse.h"

/* All that there is now. 1: something was sent, 0: nothing, -1 */
static int send_all(struct req *r, struct events_sub *s, struct den_err *err)
{
	uint64_t number;
	int sent = 0;

	for (;;) {
		auto_free char *text = events_next(s, &number);
		json_t *j = text ? json_loads(text, 0, NULL) : NULL;
		char id[24];

		if (!j)
			return sent;
		snprintf(id, sizeof(id), "%llu", (unsigned long long)number);
		if (sse_send(r, id, json_string_value(json_object_get(j, "kind")), j, err) < 0)
			return -1;
		sent = 1;
	}
}

static int follow(struct req *r, struct events_sub *s, struct den_err *err)
{
	int ev = 0;

	if (sse_begin(r, err) < 0)
		return -1;
	while (!(ev & (REQ_GONE | REQ_STOP))) {
		int sent = send_all(r, s, err);

		if (sent < 0 || (!sent && !ev && sse_keepalive(r, err) < 0))
			return -1;
		ev = req_wait(r, events_fd(s), SSE_KEEPALIVE_MS);
	}
	req_end(r); /* the server ends: the client comes back with Last-Event-ID */
	return 0;
}

/* The box by id or name; of one that is gone, its id alone: what happened to it may still be told. */
static int box_of(struct req *r, const char *ref, char ret[static 32], struct den_err *err)
{
	struct den_box *box;

	if (v1_open(r, ref, &box, err) == 0) {
		snprintf(ret, 32, "%s", den_box_id(box));
		den_box_close(box);
		return 0;
	}
	if (err->code != DEN_NOT_FOUND || !boxes_id(ref, ret))
		return -1;
	return 0;
}

int v1_events(struct req *r, struct den_err *err)
{
	const char *last = req_header(r, "Last-Event-ID"), *box = req_query(r, "box");
	struct events_sub *s;
	char id[32] = "";
	uint64_t after = 0;
	int res;

	if (!QUERY(r, err, "box", "kind", "after", ) ||
		req_query_u64(r, "after", 1ULL << 53, 0, &after, err) < 0)
		return -1;
	if (last && *last && parse_u64(last, 0, 1ULL << 53, &after, err) < 0)
		return den_wrap(err, "Last-Event-ID");
	if (box && box_of(r, box, id, err) < 0)
		return -1;
	s = events_subscribe(req_who(r), id[0] ? id : NULL, req_query(r, "kind"), after);
	res = follow(r, s, err);
	events_unsubscribe(s);
	return res;
}
