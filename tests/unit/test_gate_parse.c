#include "test.h"

#include "buf.h"
#include "dns.h"
#include "kit_hellos.h"
#include "hello.h"
#include "http.h"
#include "http_body.h"
#include "mem.h"

/* ---- DNS */

/* A question in parts, so that a test can spoil one. */
#define Q_HEAD "\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00"
#define Q_HEAD_OPT "\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x01"
#define Q_NAME                                                                                     \
	"\x03wWw\x07"                                                                              \
	"eXample\x03"                                                                              \
	"com\x00"
#define Q_A "\x00\x01\x00\x01"
#define Q_OPT_HEAD "\x00\x00\x29\x10\x00\x00\x00\x00\x00"
#define BYTES(s) ((const uint8_t *)(s)), (sizeof(s) - 1)

TEST(dns_reads_a_question_and_folds_its_name)
{
	static const char q[] = Q_HEAD Q_NAME Q_A;
	struct dns_query r;

	CHECK(dns_query_parse(BYTES(q), &r) == 0);
	CHECK(r.id == 0x1234 && r.rd && r.type == DNS_A && r.class == DNS_IN);
	CHECK(!strcmp(r.name.s, "www.example.com") && r.question_len == 21);
	CHECK(!r.edns && r.edns_size == DNS_UDP_MIN);
	for (size_t n = 0; n < sizeof(q) - 1; n++)
		CHECK(dns_query_parse((const uint8_t *)q, n, &r) == (n < 12 ? -1 : DNS_FORMERR));
}

TEST(dns_takes_edns_with_any_option_and_keeps_answers_small)
{
	static const struct {
		const char *opt;
		size_t len;
		int rcode;
		unsigned size;
	} cases[] = {
#define OPT(s) s, sizeof(s) - 1
		{ OPT("\0\0\x29\x10\0\0\0\0\0\0\0"), 0, DNS_UDP_MAX },
		{ OPT("\0\0\x29\0\x10\0\0\0\0\0\0"), 0, DNS_UDP_MIN },
		{ OPT("\0\0\x29\x02\x58\0\0\x80\0\0\0"), 0, 600 }, /* DNSSEC OK */
		{ OPT("\0\0\x29\x02\x58\0\0\0\0\0\x0c\0\x0a\0\x08"
		      "abcdefgh"),
			0, 600 }, /* a cookie */
		{ OPT("\0\0\x29\x02\x58\0\1\0\0\0\0"), DNS_BADVERS, 600 },
		{ OPT("\0\0\x29\x02\x58\0\0\0\0\0\1"), DNS_FORMERR, 512 }, /* longer than it is */
		{ OPT("\0\0\x29\x02\x58\0\0\0\0\0\0x"), DNS_FORMERR, 512 }, /* shorter */
		{ OPT("\0\0\x28\x02\x58\0\0\0\0\0\0"), DNS_FORMERR, 512 }, /* no OPT */
		{ OPT("\1a\0\0\x29\x02\x58\0\0\0\0\0\0"), DNS_FORMERR, 512 },
		{ OPT("\xc0\x0c\0\x29\x02\x58\0\0\0\0\0\0"), DNS_FORMERR, 512 },
	};
	struct dns_query r;

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		auto_buf b = { 0 };

		buf_add(&b, BYTES(Q_HEAD_OPT Q_NAME Q_A));
		buf_add(&b, cases[i].opt, cases[i].len);
		CHECK(dns_query_parse((const uint8_t *)b.p, b.len, &r) == cases[i].rcode);
		CHECK(r.id == 0x1234 && r.edns_size == cases[i].size);
		CHECK(r.question_len == 21);
	}
}

TEST(dns_refuses_what_is_not_one_plain_question)
{
#define CASE(s, rcode)                                                                             \
	{                                                                                          \
		s, sizeof(s) - 1, rcode                                                            \
	}
	static const struct {
		const char *p;
		size_t n;
		int rcode;
	} cases[] = {
		CASE("", -1),
		CASE("\x12\x34\x81\0\0\1\0\0\0\0\0\0" Q_NAME Q_A, -1), /* an answer */
		CASE("\x12\x34\x29\0\0\1\0\0\0\0\0\0" Q_NAME Q_A, DNS_NOTIMP), /* UPDATE */
		CASE("\x12\x34\x03\0\0\1\0\0\0\0\0\0" Q_NAME Q_A, DNS_FORMERR), /* TC */
		CASE("\x12\x34\x01\0\0\0\0\0\0\0\0\0", DNS_FORMERR),
		CASE("\x12\x34\x01\0\0\2\0\0\0\0\0\0" Q_NAME Q_A Q_NAME Q_A, DNS_FORMERR),
		CASE("\x12\x34\x01\0\0\1\0\1\0\0\0\0" Q_NAME Q_A, DNS_FORMERR),
		CASE("\x12\x34\x01\0\0\1\0\0\0\1\0\0" Q_NAME Q_A, DNS_FORMERR),
		CASE("\x12\x34\x01\0\0\1\0\0\0\0\0\2" Q_NAME Q_A, DNS_FORMERR),
		CASE(Q_HEAD Q_NAME Q_A "x", DNS_FORMERR),
		CASE(Q_HEAD "\xc0\x0c" Q_A, DNS_FORMERR), /* points at itself */
		CASE(Q_HEAD "\3www\xc0\x0c" Q_A, DNS_FORMERR),
		CASE(Q_HEAD "\x40www\0" Q_A, DNS_FORMERR),
		CASE(Q_HEAD Q_NAME "\0\1\0\3", DNS_REFUSED), /* CHAOS */
		CASE(Q_HEAD Q_NAME "\0\1\0\xff", DNS_REFUSED), /* ANY */
		CASE(Q_HEAD "\0" Q_A, DNS_REFUSED), /* the root */
		CASE(Q_HEAD "\x07www.com\0" Q_A, DNS_REFUSED), /* a dot inside a label */
		CASE(Q_HEAD "\3w\0w\3com\0" Q_A, DNS_REFUSED),
		CASE(Q_HEAD "\3w w\3com\0" Q_A, DNS_REFUSED),
		CASE(Q_HEAD "\3www\1.\0" Q_A, DNS_REFUSED), /* not the dot at the end */
		CASE(Q_HEAD "\3"
			    "127\1"
			    "0\1"
			    "0\1"
			    "1\0" Q_A,
			DNS_REFUSED), /* an address */
		CASE(Q_HEAD "\x04\xf0\x9f\x98\x80\3com\0" Q_A, DNS_REFUSED),
	};
	struct dns_query r;

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		int rcode = dns_query_parse((const uint8_t *)cases[i].p, cases[i].n, &r);

		CHECK(rcode == cases[i].rcode);
		CHECK(rcode < 0 || r.id == 0x1234);
	}
}

TEST(dns_takes_the_longest_name_and_no_longer_one)
{
	for (unsigned last = 60; last <= 63; last++) {
		auto_buf b = { 0 };
		struct dns_query r;
		char label[64];

		memset(label, 'a', sizeof(label));
		buf_add(&b, BYTES(Q_HEAD));
		for (unsigned i = 0; i < 4; i++) {
			label[0] = (char)(i < 3 ? 63 : last);
			buf_add(&b, label, 1);
			label[0] = 'a';
			buf_add(&b, label, i < 3 ? 63 : last);
		}
		buf_add(&b, BYTES("\0" Q_A));
		/* 61 + 3 * 63 letters and three dots are 253; on the wire 255 */
		CHECK(dns_query_parse((const uint8_t *)b.p, b.len, &r) ==
			(last <= 61 ? 0 : DNS_FORMERR));
		CHECK(last > 61 || strlen(r.name.s) == 192 + last);
	}
}

TEST(dns_answers_with_what_was_asked_for_and_the_letters_as_they_came)
{
	static const char q[] = Q_HEAD Q_NAME Q_A;
	static const char want[] = "\x12\x34\x81\x80\0\1\0\2\0\0\0\0" Q_NAME Q_A
				   "\xc0\x0c\0\1\0\1\0\0\x01\x2c\0\4\xc6\x12\0\1"
				   "\xc0\x0c\0\1\0\1\0\0\x01\x2c\0\4\xc6\x12\0\2";
	struct net_addr a[] = { { 4, { 198, 18, 0, 1 } }, { 6, { 0xfd } },
		{ 4, { 198, 18, 0, 2 } } };
	uint8_t out[512];
	struct dns_query r;
	size_t n;

	CHECK(dns_query_parse(BYTES(q), &r) == 0);
	n = dns_answer(&r, BYTES(q), DNS_NOERROR, a, 3, 300, out, sizeof(out));
	CHECK(n == sizeof(want) - 1 && !memcmp(out, want, n));
	/* over TCP the same behind its length */
	n = dns_tcp_answer(&r, BYTES(q), DNS_NOERROR, a, 3, 300, out, sizeof(out));
	CHECK(n == sizeof(want) + 1 && out[0] == 0 && out[1] == sizeof(want) - 1);
	CHECK(!memcmp(out + 2, want, sizeof(want) - 1));
	/* NODATA, and a refusal that carries no address whatever it is given */
	n = dns_answer(&r, BYTES(q), DNS_NOERROR, NULL, 0, 300, out, sizeof(out));
	CHECK(n == sizeof(q) - 1 && out[3] == 0x80 && out[7] == 0);
	n = dns_answer(&r, BYTES(q), DNS_REFUSED, a, 3, 300, out, sizeof(out));
	CHECK(n == sizeof(q) - 1 && out[3] == 0x85 && out[7] == 0);
	r.type = DNS_AAAA;
	n = dns_answer(&r, BYTES(q), DNS_NOERROR, a, 3, 300, out, sizeof(out));
	CHECK(n == sizeof(q) - 1 + 28 && out[7] == 1 && out[n - 16] == 0xfd);
}

TEST(dns_answer_that_does_not_fit_says_so)
{
	static const char q[] = Q_HEAD_OPT Q_NAME Q_A Q_OPT_HEAD "\0\0";
	struct net_addr a[64];
	uint8_t out[2048];
	struct dns_query r;

	for (unsigned i = 0; i < 64; i++)
		a[i] = (struct net_addr){ 4, { 198, 18, 0, (uint8_t)i } };
	CHECK(dns_query_parse(BYTES(q), &r) == 0 && r.edns && r.edns_size == DNS_UDP_MAX);
	for (size_t max = 0; max <= 1100; max++) {
		size_t n = dns_answer(&r, BYTES(q), 0, a, 64, 1, out, max),
		       room = max < 44 ? 0 : max - 44;

		CHECK(n <= max);
		CHECK(n == (max < 12 ? 0 : max < 44 ? 12 : 44 + MIN(room / 16, 64U) * 16));
		CHECK(max < 12 || !!(out[2] & 2) == (max < 44 + 64 * 16));
		CHECK(max < 44 || (out[7] == MIN(room / 16, 64U) && out[11] == 1));
	}
	/* the upper bits of BADVERS are in OPT */
	CHECK(dns_answer(&r, BYTES(q), DNS_BADVERS, NULL, 0, 1, out, 512) == 44);
	CHECK((out[3] & 0xf) == 0 && out[33] == 0 && out[35] == DNS_OPT && out[38] == 1);
}

TEST(dns_over_tcp_comes_in_pieces)
{
	static const uint8_t two[] = "\0\x0c"
				     "abcdefghijkl"
				     "\0\x0d"
				     "abcdefghijklm";
	const uint8_t *msg;
	size_t len, used, n;

	for (n = 0; n < 14; n++)
		CHECK(dns_tcp_next(two, n, &msg, &len, &used) == 0);
	CHECK(dns_tcp_next(two, sizeof(two) - 1, &msg, &len, &used) == 1);
	CHECK(msg == two + 2 && len == 12 && used == 14);
	CHECK(dns_tcp_next(two + used, sizeof(two) - 1 - used, &msg, &len, &used) == 1 &&
		len == 13);
	CHECK(dns_tcp_next(BYTES("\0\x0b"), &msg, &len, &used) == -1);
	CHECK(dns_tcp_next(BYTES("\xff\xff"), &msg, &len, &used) == -1);
}

/* ---- ClientHello */

static void hex_add(struct buf *b, const char *hex)
{
	for (; *hex; hex += 2) {
		unsigned v;

		CHECK(sscanf(hex, "%2x", &v) == 1);
		buf_add(b, &(uint8_t){ (uint8_t)v }, 1);
	}
}

static enum hello_result hello_of(const struct buf *b, struct hello *h, const char **why)
{
	return hello_parse((const uint8_t *)b->p, b->len, h, why);
}

/* Each prefix must say MORE or the same as the whole, once and for all. */
static enum hello_result hello_checked(const struct buf *b, struct hello *h)
{
	const char *why = NULL;
	enum hello_result whole = hello_of(b, h, &why), r;
	bool decided = false;

	CHECK((whole == HELLO_BAD || whole == HELLO_NOT_TLS) == !!why);
	for (size_t n = 0; n <= b->len; n += n < 2000 || n + 200 > b->len ? 1 : 97) {
		struct hello part;

		r = hello_parse((const uint8_t *)b->p, n, &part, &why);
		CHECK(r == whole || (r == HELLO_MORE && !decided));
		CHECK(r != HELLO_OK || (!strcmp(part.sni.s, h->sni.s) && part.ech == h->ech));
		decided = decided || r != HELLO_MORE;
	}
	return whole;
}

/* The same message in records of so many bytes. */
static void rerecord(const struct buf *from, size_t size, struct buf *to)
{
	for (size_t at = 5; at < from->len;) {
		size_t n = MIN(size, from->len - at);

		buf_add(to, (uint8_t[]){ 22, 3, 1, (uint8_t)(n >> 8), (uint8_t)n }, 5);
		buf_add(to, from->p + at, n);
		at += n;
	}
}

TEST(hello_of_real_clients_is_read_however_it_is_split)
{
	static const struct {
		const char *hex, *sni;
		bool h2, http11;
		uint16_t version;
	} cases[] = {
		{ HELLO_OPENSSL, "www.example.com", true, true, 0x0304 },
		{ HELLO_OPENSSL_TLS12, NULL, false, false, 0x0303 },
		{ HELLO_CURL, "curl.example.org", true, true, 0x0304 },
		{ HELLO_PYTHON, "python.example.com", false, false, 0x0304 },
		{ HELLO_NODE, "node.example.net", false, false, 0x0304 },
	};
	static const size_t sizes[] = { 1, 2, 3, 5, 38, 100, 16384 };

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		auto_buf b = { 0 };

		hex_add(&b, cases[i].hex);
		for (size_t s = 0; s < ARRAY_SIZE(sizes); s++) {
			auto_buf split = { 0 };
			struct hello h;

			rerecord(&b, sizes[s], &split);
			CHECK(hello_checked(&split, &h) == HELLO_OK);
			CHECK(h.has_sni == !!cases[i].sni && h.version == cases[i].version &&
				!h.ech);
			CHECK(!h.has_sni || !strcmp(h.sni.s, cases[i].sni));
			CHECK(h.alpn_h2 == cases[i].h2 && h.alpn_http11 == cases[i].http11);
			/* what follows the hello is not looked at */
			buf_add(&split, BYTES("\x17\x03\x03\0\1x"));
			CHECK(hello_of(&split, &h, &(const char *){ NULL }) == HELLO_OK);
		}
	}
}

struct ext {
	unsigned type;
	const char *p;
	size_t n;
};
#define EXT(type, s)                                                                               \
	{                                                                                          \
		type, s, sizeof(s) - 1                                                             \
	}
#define EXT_END                                                                                    \
	{                                                                                          \
		0, NULL, 0                                                                         \
	}

static void put16(struct buf *b, size_t v)
{
	buf_add(b, (uint8_t[]){ (uint8_t)(v >> 8), (uint8_t)v }, 2);
}

/* A hello with these extensions, in one record (or more, if they are large). */
static void hello_make(const struct ext *e, struct buf *ret)
{
	auto_buf body = { 0 }, exts = { 0 }, flat = { 0 };

	for (; e->p; e++) {
		put16(&exts, e->type);
		put16(&exts, e->n);
		buf_add(&exts, e->p, e->n);
	}
	put16(&body, 0x0303);
	buf_add(&body, "0123456789abcdef0123456789abcdef", 32);
	buf_add(&body, BYTES("\0\0\2\x13\1\1\0"));
	put16(&body, exts.len);
	buf_add(&body, exts.p, exts.len);
	buf_add(&flat, "-----\1", 6);
	buf_add(&flat, &(uint8_t){ (uint8_t)(body.len >> 16) }, 1);
	put16(&flat, body.len & 0xffff);
	buf_add(&flat, body.p, body.len);
	rerecord(&flat, 16384, ret);
}

#define SNI(len2, len, name) EXT(0, "\0" len2 "\0\0" len name)

TEST(hello_with_an_odd_name_or_two_is_refused)
{
	static const struct ext cases[][3] = {
		{ SNI("\x0e", "\x0b", "example.com"), SNI("\x0e", "\x0b", "example.com"), EXT_END },
		{ EXT(0, "\0\x10\0\0\5a.com\0\0\5b.com"), EXT_END }, /* two names */
		{ EXT(0, "\0\x10\0\0\5a.com\1\0\5b.com"), EXT_END }, /* and one of a type unknown */
		{ EXT(0, "\0\x08\1\0\5a.com"), EXT_END },
		{ EXT(0, ""), EXT_END },
		{ EXT(0, "\0\0"), EXT_END },
		{ SNI("\x03", "\0", ""), EXT_END },
		{ SNI("\x09", "\5", "a.com"), EXT_END }, /* lengths that disagree */
		{ SNI("\x07", "\5", "a.com"), EXT_END },
		{ SNI("\x08", "\4", "a.com"), EXT_END },
		{ SNI("\x08", "\5", "a.comx"), EXT_END },
		{ SNI("\x0c", "\x09", "127.0.0.1"), EXT_END },
		{ SNI("\x06", "\3", "::1"), EXT_END },
		{ SNI("\x09", "\6", "0x7f.1"), EXT_END },
		{ SNI("\x0d", "\x0a", "2130706433"), EXT_END },
		{ SNI("\x08", "\5", "a\0com"), EXT_END },
		{ SNI("\x09", "\6", "a.com\0"), EXT_END },
		{ SNI("\x08", "\5", "a com"), EXT_END },
		{ SNI("\x08", "\5", "*.com"), EXT_END },
		{ SNI("\x09", "\6", "a..com"), EXT_END },
		{ EXT(16, "\0\3\2h2"), EXT(16, "\0\3\2h2"), EXT_END },
		{ EXT(0x5555, ""), EXT(0x5555, ""), EXT_END },
		{ EXT(16, "\0\4\2h2"), EXT_END },
		{ EXT(16, "\0\1\0"), EXT_END },
		{ EXT(43, "\3\3\4"), EXT_END },
	};
	struct hello h = { .sni = { "untouched" } };

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		auto_buf b = { 0 };

		hello_make(cases[i], &b);
		CHECK(hello_checked(&b, &h) == HELLO_BAD);
		CHECK(!strcmp(h.sni.s, "untouched"));
	}
}

TEST(hello_says_why_an_address_as_name_is_refused)
{
	static const struct ext e[] = { SNI("\x0c", "\x09", "127.0.0.1"), EXT_END };
	auto_buf b = { 0 };
	const char *why;
	struct hello h;

	hello_make(e, &b);
	CHECK(hello_of(&b, &h, &why) == HELLO_BAD && strstr(why, "address"));
}

TEST(hello_with_a_hidden_name_is_flagged)
{
	static const unsigned types[] = { 0xfe0d, 0xffce, 0xfe08, 0xff02 };

	for (size_t i = 0; i < ARRAY_SIZE(types); i++) {
		struct ext e[] = { SNI("\x08", "\5", "A.com"), EXT(types[i], "\0\0\1\0\1"),
			EXT_END };
		auto_buf b = { 0 };
		struct hello h;

		hello_make(e, &b);
		CHECK(hello_checked(&b, &h) == HELLO_OK);
		CHECK(h.ech && h.has_sni && !strcmp(h.sni.s, "a.com"));
	}
}

TEST(hello_may_be_large_but_not_endless)
{
	static const size_t sizes[] = { 300, 16384, 16385, 40000, 65000, 65400, 65535 };
	static char padding[65535];

	for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
		/* all is 43 + 2 + 4 + 4 + 10 + padding, and 5 a record */
		struct ext e[] = { { 21, padding, MIN(sizes[i], 65535 - 20U) },
			SNI("\x08", "\5", "a.com"), EXT_END };
		auto_buf b = { 0 }, tiny = { 0 };
		struct hello h;

		hello_make(e, &b);
		CHECK(hello_checked(&b, &h) == (b.len <= HELLO_MAX ? HELLO_OK : HELLO_BAD));
		CHECK(b.len > HELLO_MAX || !strcmp(h.sni.s, "a.com"));
		if (i)
			continue;
		rerecord(&b, 1, &tiny);
		CHECK(hello_checked(&tiny, &h) == HELLO_OK);
	}
	/* 16 KiB in records of 7 bytes: 28 KiB */
	{
		struct ext e[] = { { 21, padding, 16384 }, SNI("\x08", "\5", "a.com"), EXT_END };
		auto_buf b = { 0 }, whole = { 0 }, tiny = { 0 };
		struct hello h;

		hello_make(e, &b);
		buf_add(&whole, b.p, 5 + 16384); /* one message, joined again */
		buf_add(&whole, b.p + 5 + 16384 + 5, b.len - 5 - 16384 - 5);
		rerecord(&whole, 7, &tiny);
		CHECK(hello_checked(&tiny, &h) == HELLO_OK && !strcmp(h.sni.s, "a.com"));
		/* in records of one byte it is 96 KiB */
		tiny.len = 0;
		rerecord(&whole, 1, &tiny);
		CHECK(hello_checked(&tiny, &h) == HELLO_BAD);
	}
}

TEST(hello_is_told_from_what_is_none)
{
	static const struct {
		const char *p;
		size_t n;
		enum hello_result want;
	} cases[] = {
		CASE("GET / HTTP/1.1\r\n", HELLO_NOT_TLS),
		CASE("SSH-2.0-x\r\n", HELLO_NOT_TLS),
		CASE("\0", HELLO_NOT_TLS),
		CASE("\x80\x2e\1\0\2\0\x15\0\0\0\x10", HELLO_NOT_TLS), /* SSLv2 */
		CASE("\x16\2\0\0\5", HELLO_NOT_TLS),
		CASE("\x16\3\x09\0\5", HELLO_MORE), /* servers take any minor version */
		CASE("\x15 not an alert", HELLO_NOT_TLS),
		CASE("\x15\3\1\0\2\2\x28", HELLO_BAD), /* alert */
		CASE("\x14\3\1\0\1\1", HELLO_BAD),
		CASE("\x17\3\3\0\1x", HELLO_BAD),
		CASE("\x16\3\1\0\0", HELLO_BAD), /* empty record */
		CASE("\x16\3\1\x40\1", HELLO_BAD), /* too long a record */
		CASE("\x16\3\1\0\4\2\0\0\0", HELLO_BAD), /* ServerHello */
		CASE("\x16\3\1\0\4\1\0\0\0", HELLO_BAD), /* of no bytes */
		CASE("\x16\3\1\0\4\1\1\0\0", HELLO_BAD), /* of 64 KiB */
		CASE("\x16\3\1\0\1\1\x15\3\1\0\2\2\x28", HELLO_BAD), /* an alert in between */
		CASE("\x16\3\1\0\1\1\x16\3\1\0\0", HELLO_BAD),
		CASE("", HELLO_MORE),
		CASE("\x16", HELLO_MORE),
		CASE("\x15\3", HELLO_MORE),
		CASE("\x16\3\1\0\1\1\x16", HELLO_MORE),
	};
	auto_buf real = { 0 };
	struct hello h;
	const char *why;

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct buf b = { (char *)(uintptr_t)cases[i].p, cases[i].n, 0 };

		CHECK(hello_checked(&b, &h) == cases[i].want);
	}
	/* a second message in the same record */
	hex_add(&real, HELLO_OPENSSL);
	buf_add(&real, "x", 1);
	real.p[4]++;
	CHECK(hello_checked(&real, &h) == HELLO_BAD);
	/* inside of the message, behind its extensions */
	real.p[8]++;
	CHECK(hello_checked(&real, &h) == HELLO_BAD);
	/* one byte wrong in a length: never read past the end, never OK with another name */
	for (size_t at = 5; at + 1 < real.len; at++) {
		auto_buf b = { 0 };

		hex_add(&b, HELLO_OPENSSL);
		b.p[at] ^= 0x10;
		if (hello_of(&b, &h, &why) == HELLO_OK && h.has_sni)
			CHECK(strlen(h.sni.s) == 15);
	}
}
