/* Programs that the server itself runs in a box: what templates are made with, what boxes begin with. */
#include "run.h"

#include <string.h>

struct running {
	run_output output;
	void *user;
	bool started, ended, lost;
	struct den_exec_result result;
	struct den_err err;
};

static void on_started(struct den_exec *e, pid_t pid, void *user)
{
	(void)e, (void)pid;
	((struct running *)user)->started = true;
}

static void on_output(struct den_exec *e, int stream, const void *data, size_t n, void *user)
{
	struct running *r = user;

	(void)e;
	if (r->output)
		r->output(stream, data, n, r->user);
}

static void on_ended(struct den_exec *e, const struct den_exec_result *result,
	const struct den_err *err, void *user)
{
	struct running *r = user;

	(void)e;
	r->ended = true;
	if (result)
		r->result = *result;
	r->lost = err != NULL;
	if (err)
		r->err = *err;
}

static const struct den_exec_ops ops = {
	.started = on_started, .output = on_output, .ended = on_ended
};

int run_detached(struct den_box *box, struct den_exec_opt *opt, struct den_err *err)
{
	struct running r = { 0 };
	struct den_exec *e = NULL;
	int status;

	opt->flags |= DEN_EXEC_DETACH;
	status = den_exec_start(box, opt, &ops, &r, &e, err);
	while (status == 0 && !r.started && !r.ended)
		status = den_dispatch(box, -1, err);
	den_exec_unref(e);
	if (status == 0 && r.lost) {
		*err = r.err;
		return -1;
	}
	return status;
}

int run_wait(struct den_box *box, struct den_exec_opt *opt, run_output output, void *user,
	struct den_exec_result *ret, struct den_err *err)
{
	struct running r = { .output = output, .user = user };
	struct den_exec *e = NULL;
	int status;

	opt->flags |= DEN_EXEC_KILL_ON_CLOSE;
	status = den_exec_start(box, opt, &ops, &r, &e, err);
	while (status == 0 && !r.ended) {
		status = den_dispatch(box, RUN_TICK_MS, err);
		if (output)
			output(0, NULL, 0, user);
	}
	den_exec_unref(e);
	if (status == 0 && r.lost) {
		*err = r.err;
		return -1;
	}
	if (status == 0)
		*ret = r.result;
	return status;
}
