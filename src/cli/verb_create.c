#include "box_args.h"
#include "cli.h"
#include "show.h"
#include "verbs.h"

static int print_info(const struct args *a, struct den_box *box)
{
	struct den_box_info *info = NULL;
	struct den_err err = { 0 };
	struct json j = { 0 };

	if (den_box_info(box, &info, &err) < 0)
		return cli_fail(a, &err, NULL);
	show_box_json(&j, NULL, info);
	den_box_infos_free(info, 1);
	return cli_print_json(a, &j);
}

static int create(const struct args *a)
{
	auto_session s = { 0 };
	auto_box_args b = { 0 };
	auto_buf out = { 0 };
	struct den_err err = { 0 };

	if (box_args_make(a, &b, &err) < 0)
		return cli_fail(a, &err, "see 'den create --help'");
	if (cli_open(a, &s.den, &err) < 0 || den_box_create(s.den, &b.spec, &s.box, &err) < 0)
		return cli_fail(a, &err,
			err.code == DEN_UNSUPPORTED ? "'den doctor' tells what this machine lacks"
						    : NULL);
	if (a->json)
		return print_info(a, s.box);
	buf_addf(&out, "%s\n", den_box_id(s.box));
	return cli_print(a, &out);
}

const struct verb verb_create = {
	.name = "create",
	.summary = "make a box and start it; prints its id",
	.help = "The box stays until 'den rm', or as long as --ttl and --idle say. It survives a\n"
		"crash of den and of this machine.\n"
		"\n"
		"Examples:\n"
		"  den create --name web                        known as \"web\" from then on\n"
		"  den create --cpus 2 --memory 4G --disk 10G   with limits\n"
		"  den create --mount ~/data:/data:ro           with a host directory\n"
		"  den create --ttl 1h --label job=7            gone after an hour\n"
		"  den create --allow '*.example.com:443' --net-rate 1M  with a way out\n"
		"  den create --secret KEY@api.example.com:bearer  'den secret set KEY' first\n"
		"  box=$(den create) && den exec $box uname -a  without a name\n",
	.options = { options_box, options_lease, options_label, options_net, options_env },
	.complete = "-",
	.run = create,
};
