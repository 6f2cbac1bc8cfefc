/* Labels: a client's own, and those that the server keeps on a box for itself ("den."). */
#pragma once

#include "v1.h"

#define LABEL_OWN "den." /* what begins so is the server's */
#define LABEL_IDEMPOTENCY                                                                          \
	"den.idempotency" /* hash of org, Idempotency-Key and body: finds a box that was made */

/* A client's may not begin with "den.". labels: "K=V", NULL-terminated. */
int v1_labels_check(char *const *labels, struct den_err *err);
/* Adds to *labels those of had that are the server's. */
void v1_labels_keep(char ***labels, const char *const *had);
