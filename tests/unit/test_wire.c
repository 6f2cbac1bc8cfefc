#include "test.h"

#include "buf.h"
#include "fsop.h"
#include "id.h"
#include "mem.h"
#include "shape.h"
#include "spec.h"
#include "strv.h"
#include "wire.h"

TEST(id_refuses_what_could_leave_a_path)
{
	static const char *const bad[] = { "", "b-", "b-../x", "b-A", "b-a/b", "xx-abc",
		"b-aaaaaaaaaaaaaaaaa", "b-aaaaaaaaaaaaaaaaaaa", "b-aaaaaaaaaaaaaaaaa/",
		"b-aaaaaaaaaaaaaaaaa1", "b-aaaaaaaaaaaaaaaaA" };
	struct box_id id = { "untouched" };
	struct den_err err;

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		CHECK(box_id_parse(bad[i], &id, &err) < 0 && err.code == DEN_INVALID);
		CHECK(strcmp(id.s, "untouched") == 0);
	}
	CHECK(box_id_make(&id, &err) == 0);
	CHECK(box_id_parse(id.s, &id, &err) == 0);
}

TEST(name_refuses_what_could_leave_a_path_or_pass_for_an_id)
{
	static const char *const bad[] = { "", ".", "..", "-a", ".a", "a/b", "A", "a b", "a\n",
		"b-aaaaaaaaaaaaaaaaaa",
		"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa" };
	struct box_name name;
	struct den_err err;

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		CHECK(box_name_parse(bad[i], &name, &err) < 0 && err.code == DEN_INVALID);
	CHECK(box_name_parse("web-1.test_2", &name, &err) == 0);
}

TEST(a_frame_survives_the_way)
{
	auto_buf b = { 0 };
	struct wire_frame f;
	struct den_err err;
	size_t used;

	wire_frame_put(&b, WM_OUT, 7, "hello", 5);
	for (size_t n = 0; n < b.len; n++)
		CHECK(wire_frame_get(b.p, n, &f, &used, &err) == 0);
	CHECK(wire_frame_get(b.p, b.len, &f, &used, &err) == 1);
	CHECK(used == b.len && f.type == WM_OUT && f.chan == 7 && f.len == 5);
	CHECK(memcmp(f.p, "hello", 5) == 0);
}

TEST(a_frame_that_is_not_ours_is_refused)
{
	char h[WIRE_HEADER] = { 'd', WIRE_VERSION, WM_OUT, 0, 0, 0, 0, 0, 0, 0, 0, 0 };
	struct wire_frame f;
	struct den_err err;
	size_t used;

	CHECK(wire_frame_get(h, sizeof(h), &f, &used, &err) == 1);
	h[0] = 'x';
	CHECK(wire_frame_get(h, sizeof(h), &f, &used, &err) < 0);
	h[0] = 'd';
	h[1] = WIRE_VERSION + 1;
	CHECK(wire_frame_get(h, sizeof(h), &f, &used, &err) < 0 && err.code == DEN_UNSUPPORTED);
	h[1] = WIRE_VERSION;
	h[2] = WM_TYPES;
	CHECK(wire_frame_get(h, sizeof(h), &f, &used, &err) < 0);
	h[2] = WM_OUT;
	h[7] = 0x7f; /* two gigabytes */
	CHECK(wire_frame_get(h, sizeof(h), &f, &used, &err) < 0);
}

TEST(a_box_spec_survives_the_way)
{
	struct box_mount m[] = { { (char *)"/a", (char *)"/b", true }, { (char *)"/c", (char *)"/d", false } };
	char *env[] = { (char *)"A=1", (char *)"B=two words", NULL };
	struct box_spec s = { .name = (char *)"n", .env = env, .mounts = m, .n_mounts = 2,
		.memory = 1 << 20, .flags = BOX_EPHEMERAL }, got;
	auto_buf b = { 0 };
	struct den_err err;

	box_spec_put(&b, &s);
	CHECK(box_spec_get(b.p, b.len, &got, &err) == 0);
	CHECK(!strcmp(got.name, "n") && strv_len(got.env) == 2 && !strcmp(got.env[1], "B=two words"));
	CHECK(got.n_mounts == 2 && got.mounts[0].ro && !got.mounts[1].ro);
	CHECK(!strcmp(got.mounts[1].box, "/d") && got.memory == 1 << 20 && got.flags == BOX_EPHEMERAL);
	box_spec_free(&got);
}

TEST(a_box_spec_has_owner_labels_and_lease)
{
	char *labels[] = { (char *)"job=7", (char *)"empty=", (char *)"text=a=b\n\xff", NULL };
	struct box_spec s = { .owner = (char *)"org/key", .labels = labels, .expires_ms = 1ULL << 41, .idle_ms = 60000,
		.on_expire = LEASE_PAUSE, .on_idle = LEASE_STOP }, got;
	struct box_info i = { .spec = s, .state = BOX_RUNNING, .active_ms = 77, .turn = 5 }, back;
	auto_buf b = { 0 };
	struct den_err err;

	box_spec_put(&b, &s);
	CHECK(box_spec_get(b.p, b.len, &got, &err) == 0);
	CHECK(!strcmp(got.owner, "org/key") && strv_len(got.labels) == 3 && !strcmp(got.labels[2], labels[2]));
	CHECK(got.expires_ms == 1ULL << 41 && got.idle_ms == 60000);
	CHECK(got.on_expire == LEASE_PAUSE && got.on_idle == LEASE_STOP);
	box_spec_free(&got);
	b.len = 0;
	box_info_put(&b, &i);
	CHECK(box_info_get(b.p, b.len, &back, &err) == 0 && back.active_ms == 77 && back.turn == 5);
	box_info_free(&back);
}

static int spec_with(enum wire_field tag, const char *text, size_t times)
{
	auto_buf b = { 0 };
	struct box_spec got;
	struct den_err err;

	for (size_t i = 0; i < times; i++)
		wire_put_str(&b, tag, text);
	if (box_spec_get(b.p, b.len, &got, &err) < 0)
		return -1;
	box_spec_free(&got);
	return 0;
}

TEST(labels_and_owner_are_bounded)
{
	char *many[SPEC_MAX_LABELS + 2] = { 0 }, key[SPEC_MAX_LABELS + 2][8], *three[] = { (char *)"ab=1", (char *)"a=1", NULL };
	auto_buf b = { 0 };
	struct den_err err;
	uint64_t action;

	for (size_t i = 0; i <= SPEC_MAX_LABEL; i++)
		buf_addstr(&b, i == 1 ? "=" : "x");
	CHECK(spec_with(F_LABEL, "k=v", 1) == 0 && spec_with(F_LABEL, "k=v", 2) < 0); /* a key twice */
	CHECK(spec_with(F_LABEL, "novalue", 1) < 0 && spec_with(F_LABEL, "=v", 1) < 0);
	CHECK(spec_with(F_LABEL, buf_str(&b), 1) < 0);
	CHECK(spec_with(F_LABEL, buf_str(&b) + 1, 1) < 0); /* begins with "=" */
	b.len = SPEC_MAX_LABEL;
	CHECK(spec_with(F_LABEL, buf_str(&b), 1) == 0);
	b.len = SPEC_MAX_OWNER + 1;
	CHECK(spec_with(F_OWNER, buf_str(&b), 1) < 0);
	b.len = SPEC_MAX_OWNER;
	CHECK(spec_with(F_OWNER, buf_str(&b), 1) == 0);
	CHECK(labels_check(three, &err) == 0 && labels_check(NULL, &err) == 0); /* one key begins as another */
	for (size_t i = 0; i <= SPEC_MAX_LABELS; i++) {
		snprintf(key[i], sizeof(key[i]), "%zu=", i);
		many[i] = key[i];
	}
	CHECK(labels_check(many, &err) < 0 && err.code == DEN_LIMIT);
	many[SPEC_MAX_LABELS] = NULL;
	CHECK(labels_check(many, &err) == 0);
	CHECK(lease_action_parse("pause", &action, &err) == 0 && action == LEASE_PAUSE);
	CHECK(lease_action_parse("explode", &action, &err) < 0 && lease_action_parse("", &action, &err) < 0);
}

TEST(a_box_spec_with_a_strange_field_is_refused)
{
	auto_buf b = { 0 };
	struct box_spec got;
	struct den_err err;

	wire_put_u64(&b, F_ROWS, 1);
	CHECK(box_spec_get(b.p, b.len, &got, &err) < 0 && err.code == DEN_INVALID);
	b.len = 0;
	wire_put_str(&b, F_MOUNT_BOX, "/x"); /* a mount without its host path */
	CHECK(box_spec_get(b.p, b.len, &got, &err) < 0);
	b.len = 0;
	wire_put_str(&b, F_MOUNT_HOST, "relative");
	wire_put_str(&b, F_MOUNT_BOX, "/x");
	CHECK(box_spec_get(b.p, b.len, &got, &err) < 0);
	b.len = 0;
	wire_put_bytes(&b, F_NAME, "a\0b", 3);
	CHECK(box_spec_get(b.p, b.len, &got, &err) < 0);
}

TEST(a_message_cut_anywhere_is_refused_and_leaks_nothing)
{
	char *argv[] = { (char *)"sh", (char *)"-c", (char *)"true", NULL };
	struct exec_spec s = { .argv = argv, .cwd = (char *)"/", .user = (char *)"user", .timeout_ms = 5 }, got;
	auto_buf b = { 0 };
	struct den_err err;

	exec_spec_put(&b, &s);
	for (size_t n = 0; n < b.len; n++)
		if (exec_spec_get(b.p, n, &got, &err) == 0)
			exec_spec_free(&got); /* cut between two fields: a shorter message, still whole */
	CHECK(exec_spec_get(b.p, 3, &got, &err) < 0);
	CHECK(exec_spec_get(b.p, b.len, &got, &err) == 0);
	CHECK(strv_len(got.argv) == 3 && got.timeout_ms == 5);
	exec_spec_free(&got);
}

TEST(an_error_survives_the_way_and_never_turns_into_success)
{
	auto_buf b = { 0 };
	struct den_err e, got;

	den_fail(&e, DEN_LIMIT, 28, "disk of '%s'", "x");
	wire_put_err(&b, &e);
	CHECK(wire_get_err(b.p, b.len, &got) == -1);
	CHECK(got.code == DEN_LIMIT && got.sys == 28 && !strcmp(got.msg, e.msg));
	b.len = 0;
	wire_put_u64(&b, F_CODE, DEN_OK);
	CHECK(wire_get_err(b.p, b.len, &got) == -1 && got.code == DEN_INTERNAL);
}

TEST(vectors_of_every_length_hold_what_was_added)
{
	for (size_t n = 0; n < 70; n++) {
		auto_strv v = NULL;

		for (size_t i = 0; i < n; i++) {
			char t[16];

			snprintf(t, sizeof(t), "%zu", i);
			strv_add(&v, t);
		}
		CHECK(strv_len(v) == n);
		for (size_t i = 0; i < n; i++)
			CHECK((size_t)atoi(v[i]) == i);
	}
}

TEST(a_file_record_survives_the_way)
{
	struct fs_entry e = { .path = (char *)"a\n\xff", .type = FS_LINK, .target = (char *)"/x", .mode = 0755,
		.mtime_ns = -5, .size = 9 }, got;
	auto_buf b = { 0 };
	struct den_err err;
	size_t used;

	fs_entry_put(&b, &e);
	CHECK(fs_entry_get(b.p, b.len - 1, &got, &used, &err) == 0);
	CHECK(fs_entry_get(b.p, b.len, &got, &used, &err) == 1 && used == b.len);
	CHECK(!strcmp(got.path, e.path) && got.mtime_ns == -5 && got.type == FS_LINK);
	fs_entry_free(&got);
}

static void shape_hex(const struct box_spec *s, char out[static 65])
{
	struct shape shape;

	CHECK(shape_of(s, &shape, NULL));
	memcpy(out, shape.hex, 65);
}

TEST(shape_is_the_same_before_and_after_it_is_settled)
{
	char *env[] = { (char *)"A=B", NULL }, *labels[] = { (char *)"k=v", NULL };
	struct box_spec asked = { .memory = 1 << 30 };
	/* as create.c completes it, and with all that comes with a claim */
	struct box_spec settled = { .id = (char *)"b-aaaaaaaaaaaaaaaaaa", .template_name = (char *)"host",
		.wall = (char *)"container", .net = (char *)"none", .memory = 1 << 30, .pids = 4096,
		.flags = BOX_PIDS_DEFAULT, .history = HISTORY_ON, .user = (char *)"root", .cwd = (char *)"/", .env = env,
		.labels = labels, .owner = (char *)"me", .nofile = 7, .max_runtime_ms = 8, .expires_ms = 9, .idle_ms = 10,
		.on_expire = LEASE_STOP, .on_idle = LEASE_STOP };
	char a[65], b[65];

	shape_hex(&asked, a);
	shape_hex(&settled, b);
	CHECK(!strcmp(a, b));
}

TEST(shape_tells_apart_what_is_built_differently)
{
	struct box_mount at[] = { { (char *)"/a", (char *)"/b", false }, { (char *)"/a", (char *)"/b", true },
		{ (char *)"/a\nat 2 /b", (char *)"/b", false } };
	const struct box_spec all[] = { { 0 }, { .template_name = (char *)"base" }, { .wall = (char *)"gvisor" },
		{ .net = (char *)"policy" }, { .policy = (char *)"{}" }, { .hostname = (char *)"web" }, { .cpu_milli = 1 },
		{ .memory = 1 }, { .pids = 1 }, { .disk = 1 }, { .history = HISTORY_OFF }, { .history = HISTORY_MANUAL },
		{ .flags = BOX_RESEED },
		{ .mounts = &at[0], .n_mounts = 1 }, { .mounts = &at[1], .n_mounts = 1 }, { .mounts = &at[2], .n_mounts = 1 },
		{ .mounts = &at[0], .n_mounts = 2 } };
	char *publish[] = { (char *)"80", NULL }, a[65], b[65];
	struct shape none;

	for (size_t i = 0; i < ARRAY_SIZE(all); i++)
		for (size_t k = 0; k < i; k++) {
			shape_hex(&all[i], a);
			shape_hex(&all[k], b);
			CHECK(strcmp(a, b));
		}
	shape_hex(&(struct box_spec){ .name = (char *)"web" }, a); /* it is the host name, too */
	shape_hex(&(struct box_spec){ .hostname = (char *)"web" }, b);
	CHECK(!strcmp(a, b));
	CHECK(!shape_of(&(struct box_spec){ .from = (char *)"b-aaaaaaaaaaaaaaaaaa@1" }, &none, NULL));
	CHECK(!shape_of(&(struct box_spec){ .publish = publish }, &none, NULL));
	CHECK(!shape_of(&(struct box_spec){ .flags = BOX_EPHEMERAL }, &none, NULL));
}
