/*
 * Addresses: the input is matched with patterns of every kind, decoded, and taken as a query. What was
 * understood holds what it promises.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "path.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static const char *const patterns[] = { "/", "/v1/boxes", "/v1/boxes/{box}",
	"/v1/boxes/{box}/execs/{pid}", "/{a}/{b}/{c}/{d}/{e}/{f}/{g}/{h}",
	"/{a}/{b}/{c}/{d}/{e}/{f}/{g}/{h}/{i}", "/files/{rest...}", "/{all...}", "/{}/{...}",
	"/v1/boxes/mine" };

static void check(bool ok)
{
	if (!ok)
		abort();
}

static void match(const char *path)
{
	size_t len = strlen(path);

	for (size_t i = 0; i < sizeof(patterns) / sizeof(patterns[0]); i++) {
		struct span_arg args[PATH_ARGS_MAX];
		unsigned rank;
		size_t k;

		if (!path_fits(patterns[i], path, args, &k, &rank))
			continue;
		check(k <= PATH_ARGS_MAX && path[0] == '/');
		for (size_t a = 0; a < k; a++) {
			check(args[a].value >= path &&
				args[a].value + args[a].value_n <= path + len);
			check(args[a].name >= patterns[i] &&
				args[a].name + args[a].name_n <= patterns[i] + strlen(patterns[i]));
			check(args[a].rest ||
				(args[a].value_n && !memchr(args[a].value, '/', args[a].value_n)));
		}
	}
}

static void decode(const char *text, size_t len, bool plus)
{
	struct den_err err = { 0 };
	char *out = malloc(len + 1);

	if (path_decode(text, len, plus, out, &err) == 0)
		check(strlen(out) <= len && utf8_valid(out, strlen(out), NULL));
	else
		check(err.code == DEN_INVALID && err.msg[0]);
	free(out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	struct den_err err = { 0 };
	char *text = strndup((const char *)data, n);
	struct pair *pairs;
	size_t k, len = strlen(text);

	match(text);
	decode(text, len, false);
	decode(text, len, true);
	if (query_parse(text, &pairs, &k, &err) == 0) {
		check(k <= QUERY_MAX);
		for (size_t i = 0; i < k; i++)
			check(strlen(pairs[i].name) + strlen(pairs[i].value) <= len);
		free(pairs);
	} else {
		check(err.msg[0]);
	}
	free(text);
	return 0;
}
