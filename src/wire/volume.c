#include "volume.h"

#include <string.h>

const char *volume_name(const char *host)
{
	static const char prefix[] = "volume:";
	const char *name = host + strlen(prefix);
	size_t n;

	if (strncmp(host, prefix, strlen(prefix)))
		return NULL;
	n = strlen(name);
	return n && n < 64 && name[0] != '-' && strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789-") == n ? name : NULL;
}
