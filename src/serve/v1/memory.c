/* /v1/boxes/{box}: pause, hibernate, bake: programs that are held, put on disk, or left out. */
#include <string.h>

#include "auth.h"
#include "boxes.h"
#include "e2b_parts.h"
#include "events.h"
#include "handlers.h"
#include "mem.h"

json_t *v1_saved_json(const struct den_saved *s)
{
	return json_pack("{sI sI sI so}", "number", (json_int_t)s->number, "memory", (json_int_t)s->memory, "frozen_us",
		(json_int_t)s->frozen_us, "lost", v1_strings(s->lost));
}

static void put_away(struct den_box *box)
{
	boxes_set_state(den_box_id(box), "paused");
	boxes_kick(den_box_id(box));
}

int v1_box_pause(struct req *r, struct den_err *err)
{
	static const struct field table[] = { { "disk", FIELD_BOOL, 0 } };
	auto_saved *saved = NULL;
	struct den_box_info *i;
	auto_json *body = NULL;
	auto_box *box = NULL;
	bool disk = false;
	json_t *o;

	if (!QUERY(r, err) || req_json(r, &body, err) < 0 || fields_get(body, table, 1, true, &disk, err) < 0 ||
		v1_box(r, &box, err) < 0)
		return -1;
	if ((disk ? den_box_pause_disk(box, &saved, err) : den_box_pause(box, err)) < 0)
		return -1;
	put_away(box);
	if (den_box_info(box, &i, err) < 0)
		return -1;
	o = v1_box_json(r, i);
	den_box_infos_free(i, 1);
	if (saved)
		json_object_set_new(o, "saved", v1_saved_json(saved));
	return req_reply_json(r, 200, o);
}

int v1_box_hibernate(struct req *r, struct den_err *err)
{
	auto_box *box = NULL;

	if (!QUERY(r, err) || v1_no_body(r, err) < 0 || v1_box(r, &box, err) < 0 || den_box_hibernate(box, err) < 0)
		return -1;
	put_away(box);
	return v1_reply_box(r, 200, box, err);
}

struct bake_args {
	const char *name, *ref;
};

static const struct field bake_fields[] = {
	{ "name", FIELD_TEXT, offsetof(struct bake_args, name), FIELD_MUST, .min = 1, .max = 128 },
	{ "ref", FIELD_TEXT, offsetof(struct bake_args, ref), FIELD_NULL, .min = 1, .max = 128 },
};

int v1_bake(struct req *r, struct den_err *err)
{
	auto_free char *stored = NULL;
	struct bake_args a = { 0 };
	auto_json *body = NULL;
	auto_box *box = NULL;

	if (!QUERY(r, err) || req_json(r, &body, err) < 0 ||
		fields_get(body, bake_fields, ARRAY_SIZE(bake_fields), true, &a, err) < 0 ||
		auth_name(req_who(r), a.name, &stored, err) < 0 || e2b_template_writable(req_who(r), stored, err) < 0 ||
		v1_box(r, &box, err) < 0 || den_template_bake(box, a.ref, stored, err) < 0)
		return -1;
	e2b_template_changed();
	events_post("template.made", req_who(r)->org, den_box_id(box), json_pack("{ss}", "name", a.name));
	return req_reply_json(r, 201, json_pack("{ss}", "name", a.name));
}
