/* What a call that saved programs tells. */
#pragma once

#include "cli.h"

static inline void den_saved_freep(struct den_saved **s)
{
	den_saved_free(*s);
}
#define auto_den_saved __attribute__((cleanup(den_saved_freep))) struct den_saved *

/* memory, frozen_us, lost; s may be NULL: nothing */
void saved_json(struct json *j, const struct den_saved *s);
/* What is not in it, as notes. */
void saved_tell(const struct args *a, const struct den_saved *s);
