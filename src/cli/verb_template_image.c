/* den template import, export, build, debian, pull, push */
#include <string.h>

#include "build.h"
#include "cli.h"
#include "debian.h"
#include "export.h"
#include "fetch.h"
#include "import.h"
#include "mem.h"
#include "strv.h"
#include "template.h"
#include "verbs.h"

#define FIELD(name) offsetof(struct args, name)

/* ---- import ---------------------------------------------------------------------------------- */

static const struct option_def import_options[] = {
	{ "name", 'n', OPT_TEXT, FIELD(name), "NAME",
		"call it NAME (default: the name in the image)" },
	{ "ref", 0, OPT_TEXT, FIELD(ref), "NAME",
		"the image of this name, where there are several" },
	{ 0 },
};

/* import, pull */
static const struct option_def image_options[] = {
	{ "platform", 0, OPT_TEXT, FIELD(platform), "OS/ARCH",
		"the image for another machine than this" },
	{ "max-size", 0, OPT_SIZE, FIELD(max_size), "SIZE",
		"refuse what unpacks to more (default: 64G)" },
	{ 0 },
};

static struct import_opt import_opt(const struct args *a)
{
	return (struct import_opt){
		.name = a->name, .ref = a->ref, .platform = a->platform, .max = a->max_size
	};
}

static int template_import(const struct args *a)
{
	auto_free char *id = NULL, *name = NULL;
	struct import_opt opt = import_opt(a);
	struct template_job job;
	struct den_err err = { 0 };
	int r, status = template_job_begin(&job, a);

	if (status)
		return status;
	r = import_path(&job.work, a->words[0], &opt, &id, &name, &err);
	if (r == 0)
		cli_note(a, "imported as %s", name);
	return template_job_end(&job, r, name, id, &err, NULL);
}

const struct verb verb_template_import = {
	.name = "import",
	.words = "FILE|DIR|-",
	.summary = "make a template from an image or a root file system; prints its id",
	.help = "FILE is what docker save or podman save wrote, an OCI archive, or a tar of a "
		"root\n"
		"file system, as it is or compressed with gzip, zstd or xz. DIR is an OCI layout.\n"
		"Everything is checked against its digests, and unpacked inside a box; a layer\n"
		"that is here already is not unpacked again.\n"
		"\n"
		"Examples:\n"
		"  den template import app.tar                    keeps the name that is in it\n"
		"  podman save app | den template import -        from a pipe\n"
		"  den template import --name base rootfs.tar.xz  a root file system\n"
		"  tar -C /srv/root -c . | den template import --name mine -\n",
	.options = { import_options, image_options },
	.min_words = 1,
	.max_words = 1,
	.complete = "f",
	.run = template_import,
};

/* ---- export ---------------------------------------------------------------------------------- */

static const struct option_def export_options[] = {
	{ "compress", 0, OPT_TEXT, FIELD(compress), "gzip|zstd|none",
		"how layers are packed (default: gzip)", "docker" },
	{ "docker", 0, OPT_FLAG, FIELD(docker), NULL, "write what docker load reads" },
	{ "ref", 0, OPT_TEXT, FIELD(ref), "NAME", "the name inside (default: the template's)" },
	{ 0 },
};

static int template_export(const struct args *a)
{
	struct export_opt opt = { .docker = a->docker, .ref = a->ref };
	struct template_job job;
	struct den_err err = { 0 };
	int r, status;

	if (a->compress && export_pack_parse(a->compress, &opt.pack, &err) < 0) {
		den_wrap(&err, "--compress");
		return cli_fail(a, &err, NULL);
	}
	status = template_job_begin(&job, a);
	if (status)
		return status;
	r = export_template(&job.work, a->words[0], a->words[1], &opt, &err);
	return template_job_end(&job, r, NULL, NULL, &err, NULL);
}

const struct verb verb_template_export = {
	.name = "export",
	.words = "TEMPLATE FILE|DIR/|-",
	.summary = "write a template as an image that other tools take",
	.help = "FILE gets an OCI archive, DIR/ an OCI layout (an image of another name that is "
		"in\n"
		"it stays). The same template gives the same bytes. A template that stands on "
		"this\n"
		"machine's own system becomes one layer with all of that in it.\n"
		"\n"
		"Examples:\n"
		"  den template export app app.tar\n"
		"  den template export app - | podman load\n"
		"  den template export --docker app - | docker load\n"
		"  den template export --compress zstd app images/\n",
	.options = { export_options },
	.min_words = 2,
	.max_words = 2,
	.complete = "tf",
	.run = template_export,
};

/* ---- build ----------------------------------------------------------------------------------- */

static const struct option_def build_options[] = {
	{ "tag", 't', OPT_TEXT, FIELD(name), "NAME", "call it NAME" },
	{ "file", 'f', OPT_TEXT, FIELD(file), "FILE",
		"the Dockerfile (default: DIR/Dockerfile; -: standard input)" },
	{ "build-arg", 0, OPT_LIST, FIELD(build_args), "K[=V]",
		"the value of an ARG; may be repeated" },
	{ "target", 0, OPT_TEXT, FIELD(target), "STAGE",
		"end with this stage (default: the last)" },
	{ "no-cache", 0, OPT_FLAG, FIELD(no_cache), NULL,
		"run every step, also those that are known" },
	{ 0 },
};

static int template_build(const struct args *a)
{
	struct build_opt opt = { .dir = a->words[0],
		.file = a->file,
		.name = a->name,
		.target = a->target,
		.args = a->build_args,
		.no_cache = a->no_cache };
	auto_free char *id = NULL;
	struct template_job job;
	struct den_err err = { 0 };
	int r, status = template_job_begin(&job, a);

	if (status)
		return status;
	r = build_template(&job.work, &opt, &id, &err);
	return template_job_end(&job, r, a->name, id, &err, NULL);
}

const struct verb verb_template_build = {
	.name = "build",
	.words = "DIR",
	.summary = "make a template from a Dockerfile; prints its id",
	.help = "Each step that changes files runs in a box of its own, without a network; what\n"
		"it leaves is kept, and not done again as long as nothing changed that it is made\n"
		"of. COPY takes from DIR, but for what .dockerignore names. FROM names a "
		"template;\n"
		"FROM host is this machine's own system, FROM scratch nothing at all.\n"
		"Understood: FROM RUN COPY ADD ENV WORKDIR USER ENTRYPOINT CMD ARG LABEL EXPOSE\n"
		"SHELL STOPSIGNAL.\n"
		"\n"
		"Examples:\n"
		"  den template build -t app .\n"
		"  den template build -t app:test --target test --build-arg VERSION=3 .\n"
		"  printf 'FROM host\\nRUN date >/made\\n' | den template build -t try -f - .\n",
	.options = { build_options },
	.min_words = 1,
	.max_words = 1,
	.complete = "f",
	.run = template_build,
};

/* ---- debian ---------------------------------------------------------------------------------- */

static const struct option_def debian_options[] = {
	{ "packages", 'p', OPT_TEXT, FIELD(packages), "A,B", "install these, too" },
	{ "variant", 0, OPT_TEXT, FIELD(variant),
		"essential|apt|required|minbase|buildd|important|standard",
		"how much of a system (default: minbase)" },
	{ "name", 'n', OPT_TEXT, FIELD(name), "NAME", "call it NAME (default: debian:SUITE)" },
	{ 0 },
};

static int template_debian(const struct args *a)
{
	struct debian_opt opt = { .suite = a->n_words ? a->words[0] : NULL,
		.packages = a->packages,
		.variant = a->variant,
		.name = a->name };
	auto_free char *id = NULL, *name = NULL;
	struct template_job job;
	struct den_err err = { 0 };
	int r, status = template_job_begin(&job, a);

	if (status)
		return status;
	r = debian_template(&job.work, &opt, &id, &name, &err);
	if (r == 0)
		cli_note(a, "made %s", name);
	return template_job_end(&job, r, name, id, &err, NULL);
}

const struct verb verb_template_debian = {
	.name = "debian",
	.words = "[SUITE]",
	.summary = "make a Debian or Ubuntu template with mmdebstrap; prints its id",
	.help = "Packages come from where this machine gets its own (/etc/apt), for another SUITE\n"
		"from the same mirrors. Needs mmdebstrap.\n"
		"\n"
		"Examples:\n"
		"  den template debian                                this machine's release\n"
		"  den template debian trixie --packages git,gcc,make\n"
		"  den template debian --variant apt --name tiny\n",
	.options = { debian_options },
	.max_words = 1,
	.complete = "-",
	.run = template_debian,
};

/* ---- pull, push ------------------------------------------------------------------------------ */

static const struct option_def registry_options[] = {
	{ "user", 'u', OPT_TEXT, FIELD(user), "USER", "log in as USER; needs --password-stdin" },
	{ "password-stdin", 0, OPT_FLAG, FIELD(password_stdin), NULL,
		"the password, or a token, is on standard input" },
	{ "auth", 0, OPT_TEXT, FIELD(auth), "FILE", "credentials as in ~/.docker/config.json" },
	{ "ca", 0, OPT_TEXT, FIELD(ca), "FILE",
		"trust these certificates (PEM) instead of the system's" },
	{ "plain-http", 0, OPT_FLAG, FIELD(plain_http), NULL,
		"no TLS: whoever is on the way can read everything" },
	{ 0 },
};

static const struct option_def pull_options[] = {
	{ "name", 'n', OPT_TEXT, FIELD(name), "NAME",
		"call it NAME (default: as it is called there)" },
	{ 0 },
};

static const struct option_def push_options[] = {
	{ "compress", 0, OPT_TEXT, FIELD(compress), "gzip|zstd|none",
		"how layers are packed (default: gzip)" },
	{ 0 },
};

static struct fetch_opt fetch_opt(const struct args *a)
{
	return (struct fetch_opt){ .user = a->user,
		.auth = a->auth,
		.ca = a->ca,
		.platform = a->platform,
		.password_stdin = a->password_stdin,
		.plain_http = a->plain_http };
}

static int user_check(const struct args *a, struct den_err *err)
{
	if (a->user && !a->password_stdin)
		return den_fail(err, DEN_INVALID, 0,
			"--user needs its password: add --password-stdin and pipe it in");
	return 0;
}

static int template_pull(const struct args *a)
{
	struct import_opt import = import_opt(a);
	struct fetch_opt opt = fetch_opt(a);
	auto_free char *id = NULL, *name = NULL;
	struct template_job job;
	struct den_err err = { 0 };
	int r, status;

	if (user_check(a, &err) < 0)
		return cli_fail(a, &err, NULL);
	status = template_job_begin(&job, a);
	if (status)
		return status;
	r = fetch_pull(&job.work, a->words[0], &opt, &import, &id, &name, &err);
	return template_job_end(&job, r, name, id, &err, NULL);
}

const struct verb verb_template_pull = {
	.name = "pull",
	.words = "REF",
	.summary = "get a template from an image registry; prints its id",
	.help = "REF is HOST[:PORT]/NAME[:TAG][@sha256:...]. Every byte is checked against its\n"
		"digest. What was broken off goes on where it was when it is tried again.\n"
		"\n"
		"Examples:\n"
		"  den template pull registry.example/team/app:1.4\n"
		"  den template pull --name app registry.example/team/app@sha256:...\n"
		"  den template pull --plain-http localhost:5000/app\n"
		"  den template pull --user me --password-stdin registry.example/app < password\n",
	.options = { pull_options, image_options, registry_options },
	.min_words = 1,
	.max_words = 1,
	.complete = "-",
	.run = template_pull,
};

static int template_push(const struct args *a)
{
	struct fetch_opt opt = fetch_opt(a);
	enum export_pack pack = EXPORT_GZIP;
	struct template_job job;
	struct den_err err = { 0 };
	int r, status;

	if (user_check(a, &err) < 0 ||
		(a->compress && export_pack_parse(a->compress, &pack, &err) < 0))
		return cli_fail(a, &err, NULL);
	status = template_job_begin(&job, a);
	if (status)
		return status;
	r = fetch_push(&job.work, a->words[0], a->n_words > 1 ? a->words[1] : a->words[0], &opt,
		pack, &err);
	return template_job_end(&job, r, NULL, NULL, &err, NULL);
}

const struct verb verb_template_push = {
	.name = "push",
	.words = "TEMPLATE [REF]",
	.summary = "put a template into an image registry",
	.help = "Without REF, the template's own name says where. Layers that are there already\n"
		"are not sent again.\n"
		"\n"
		"Examples:\n"
		"  den template push app registry.example/team/app:1.4\n"
		"  den template push --plain-http app localhost:5000/app\n",
	.options = { push_options, registry_options },
	.min_words = 1,
	.max_words = 2,
	.complete = "t-",
	.run = template_push,
};
