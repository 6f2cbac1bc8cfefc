/* docs/api/openapi.yaml, as it was when this was built. */
#pragma once

#include <stddef.h>

extern const char openapi_text[];
extern const size_t openapi_text_len;
