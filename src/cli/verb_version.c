#include <string.h>

#include "cli.h"
#include "verbs.h"

static int version(const struct args *a)
{
	struct json j = { 0 };

	if (a->json) {
		json_open(&j, NULL, '{');
		json_str(&j, "version", DEN_VERSION);
		json_str(&j, "library", den_version());
		json_close(&j, '}');
	} else {
		buf_addf(&j.b, "den %s", DEN_VERSION);
		if (strcmp(den_version(), DEN_VERSION))
			buf_addf(&j.b, " (library %s)", den_version());
	}
	return cli_print_json(a, &j);
}

const struct verb verb_version = {
	.name = "version",
	.summary = "print the version",
	.help = "Examples:\n"
		"  den version --json\n",
	.complete = "-",
	.run = version,
};
