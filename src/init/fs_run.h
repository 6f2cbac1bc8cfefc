/* The built-in file operations (wire/fsop.h says what each takes and gives). */
#pragma once

#include "err.h"

/* Runs one in this process, which init forked for it: credentials are the asking user's, 0 and 1
 * are its streams, the working directory is the user's home. The caller tells *err and exits. */
int fs_run(char *const *argv, struct den_err *err);
