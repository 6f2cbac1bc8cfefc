/*
 * A multipart body. What is read must not depend on how the bytes come: whole, and in pieces whose length the
 * second byte says. The first byte chooses: the rest is a body with the boundary "b", or a Content-Type.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "buf.h"
#include "mem.h"
#include "multipart.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool ok)
{
	if (!ok)
		abort();
}

/* All events as text, data joined; false: refused. */
static bool read_all(const char *p, size_t size, size_t step, struct buf *out)
{
	auto_multipart m;
	struct den_err err;
	bool in_part = false, ended = false;

	check(multipart_init(&m, "multipart/form-data; boundary=b", &err) == 0);
	for (size_t at = 0; at < size; at += step) {
		size_t n = MIN(step, size - at);
		auto_free char *piece = malloc(n); /* of its own, so that reading past it is seen */
		const char *q = piece;
		int ev;

		memcpy(piece, p + at, n);
		while ((ev = multipart_next(&m, &q, &n, &err)) != MULTIPART_MORE) {
			if (ev < 0)
				return false;
			if (ev == MULTIPART_END) {
				ended = true;
				break;
			}
			check(!ended);
			if (ev == MULTIPART_PART) {
				check(!in_part && m.name);
				in_part = true;
				buf_addf(out, "\n[%s][%s]", m.name, m.filename ? m.filename : "-");
			} else if (ev == MULTIPART_DATA) {
				check(in_part && m.len);
				buf_add(out, m.data, m.len);
			} else {
				check(in_part);
				in_part = false;
				buf_addstr(out, "\nend");
			}
		}
	}
	if (ended)
		buf_addstr(out, "\nall");
	return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	auto_buf whole = { 0 }, pieces = { 0 };
	bool a, b;

	if (size < 2)
		return 0;
	if (data[0] & 1) {
		auto_free char *type = mem_strndup((const char *)data + 2, size - 2), *value = NULL;
		auto_multipart m;
		struct den_err err;

		if (multipart_init(&m, type, &err) == 0)
			check(m.n_delim > 4 && m.n_delim <= 74);
		value = multipart_param(type, "name");
		check(!value || strlen(value) <= size);
		return 0;
	}
	a = read_all((const char *)data + 2, size - 2, size, &whole);
	b = read_all((const char *)data + 2, size - 2, data[1] % 17 + 1U, &pieces);
	check(a == b);
	if (a)
		check(whole.len == pieces.len && (!whole.len || !memcmp(whole.p, pieces.p, whole.len)));
	return 0;
}
