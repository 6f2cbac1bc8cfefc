/* How an exec ended, for people and for $?. */
#pragma once

#include "den.h"
#include "options.h"

/* The exit code, or 128 + the signal. */
int result_status(const struct den_exec_result *r);
/* For a program that was not started: 127 not found, 126 not executable, 125 anything else. */
int failure_status(const struct den_err *err);
/* Says on stderr which limit ended it, if one did. */
void outcome_note(const struct args *a, struct den_box *box, const struct den_exec_result *r);
