/* den pool warm: boxes that are built before somebody asks for them. */
#pragma once

#include "cli.h"

int pool_warm(const struct args *a);
/* What is ready, for 'den pool'; -1 and err */
int warm_text(struct den *d, struct buf *out, struct den_err *err);
int warm_json(struct den *d, struct json *j, struct den_err *err);
/* "TEMPLATE=N" */
int warm_parse(const char *text, char **ret_template, uint64_t *ret_n, struct den_err *err);
