/* Stand-ins for what is not there yet; each goes when the real one comes. */
#include "e2b_parts.h"
#include "events.h"
#include "meter.h"
#include "ports.h"
#include "route.h"
#include "serve.h"

#define W __attribute__((weak))
static void f(struct req *r, const struct den_err *err) { req_reply(r, http_status(err->code), "text/plain", err->msg, __builtin_strlen(err->msg)); }
W const struct dialect dialect_v1 = { "v1", .fail = f };
W const struct dialect dialect_e2b = { "e2b", .fail = f };
W const struct dialect dialect_envd = { "envd", .fail = f };
W const struct dialect dialect_ui = { "ui", .fail = f };
W const struct serve_part e2b_part = { "e2b" };
W int meter_start(struct den_err *err) { return 0; }
W void meter_stop(void) {}
