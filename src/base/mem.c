#include "mem.h"

#include <string.h>
#include <unistd.h>

static void *checked(void *p)
{
	static const char msg[] = "den: out of memory\n";

	if (!p) {
		(void)!write(2, msg, sizeof(msg) - 1);
		abort();
	}
	return p;
}

void *mem_alloc(size_t n)
{
	return checked(malloc(n ? n : 1));
}

void *mem_zalloc(size_t n)
{
	return checked(calloc(1, n ? n : 1));
}

void *mem_realloc(void *p, size_t n)
{
	return checked(realloc(p, n ? n : 1));
}

char *mem_strdup(const char *s)
{
	return checked(strdup(s));
}

char *mem_strndup(const char *s, size_t n)
{
	return checked(strndup(s, n));
}
