#include "test.h"

#include <fcntl.h>
#include <sys/stat.h>

#include "b64.h"
#include "clock.h"
#include "fd.h"
#include "mem.h"
#include "strv.h"
#include "vault.h"

static size_t unhex(const char *hex, uint8_t *out)
{
	size_t n = strlen(hex) / 2;

	for (size_t i = 0; i < n; i++)
		sscanf(hex + 2 * i, "%2hhx", &out[i]);
	return n;
}

static void open_vault(struct vault *v)
{
	struct den_err err;

	CHECK(memory_begin(&err) == 0);
	CHECK(vault_open(test_dir(), v, &err) == 0);
}

/* RFC 4648, section 10 */
TEST(b64_writes_and_reads_the_rfc_vectors)
{
	static const char *const pairs[][2] = { { "", "" }, { "f", "Zg==" }, { "fo", "Zm8=" },
		{ "foo", "Zm9v" }, { "foob", "Zm9vYg==" }, { "fooba", "Zm9vYmE=" },
		{ "foobar", "Zm9vYmFy" } };
	char text[32], back[32];

	for (size_t i = 0; i < ARRAY_SIZE(pairs); i++) {
		size_t n = strlen(pairs[i][0]), bare = strcspn(pairs[i][1], "=");

		CHECK(b64_put(text, pairs[i][0], n, B64_STD) == strlen(pairs[i][1]));
		CHECK(!strcmp(text, pairs[i][1]));
		CHECK(b64_get(back, sizeof(back), text, strlen(text), B64_STD) == (ssize_t)n);
		CHECK(!memcmp(back, pairs[i][0], n));
		CHECK(b64_put(text, pairs[i][0], n, B64_URL) == bare &&
			!strncmp(text, pairs[i][1], bare));
		CHECK(b64_get(back, sizeof(back), text, bare, B64_URL) == (ssize_t)n);
	}
	b64_put(text, "\xfb\xff\xfe", 3, B64_STD);
	CHECK(!strcmp(text, "+//+"));
	b64_put(text, "\xfb\xff\xfe", 3, B64_URL);
	CHECK(!strcmp(text, "-__-"));
}

TEST(b64_has_one_text_for_one_value)
{
	static const char *const bad[] = { "Z", "Zg",
		"Zg=", "Zh==", "Zm9=", "Zm9v=", "Zg==Zg==", "Zm 9", "Zm9v\n",
		"====", "Z===", "-__-" };
	char out[32];

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		CHECK(b64_get(out, sizeof(out), bad[i], strlen(bad[i]), B64_STD) == -1);
	CHECK(b64_get(out, sizeof(out), "Zh", 2, B64_URL) == -1);
	CHECK(b64_get(out, sizeof(out), "Z", 1, B64_URL) == -1);
	CHECK(b64_get(out, sizeof(out), "Zg==", 4, B64_URL) == -1);
	CHECK(b64_get(out, 2, "Zm9v", 4, B64_STD) == -1);
	CHECK(b64_get(out, 3, "Zm9v", 4, B64_STD) == 3);
}

/* RFC 6979, A.2.5: P-256, SHA-256, "sample" */
TEST(vault_signs_with_p256_as_the_rfc_does)
{
	uint8_t d[32], k[32], want[P256_POINT] = { 4 }, point[P256_POINT], sig[80], r[32], s[32];
	struct den_err err;
	size_t n;

	CHECK(memory_begin(&err) == 0);
	unhex("C9AFA9D845BA75166B5C215767B1D6934E50C3DB36E89B127B8A622B120F6721", d);
	unhex("A6E3C57DD01ABE90086538398355DD4C3B17AA873382B0F24D6129493D8AAD60", k);
	unhex("60FED4BA255A9D31C961EB74C6356D68C049B8923B61FA6CE669622E60F29FB6", want + 1);
	unhex("7903FE1008B8BC99A41AE9E95628BC64F2F1B20C2D7E9F5177A3C294D4462299", want + 33);
	unhex("EFD48B2AACB6A8FD1140DD9CD45E81D69D2C877B56AAF991C34D0EA84EAF3716", r);
	unhex("F7CB1C942D657C41D436C7A1B6E29F65F3E900DBB9AFF4064DC4AB2F843ACDA8", s);
	CHECK(p256_public(d, point, &err) == 0 && !memcmp(point, want, sizeof(want)));
	CHECK(p256_sign_with(d, k, "sample", 6, sig, sizeof(sig), &n, &err) == 0);
	/* SEQUENCE { INTEGER 00 r, INTEGER 00 s } */
	CHECK(n == 72 && sig[0] == 0x30 && sig[1] == 70 && sig[3] == 33 && !memcmp(sig + 5, r, 32));
	CHECK(sig[37] == 2 && sig[38] == 33 && !memcmp(sig + 40, s, 32));
}

TEST(vault_makes_no_p256_key_that_is_zero)
{
	uint8_t wide[48] = { 0 }, d[32], point[P256_POINT];
	struct den_err err;

	CHECK(memory_begin(&err) == 0);
	CHECK(p256_derive(wide, d, &err) == 0 && d[31] == 1);
	/* n - 1 becomes 1 again */
	unhex("ffffffff00000000ffffffffffffffffbce6faada7179e84f3b9cac2fc632550", wide + 16);
	CHECK(p256_derive(wide, d, &err) == 0 && d[31] == 1 && d[0] == 0);
	memset(d, 0, sizeof(d));
	CHECK(p256_public(d, point, &err) < 0);
}

/* RFC 8037, A.1 to A.4. A key is only loaded under the name that is its thumbprint. */
static void rfc8037_put(struct vault *v, const char *kid, int64_t retired_ms)
{
	uint8_t p[18 + 32] = { ALG_EDDSA, !retired_ms };
	struct den_err err;

	put_u64(p + 2, 1);
	put_u64(p + 10, (uint64_t)retired_ms);
	unhex(retired_ms ? "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a"
			 : "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60",
		p + 18);
	CHECK(seal_write(v, SEAL_KEY, kid, p, sizeof(p), &err) == 0);
}
#define RFC8037_KID "kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k"

TEST(vault_signs_and_names_ed25519_keys_as_the_rfc_does)
{
	static const char input[] = "eyJhbGciOiJFZERTQSJ9.RXhhbXBsZSBvZiBFZDI1NTE5IHNpZ25pbmc";
	struct sign_key *k = NULL;
	struct den_err err;
	struct vault v;
	uint8_t sig[64];
	char text[B64_SIZE(64)];

	open_vault(&v);
	rfc8037_put(&v, RFC8037_KID, 0);
	CHECK(keys_current(&v, ALG_EDDSA, &k, &err) == 0 && !strcmp(k->kid, RFC8037_KID));
	CHECK(key_sign(k, input, strlen(input), sig, &err) == 0);
	b64_put(text, sig, 64, B64_URL);
	CHECK(!strcmp(text, "hgyY0il_MGCjP0JzlnLWG1PPOt7-"
			    "09PGcvMg3AIbQR6dWbhijcNR4ki4iylGjg5BhVsPt9g7sVvpAr_MuM0KAg"));
	OPENSSL_secure_free(k);
	vault_close(&v);
}

TEST(vault_refuses_a_signing_key_under_another_name)
{
	struct sign_key *k = NULL;
	struct den_err err;
	struct vault v;

	open_vault(&v);
	rfc8037_put(&v, "kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4K", 0);
	CHECK(keys_current(&v, ALG_EDDSA, &k, &err) < 0 && err.code == DEN_CONFLICT && !k);
	vault_close(&v);
}

TEST(vault_keeps_retired_keys_as_long_as_their_tokens_live)
{
	int64_t now = clock_wall_ms(), life = (TOKEN_TTL_MAX + CLOCK_SKEW_S) * 1000LL;
	json_t *made, *gone;
	struct sign_key *list = NULL;
	struct den_err err;
	struct vault v;
	size_t n;

	open_vault(&v);
	rfc8037_put(&v, RFC8037_KID, now - life + 60000);
	CHECK(keys_all(&v, &list, &n, &err) == 0 && n == 1 && !strcmp(list[0].kid, RFC8037_KID));
	OPENSSL_secure_free(list);
	rfc8037_put(&v, RFC8037_KID, now - life - 1000);
	CHECK(keys_all(&v, &list, &n, &err) == 0 && n == 0);
	OPENSSL_secure_free(list);
	CHECK(seal_exists(&v, SEAL_KEY, RFC8037_KID));
	made = json_array();
	gone = json_array();
	CHECK(keys_rotate(&v, ALG_ES256, made, gone, &err) == 0);
	CHECK(json_array_size(made) == 1 && json_array_size(gone) == 0);
	CHECK(!seal_exists(&v, SEAL_KEY, RFC8037_KID));
	json_decref(made);
	json_decref(gone);
	vault_close(&v);
}

/* Killed between making the new key and retiring the old one, the newer signs and both verify. */
TEST(vault_signs_with_the_newer_of_two_keys)
{
	struct sign_key *k = NULL, *list = NULL;
	json_t *made = json_array(), *gone = json_array();
	struct den_err err;
	struct vault v;
	size_t n;

	open_vault(&v);
	CHECK(keys_rotate(&v, ALG_EDDSA, made, gone, &err) == 0);
	rfc8037_put(&v, RFC8037_KID, 0); /* made in 1970 */
	CHECK(keys_current(&v, ALG_EDDSA, &k, &err) == 0 && strcmp(k->kid, RFC8037_KID));
	CHECK(keys_all(&v, &list, &n, &err) == 0 && n == 2);
	OPENSSL_secure_free(list);
	CHECK(keys_rotate(&v, ALG_EDDSA, made, gone, &err) == 0 && json_array_size(gone) == 2);
	CHECK(keys_all(&v, &list, &n, &err) == 0 && n == 3 && !list[0].retired_ms &&
		list[1].retired_ms);
	for (size_t i = 1; i < n; i++) /* what signs no longer cannot */
		for (size_t b = 0; b < 32; b++)
			CHECK(list[i].private[b] == 0);
	OPENSSL_secure_free(list);
	OPENSSL_secure_free(k);
	json_decref(made);
	json_decref(gone);
	vault_close(&v);
}

static void flip(int dir, const char *name, off_t at)
{
	auto_fd fd = openat(dir, name, O_RDWR | O_CLOEXEC);
	uint8_t c;

	CHECK(fd >= 0 && pread(fd, &c, 1, at) == 1);
	c ^= 1;
	CHECK(pwrite(fd, &c, 1, at) == 1);
}

TEST(vault_notices_every_byte_that_changed)
{
	static const char value[] = "a secret of some length";
	uint8_t *p = NULL;
	struct den_err err;
	struct vault v;
	struct stat st;
	size_t n;

	open_vault(&v);
	CHECK(seal_write(&v, SEAL_SECRET, "A", value, sizeof(value), &err) == 0);
	CHECK(fstatat(v.secrets, "A", &st, 0) == 0 && st.st_size == 24 + sizeof(value) + 16);
	for (off_t at = 0; at < st.st_size; at++) {
		flip(v.secrets, "A", at);
		CHECK(seal_read(&v, SEAL_SECRET, "A", &p, &n, &err) < 0 && !p);
		CHECK(err.code ==
			(at == 8 ? DEN_UNSUPPORTED : DEN_CONFLICT)); /* 8: the format's number */
		flip(v.secrets, "A", at);
	}
	CHECK(seal_read(&v, SEAL_SECRET, "A", &p, &n, &err) == 0 && n == sizeof(value) &&
		!memcmp(p, value, n));
	OPENSSL_secure_free(p);
	p = NULL;
	CHECK(linkat(v.secrets, "A", v.secrets, "B", 0) == 0 &&
		linkat(v.secrets, "A", v.keys, "A", 0) == 0);
	CHECK(seal_read(&v, SEAL_SECRET, "B", &p, &n, &err) < 0 && err.code == DEN_CONFLICT);
	CHECK(seal_read(&v, SEAL_KEY, "A", &p, &n, &err) < 0 && err.code == DEN_CONFLICT);
	vault_close(&v);
}

TEST(vault_seals_the_same_value_differently_each_time)
{
	char a[64], b[64];
	struct den_err err;
	struct vault v;

	open_vault(&v);
	for (int i = 0; i < 2; i++) {
		auto_fd fd = -1;

		CHECK(seal_write(&v, SEAL_SECRET, "A", "value", 5, &err) == 0);
		fd = openat(v.secrets, "A", O_RDONLY | O_CLOEXEC);
		CHECK(read(fd, i ? b : a, sizeof(a)) == 24 + 5 + 16);
	}
	CHECK(!memcmp(a, b, 12) && memcmp(a + 12, b + 12, 12) && memcmp(a + 24, b + 24, 5));
	vault_close(&v);
}

static int ask(struct vault *v,
	int (*op)(struct vault *v, json_t *req, json_t *ret, struct den_err *err),
	const char *req_text, char *out, size_t cap, struct den_err *err)
{
	json_t *req = json_loads(req_text, 0, NULL), *ret = json_object();
	int r;

	CHECK(req != NULL);
	r = op(v, req, ret, err);
	if (r == 0) {
		size_t n = json_dumpb(ret, out, cap - 1, JSON_COMPACT);

		CHECK(n < cap);
		out[n] = '\0';
	}
	json_decref(req);
	json_decref(ret);
	return r;
}

#define BOX_A "b-aaaaaaaaaaaaaaaaaa"
#define BOX_B "b-aaaaaaaaaaaaaaaaab"

TEST(vault_placeholders_belong_to_one_box_secret_and_grant)
{
	static const char *const reqs[] = { "{\"box\":\"" BOX_A "\",\"name\":\"K\"}",
		"{\"box\":\"" BOX_B "\",\"name\":\"K\"}", "{\"box\":\"" BOX_A "\",\"name\":\"L\"}",
		"{\"box\":\"" BOX_A "\",\"name\":\"K\",\"salt\":\"x\"}",
		"{\"box\":\"" BOX_A "\",\"name\":\"K\",\"prefix\":\"sk-ant-\"}" };
	char got[5][256], again[256];
	struct den_err err;
	struct vault v;

	open_vault(&v);
	for (size_t i = 0; i < 5; i++) {
		CHECK(ask(&v, op_placeholder, reqs[i], got[i], sizeof(got[i]), &err) == 0);
		CHECK(ask(&v, op_placeholder, reqs[i], again, sizeof(again), &err) == 0 &&
			!strcmp(got[i], again));
		for (size_t k = 0; k < i; k++)
			CHECK(strcmp(got[i], got[k]));
	}
	CHECK(!strncmp(got[0], "{\"placeholder\":\"den_", 20) && strlen(got[0]) == 16 + 4 + 40 + 2);
	CHECK(strspn(got[0] + 20, "abcdefghijklmnopqrstuvwxyz0123456789") == 40);
	CHECK(!strncmp(got[4], "{\"placeholder\":\"sk-ant-den_", 27));
	CHECK(ask(&v, op_placeholder, "{\"box\":\"../x\",\"name\":\"K\"}", again, sizeof(again),
		      &err) < 0);
	CHECK(ask(&v, op_placeholder, "{\"box\":\"" BOX_A "\",\"name\":\"K\",\"prefix\":\"a b\"}",
		      again, sizeof(again), &err) < 0 &&
		err.code == DEN_INVALID);
	vault_close(&v);
}

TEST(vault_gives_a_box_the_same_authority_each_time)
{
	char a[4096], b[4096];
	struct den_err err;
	struct vault v;

	open_vault(&v);
	CHECK(ask(&v, op_box_ca, "{\"box\":\"" BOX_A "\"}", a, sizeof(a), &err) == 0);
	CHECK(ask(&v, op_box_ca, "{\"box\":\"" BOX_A "\"}", b, sizeof(b), &err) == 0 &&
		!strcmp(a, b));
	CHECK(ask(&v, op_box_ca, "{\"box\":\"" BOX_B "\"}", b, sizeof(b), &err) == 0 &&
		strcmp(a, b));
	CHECK(ask(&v, op_box_ca, "{\"box\":\"" BOX_A "\",\"not_before\":\"x\"}", b, sizeof(b),
		      &err) < 0);
	CHECK(ask(&v, op_box_ca, "{\"box\":\"" BOX_A "\",\"not_before\":1800000000}", b, sizeof(b),
		      &err) == 0);
	CHECK(strcmp(a, b) && !strcmp(strstr(a, "\"key\""), strstr(b, "\"key\"")));
	vault_close(&v);
}

TEST(vault_tokens_say_only_what_they_may)
{
	static const char *const bad[] = {
		"{\"claims\":{\"sub\":\"s\",\"aud\":\"a\"}}",
		"{\"claims\":{\"sub\":\"s\",\"den\":{\"box\":\"b\"}}}",
		"{\"claims\":{\"sub\":\"s\",\"aud\":\"a\",\"exp\":1,\"den\":{\"box\":\"b\"}}}",
		"{\"claims\":{\"sub\":\"s\",\"aud\":[\"a\"],\"den\":{\"box\":\"b\"}}}",
		"{\"claims\":{\"sub\":\"s\",\"aud\":\"a\",\"den\":{\"box\":\"b\",\"admin\":true}}}",
		"{\"claims\":{\"sub\":\"s\",\"aud\":\"a\",\"den\":{\"box\":\"b\",\"scopes\":\"x\"}}"
		"}",
		"{\"claims\":{\"sub\":\"s\",\"aud\":\"a\",\"den\":{\"box\":\"b\"}},\"ttl\":3601}",
		"{\"claims\":{\"sub\":\"s\",\"aud\":\"a\",\"den\":{\"box\":\"b\"}},\"ttl\":0}",
		"{\"claims\":{\"sub\":\"s\",\"aud\":\"a\",\"den\":{\"box\":\"b\"}},\"ttl\":\"9\"}",
		"{\"claims\":{\"sub\":\"s\",\"aud\":\"a\",\"den\":{\"box\":\"b\"}},\"alg\":"
		"\"none\"}",
		"{\"claims\":{\"iss\":\"http://"
		"a\",\"sub\":\"s\",\"aud\":\"a\",\"den\":{\"box\":\"b\"}}}",
	};
	char out[4096];
	struct den_err err;
	struct vault v;

	open_vault(&v);
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		CHECK(ask(&v, op_token_sign, bad[i], out, sizeof(out), &err) < 0 &&
			err.code == DEN_INVALID);
	CHECK(ask(&v, op_token_sign,
		      "{\"claims\":{\"sub\":\"s\",\"aud\":\"a\",\"den\":{\"box\":\"b\"}},\"ttl\":"
		      "3600}",
		      out, sizeof(out), &err) == 0);
	vault_close(&v);
}

TEST(vault_issuers_are_places_where_a_document_can_be)
{
	static const char *const bad[] = { "https://", "http://id.example.com",
		"https://id.example.com/", "ftp://x", "https://id.example.com?x=1",
		"https://id.example.com#x", "https://id example.com", "x",
		"http://localhost.example.com", "https:///path", "https://u@x" };
	static const char *const good[] = { "https://id.example.com",
		"https://id.example.com:8443/den", "http://localhost:80", "http://127.0.0.1",
		"http://[::1]:9/x" };
	char out[ISSUER_MAX + 1];
	struct den_err err;
	struct vault v;

	open_vault(&v);
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		CHECK(issuer_get(&v, bad[i], out, &err) < 0 && err.code == DEN_INVALID);
	for (size_t i = 0; i < ARRAY_SIZE(good); i++)
		CHECK(issuer_get(&v, good[i], out, &err) == 0 && !strcmp(out, good[i]));
	CHECK(issuer_get(&v, NULL, out, &err) == 0 && !strcmp(out, "https://den.invalid"));
	vault_close(&v);
}

TEST(vault_that_was_rotated_too_often_still_signs)
{
	json_t *made = json_array(), *gone = json_array();
	struct sign_key *k = NULL;
	struct den_err err;
	struct vault v;
	int n = 0;

	open_vault(&v);
	while (keys_rotate(&v, ALG_EDDSA, made, gone, &err) == 0)
		CHECK(++n <= 128);
	CHECK(n == 128 && err.code == DEN_LIMIT);
	CHECK(keys_current(&v, ALG_EDDSA, &k, &err) == 0 && k->retired_ms == 0);
	OPENSSL_secure_free(k);
	json_decref(made);
	json_decref(gone);
	vault_close(&v);
}
