/* den key create, ls, revoke: on the database, as the server's own user. Both give an exit status. */
#pragma once

#include "settings.h"

int key_verb(const struct settings *s);
int key_fail(const struct settings *s, const struct den_err *err);
