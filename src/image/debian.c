#include "debian.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "apt_sources.h"
#include "buf.h"
#include "fd.h"
#include "helper.h"
#include "import.h"
#include "mem.h"
#include "parse.h"
#include "strv.h"

#define OS_RELEASE_MAX (64U << 10)

/* A value of /etc/os-release, without its quotes; NULL: not there. The caller frees it. */
static char *os_release(const char *text, const char *key)
{
	size_t n = strlen(key);

	for (const char *p = text; *p; p += strcspn(p, "\n"), p += *p == '\n') {
		size_t len;

		if (strncmp(p, key, n) || p[n] != '=')
			continue;
		p += n + 1;
		p += *p == '"';
		len = strcspn(p, "\"\n");
		return len ? mem_strndup(p, len) : NULL;
	}
	return NULL;
}

static int word_check(const char *what, const char *text, const char *more, struct den_err *err)
{
	static const char letters[] =
		"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";

	for (const char *p = text; *p; p++)
		if (!strchr(letters, *p) && !(strchr(more, *p) && p != text))
			return den_fail(err, DEN_INVALID, 0, "'%.60s' is no %s", text, what);
	return *text ? 0 : den_fail(err, DEN_INVALID, 0, "the %s is empty", what);
}

static int variant_check(const char *variant, struct den_err *err)
{
	static const char *const names[] = { "essential", "apt", "required", "minbase", "buildd",
		"important", "debootstrap", "standard" };
	const char *near;

	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		if (!strcmp(names[i], variant))
			return 0;
	near = parse_nearest(variant, names, ARRAY_SIZE(names));
	return den_fail(err, DEN_INVALID, 0, "there is no variant '%.40s'; did you mean %s?",
		variant, near ? near : "minbase, apt or standard");
}

static int lines_make(const char *own, const char *suite, char ***ret, struct den_err *err)
{
	struct apt_sources sources = { 0 };

	if (apt_sources_load("/etc/apt", &sources, err) < 0)
		return den_wrap(err, "templates are made from the machine's apt sources");
	*ret = apt_sources_lines(&sources, own, suite);
	apt_sources_free(&sources);
	if (!*ret)
		return den_fail(err, DEN_UNSUPPORTED, 0,
			"the machine's apt sources (/etc/apt) have nothing for %.40s, from which "
			"to make %.40s",
			own, suite);
	return 0;
}

/* The name comes last: an archive may look whole, but the program has the last word. */
static int run(const struct work *w, char *const *argv, const char *name, const char *detail,
	char **ret_id, struct den_err *err)
{
	const struct import_opt import = { .detail = detail };
	auto_helper h = { .out = -1 };
	auto_free char *id = NULL;
	struct den_err why = { 0 };

	if (helper_start(&h, argv, true, false, err) < 0)
		return -1;
	if (import_root(w, helper_read, &h, &import, &id, err) < 0) {
		/* an archive that ends early is what is left of a program that failed */
		if (!interrupt_signal() && err->code == DEN_INVALID &&
			helper_wait(&h, "mmdebstrap", &why) < 0)
			*err = why;
		return -1;
	}
	if (helper_wait(&h, "mmdebstrap", err) < 0 || den_template_tag(w->den, id, name, err) < 0)
		return -1;
	*ret_id = mem_take(&id);
	return 0;
}

/* mmdebstrap's apt knows nothing of the machine's settings. How a mirror is reached is one of them:
 * it is shown to apt while the template is made, and is no part of it. A hook's "$1" is the new
 * root. */
#define SETTINGS "\"$1\"/etc/apt/apt.conf.d/00den"
static const char hook_setup[] =
	"--setup-hook="
	"{ apt-config dump Acquire::http Acquire::https Acquire::Retries "
	"Acquire::Check-Valid-Until "
	"Acquire::Check-Date Acquire::ForceIPv4 Acquire::ForceIPv6; "
	"echo 'Dir::Etc::netrc \"/etc/apt/auth.conf\";'; "
	"echo 'Dir::Etc::netrcparts \"/etc/apt/auth.conf.d\";'; } >" SETTINGS;
static const char hook_customize[] = "--customize-hook=rm -f " SETTINGS;

static int argv_make(const struct work *w, const struct debian_opt *opt, const char *own,
	const char *suite, char ***ret, struct den_err *err)
{
	auto_free char *program = helper_find("mmdebstrap");
	auto_strv lines = NULL;
	auto_buf arg = { 0 };

	if (!program)
		return den_fail(err, DEN_UNSUPPORTED, 0,
			"mmdebstrap, which makes it, is not installed; install it with: apt-get "
			"install mmdebstrap");
	if (lines_make(own, suite, &lines, err) < 0)
		return -1;
	strv_add(ret, program);
	strv_add(ret, "--format=tar");
	/* left to choose, it would not say what an ordinary user lacks */
	if (geteuid() != 0)
		strv_add(ret, "--mode=unshare");
	if (w->quiet)
		strv_add(ret, "--silent");
	buf_addf(&arg, "--variant=%s", opt->variant ? opt->variant : "minbase");
	strv_add(ret, buf_str(&arg));
	if (opt->packages) {
		arg.len = 0;
		buf_addf(&arg, "--include=%s", opt->packages);
		strv_add(ret, buf_str(&arg));
	}
	strv_add(ret, hook_setup);
	strv_add(ret, hook_customize);
	strv_add(ret, "--");
	strv_add(ret, suite);
	strv_add(ret, "-");
	for (char **l = lines; *l; l++)
		strv_add(ret, *l);
	return 0;
}

static int machine_read(char **ret_id, char **ret_suite, struct den_err *err)
{
	auto_fd fd = open("/etc/os-release", O_RDONLY | O_CLOEXEC);
	auto_free char *text = NULL;

	if (fd < 0 || fd_read_all(fd, OS_RELEASE_MAX, &text, NULL, NULL) < 0)
		return den_fail(err, DEN_UNSUPPORTED, 0,
			"/etc/os-release does not say what this machine runs");
	*ret_suite = os_release(text, "VERSION_CODENAME");
	*ret_id = os_release(text, "ID");
	if (!*ret_suite || !*ret_id)
		return den_fail(err, DEN_UNSUPPORTED, 0,
			"/etc/os-release names no release (VERSION_CODENAME)");
	return 0;
}

int debian_template(const struct work *w, const struct debian_opt *opt, char **ret_id,
	char **ret_name, struct den_err *err)
{
	auto_free char *os = NULL, *own = NULL, *name = NULL;
	auto_strv argv = NULL;
	const char *suite;
	char detail[160];

	if ((opt->suite && word_check("suite", opt->suite, "-._", err) < 0) ||
		(opt->packages &&
			word_check("list of packages", opt->packages, ",+-.:=~", err) < 0) ||
		(opt->variant && variant_check(opt->variant, err) < 0) ||
		machine_read(&os, &own, err) < 0)
		return -1;
	suite = opt->suite ? opt->suite : own;
	if (asprintf(&name, "%s:%s", os, suite) < 0)
		name = mem_strdup(suite);
	if (opt->name) {
		free(name);
		name = mem_strdup(opt->name);
	}
	if (argv_make(w, opt, own, suite, &argv, err) < 0)
		return -1;
	snprintf(detail, sizeof(detail), "%s %.40s (%s), made by mmdebstrap", os, suite,
		opt->variant ? opt->variant : "minbase");
	if (run(w, argv, name, detail, ret_id, err) < 0)
		return -1;
	*ret_name = mem_take(&name);
	return 0;
}
