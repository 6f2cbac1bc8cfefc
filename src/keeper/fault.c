/*
 * Named faults, which tests switch on: DEN_TEST=fail:NAME, kill:NAME or wait:NAME in the environment of whoever starts
 * the keeper; several with commas. What is named is where the keeper stands, and grep finds it.
 */
#include "fault.h"

#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define WAIT_NS 500000000L

static bool is_on(const char *how, const char *name)
{
	const char *list = getenv("DEN_TEST");
	char want[64];
	size_t n = (size_t)snprintf(want, sizeof(want), "%s:%s", how, name);

	for (; list && *list; list += strcspn(list, ","), list += *list == ',')
		if (strcspn(list, ",") == n && !strncmp(list, want, n))
			return true;
	return false;
}

int fault(const char *name, struct den_err *err)
{
	if (!getenv("DEN_TEST"))
		return 0;
	if (is_on("wait", name))
		nanosleep(&(struct timespec){ .tv_nsec = WAIT_NS }, NULL);
	if (is_on("kill", name))
		raise(SIGKILL);
	return is_on("fail", name) ? den_fail(err, DEN_INTERNAL, 0, "fault '%s'", name) : 0;
}
