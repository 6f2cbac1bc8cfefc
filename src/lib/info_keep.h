/* For den-serve, which shows each organisation its own. */
#pragma once

#include "den.h"

/* Of what den_list() gave, those for which keep is true; the others are freed. den_box_infos_free() as before. */
void infos_keep(struct den_box_info **infos, size_t *n, bool (*keep)(const struct den_box_info *i, const void *user),
	const void *user);
