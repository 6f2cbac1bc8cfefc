#include "test.h"

#include "keeper.h"

/* Of what may be asked den-vault is started, and is not there beside the unit tests. */
static enum den_code code_of(const char *request)
{
	struct store s = { .fd = -1, .path = (char *)test_dir() };
	struct keeper k = { .store = &s };
	struct client c = { .k = &k };
	struct den_err err = { 0 };
	auto_buf req = { 0 }, out = { 0 };
	struct wire_frame f = { .type = WM_VAULT };
	int r;

	wire_put_str(&req, F_CONFIG, request);
	f.p = req.p;
	f.len = (uint32_t)req.len;
	r = req_vault(&c, &f, &out, &err);
	CHECK(r < 0 && out.len == 0);
	return err.code;
}

TEST(keeper_lets_no_client_ask_the_vault_for_values_or_keys)
{
	static const char *const no[] = { "{\"op\":\"secret.get\",\"names\":[\"A\"]}",
		"{\"op\":\"box_ca\",\"box\":\"b-aaaaaaaaaaaaaaaaaa\"}", "{\"op\":\"token.sign\"}",
		"{\"op\":\"placeholder\"}", "{\"op\":1}", "{}", "[]", "", "{\"op\":\"secret.list\"",
		/* said twice, the two could be read differently by the two who read it */
		"{\"op\":\"secret.list\",\"op\":\"secret.get\",\"names\":[\"A\"]}",
		"{\"op\":\"secret.list\\u0000\"}" };
	static const char *const yes[] = { "{\"op\":\"secret.list\"}", "{\"op\":\"secret.set\"}",
		"{\"op\":\"secret.rotate\"}", "{\"op\":\"secret.remove\"}",
		"{\"op\":\"ident.jwks\"}", "{\"op\":\"ident.openid\"}", "{\"op\":\"ident.issuer\"}",
		"{\"op\":\"ident.rotate\"}" };

	for (size_t i = 0; i < ARRAY_SIZE(no); i++)
		CHECK(code_of(no[i]) == DEN_DENIED);
	for (size_t i = 0; i < ARRAY_SIZE(yes); i++)
		CHECK(code_of(yes[i]) == DEN_UNSUPPORTED);
}
