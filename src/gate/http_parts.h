/* Between the files that read HTTP heads; nobody else includes this. */
#pragma once

#include "http.h"

/* Bytes of methods and of names of fields. */
bool http_is_token_char(char c);
bool http_is_value_char(char c);
/* NULL: h->form, path, https and who it is for are set from target and Host. Else what is wrong. */
const char *http_target_read(struct http_head *h);
