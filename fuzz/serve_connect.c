/*
 * What a client of the Connect protocol sends: an envelope, a timeout, bytes in base64. What is taken must be
 * inside what was given, and what is written must be read again as it was.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "b64.h"
#include "connect.h"
#include "json_scan.h"
#include "mem.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool ok)
{
	if (!ok)
		abort();
}

static void envelope(const uint8_t *data, size_t size)
{
	struct den_err err;
	const char *p;
	size_t n;
	json_t *j;

	if (connect_open(data, size, &p, &n, &err) < 0)
		return;
	check(p == (const char *)data + CONNECT_HEAD && n == size - CONNECT_HEAD);
	if (json_read(p, n, &j, &err) == 0) {
		check(json_is_object(j));
		json_decref(j);
	}
}

/* Whatever is put into an envelope comes out of it; an error is JSON whatever its words are. */
static void there_and_back(const uint8_t *data, size_t size)
{
	auto_free char *text = mem_strndup((const char *)data, size);
	auto_buf b = { 0 };
	struct den_err err;
	const char *p;
	size_t n, at = connect_begin(&b, 0);
	json_t *j;

	buf_add(&b, data, size);
	connect_end(&b, at);
	if (size <= CONNECT_MAX) {
		check(connect_open(b.p, b.len, &p, &n, &err) == 0 && n == size && (!n || !memcmp(p, data, n)));
	}
	b.len = 0;
	connect_finish(&b, CONNECT_INTERNAL, text);
	check(b.p[0] == CONNECT_END);
	if (strlen(text) < 4096) {
		check(json_read(b.p + CONNECT_HEAD, b.len - CONNECT_HEAD, &j, &err) == 0);
		json_decref(j);
	}
}

static void bytes(const uint8_t *data, size_t size)
{
	auto_free char *text = mem_strndup((const char *)data, size);
	auto_buf out = { 0 }, again = { 0 }, third = { 0 };
	struct den_err err;
	uint64_t ms;

	if (connect_timeout(text, &ms, &err) == 0)
		check(ms > 0 && ms < 10000000000U);
	if (connect_bytes((const char *)data, size, &out, &err) == 0) {
		check(out.len <= size);
		connect_put_bytes(&again, out.p, out.len);
		check(connect_bytes(again.p, again.len, &third, &err) == 0);
		check(third.len == out.len && (!out.len || !memcmp(third.p, out.p, out.len)));
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (!size)
		return 0;
	if (data[0] % 3 == 0)
		envelope(data + 1, size - 1);
	else if (data[0] % 3 == 1)
		there_and_back(data + 1, size - 1);
	else
		bytes(data + 1, size - 1);
	return 0;
}
