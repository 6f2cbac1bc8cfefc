#include "test.h"

#include <stdio.h>
#include <string.h>

#include "mem.h"
#include "policy.h"

#define PEM(body) "-----BEGIN CERTIFICATE-----\\n" body "\\n-----END CERTIFICATE-----\\n"
/* DER of a SEQUENCE with one INTEGER: as far as a policy looks. */
#define ONE PEM("MAMCAQE=")
#define TWO PEM("MAMCAQI=")

static bool gives(const char *json, const char *want)
{
	auto_policy p = NULL;
	auto_policy again = NULL;
	auto_buf out = { 0 };
	auto_buf twice = { 0 };
	struct den_err err = { 0 };

	if (policy_parse(json, strlen(json), &p, &err) < 0) {
		printf("%s: %s\n", json, err.msg);
		return false;
	}
	policy_print(p, &out);
	/* what is printed is the same policy */
	if (policy_parse(out.p, out.len, &again, &err) < 0)
		return false;
	policy_print(again, &twice);
	if (strcmp(buf_str(&out), buf_str(&twice)))
		return false;
	if (!want || !p->trust)
		return !want && !p->trust;
	if (!strcmp(p->trust, want))
		return true;
	printf("%s\n", p->trust);
	return false;
}

static bool refused(const char *json, const char *why)
{
	struct policy *p = (struct policy *)1;
	struct den_err err = { 0 };

	if (policy_parse(json, strlen(json), &p, &err) == 0 || p != (struct policy *)1 ||
		err.code != DEN_INVALID || !strstr(err.msg, why)) {
		printf("%.200s: %s\n", json, err.msg);
		return false;
	}
	return true;
}

TEST(policy_trust_is_certificates_and_nothing_else)
{
	static const char one[] = "-----BEGIN CERTIFICATE-----\nMAMCAQE=\n-----END CERTIFICATE-----\n";
	static const char both[] = "-----BEGIN CERTIFICATE-----\nMAMCAQE=\n-----END CERTIFICATE-----\n"
				   "-----BEGIN CERTIFICATE-----\nMAMCAQI=\n-----END CERTIFICATE-----\n";

	CHECK(gives("{}", NULL));
	CHECK(gives("{\"trust\": []}", NULL));
	CHECK(gives("{\"trust\": \"" ONE "\"}", one));
	CHECK(gives("{\"trust\": [\"" ONE "\"]}", one));
	CHECK(gives("{\"trust\": [\"" ONE "\", \"" TWO "\"]}", both));
	CHECK(gives("{\"trust\": \"" ONE TWO "\"}", both));
	/* what people write around it stays outside; twice is once */
	CHECK(gives("{\"trust\": \"# ours\\n subject=x\\r\\n" ONE " text " TWO "and " ONE "\"}", both));
	CHECK(gives("{\"trust\": \"-----BEGIN CERTIFICATE-----\\r\\n MAMC\\r\\n\\tAQE=\\r\\n"
		    "-----END CERTIFICATE-----\"}", one));
	CHECK(refused("{\"trust\": \"\"}", "policy: trust: there is no certificate in it"));
	CHECK(refused("{\"trust\": \"hello\"}", "policy: trust: there is no certificate in it"));
	CHECK(refused("{\"trust\": 1}", "policy: trust: must be a text"));
	CHECK(refused("{\"trust\": [1]}", "policy: trust[0]: must be a text"));
	CHECK(refused("{\"trust\": [\"" ONE "\", \"x\"]}", "policy: trust[1]: there is no certificate"));
	CHECK(refused("{\"trust\": \"-----BEGIN CERTIFICATE-----\\nMAMCAQE=\\n\"}", "has no end"));
	CHECK(refused("{\"trust\": \"" ONE "-----BEGIN EC PRIVATE KEY-----\\nAAAA\\n\"}", "private key"));
	CHECK(refused("{\"trsut\": \"" ONE "\"}", "did you mean 'trust'"));
}

TEST(policy_trust_damaged_or_too_long_is_refused)
{
	static const char *const bad[] = { "", "!!!!", "MAMCAQ", "MAMCAQE", "MAQCAQE=", "MAICAQE=", "AAMCAQE=",
		"MIADAgEB", "MA==", "AgEB", "MAMCAQE=MAMCAQE=", "-----BEGIN CERTIFICATE-----" };
	auto_buf json = { 0 };

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		json.len = 0;
		buf_addf(&json, "{\"trust\": \"" PEM("%s") "\"}", bad[i]);
		CHECK(refused(buf_str(&json), "damaged"));
	}
	json.len = 0;
	buf_addstr(&json, "{\"trust\": \"");
	for (int i = 0; i < POLICY_TRUST_MAX; i++)
		buf_addstr(&json, "#");
	buf_addstr(&json, ONE "\"}");
	CHECK(refused(buf_str(&json), "more than 65536 bytes"));
	/* each small, together too much: differing ones, since one that comes twice counts once */
	json.len = 0;
	buf_addstr(&json, "{\"trust\": [");
	for (int i = 0; i < 4; i++) {
		buf_addf(&json, "%s\"", i ? "," : "");
		for (int k = 0; k < 300; k++)
			buf_addf(&json, PEM("MAcCBQ%c%c%c%cAA"), 'A' + i, 'A' + k / 26, 'A' + k % 26, 'A');
		buf_addstr(&json, "\"");
	}
	buf_addstr(&json, "]}");
	CHECK(refused(buf_str(&json), "all together"));
}
