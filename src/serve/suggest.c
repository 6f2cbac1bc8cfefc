#include "suggest.h"

#include <stdlib.h>
#include <string.h>

#include "e2b_parts.h"
#include "http.h"
#include "mem.h"
#include "parse.h"

char *suggest_template(struct req *r, const char *name)
{
	struct den_template *t;
	struct den_err unheard;
	const char **seen;
	const char *near;
	char *found;
	int k = 0;
	size_t n;

	if (den_templates(req_den(r), &t, &n, &unheard) < 0)
		return NULL;
	seen = mem_alloc((n + 1) * sizeof(*seen));
	for (size_t i = 0; i < n; i++) {
		seen[k] = e2b_template_seen(req_who(r), &t[i]);
		k += seen[k] != NULL;
	}
	near = parse_nearest(name, seen, k);
	found = near ? mem_strdup(near) : NULL;
	free(seen);
	den_templates_free(t, n);
	return found;
}
