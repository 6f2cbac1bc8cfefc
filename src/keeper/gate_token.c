/* Tokens that a box asks for through its gate. */
#include <string.h>

#include "clock.h"
#include "gate.h"

#define KEPT_NS (30 * NS_PER_SEC) /* of ten minutes */

static void token_free(struct kept_token *t)
{
	free(t->audience);
	free(t->alg);
	free(t->token);
	*t = (struct kept_token){ 0 };
}

void tokens_drop(struct kgate *g)
{
	for (size_t i = 0; i < ARRAY_SIZE(g->tokens); i++)
		token_free(&g->tokens[i]);
}

int token_kept(struct kgate *g, const char *audience, const char *alg, char **ret, struct den_err *err)
{
	struct kept_token *t;
	int64_t now = clock_mono_ns();

	for (size_t i = 0; i < ARRAY_SIZE(g->tokens); i++) {
		t = &g->tokens[i];
		if (t->until > now && !strcmp(t->audience, audience) && !strcmp(t->alg, alg)) {
			*ret = mem_strdup(t->token);
			return 0;
		}
	}
	if (gate_token(g->k, audience, alg, true, ret, err) < 0)
		return -1;
	t = &g->tokens[g->next_token++ % ARRAY_SIZE(g->tokens)];
	token_free(t);
	*t = (struct kept_token){ mem_strdup(audience), mem_strdup(alg), mem_strdup(*ret), now + KEPT_NS };
	return 0;
}
