/* The pieces of proxy.c. */
#pragma once

#include "http.h"

/* What shows that somebody may use a port: none of the box's business. */
#define TOKEN_HEADER "e2b-traffic-access-token"
#define TOKEN_NAME "den-token"

/* The query without the token. free() it */
char *proxy_query(const char *query);
/* The head of the request for the box. *ret_chunked: so its body must be framed. The caller frees *ret, also on
 * failure. */
int proxy_head(struct req *r, bool upgrade, struct buf *ret, bool *ret_chunked, struct den_err *err);

/* Bytes both ways between two sockets until both directions have ended, or the request is to. first: what came from
 * `box` already. */
void proxy_pump(struct req *r, int client, int box, const void *first, size_t n);
