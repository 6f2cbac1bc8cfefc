#include "info_keep.h"

#include <stdlib.h>

#include "lib.h"
#include "mem.h"

/* Public and private halves are in one allocation, found by the number of boxes (info.c): a shorter list is a new one. */
void infos_keep(struct den_box_info **infos, size_t *n, bool (*keep)(const struct den_box_info *i, const void *user),
	const void *user)
{
	struct box_info *own = (struct box_info *)(void *)(*infos + *n), *to_own;
	struct den_box_info *to;
	size_t left = 0, at = 0;

	for (size_t i = 0; i < *n; i++)
		left += keep(&(*infos)[i], user);
	to = mem_zalloc(left * (sizeof(*to) + sizeof(*own)) + 1);
	to_own = (struct box_info *)(void *)(to + left);
	for (size_t i = 0; i < *n; i++) {
		if (keep(&(*infos)[i], user)) {
			to[at] = (*infos)[i];
			to_own[at++] = own[i];
		} else {
			free((void *)(*infos)[i].mounts);
			box_info_free(&own[i]);
		}
	}
	free(*infos);
	*infos = to;
	*n = left;
}
