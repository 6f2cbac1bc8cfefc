/* Finding an exec of a box by pid or tag, as den_exec_attach() does. */
#pragma once

#include "den.h"
#include "err.h"

struct exec_brief {
	bool running, tty;
	uint64_t out_bytes, err_bytes;
};
/* Whether the exec is the one that ref names. */
bool exec_matches(const struct den_exec_info *e, const char *ref);
int exec_find(struct den_box *box, const char *ref, struct exec_brief *ret, struct den_err *err);
