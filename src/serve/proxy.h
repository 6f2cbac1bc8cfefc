#pragma once

#include "http.h"

/* Bytes both ways between two sockets until both directions have ended, or the request is to. first: what came from
 * `box` already. */
void proxy_pump(struct req *r, int client, int box, const void *first, size_t n);
