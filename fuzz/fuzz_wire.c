/* Whatever arrives on a socket: frames first, then each message with every decoder there is. */
#include <stdint.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "fsop.h"
#include "id.h"
#include "spec.h"
#include "wire.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void decode_all(const char *p, size_t n)
{
	struct den_err err;
	struct box_spec bs;
	struct box_info bi;
	struct exec_spec es;
	struct exec_info ei;
	struct exec_result er;
	struct box_stats st;
	struct fs_entry fe;
	size_t used;

	if (box_spec_get(p, n, &bs, &err) == 0) {
		struct buf b = { 0 };
		struct box_spec again;

		box_spec_put(&b, &bs); /* what was understood must survive the way back */
		if (box_spec_get(b.p, b.len, &again, &err) < 0)
			abort();
		box_spec_free(&again);
		buf_free(&b);
		box_spec_free(&bs);
	}
	if (box_info_get(p, n, &bi, &err) == 0)
		box_info_free(&bi);
	if (exec_spec_get(p, n, &es, &err) == 0)
		exec_spec_free(&es);
	if (exec_info_get(p, n, &ei, &err) == 0)
		exec_info_free(&ei);
	(void)exec_result_get(p, n, &er, &err);
	(void)box_stats_get(p, n, &st, &err);
	(void)wire_get_err(p, n, &err);
	if (fs_entry_get(p, n, &fe, &used, &err) == 1) {
		if (used > n)
			abort();
		fs_entry_free(&fe);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const char *p = (const char *)data;
	struct wire_frame f;
	struct den_err err;
	size_t at = 0, used;

	while (at < size && wire_frame_get(p + at, size - at, &f, &used, &err) == 1) {
		if (used > size - at || f.len > used)
			abort();
		decode_all(f.p, f.len);
		at += used;
	}
	decode_all(p, size);
	if (size && size < 100) {
		char text[101];
		struct box_id id;
		struct box_name name;

		memcpy(text, p, size);
		text[size] = '\0';
		if (box_id_parse(text, &id, &err) == 0 && strpbrk(id.s, "/."))
			abort();
		if (box_name_parse(text, &name, &err) == 0 && (strchr(name.s, '/') || name.s[0] == '.'))
			abort();
	}
	return 0;
}
