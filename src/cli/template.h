/* What the verbs below template share. */
#pragma once

#include "cli.h"
#include "work.h"

/* Long work with templates: Ctrl-C and the like are held back until its boxes are deleted. */
struct template_job {
	const struct args *args;
	struct work work;
	int64_t start_ns, shown_ns;
	bool tty, shown;
};
/* Gives 0, or the exit status of a failure that it told. */
int template_job_begin(struct template_job *j, const struct args *a);
/* Tells a failure (r < 0), or prints what was made: the id, as JSON with the name (may be NULL).
 * Ends the job; gives the exit status. */
int template_job_end(struct template_job *j, int r, const char *name, const char *id,
	const struct den_err *err, const char *hint);
