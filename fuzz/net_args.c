/*
 * Network options, and settings of sandbox-runtime (without looking at files): what is understood becomes a
 * policy, or an error that says why; nothing is lost in between.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "mem.h"
#include "net_args.h"
#include "policy.h"
#include "srt.h"
#include "strv.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool ok)
{
	if (!ok)
		abort();
}

static void fuzz_domain(const char *text)
{
	for (int deny = 0; deny < 2; deny++) {
		struct den_err err = { 0 };
		struct policy_rule r;
		auto_free char *rule = NULL;

		if (srt_domain(text, deny, &rule, &err) < 0) {
			check(err.code && err.msg[0]);
			continue;
		}
		check(policy_rule_parse(rule, deny, false, &r, NULL, &err) == 0);
		check(r.kind == RULE_NAME || r.kind == RULE_SUFFIX || r.kind == RULE_CIDR);
		/* never a whole top-level domain */
		check(r.kind != RULE_SUFFIX || strchr(r.name.s, '.'));
	}
}

static void fuzz_option(const char *text, int which)
{
	struct args a = { 0 };
	char ***lists[] = { &a.allow, &a.deny, &a.presets, &a.secrets, &a.audiences, &a.drop };
	struct net_args n = { 0 };
	struct den_err err = { 0 };

	strv_add(lists[which % 6], text);
	if (net_args_make(&a, "{\"allow\":[\"a.b\"]}", &n, &err) < 0)
		check(err.code && err.msg[0] && !n.policy && !n.name);
	else
		check(n.policy && !n.name);
	net_args_free(&n);
	strv_free(*lists[which % 6]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	auto_free char *text = mem_alloc(size + 1);
	struct den_err err = { 0 };
	struct srt s = { 0 };
	json_t *secret = NULL;

	memcpy(text, data, size);
	text[size] = '\0';
	if (srt_parse(text, size, false, &s, &err) < 0)
		check(err.code && err.msg[0] && !s.allow && !s.deny);
	srt_free(&s);
	if (net_secret_parse(text, &secret, &err) == 0) {
		check(json_is_array(json_object_get(secret, "in")));
		json_decref(secret);
	}
	fuzz_domain(text);
	for (int i = 0; i < 6; i++)
		fuzz_option(text, i);
	return 0;
}
