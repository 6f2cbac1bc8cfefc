#pragma once

#include "err.h"

/* 0, unless a test wants it otherwise here. */
int fault(const char *name, struct den_err *err);
