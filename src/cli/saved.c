#include "saved.h"

#include "show.h"

void saved_json(struct json *j, const struct den_saved *s)
{
	if (!s)
		return;
	json_u64(j, "memory", s->memory);
	json_u64(j, "frozen_us", s->frozen_us);
	show_strings_json(j, "lost", s->lost);
}

void saved_tell(const struct args *a, const struct den_saved *s)
{
	for (const char *const *l = s ? s->lost : NULL; l && *l; l++)
		cli_note(a, "not kept: %s", *l);
}
