#!/bin/sh
# schema.sh SCHEMA OUT: a C file that carries the schema, for "den policy schema".
set -eu
{
	echo '#include "policy.h"'
	echo
	echo 'const char policy_schema[] ='
	sed 's/\\/\\\\/g; s/"/\\"/g; s/^/\t"/; s/$/\\n"/' "$1"
	echo '	;'
} > "$2"
