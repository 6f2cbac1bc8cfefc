/* Programs that the server itself runs in a box. */
#pragma once

#include "http.h"

#define RUN_TICK_MS 250

/* stream 0: nothing new; called from time to time */
typedef void (*run_output)(int stream, const void *data, size_t n, void *user);
/* Returns when it has been started; it goes on by itself. */
int run_detached(struct den_box *box, struct den_exec_opt *opt, struct den_err *err);
/* Returns when it has ended; output may be NULL. */
int run_wait(struct den_box *box, struct den_exec_opt *opt, run_output output, void *user,
	struct den_exec_result *ret, struct den_err *err);
