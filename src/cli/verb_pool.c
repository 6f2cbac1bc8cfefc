#include <string.h>

#include "cli.h"
#include "parse.h"
#include "show.h"
#include "table.h"
#include "verbs.h"

static const struct option_def pool_options[] = {
	{ "kind", 0, OPT_TEXT, offsetof(struct args, kind), "btrfs|plain", "make it of this kind" },
	{ "size", 0, OPT_SIZE, offsetof(struct args, size), "SIZE",
		"how large it may become, like 100G; more than before makes it grow" },
	{ 0 },
};

static void pool_json(struct json *j, const struct den_pool_info *p)
{
	json_open(j, NULL, '{');
	json_bool(j, "exists", p->exists);
	json_str(j, "kind", p->kind);
	json_str(j, "text", p->text);
	json_bool(j, "image", p->image);
	json_bool(j, "reflink", p->reflink);
	json_u64(j, "bytes", p->bytes);
	json_u64(j, "used", p->used);
	json_u64(j, "avail", p->avail);
	json_u64(j, "image_bytes", p->image_bytes);
	json_u64(j, "host_avail", p->host_avail);
	json_close(j, '}');
}

static void pool_text(struct buf *out, const struct den_pool_info *p)
{
	buf_addf(out, "%-13s", "pool");
	text_wrapped(out, p->text ? p->text : "", 13, 80);
	if (!p->exists)
		return;
	show_line(out, "kind", p->kind);
	show_line_size(out, "size", p->bytes);
	show_line_size(out, "used", p->used);
	show_line_size(out, "available", p->avail);
	show_line_size(out, "file takes", p->image_bytes);
	show_line_size(out, "host has", p->host_avail);
}

static int pool(const struct args *a)
{
	auto_session s = { 0 };
	auto_buf out = { 0 };
	struct den_pool_info p = { .size = sizeof(p) };
	struct den_err err = { 0 };
	struct json j = { 0 };

	if (a->kind && strcmp(a->kind, "btrfs") && strcmp(a->kind, "plain")) {
		den_fail(&err, DEN_INVALID, 0, "--kind is btrfs or plain, not '%.30s'", a->kind);
		return cli_fail(a, &err, NULL);
	}
	if (cli_open(a, &s.den, &err) < 0 || den_pool(s.den, a->kind, a->size, &p, &err) < 0)
		return cli_fail(a, &err,
			err.code == DEN_UNSUPPORTED ? "'den doctor' tells what this machine lacks"
						    : NULL);
	if (a->json) {
		pool_json(&j, &p);
		return cli_print_json(a, &j);
	}
	pool_text(&out, &p);
	return cli_print(a, &out);
}

const struct verb verb_pool = {
	.name = "pool",
	.summary = "tell where the files of boxes are kept, and what that costs",
	.help = "The pool holds what boxes changed, and their checkpoints. It is made with the\n"
		"first box that has a history: on btrfs where that can be (the state directory, "
		"or\n"
		"a file that grows as it is used), where a checkpoint, fork or rollback takes the\n"
		"same few milliseconds whatever was written; else plain, with copies. The options\n"
		"make one if there is none; an image can be made larger later.\n"
		"\n"
		"Examples:\n"
		"  den pool                              tell\n"
		"  den pool --kind btrfs --size 100G     make it, of at most 100 GiB\n"
		"  den pool --size 200G                  let it grow\n"
		"  den pool --json | jq .avail\n",
	.options = { pool_options },
	.complete = "-",
	.run = pool,
};
