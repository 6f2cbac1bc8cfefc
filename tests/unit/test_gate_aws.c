/* AWS requests, signed anew by the gate. */
#include <string.h>

#include "kit_talk.h"
#include "mem.h"
#include "test.h"

#define AWS_VALUE "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"
#define AWS_HOST "Host: example.amazonaws.com\r\n"
#define SIGNED(region, service, names)                                                             \
	"Authorization: AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20200101/" region "/" service      \
	"/aws4_request, SignedHeaders=" names ", Signature=0badcafe\r\n"

static void talk_aws(struct talk *t)
{
	struct exchange_secret s = { "KEY", PH, AWS_VALUE, EXCHANGE_IN_SIGV4 };

	s.access_key = "AKIDEXAMPLE";
	s.region = "us-east-1";
	talk_to(t, (struct net_name){ "example.amazonaws.com" }, &s, NULL);
}

TEST(gate_exchange_signs_aws_requests_anew)
{
	struct talk t;

	talk_aws(&t); /* post-vanilla of AWS's test suite */
	CHECK(say(&t, "POST / HTTP/1.1\r\n" AWS_HOST SIGNED("us-east-1", "service",
			      "host;x-amz-date") "X-Amz-Date: "
						 "20200101T000000Z\r\nX-Amz-Security-Token: "
						 "box\r\n\r\n") == 0);
	CHECK(has(&t.up,
		"X-Amz-Date: 20150830T123600Z\r\nAuthorization: AWS4-HMAC-SHA256 Credential="
		"AKIDEXAMPLE/20150830/us-east-1/service/aws4_request, "
		"SignedHeaders=host;x-amz-date, "
		"Signature=5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b\r\n"));
	CHECK(!has(&t.up, "0badcafe") && !has(&t.up, "Token") && !has(&t.up, "2020") &&
		!has(&t.up, AWS_VALUE));
	CHECK(t.n_used == 1 && !strcmp(t.used, "sigv4"));
	talk_end(&t);

	/* without a hash the body is waited for; the same signature as with the right hash given */
	talk_aws(&t);
	CHECK(say(&t, "POST / HTTP/1.1\r\n" AWS_HOST SIGNED("us-east-1", "dynamodb",
			      "content-type;host") "Content-Type: x/y\r\nContent-Length: "
						   "5\r\nExpect: 100-continue\r\n\r\n") == 0);
	CHECK(t.up.len == 0 && is(&t.box, "HTTP/1.1 100 Continue\r\n\r\n"));
	CHECK(say(&t, "hello") == 0);
	CHECK(has(&t.up, "SignedHeaders=content-type;host;x-amz-date, Signature=") &&
		!has(&t.up, "Expect"));
	CHECK(has(&t.up, "Content-Length: 5\r\n") && has(&t.up, "\r\n\r\nhello"));
	talk_end(&t);

	talk_aws(&t); /* with one it is not */
	CHECK(say(&t, "PUT /a%20b HTTP/1.1\r\n" AWS_HOST SIGNED("us-east-1", "s3",
			      "host;x-amz-content-sha256") "x-amz-content-sha256: "
							   "UNSIGNED-PAYLOAD\r\nContent-Length: "
							   "99999999\r\n\r\nab") == 0);
	CHECK(has(&t.up, "SignedHeaders=host;x-amz-content-sha256;x-amz-date, ") &&
		has(&t.up, "\r\n\r\nab"));
	talk_end(&t);

	talk_aws(&t); /* public data needs no signature */
	CHECK(say(&t, "GET /a HTTP/1.1\r\n" AWS_HOST "\r\n") == 0 && !has(&t.up, "AWS4") &&
		!t.n_used);
	talk_end(&t);
}

TEST(gate_exchange_refuses_aws_requests_it_cannot_sign)
{
	static const char *const bad[] = {
		"GET / HTTP/1.1\r\n" AWS_HOST SIGNED("eu-west-1", "s3", "host") "\r\n",
		"GET / HTTP/1.1\r\n" AWS_HOST
		"Authorization: AWS4-HMAC-SHA256 Credential=OTHER/1/us-east-1/s3/"
		"aws4_request, SignedHeaders=host, Signature=0\r\n\r\n",
		"GET / HTTP/1.1\r\n" AWS_HOST
		"Authorization: AWS4-ECDSA-P256-SHA256 Credential=x\r\n\r\n",
		"GET /?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Signature=00 HTTP/1.1\r\n" AWS_HOST
		"\r\n",
		"GET /?x%2damz-credential=00 HTTP/1.1\r\n" AWS_HOST "\r\n",
		"PUT / HTTP/1.1\r\n" AWS_HOST SIGNED("us-east-1", "s3",
			"host") "x-amz-content-sha256: "
				"STREAMING-AWS4-HMAC-SHA256-PAYLOAD\r\nContent-Length: 9\r\n\r\n",
	};
	struct talk t;

	for (unsigned i = 0; i < ARRAY_SIZE(bad); i++) {
		talk_aws(&t);
		say(&t, bad[i]);
		CHECK(refused(&t, "403") && t.n_denied == 1);
		talk_end(&t);
	}
	talk_aws(&t); /* parts of the box's signature are sent on: they are looked at too */
	say(&t, "GET / HTTP/1.1\r\n" AWS_HOST SIGNED("us-east-1", PH, "host") "\r\n");
	CHECK(refused(&t, "403") && t.n_incidents == 1);
	talk_end(&t);
	talk_aws(&t);
	say(&t, "PUT / HTTP/1.1\r\n" AWS_HOST SIGNED(
			"us-east-1", "s3", "host") "Content-Length: 99999999\r\n\r\n");
	CHECK(refused(&t, "413"));
	talk_end(&t);
}

TEST(gate_exchange_holds_no_more_for_signing_than_there_is_for_all)
{
	enum { MANY = 40 };
	static char piece[16384];
	struct talk t[MANY];
	size_t before = exchange_budget_used();
	unsigned refusals = 0;

	memset(piece, 'x', sizeof(piece));
	for (unsigned i = 0; i < MANY; i++) {
		talk_aws(&t[i]);
		CHECK(say(&t[i], "PUT / HTTP/1.1\r\n" AWS_HOST SIGNED(
				"us-east-1", "s3", "host") "Content-Length: 8388608\r\n\r\n") == 0);
		for (unsigned k = 0; k < 500 && t[i].r == 0; k++)
			t[i].r = exchange_from_box(
				t[i].x, piece, sizeof(piece), &t[i].up, &t[i].box, &t[i].why);
		CHECK(exchange_budget_used() <= EXCHANGE_BUDGET + (1u << 20));
		if (t[i].r < 0) {
			CHECK(refused(&t[i], "503") && t[i].n_denied == 0);
			refusals++;
		}
	}
	CHECK(refusals > 20 && refusals < MANY - 6);
	for (unsigned i = 0; i < MANY; i++)
		talk_end(&t[i]);
	CHECK(exchange_budget_used() == before);
}
