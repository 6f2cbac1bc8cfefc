#include <string.h>

#include "cli.h"
#include "mem.h"
#include "parse.h"
#include "show.h"
#include "table.h"
#include "verbs.h"
#include "warm.h"

static const struct option_def pool_options[] = {
	{ "kind", 0, OPT_TEXT, offsetof(struct args, kind), "btrfs|plain", "make it of this kind" },
	{ "size", 0, OPT_SIZE, offsetof(struct args, size), "SIZE",
		"how large it may become, like 100G; more than before makes it grow" },
	{ 0 },
};

static const struct option_def warm_options[] = {
	{ "run", 0, OPT_FLAG, offsetof(struct args, stay), NULL,
		"of warm: stay, and make another for each that is taken" },
	{ "none", 0, OPT_FLAG, offsetof(struct args, none), NULL, "of warm: throw all ready boxes away" },
	{ 0 },
};

/* What was given and belongs to the other of the two. NULL: nothing */
static const char *stray_option(const struct args *a, bool warm)
{
	static const struct option_def *const of_warm[] = { warm_options, options_box, options_net, options_env };

	for (const struct option_def *o = pool_options; warm && o->name; o++)
		if (args_given(a, o->name))
			return o->name;
	for (size_t i = 0; !warm && i < ARRAY_SIZE(of_warm); i++)
		for (const struct option_def *o = of_warm[i]; o->name; o++)
			if (args_given(a, o->name))
				return o->name;
	return NULL;
}

static void pool_json(struct json *j, const struct den_pool_info *p)
{
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

static int pool_tell(const struct args *a)
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
		json_open(&j, NULL, '{');
		pool_json(&j, &p);
		if (warm_json(s.den, &j, &err) < 0)
			return cli_fail(a, &err, NULL);
		json_close(&j, '}');
		return cli_print_json(a, &j);
	}
	pool_text(&out, &p);
	if (warm_text(s.den, &out, &err) < 0)
		return cli_fail(a, &err, NULL);
	return cli_print(a, &out);
}

static int pool(const struct args *a)
{
	bool warm = a->n_words && !strcmp(a->words[0], "warm");
	const char *stray = stray_option(a, warm);
	struct den_err err = { 0 };

	if (a->n_words && !warm) {
		den_fail(&err, DEN_INVALID, 0, "'%.40s' cannot be done with a pool; 'warm' can", a->words[0]);
		return cli_fail(a, &err, "see 'den pool --help'");
	}
	if (stray) {
		den_fail(&err, DEN_INVALID, 0, warm ? "--%s is not of 'den pool warm'" : "--%s goes with 'den pool warm'", stray);
		return cli_fail(a, &err, "see 'den pool --help'");
	}
	return warm ? pool_warm(a) : pool_tell(a);
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
		"'warm' builds boxes before somebody asks for them. 'den create' takes one that is\n"
		"of the same shape: same template, limits, network or none, mounts, history. What\n"
		"else it says is given to the box then. They cost a little memory each, and no list\n"
		"has them. N is how many there shall be: fewer throws some away.\n"
		"\n"
		"Examples:\n"
		"  den pool                              tell\n"
		"  den pool --kind btrfs --size 100G     make it, of at most 100 GiB\n"
		"  den pool --size 200G                  let it grow\n"
		"  den pool --json | jq .avail\n"
		"  den pool warm host=4                  four boxes, ready to be taken\n"
		"  den pool warm base=8 --memory 1G --run   eight, and always eight again\n"
		"  den pool warm --none                  throw them away\n",
	.words = "[warm TEMPLATE=N...]",
	.options = { pool_options, warm_options, options_box, options_net, options_env },
	.max_words = -1,
	.complete = "wt",
	.run = pool,
};
