/* What the gate's exchange is made of: swapping, canaries, encodings, AWS signatures, certificates. */
#include <string.h>
#include <time.h>

#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include "buf.h"
#include "canary.h"
#include "clock.h"
#include "encode.h"
#include "mem.h"
#include "mint.h"
#include "sigv4.h"
#include "swap.h"
#include "test.h"
#include "tls_ctx.h"

static bool is(const struct buf *b, const char *text)
{
	bool same = b->len == strlen(text) && (!b->len || memcmp(b->p, text, b->len) == 0);

	if (!same)
		fprintf(stderr, "  got '%.*s'\n  not '%s'\n", (int)b->len, b->p, text);
	return same;
}

static struct swap *swap_of(const char *const *texts)
{
	struct swap_pair p[16];
	unsigned n = 0;

	for (; texts[0]; texts += 2)
		p[n++] = (struct swap_pair){ texts[0], strlen(texts[0]), texts[1],
			strlen(texts[1]) };
	return swap_new(p, n);
}

static void swap_all(const char *const *texts, const char *in, size_t piece, struct buf *out)
{
	struct swap *s = swap_of(texts);
	size_t n = strlen(in);

	for (size_t i = 0; i < n; i += piece)
		swap_feed(s, in + i, MIN(piece, n - i), out);
	swap_end(s, out);
	swap_free(s);
}

TEST(gate_swap_is_the_same_however_the_stream_is_cut)
{
	static const char *const pairs[] = { "secret", "S", "abcd", "1", "bc", "2", "aab", "<aab>",
		"abcdef", "long", "x", "xx", NULL };
	static const struct {
		const char *in, *out;
	} cases[] = {
		{ "", "" },
		{ "secret", "S" },
		{ "sesecretsecre", "seSsecre" },
		{ "abcd", "1" },
		{ "abcdef", "long" }, /* the longer one counts */
		{ "abcde", "1e" }, /* ... if it is there */
		{ "abc", "a2" }, /* at the end a shorter one inside */
		{ "aaab", "a<aab>" },
		{ "aabcd", "<aab>cd" }, /* leftmost */
		{ "axa", "axxa" },
		{ "bcbcabcxsecretabcdefx", "22a2xxSlongxx" },
	};

	for (unsigned i = 0; i < ARRAY_SIZE(cases); i++)
		for (size_t piece = 1; piece < 24; piece++) {
			auto_buf out = { 0 };

			swap_all(pairs, cases[i].in, piece, &out);
			CHECK(is(&out, cases[i].out));
		}
}

TEST(gate_swap_holds_only_what_may_become_a_pattern)
{
	static const char *const pairs[] = { "sk-ant-0123", "PLACEHOLDER", NULL };
	struct swap *s = swap_of(pairs);
	auto_buf out = { 0 };

	swap_feed(s, "data: {\"x\":1}\n\n", 15, &out);
	CHECK(is(&out, "data: {\"x\":1}\n\n") && swap_flush_safe(s));
	swap_feed(s, "data: sk-an", 11, &out);
	CHECK(out.len == 15 + 6 && swap_held(s) == 5 && !swap_flush_safe(s));
	swap_feed(s, "other\n", 6, &out);
	CHECK(is(&out, "data: {\"x\":1}\n\ndata: sk-another\n") && swap_held(s) == 0);
	CHECK(swap_hits(s, 0) == 0 && swap_keeps_length(s));
	swap_feed(s, "sk-ant-0123", 11, &out);
	CHECK(swap_hits(s, 0) == 1 && swap_held(s) == 0);
	swap_free(s);
}

TEST(gate_swap_released_bytes_are_out_once_and_still_begin_a_pattern)
{
	static const char *const pairs[] = { "abcdef", "<1>", "bcx", "<2>", "cc", "<3>", NULL };
	static const struct {
		const char *in, *out;
	} cases[] = {
		{ "abcdef", "a<1>" }, /* one byte was seen */
		{ "abcx", "a<2>" },
		{ "abcc", "ab<3>" },
		{ "abcdeabcdef", "abcdea<1>" },
		{ "aabbcc", "aabb<3>" },
		{ "abc", "abc" },
	};

	for (unsigned i = 0; i < ARRAY_SIZE(cases); i++) {
		struct swap *s = swap_of(pairs);
		auto_buf out = { 0 };

		for (const char *p = cases[i].in; *p; p++) {
			swap_feed(s, p, 1, &out);
			swap_release(s, 1, &out);
		}
		swap_end(s, &out);
		CHECK(is(&out, cases[i].out));
		swap_free(s);
	}
}

static void spelled_all(const char *value, const char *to, const char *in, size_t piece, struct buf *out)
{
	struct swap_pair p[] = { { value, strlen(value), to, strlen(to), true }, { "abc", 3, "SHORT", 5, false } };
	struct swap *s = swap_new(p, 2);

	for (size_t i = 0, n = strlen(in); i < n; i += piece)
		swap_feed(s, in + i, MIN(piece, n - i), out);
	swap_end(s, out);
	swap_free(s);
}

TEST(gate_swap_finds_spellings_and_leaves_the_rest_as_it_was)
{
	static const struct {
		const char *in, *out;
	} cases[] = {
		{ "abc&d%e", "X" },
		{ "%61bc&d%e", "X" },
		{ "<a%62c&amp;d%25e>", "<X>" },
		{ "abc%26d%2525e", "X" },
		{ "abc\\u0026d%e abc&d%", "X SHORT&d%" }, /* a shorter one where the longer is not whole */
		{ "abc&amp", "SHORT&amp" },
		{ "%61bc&amp", "%61bc&amp" },
		{ "%6 %zz \\u00 \\ & &# &#9999; &#x; &unknown; %", "%6 %zz \\u00 \\ & &# &#9999; &#x; &unknown; %" },
		{ "&#x61", "&#x61" },
		{ "%%61bc&d%e", "%X" },
		{ "\\\\\\x61bc&d%e", "\\X" }, /* as it would be in text in text */
	};

	for (unsigned i = 0; i < ARRAY_SIZE(cases); i++)
		for (size_t piece = 1; piece < 24; piece++) {
			auto_buf out = { 0 };

			spelled_all("abc&d%e", "X", cases[i].in, piece, &out);
			CHECK(is(&out, cases[i].out));
		}
}

TEST(gate_swap_fills_up_spellings_where_the_length_counts)
{
	struct swap_pair p = { "a&b", 3, "ph!", 3, true };
	struct swap *s = swap_new(&p, 1);
	auto_buf out = { 0 };

	CHECK(swap_keeps_length(s));
	swap_feed(s, "<a&b> <a&amp;b>", 15, &out);
	CHECK(is(&out, "<ph!> <ph!---->"));
	swap_free(s);
}

/* ---- canaries ---------------------------------------------------------------------------------- */

#define PH "den-placeholder-8f3KqLz0aWvR"

static int find_cut(const struct canary *c, const char *p, size_t n, size_t piece)
{
	struct canary_scan s = { 0 };

	for (size_t i = 0; i < n; i += piece) {
		int r = canary_feed(c, &s, p + i, MIN(piece, n - i));

		if (r >= 0)
			return r;
	}
	return -1;
}

static void found_everywhere(
	const struct canary *c, const char *what, const char *p, size_t n, int want)
{
	for (size_t before = 0; before < 4; before++) {
		auto_buf b = { 0 };

		buf_add(&b, "deX%2", before);
		buf_add(&b, p, n);
		buf_addstr(&b, "tail of the text");
		for (size_t piece = 1; piece < 40; piece += piece < 5 ? 1 : 7)
			if (find_cut(c, b.p, b.len, piece) != want) {
				fprintf(stderr, "  %s, %zu before, pieces of %zu\n", what, before,
					piece);
				CHECK(!"found");
			}
		CHECK(canary_find(c, b.p, b.len) == want);
	}
}

TEST(gate_canary_finds_a_placeholder_in_its_disguises)
{
	static const char *const all[] = { "den-placeholder-other-0000000", PH };
	struct canary *c = canary_new(all, 2);
	auto_buf b = { 0 };

	found_everywhere(c, "plain", PH, strlen(PH), 1);
	found_everywhere(c, "the other", all[0], strlen(all[0]), 0);
	for (size_t i = 0; i < strlen(PH); i++)
		buf_addf(&b, "%c", PH[i] >= 'a' && PH[i] <= 'z' ? PH[i] - 32 : PH[i]);
	found_everywhere(c, "upper case", b.p, b.len, 1);
	b.len = 0;
	for (size_t i = 0; i < strlen(PH); i++)
		buf_addf(&b, i % 2 ? "%%%02X" : "%c", PH[i]);
	found_everywhere(c, "percent, every other", b.p, b.len, 1);
	b.len = 0;
	for (size_t i = 0; i < strlen(PH); i++)
		buf_addf(&b, "%%%02x", PH[i]);
	found_everywhere(c, "percent, all", b.p, b.len, 1);
	b.len = 0;
	for (size_t i = 0; i < strlen(PH); i++)
		buf_addf(&b, "%%25%02x", PH[i]);
	found_everywhere(c, "percent, twice", b.p, b.len, 1);
	b.len = 0;
	for (size_t i = 0; i < strlen(PH); i++)
		buf_addf(&b, i == 7 ? "\\u%04x" : "%c", PH[i]);
	found_everywhere(c, "JSON", b.p, b.len, 1);
	b.len = 0;
	for (size_t i = strlen(PH); i-- > 0;)
		buf_addf(&b, "%c", PH[i]);
	found_everywhere(c, "reversed", b.p, b.len, 1);
	b.len = 0;
	encode_hex(&b, PH, strlen(PH));
	found_everywhere(c, "hex", b.p, b.len, 1);
	b.len = 0;
	for (size_t i = 0; i < strlen(PH); i++)
		buf_add(&b, (char[]){ PH[i], 0 }, 2);
	found_everywhere(c, "UTF-16", b.p, b.len, 1);
	b.len = 0;
	buf_add(&b, PH, 9);
	buf_addstr(&b, "\r\n");
	buf_addstr(&b, &PH[9]);
	found_everywhere(c, "two lines", b.p, b.len, 1);
	canary_free(c);
}

TEST(gate_canary_finds_base64_at_every_alignment_in_both_alphabets)
{
	static const char odd[] = "placeholder>>>?>>>?>?xyz"; /* has + and / in base64 */
	static const char *const all[] = { odd };
	struct canary *c = canary_new(all, 1);

	for (size_t before = 0; before < 7; before++)
		for (size_t after = 0; after < 4; after++) {
			auto_buf plain = { 0 };
			auto_buf b = { 0 };

			buf_add(&plain, "user:12", before);
			buf_addstr(&plain, odd);
			buf_add(&plain, "zzzz", after);
			encode_base64(&b, plain.p, plain.len);
			CHECK(canary_find(c, b.p, b.len) == 0);
			for (size_t i = 0; i < b.len; i++)
				b.p[i] = b.p[i] == '+' ? '-' : b.p[i] == '/' ? '_' : b.p[i];
			CHECK(canary_find(c, b.p, b.len) == 0);
			CHECK(find_cut(c, b.p, b.len, 1) == 0 && find_cut(c, b.p, b.len, 5) == 0);
		}
	canary_free(c);
}

TEST(gate_canary_lets_everything_else_pass)
{
	static const char *const all[] = { PH };
	struct canary *c = canary_new(all, 1);
	auto_buf b = { 0 };
	uint32_t x = 1;

	CHECK(canary_find(NULL, PH, strlen(PH)) == -1);
	CHECK(canary_find(c, PH, strlen(PH) - 1) == -1);
	CHECK(canary_find(c, &PH[1], strlen(PH) - 1) == -1);
	for (unsigned i = 0; i < 4000000; i++) {
		x = x * 1664525 + 1013904223;
		buf_add(&b, &(char){ (char)(x >> 24) }, 1);
	}
	CHECK(canary_find(c, b.p, b.len) == -1);
	canary_free(c);
}

/* ---- AWS --------------------------------------------------------------------------------------- */

/* AWS's own test suite ("aws-sig-v4-test-suite") and the examples of its S3 documentation. */
#define SUITE_SECRET "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"
#define EMPTY "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

static struct http_field field_of(const char *name, const char *value)
{
	return (struct http_field){ name, strlen(name), value, strlen(value) };
}

static bool signature_is(const char *method, const char *target, const char *const *fields,
	const char *payload, const char *want)
{
	struct sigv4_key k = { "AKIDEXAMPLE", SUITE_SECRET, "us-east-1", "service" };
	struct http_field f[16] = { field_of("Host", "example.amazonaws.com"),
		field_of("X-Amz-Date", "20150830T123600Z") };
	struct sigv4_request r = { method, target, strlen(target), f, 2, payload };
	auto_buf out = { 0 };
	char signature[65];

	for (; fields && fields[0]; fields += 2)
		f[r.n++] = field_of(fields[0], fields[1]);
	sigv4_sign(&r, &k, "20150830T123600Z", &out, signature);
	if (strcmp(signature, want) != 0)
		fprintf(stderr, "  %s %s: %s\n", method, target, buf_str(&out));
	return strcmp(signature, want) == 0;
}

TEST(gate_sigv4_signs_as_the_published_suite_says)
{
	CHECK(signature_is("GET", "/", NULL, EMPTY,
		"5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31")); /* get-vanilla */
	CHECK(signature_is("GET", "/example/..", NULL, EMPTY,
		"5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31")); /* get-relative */
	CHECK(signature_is("GET", "/?Param2=value2&Param1=value1", NULL, EMPTY,
		"b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500")); /* query-order-key-case */
	CHECK(signature_is("POST", "/", NULL, EMPTY,
		"5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b")); /* post-vanilla */
	CHECK(signature_is("GET", "/\xe1\x88\xb4", NULL, EMPTY,
		"8318018e0b0f223aa2bbf98705b62bb787dc9c0e678f255a891fd03141be5d85")); /* get-utf8 */
	CHECK(signature_is("GET", "/?Param1=value1", NULL, EMPTY,
		"a67d582fa61cc504c4bae71f336f98b97f1ea3c7a6bfe1b6e45aec72011b9aeb")); /* empty-query-key */
	CHECK(signature_is("GET",
		"/-._~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz", NULL, EMPTY,
		"07ef7494c76fa4850883e2b006601f940f8a34d404d0cfa977f52a65bbf5f24f")); /* get-unreserved */
	CHECK(signature_is("POST", "/",
		(const char *const[]){ "Content-Type", "application/x-www-form-urlencoded", NULL },
		"9095672bbd1f56dfc5b65f3e153adc8731a4a654192329106275f4c7b24d0b6e",
		"ff11897932ad3f4e8b18135d722051e5ac45fc38421b1da7b9d196a0fe09473a")); /* x-www-form */
	CHECK(signature_is("GET", "/",
		(const char *const[]){
			"My-Header1", " value1", "My-Header2", " \"a   b   c\"", NULL },
		EMPTY,
		"acc3ed3afb60bb290fc8d2dd0098b9911fcaa05412b367055dee359757a9c736")); /* value-trim */
	CHECK(signature_is("GET", "/",
		(const char *const[]){ "My-Header1", "value4", "My-Header1", "value1", "My-Header1",
			"value3", "My-Header1", "value2", NULL },
		EMPTY,
		"08c7e5a9acfcfeb3ab6b2185e75ce8b1deb5e634ec47601a50643f830c755c01")); /* value-order */
}

static bool s3_signature_is(const char *method, const char *target, const char *payload,
	const char *const *fields, const char *want)
{
	struct sigv4_key k = { "AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
		"us-east-1", "s3" };
	struct http_field f[16] = { field_of("Host", "examplebucket.s3.amazonaws.com"),
		field_of("x-amz-date", "20130524T000000Z"),
		field_of("x-amz-content-sha256", payload) };
	struct sigv4_request r = { method, target, strlen(target), f, 3, payload };
	auto_buf out = { 0 };
	char signature[65];

	for (; fields && fields[0]; fields += 2)
		f[r.n++] = field_of(fields[0], fields[1]);
	sigv4_sign(&r, &k, "20130524T000000Z", &out, signature);
	if (strcmp(signature, want) != 0)
		fprintf(stderr, "  %s %s: %s\n", method, target, buf_str(&out));
	return strcmp(signature, want) == 0;
}

TEST(gate_sigv4_signs_s3_as_its_documentation_says)
{
	CHECK(s3_signature_is("GET", "/test.txt", EMPTY,
		(const char *const[]){ "Range", "bytes=0-9", NULL },
		"f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"));
	CHECK(s3_signature_is("PUT", "/test%24file.text",
		"44ce7dd67c959e0d3524ffac1771dfbba87d2b6b4b4e99e42034a8b803f8b072",
		(const char *const[]){ "Date", "Fri, 24 May 2013 00:00:00 GMT",
			"x-amz-storage-class", "REDUCED_REDUNDANCY", NULL },
		"98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd"));
	CHECK(s3_signature_is("GET", "/?lifecycle", EMPTY, NULL,
		"fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543"));
	CHECK(s3_signature_is("GET", "/?max-keys=2&prefix=J", EMPTY, NULL,
		"34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"));
}

TEST(gate_sigv4_reads_what_a_box_signed)
{
	static const char good[] =
		"AWS4-HMAC-SHA256 Credential=AKID/20150830/eu-west-1/s3/aws4_request,"
		"SignedHeaders=host;x-amz-date, Signature=00";
	static const char *const bad[] = { "", "AWS4-HMAC-SHA256", "AWS4-HMAC-SHA256 ",
		"AWS4-ECDSA-P256-SHA256 Credential=A/1/s3/aws4_request, SignedHeaders=host, "
		"Signature=0",
		"AWS4-HMAC-SHA256 Credential=A/1/r/s3/aws5_request, SignedHeaders=host, "
		"Signature=0",
		"AWS4-HMAC-SHA256 Credential=A/1/r//aws4_request, SignedHeaders=host, Signature=0",
		"AWS4-HMAC-SHA256 Credential=A/1/r/s3/aws4_request, Signature=0",
		"AWS4-HMAC-SHA256 XCredential=A/1/r/s3/aws4_request, SignedHeaders=host, "
		"Signature=0" };
	struct sigv4_claim c;

	CHECK(sigv4_claim_parse(good, strlen(good), &c) == 0);
	CHECK(c.access_key_len == 4 && memcmp(c.access_key, "AKID", 4) == 0);
	CHECK(c.region_len == 9 && c.service_len == 2 && c.signed_headers_len == 15);
	for (unsigned i = 0; i < ARRAY_SIZE(bad); i++)
		CHECK(sigv4_claim_parse(bad[i], strlen(bad[i]), &c) < 0);
	for (size_t n = 1; n < strlen(good); n++) { /* no part of it reads past its end */
		auto_free char *part = mem_alloc(n);

		(void)sigv4_claim_parse(memcpy(part, good, n), n, &c);
	}
}

TEST(gate_base64_and_percent_go_both_ways)
{
	static const char *const bad[] = { "A", "A===", "QQ=", "Q=Q=", "QQ==Q", "Q\nQQ", "QQ=A",
		"====" };
	auto_buf a = { 0 };
	auto_buf b = { 0 };

	for (size_t n = 0; n < 9; n++) {
		a.len = b.len = 0;
		encode_base64(&a, "\xff\xfe:pass\x00\x7f", n);
		CHECK(decode_base64(&b, a.p, a.len) == 0 && b.len == n &&
			(!n || memcmp(b.p, "\xff\xfe:pass\x00\x7f", n) == 0));
	}
	for (unsigned i = 0; i < ARRAY_SIZE(bad); i++) {
		b.len = 0;
		CHECK(decode_base64(&b, bad[i], strlen(bad[i])) < 0 && b.len == 0);
	}
	a.len = b.len = 0;
	encode_percent(&a, "a b/c+&=%\xff~", 11, "/");
	CHECK(is(&a, "a%20b/c%2B%26%3D%25%FF~"));
	decode_percent(&b, "a+b%20%zz%4", 11, true);
	CHECK(is(&b, "a b %zz%4"));
}

/* ---- certificates ------------------------------------------------------------------------------ */

struct authority {
	EVP_PKEY *key;
	X509 *cert;
	struct buf key_pem, cert_pem;
};

static void pem_of(BIO *bio, struct buf *out)
{
	char *p;
	long n = BIO_get_mem_data(bio, &p);

	buf_add(out, p, (size_t)n);
	buf_str(out);
	BIO_free(bio);
}

static void authority_make(struct authority *a)
{
	BIO *k = BIO_new(BIO_s_mem()), *c = BIO_new(BIO_s_mem());
	X509_NAME *name;
	X509V3_CTX ctx;
	X509_EXTENSION *e;

	a->key = EVP_EC_gen("P-256");
	a->cert = X509_new();
	X509_set_version(a->cert, X509_VERSION_3);
	ASN1_INTEGER_set(X509_get_serialNumber(a->cert), 1);
	name = X509_get_subject_name(a->cert);
	X509_NAME_add_entry_by_txt(
		name, "CN", MBSTRING_ASC, (const unsigned char *)"box", -1, -1, 0);
	X509_set_issuer_name(a->cert, name);
	X509_gmtime_adj(X509_getm_notBefore(a->cert), -3600);
	X509_gmtime_adj(X509_getm_notAfter(a->cert), 86400);
	X509_set_pubkey(a->cert, a->key);
	X509V3_set_ctx(&ctx, a->cert, a->cert, NULL, NULL, 0);
	e = X509V3_EXT_conf_nid(NULL, &ctx, NID_basic_constraints, "critical,CA:TRUE");
	X509_add_ext(a->cert, e, -1);
	X509_EXTENSION_free(e);
	CHECK(X509_sign(a->cert, a->key, EVP_sha256()) > 0);
	PEM_write_bio_PrivateKey(k, a->key, NULL, NULL, 0, NULL, NULL);
	PEM_write_bio_X509(c, a->cert);
	pem_of(k, &a->key_pem);
	pem_of(c, &a->cert_pem);
}

static void authority_free(struct authority *a)
{
	EVP_PKEY_free(a->key);
	X509_free(a->cert);
	buf_free(&a->key_pem);
	buf_free(&a->cert_pem);
}

static struct net_name name_of(const char *text)
{
	struct net_name n;

	CHECK(net_name_parse(text, strlen(text), &n, NULL) == 0);
	return n;
}

/* Both ends in memory. 1: shaken; the client's SSL is left for looking at. */
static int shake(SSL_CTX *server, SSL *c)
{
	SSL *s = SSL_new(server);
	BIO *to = BIO_new(BIO_s_mem()), *from = BIO_new(BIO_s_mem());
	int cr = 0, sr = 0;

	BIO_up_ref(to);
	BIO_up_ref(from);
	SSL_set_bio(c, from, to);
	SSL_set_bio(s, to, from);
	SSL_set_accept_state(s);
	for (unsigned i = 0; i < 10 && (cr != 1 || sr != 1); i++) {
		cr = SSL_do_handshake(c);
		sr = SSL_do_handshake(s);
	}
	SSL_free(s);
	return cr == 1 && sr == 1;
}

TEST(gate_mint_makes_certificates_that_verify_for_their_name_alone)
{
	struct authority a = { 0 };
	struct mint *m = NULL;
	struct den_err err = { 0 };
	struct net_name good = name_of("api.example.com"), other = name_of("api.example.org");
	const unsigned char *alpn;
	unsigned alpn_len;
	char why[128];
	SSL_CTX *client;
	SSL *ssl;

	CHECK(tls_start(&err) == 0);
	authority_make(&a);
	CHECK(mint_new(a.key_pem.p, a.cert_pem.p, &m, &err) == 0);
	client = tls_client_context(a.cert_pem.p, a.cert_pem.len, &err);
	CHECK(client != NULL);
	ssl = tls_client_new(client, &good, &err);
	CHECK(shake(mint_context(m, &good, &err), ssl) == 1);
	CHECK(SSL_version(ssl) >= TLS1_2_VERSION);
	SSL_get0_alpn_selected(ssl, &alpn, &alpn_len);
	CHECK(alpn_len == 8 && memcmp(alpn, "http/1.1", 8) == 0);
	SSL_free(ssl);
	ssl = tls_client_new(client, &other, &err);
	CHECK(shake(mint_context(m, &good, &err), ssl) == 0);
	tls_reason(ssl, why, sizeof(why));
	CHECK(strstr(why, "hostname mismatch"));
	SSL_free(ssl);
	/* a client that speaks HTTP/2 alone is not served */
	ssl = tls_client_new(client, &good, &err);
	SSL_set_alpn_protos(ssl, (const unsigned char *)"\x02h2", 3);
	CHECK(shake(mint_context(m, &good, &err), ssl) == 0);
	SSL_free(ssl);
	SSL_CTX_free(client);
	mint_free(m);
	authority_free(&a);
}

TEST(gate_mint_keeps_so_many_and_refuses_what_is_no_authority)
{
	struct authority a = { 0 }, b = { 0 };
	struct mint *m = NULL;
	struct den_err err = { 0 };
	struct net_name first = name_of("first.example.com");
	SSL_CTX *ctx;

	authority_make(&a);
	authority_make(&b);
	CHECK(mint_new(a.key_pem.p, b.cert_pem.p, &m, &err) < 0 && err.code == DEN_INVALID && !m);
	CHECK(mint_new("nonsense", b.cert_pem.p, &m, &err) < 0 && err.code == DEN_INVALID);
	CHECK(tls_client_context("nonsense", 8, &err) == NULL && err.code == DEN_INVALID);
	CHECK(mint_new(a.key_pem.p, a.cert_pem.p, &m, &err) == 0);
	ctx = mint_context(m, &first, &err);
	for (unsigned i = 0; i < 3 * MINT_CACHE; i++) {
		char text[64];
		struct net_name n;

		snprintf(text, sizeof(text), "n%u.example.com", i);
		n = name_of(text);
		CHECK(mint_context(m, &n, &err) != NULL);
		CHECK(mint_context(m, &first, &err) == ctx); /* what is in use stays */
		CHECK(mint_cached(m) <= MINT_CACHE);
	}
	CHECK(mint_cached(m) == MINT_CACHE);
	mint_free(m);
	authority_free(&a);
	authority_free(&b);
}
