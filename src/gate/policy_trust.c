/* Certificates that a policy trusts besides the host's. What they say is the gate's business; here is seen
 * to it that they are certificates at all, and that nobody gives away a private key with them. */
#include <jansson.h>
#include <string.h>

#include "b64.h"
#include "mem.h"
#include "policy_part.h"

#define BEGIN "-----BEGIN CERTIFICATE-----"
#define END "-----END CERTIFICATE-----"

/* A SEQUENCE that ends where the bytes do: what every certificate is. */
static bool der_whole(const uint8_t *p, size_t n)
{
	size_t len, more;

	if (n < 2 || p[0] != 0x30)
		return false;
	if (p[1] < 0x80)
		return n == 2U + p[1];
	more = p[1] & 0x7f;
	if (more < 1 || more > 3 || n < 2 + more)
		return false;
	len = 0;
	for (size_t i = 0; i < more; i++)
		len = len << 8 | p[2 + i];
	return n == 2 + more + len;
}

/* What is between the two lines; appended in lines of 64, if it is not there yet. */
static int take_block(const char *p, const char *end, struct buf *out, struct den_err *err)
{
	auto_free char *text = mem_alloc((size_t)(end - p) + 1);
	auto_free uint8_t *der = mem_alloc((size_t)(end - p) + 1);
	auto_buf block = { 0 };
	size_t n = 0;
	ssize_t len;

	for (; p < end; p++)
		if (!strchr(" \t\r\n", *p))
			text[n++] = *p;
	len = b64_get(der, n, text, n, B64_STD);
	if (len < 0 || !der_whole(der, (size_t)len))
		return den_fail(err, DEN_INVALID, 0, "a certificate in it is damaged");
	buf_addstr(&block, BEGIN "\n");
	for (size_t i = 0; i < n; i += 64) {
		buf_add(&block, text + i, MIN(n - i, 64));
		buf_addstr(&block, "\n");
	}
	buf_addstr(&block, END "\n");
	if (!strstr(buf_str(out), buf_str(&block)))
		buf_add(out, block.p, block.len);
	return 0;
}

static int take_pem(const char *pem, struct buf *out, struct den_err *err)
{
	bool any = false;

	if (strstr(pem, "PRIVATE KEY-----"))
		return den_fail(err, DEN_INVALID, 0,
			"there is a private key in it, which nobody needs; give the certificates alone");
	for (const char *p = pem; (p = strstr(p, BEGIN));) {
		const char *end = strstr(p, END);

		if (!end)
			return den_fail(err, DEN_INVALID, 0, "a certificate in it has no end");
		if (take_block(p + strlen(BEGIN), end, out, err) < 0)
			return -1;
		p = end + strlen(END);
		any = true;
	}
	if (!any)
		return den_fail(err, DEN_INVALID, 0,
			"there is no certificate in it; it must be PEM text, with \"" BEGIN "\"");
	return 0;
}

static int take_value(const json_t *v, struct buf *out, struct den_err *err)
{
	const char *pem = json_string_value(v);

	if (!pem || strlen(pem) != json_string_length(v))
		return den_fail(err, DEN_INVALID, 0, "must be a text with certificates (PEM), or a list of them");
	if (json_string_length(v) > POLICY_TRUST_MAX)
		return den_fail(err, DEN_INVALID, 0, "has more than %d bytes", POLICY_TRUST_MAX);
	return take_pem(pem, out, err);
}

int policy_trust_read(const void *value, char **ret, struct den_err *err)
{
	const json_t *v = value;
	auto_buf out = { 0 };

	if (!v)
		return 0;
	if (!json_is_array(v) && take_value(v, &out, err) < 0)
		return den_wrap(err, "trust");
	if (json_array_size(v) > POLICY_TEXTS_MAX)
		return den_fail(err, DEN_INVALID, 0, "trust: has %zu entries; the limit is %d",
			json_array_size(v), POLICY_TEXTS_MAX);
	for (size_t i = 0; i < json_array_size(v); i++)
		if (take_value(json_array_get(v, i), &out, err) < 0)
			return den_wrap(err, "trust[%zu]", i);
	if (out.len > POLICY_TRUST_MAX)
		return den_fail(err, DEN_INVALID, 0, "trust: all together has more than %d bytes", POLICY_TRUST_MAX);
	if (out.len)
		*ret = mem_strdup(buf_str(&out));
	return 0;
}
