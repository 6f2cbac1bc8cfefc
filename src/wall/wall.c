#include "wall.h"

#include <string.h>

#include "mem.h"

static const struct wall_ops *const walls[] = { &wall_container, &wall_gvisor };

const struct wall_ops *wall_find(const char *name, struct den_err *err)
{
	for (size_t i = 0; i < ARRAY_SIZE(walls); i++)
		if (!strcmp(walls[i]->name, name))
			return walls[i];
	den_fail(err, DEN_UNSUPPORTED, 0, "no wall '%.32s' in this version; there are: container, gvisor",
		name);
	return NULL;
}
