#!/bin/sh
# embed.sh INPUT OUTPUT: the API's description as a C array
{
	echo '#include "openapi_text.h"'
	echo 'const char openapi_text[] = {'
	od -An -v -tu1 "$1" | sed 's/\([0-9][0-9]*\)/\1,/g'
	echo '0 };'
	echo 'const size_t openapi_text_len = sizeof(openapi_text) - 1;'
} >"$2"
