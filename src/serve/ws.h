/* WebSocket on a connection that req_upgrade() gave; frames by wslay. One thread. */
#pragma once

#include "http.h"

struct ws;
enum { WS_TEXT = 1, WS_BINARY = 2, WS_CLOSED = 8 };

/* Checks the handshake (version, key), that a browser's Origin is this host unless a key came in a header,
 * answers 101. protocol: subprotocol to accept, or NULL. */
int ws_open(struct req *r, const char *protocol, size_t max_message, struct ws **ret, struct den_err *err);
/* Queues and sends; waits while the client is slow. -1: gone. text must be UTF-8. */
int ws_send(struct ws *w, int kind, const void *p, size_t n, struct den_err *err);
/* Waits until a message is there, fd (-1: none) is readable, or the time is up.
 * Returns 0: time is up; 1: fd is readable; WS_TEXT|... << 4: a message, valid until the next call; -1: gone. Pings are
 * answered, and sent after 30 s of silence. */
int ws_next(struct ws *w, int fd, int timeout_ms, const char **ret, size_t *n);
void ws_close(struct ws *w, unsigned code, const char *why); /* and frees it */
