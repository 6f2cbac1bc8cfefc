#include <unistd.h>

#include "cli.h"
#include "clock.h"
#include "copy.h"
#include "fs.h"
#include "verbs.h"

static int report(struct copy *c)
{
	struct json j = { 0 };

	if (c->skipped)
		cli_note(c->args, "note: left out what is no file, directory or link: %llu",
			(unsigned long long)c->skipped);
	if (!c->args->json)
		return 0;
	json_open(&j, NULL, '{');
	json_u64(&j, "bytes", c->bytes);
	json_u64(&j, "skipped", c->skipped);
	json_close(&j, '}');
	return cli_print_json(c->args, &j);
}

static int check_places(const struct place *from, const struct place *to, struct den_err *err)
{
	if (from->box && to->box)
		return den_fail(err, DEN_INVALID, 0,
			"one side has to be on the host; between boxes: den cp A:PATH - | den cp - "
			"B:DIR");
	if (!from->box && !to->box)
		return den_fail(
			err, DEN_INVALID, 0, "one side has to be in a box, written BOX:PATH");
	return 0;
}

static int cp(const struct args *a)
{
	auto_session s = { 0 };
	auto_place from = { 0 }, to = { 0 };
	struct den_err err = { 0 };
	struct copy c = { .args = a, .opt = fs_opt(a), .start_ns = clock_mono_ns() };
	int r, status;

	place_parse(a->words[0], &from);
	place_parse(a->words[1], &to);
	if (check_places(&from, &to, &err) < 0)
		return cli_fail(a, &err, "see 'den cp --help'");
	status = session_open(&s, a, from.box ? from.box : to.box);
	if (status)
		return status;
	c.box = s.box;
	c.tty = isatty(STDERR_FILENO) && !a->quiet && !a->json;
	r = from.box ? copy_out(&c, &from, &to, &err) : copy_in(&c, &from, &to, &err);
	copy_progress_end(&c);
	if (c.status)
		return c.status;
	if (r < 0)
		return cli_fail(a, &err, NULL);
	return to.stream ? 0 : report(&c);
}

const struct verb verb_cp = {
	.name = "cp",
	.words = "SRC DST",
	.summary = "copy files and directories into or out of a box",
	.help = "One side is BOX:PATH, the other a path here, or - for a tar stream on\n"
		"standard input or output. A DST that is a directory is copied into; else it\n"
		"is the new name. A SRC that ends in /. means what is in it. What comes in\n"
		"belongs to root, or to --user; what goes out belongs to you, without setuid\n"
		"bits. A path here with a colon: write ./a:b.\n"
		"\n"
		"Examples:\n"
		"  den cp ./app web:/srv/              makes /srv/app\n"
		"  den cp ./app/. web:/srv/app         what is in ./app, into /srv/app\n"
		"  den cp web:/var/log/app.log .       a file out\n"
		"  den cp web:/srv - | gzip > srv.tgz  as a tar stream\n"
		"  den cp a:/data - | den cp - b:/     from box to box\n",
	.options = { options_fs_user },
	.min_words = 2,
	.max_words = 2,
	.complete = "p",
	.run = cp,
};
