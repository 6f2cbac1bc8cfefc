#include <stdio.h>
#include <string.h>

#include "cli.h"
#include "json.h"
#include "mem.h"
#include "parse.h"
#include "table.h"
#include "verbs.h"

static const struct option_def port_options[] = {
	{ "close", 0, OPT_FLAG, offsetof(struct args, remove), NULL, "take it back; its connections end" },
	{ "as", 0, OPT_NUMBER, offsetof(struct args, size), "PORT", "on the host (default: any that is free)", "close" },
	{ 0 },
};

static void print_all(const struct args *a, char **list, struct json *j)
{
	static const char *const heads[] = { "PORT", "URL" };
	auto_table t = { .cols = ARRAY_SIZE(heads), .heads = heads };

	if (a->json)
		json_open(j, NULL, '[');
	for (; *list; list++) {
		auto_free char *port = mem_strndup(*list, strcspn(*list, "="));
		const char *out = strchr(*list, '=');

		if (a->json) {
			json_open(j, NULL, '{');
			json_u64(j, "port", strtoull(port, NULL, 10));
			json_u64(j, "outside", out ? strtoull(out + 1, NULL, 10) : 0);
			json_close(j, '}');
		} else {
			table_cell(&t, port);
			table_cellf(&t, "http://127.0.0.1:%s/", out ? out + 1 : "?");
		}
	}
	if (a->json)
		json_close(j, ']');
	else
		table_print(&t, &j->b);
}

/* Just the URL of the one that was asked for. */
static int print_one(const struct args *a, char **list, uint64_t port)
{
	auto_buf b = { 0 };

	for (; *list; list++)
		if (strtoull(*list, NULL, 10) == port && strchr(*list, '='))
			buf_addf(&b, "http://127.0.0.1:%s/\n", strchr(*list, '=') + 1);
	return cli_print(a, &b);
}

static int port(const struct args *a)
{
	auto_session s = { 0 };
	struct den_err err = { 0 };
	struct json j = { 0 };
	char **list = NULL;
	uint64_t number = 0;
	int status;

	if (a->n_words > 1 && parse_u64(a->words[1], 1, 65535, &number, &err) < 0) {
		den_wrap(&err, "port");
		return cli_fail(a, &err, NULL);
	}
	if (a->size > 65535 || (a->remove && !number)) {
		den_fail(&err, DEN_INVALID, 0, a->remove ? "which port? den port --close BOX PORT" : "a port is 1 to 65535");
		return cli_fail(a, &err, NULL);
	}
	status = session_open(&s, a, a->words[0]);
	if (status)
		return status;
	if (den_port(s.box, (uint16_t)number, (uint16_t)a->size, a->remove, &list, &err) < 0)
		return cli_fail(a, &err, NULL);
	if (a->remove)
		status = 0;
	else if (number && !a->json)
		status = print_one(a, list, number);
	else {
		print_all(a, list, &j);
		status = a->json ? cli_print_json(a, &j) : cli_print(a, &j.b);
		buf_free(&j.b);
	}
	den_strings_free(list);
	return status;
}

const struct verb verb_port = {
	.name = "port",
	.words = "BOX [PORT]",
	.summary = "make a port of a box reachable on this machine, and print its URL",
	.help = "Only what is asked for can be reached, and only from this machine's loopback.\n"
		"It stays as long as the box does, whoever asked. Without a port: list them.\n"
		"\n"
		"Examples:\n"
		"  den port web 3000            prints http://127.0.0.1:PORT/\n"
		"  den port web 3000 --as 8080  on that port\n"
		"  den port web\n"
		"  den port --close web 3000\n",
	.options = { port_options },
	.min_words = 1,
	.max_words = 2,
	.complete = "b",
	.run = port,
};
