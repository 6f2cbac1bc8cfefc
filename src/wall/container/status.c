#include "status.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fd.h"

static const char *line_of(const char *text, const char *key)
{
	const char *p = strstr(text, key);

	return p ? p + strlen(key) : NULL;
}

static uint64_t number_of(const char *text, const char *key, int base)
{
	const char *p = line_of(text, key);

	return p ? strtoull(p, NULL, base) : 0;
}

int status_read(const char *path, struct status *ret)
{
	char text[16384]; /* with more groups than CRIU takes */
	const char *p, *q, *end;

	if (file_read_at(AT_FDCWD, path, text, sizeof(text), NULL) < 0)
		return -1;
	*ret = (struct status){ .leader = (pid_t)number_of(text, "\nTgid:", 10),
		.parent = (pid_t)number_of(text, "\nPPid:", 10),
		.filters = number_of(text, "\nSeccomp_filters:", 10),
		.seccomp = (int)number_of(text, "\nSeccomp:", 10),
		.bound = number_of(text, "\nCapBnd:", 16),
		.effective = number_of(text, "\nCapEff:", 16),
		.permitted = number_of(text, "\nCapPrm:", 16) };
	p = line_of(text, "\nNStgid:\t");
	if (!p)
		return -1;
	for (end = q = p + strcspn(p, "\n"); q > p && q[-1] != '\t'; q--)
		;
	ret->inner = (pid_t)strtol(q, NULL, 10);
	ret->nested = q > p;
	p = line_of(end, "\nx86_Thread_features:");
	ret->shadow = p && strncmp(p + strcspn(p, "s\n"), "shstk", 5) == 0;
	return 0;
}

int status_of(pid_t pid, struct status *ret)
{
	char path[48];

	snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
	return status_read(path, ret);
}
