#include "proc.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "fd.h"

static int start_time(int dirfd, const char *path, uint64_t *ret)
{
	unsigned long long start;
	char text[1024], *p;

	if (file_read_at(dirfd, path, text, sizeof(text), NULL) < 0)
		return -1;
	p = strrchr(text, ')');
	if (!p || sscanf(p + 1,
			  " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d "
			  "%*d %*d %llu",
			  &start) != 1)
		return -1;
	*ret = start;
	return 0;
}

int proc_start_time(pid_t pid, uint64_t *ret)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	return start_time(AT_FDCWD, path, ret);
}

int proc_start_time_at(int dirfd, uint64_t *ret)
{
	return start_time(dirfd, "stat", ret);
}
