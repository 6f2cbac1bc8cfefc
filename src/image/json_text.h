/* For those who write JSON with json.h, which cannot be seen beside jansson.h. */
#pragma once

#include "err.h"

/* The same value on one line, checked; the caller frees it. */
int json_compact(const char *text, char **ret, struct den_err *err);
