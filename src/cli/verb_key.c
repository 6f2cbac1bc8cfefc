/* den key create, ls, revoke: who may use the server */
#include <stdio.h>

#include "cli.h"
#include "mem.h"
#include "serve_run.h"
#include "strv.h"
#include "verbs.h"

static char **key_argv(const char *verb)
{
	char **argv = NULL;

	strv_add(&argv, "den-serve");
	strv_add(&argv, "key");
	strv_add(&argv, verb);
	return argv;
}

static const struct option_def create_options[] = {
	{ "org", 0, OPT_TEXT, offsetof(struct args, org), "NAME",
		"organisation that it is of: its keys share boxes, secrets and templates (default: default)" },
	{ "name", 'n', OPT_TEXT, offsetof(struct args, name), "NAME", "what it is for" },
	{ "scope", 0, OPT_LIST, offsetof(struct args, scopes), "SCOPE",
		"boxes, read, secrets, templates or admin; may be repeated (default: all but admin)" },
	{ "boxes", 0, OPT_COUNT, offsetof(struct args, quota_boxes), "N", "at most so many boxes" },
	{ "cpus", 0, OPT_CPUS, offsetof(struct args, cpus), "N", "processors of all its boxes" },
	{ "memory", 0, OPT_SIZE, offsetof(struct args, memory), "SIZE", "memory of all its boxes" },
	{ "disk", 0, OPT_SIZE, offsetof(struct args, disk), "SIZE", "disk of all its boxes and of what is saved of them" },
	{ "rate", 0, OPT_COUNT, offsetof(struct args, rate), "N", "requests a minute" },
	{ 0 },
};

static int key_create(const struct args *a)
{
	char **argv = key_argv("create"), cpus[32];

	serve_add(&argv, "--org", a->org);
	serve_add(&argv, "--name", a->name);
	for (size_t i = 0; a->scopes && a->scopes[i]; i++)
		serve_add(&argv, "--scope", a->scopes[i]);
	serve_add_u64(&argv, "--boxes", a->quota_boxes, "");
	snprintf(cpus, sizeof(cpus), "%llu.%03llu", (unsigned long long)a->cpus / 1000, (unsigned long long)a->cpus % 1000);
	serve_add(&argv, "--cpus", a->cpus ? cpus : NULL);
	serve_add_u64(&argv, "--memory", a->memory, "");
	serve_add_u64(&argv, "--disk", a->disk, "");
	serve_add_u64(&argv, "--rate", a->rate, "");
	return serve_run(a, argv);
}

static const struct verb verb_key_create = {
	.name = "create",
	.summary = "make a key; prints it, this once",
	.help = "Only its hash is kept. What it says begins with e2b_, which older clients insist\n"
		"on; den_ with the same digits is the same key.\n"
		"\n"
		"Examples:\n"
		"  den key create --name laptop\n"
		"  den key create --org acme --scope boxes --boxes 10 --memory 16G --rate 600\n",
	.options = { create_options },
	.complete = "-",
	.run = key_create,
};

static const struct option_def org_options[] = {
	{ "org", 0, OPT_TEXT, offsetof(struct args, org), "NAME", "of this organisation alone" },
	{ 0 },
};

static int key_ls(const struct args *a)
{
	char **argv = key_argv("ls");

	serve_add(&argv, "--org", a->org);
	return serve_run(a, argv);
}

static const struct verb verb_key_ls = {
	.name = "ls",
	.summary = "list the keys, without what they say",
	.help = "Examples:\n"
		"  den key ls\n"
		"  den key ls --org acme --json\n",
	.options = { org_options },
	.complete = "-",
	.run = key_ls,
};

static int key_revoke(const struct args *a)
{
	char **argv = key_argv("revoke");

	strv_add(&argv, a->words[0]);
	serve_add(&argv, "--org", a->org);
	return serve_run(a, argv);
}

static const struct verb verb_key_revoke = {
	.name = "revoke",
	.words = "ID",
	.summary = "end a key, at once",
	.help = "A server that runs refuses it from the next request on. Its boxes stay, and are seen\n"
		"by the other keys of its organisation.\n"
		"\n"
		"Examples:\n"
		"  den key revoke 4f1c09aa52d7be10\n",
	.options = { org_options },
	.min_words = 1,
	.max_words = 1,
	.complete = "-",
	.run = key_revoke,
};

static const struct verb *const key_verbs[] = {
	&verb_key_create,
	&verb_key_ls,
	&verb_key_revoke,
	NULL,
};

const struct verb verb_key = {
	.name = "key",
	.words = "...",
	.summary = "make and end keys of the server",
	.help = "A key says who asks: boxes belong to its organisation. 'den serve' makes the first.\n"
		"\n"
		"Examples:\n"
		"  den key create --name ci\n"
		"  den key ls\n",
	.subs = key_verbs,
};
