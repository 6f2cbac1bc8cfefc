/* WebSocket without its handshake: over any descriptor, also for tests. */
#pragma once

#include "ws.h"

/* Takes fd. r NULL: nobody stops or kicks it. */
struct ws *ws_attach(struct req *r, int fd, size_t max_message);
/* Does the Origin of a browser name the host that was asked? */
bool ws_origin_fits(const char *origin, const char *host);
/* The answer to a key: 28 characters and a NUL. -1: it is no key. */
int ws_accept_key(const char *key, char out[static 29]);
