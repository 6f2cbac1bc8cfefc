/* /v1/boxes/{box}/diff: what changed between two points, as JSON, text or a layer. */
#include <stdio.h>
#include <string.h>

#include "handlers.h"
#include "mem.h"

static json_t *what_json(unsigned what)
{
	static const struct {
		unsigned bit;
		const char *name;
	} bits[] = { { DEN_CHANGED_CONTENT, "content" }, { DEN_CHANGED_MODE, "mode" },
		{ DEN_CHANGED_OWNER, "owner" }, { DEN_CHANGED_TYPE, "type" },
		{ DEN_CHANGED_TARGET, "target" }, { DEN_CHANGED_XATTR, "xattr" } };
	json_t *a = json_array();

	for (size_t i = 0; i < ARRAY_SIZE(bits); i++)
		if (what & bits[i].bit)
			json_array_append_new(a, json_string(bits[i].name));
	return a;
}

static const char *type_name(char type)
{
	switch (type) {
	case 'f':
		return "file";
	case 'd':
		return "directory";
	case 'l':
		return "symlink";
	case 'p':
		return "fifo";
	case 's':
		return "socket";
	case 'c':
		return "char";
	case 'b':
		return "block";
	}
	return "unknown";
}

static int change_add(const struct den_change *c, void *user, struct den_err *err)
{
	json_t *o = json_object();
	char mode[8];

	snprintf(mode, sizeof(mode), "%04o", c->mode & 07777);
	v1_put(o, "path", c->path);
	json_object_set_new(o, "kind", v1_text(c->kind));
	json_object_set_new(o, "type", json_string(type_name(c->type)));
	json_object_set_new(o, "what", what_json(c->what));
	json_object_set_new(o, "mode", json_string(mode));
	json_object_set_new(o, "size", json_integer((json_int_t)MIN(c->size, (uint64_t)INT64_MAX)));
	return v1_list_add(user, "changes", o, err);
}

int v1_diff(struct req *r, struct den_err *err)
{
	const char *from = req_query(r, "from"), *to = req_query(r, "to"),
		   *format = req_query(r, "format");
	struct v1_out out = { .r = r };
	auto_box *box = NULL;
	int res;

	if (!QUERY(r, err, "from", "to", "format", ))
		return -1;
	if (format && strcmp(format, "json") && strcmp(format, "text") && strcmp(format, "tar"))
		return den_fail(err, DEN_INVALID, 0, "format is json, text or tar");
	if (v1_box(r, &box, err) < 0)
		return -1;
	req_set(r, "X-Content-Type-Options", "nosniff");
	if (!format || !strcmp(format, "json")) {
		out.type = "application/json";
		res = den_diff(box, from, to, change_add, &out, err);
		if (res == 0)
			res = v1_list_end(&out, "changes", err);
	} else {
		bool tar = !strcmp(format, "tar");

		/* what a box made is any bytes: no charset is promised, and nosniff keeps it text */
		out.type = tar ? "application/x-tar" : "text/x-diff";
		res = (tar ? den_diff_tar : den_diff_text)(box, from, to, v1_out_sink, &out, err);
		if (res == 0)
			res = v1_out_end(&out, err);
	}
	buf_free(&out.held);
	return res;
}
