/* Dispatching, between the engine and the tables. */
#pragma once

#include "http_int.h"

/* Picks the dialect and the route and checks what needs no waiting. HTTP thread. -1: refuse with err; the answer
 * may also be there already (preflight). */
int route_open(struct req *r, struct den_err *err);
/* Who asks, then the handler. Worker. */
int route_run(struct req *r, struct den_err *err);
