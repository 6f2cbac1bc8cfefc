/*
 * The command line: bytes become words (split at NUL), and each verb's parser reads them, without
 * running anything. Then the parsers of single values.
 */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "box_args.h"
#include "cli.h"
#include "copy.h"
#include "mem.h"
#include "parse.h"
#include "strv.h"

#define MAX_WORDS 64

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool ok)
{
	if (!ok)
		abort();
}

static void fuzz_verbs(const struct verb *const *list, int argc, char **argv)
{
	for (; *list; list++) {
		struct args a;
		struct den_err err = { 0 };
		int r;

		if ((*list)->subs) {
			fuzz_verbs((*list)->subs, argc, argv);
			continue;
		}
		args_init(&a);
		r = verb_parse(*list, argc, argv, &a, &err);
		check(r == 0 || (err.code == DEN_INVALID && err.msg[0]));
		if (r == 0 && !a.help && !a.version) {
			check(a.n_words >= (*list)->min_words && a.n_words <= argc);
			check((*list)->max_words < 0 || a.n_words <= (*list)->max_words);
			check(a.words[a.n_words] == NULL && !(a.tty && a.no_tty));
		}
		args_free(&a);
	}
}

static void fuzz_values(const char *text)
{
	struct den_err err;
	struct place p;
	uint64_t v = 0;
	char *host, *box;
	char **env = NULL;
	bool ro;
	int sig;

	if (parse_u64(text, 1, 100, &v, &err) == 0)
		check(v >= 1 && v <= 100);
	if (parse_size(text, &v, &err) == 0)
		check(v >= 1 && v <= UINT64_MAX >> 1);
	if (parse_duration(text, &v, &err) == 0)
		check(v >= 1);
	if (parse_cpus(text, &v, &err) == 0)
		check(v >= 10 && v <= 4096000);
	if (parse_signal(text, &sig, &err) == 0)
		check(sig >= 1 && sig <= 64);
	if (mount_parse(text, &host, &box, &ro, &err) == 0) {
		check(host[0] == '/' && box[0] == '/' && !strstr(box, "/../"));
		free(host);
		free(box);
	}
	if (env_parse(text, &env, &err) == 0)
		check(env[0] && strchr(env[0], '=') > env[0]);
	strv_free(env);
	place_parse(text, &p);
	check(p.path[0] && (!p.box || p.box[0]));
	place_free(&p);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text = mem_alloc(size + 1);
	char *argv[MAX_WORDS + 1] = { 0 };
	int argc = 0;

	if (size)
		memcpy(text, data, size);
	text[size] = '\0';
	for (char *p = text; p <= text + size && argc < MAX_WORDS; p += strlen(p) + 1)
		argv[argc++] = p;
	fuzz_verbs(verbs, argc, argv);
	fuzz_values(text);
	free(text);
	return 0;
}
