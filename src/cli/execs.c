#include "execs.h"

#include <stdio.h>
#include <string.h>

bool exec_matches(const struct den_exec_info *e, const char *ref)
{
	char pid[16];

	snprintf(pid, sizeof(pid), "%d", (int)e->pid);
	return !strcmp(pid, ref) || (e->tag && !strcmp(e->tag, ref));
}

int exec_find(struct den_box *box, const char *ref, struct exec_brief *ret, struct den_err *err)
{
	struct den_ps *ps = NULL;
	const struct den_exec_info *found = NULL;

	if (den_box_ps(box, &ps, err) < 0)
		return -1;
	for (size_t i = 0; i < ps->n_execs; i++) {
		const struct den_exec_info *e = &ps->execs[i];

		/* a tag may be used again once its first holder ended: the running one is meant */
		if (exec_matches(e, ref) && (!found || e->running || !found->running))
			found = e;
	}
	if (found)
		*ret = (struct exec_brief){ found->running, found->tty, found->result.out_bytes,
			found->result.err_bytes };
	den_ps_free(ps);
	if (!found)
		return den_fail(err, DEN_NOT_FOUND, 0,
			"no exec '%.60s' in this box; 'den ps' lists them", ref);
	return 0;
}
