/*
 * Everything that happens: what this server does, and what keepers tell (den.h, den_feed). Readers have a
 * bounded queue each; one that is too slow loses the oldest and is told how many.
 */
#pragma once

#include <jansson.h>

#include "auth.h"
#include "err.h"

/* kind: "box.created" "box.started" "box.paused" "box.resumed" "box.stopped" "box.deleted" "box.forked"
 * "exec.started" "exec.ended" "file.changed" "checkpoint.made" "rollback" "policy.changed" "net.denied"
 * "net.connection" "net.incident" "template.made" "template.removed" "key.created" "key.revoked". data: object
 * or NULL, taken. org NULL: of nobody, told to admins alone. */
void events_post(const char *kind, const char *org, const char *box_id, json_t *data);

struct events_sub;
struct events_sub *events_subscribe(const struct who *who, const char *box_id /* NULL: all */, const char *kinds /* comma list with
	"box." prefixes allowed; NULL: all */, uint64_t after /* number of the last that was seen; 0: from now */);
int events_fd(const struct events_sub *s); /* readable when there is one: for req_wait() */
/* The next, as a JSON text with "id", "time", "kind", "box", "data"; free() it. NULL: none now. */
char *events_next(struct events_sub *s, uint64_t *ret_number);
void events_unsubscribe(struct events_sub *s);

/*
 * The bus begins with events_start(): it makes STATE/serve/feed.sock, where keepers tell what happens, and a thread
 * that reads it. After dropping rights, before the seccomp filter or with it (socket, bind, recv, eventfd2).
 * Numbers grow over restarts, so that who was away knows what it missed, or that it missed something: then the
 * first that it gets is of kind "lost".
 */
int events_start(struct den_err *err);
void events_stop(void);
/* Called for each event, ours and keepers', in the thread in which it comes, before readers see it: must be quick and
 * not block, and may not call events_*(). At most a few; before events_start(). org, box_id, data may be NULL. */
void events_hook(void (*fn)(const char *kind, const char *org, const char *box_id, const json_t *data));
