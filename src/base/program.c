#include "program.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "buf.h"
#include "mem.h"

char *program_find(const char *name, const char *libexec)
{
	char exe[4096], *slash;
	ssize_t n = readlink("/proc/self/exe", exe, sizeof(exe) - 1);
	auto_buf b = { 0 };

	exe[n > 0 ? n : 0] = '\0';
	slash = strrchr(exe, '/');
	if (slash) {
		buf_addf(&b, "%.*s/%s", (int)(slash - exe), exe, name);
		if (access(buf_str(&b), X_OK) == 0)
			return mem_strdup(buf_str(&b));
	}
	b.len = 0;
	buf_addf(&b, "%s/%s", libexec, name);
	return access(buf_str(&b), X_OK) == 0 ? mem_strdup(buf_str(&b)) : NULL;
}
