/* Which dialect a request is for: by Host, headers and path. Never waits. */
#pragma once

#include "route.h"

const struct dialect *pick(struct req *r);
/* The box and port that Host ("PORT-ID.anything") or the headers E2b-Sandbox-Id and -Port name; false: none. */
bool pick_box(const struct req *r, char ret_id[static 21], uint16_t *ret_port);
/* All dialects, NULL-terminated: for --routes. */
extern const struct dialect *const dialects[];
