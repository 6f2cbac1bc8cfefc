#include "fetch.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fd.h"
#include "helper.h"
#include "mem.h"
#include "sha256.h"
#include "strv.h"

/* Where one image waits on its way. */
struct place {
	int dir; /* the cache directory */
	int lock;
	char name[40]; /* in it */
	char *path; /* of the layout, absolute */
};

static void place_close(struct place *p)
{
	fd_close(&p->dir);
	fd_close(&p->lock);
	free(p->path);
}

/* ---- the cache directory --------------------------------------------------------------------- */

static int dir_make(char *path, struct den_err *err)
{
	for (char *p = path + 1;; p++) {
		char c = *p;

		if (c && c != '/')
			continue;
		*p = '\0';
		if (mkdir(path, 0700) < 0 && errno != EEXIST)
			return den_fail_sys(err, errno, "make directory '%.100s'", path);
		*p = c;
		if (!c)
			return 0;
	}
}

static int cache_path(char **ret, struct den_err *err)
{
	const char *xdg = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
	int r;

	if (xdg && xdg[0] == '/')
		r = asprintf(ret, "%s/den", xdg);
	else if (geteuid() == 0)
		r = asprintf(ret, "/var/cache/den");
	else if (home && home[0] == '/')
		r = asprintf(ret, "%s/.cache/den", home);
	else
		return den_fail(err, DEN_INVALID, 0,
			"neither HOME nor XDG_CACHE_HOME says where to keep what is fetched");
	return r < 0 ? den_fail(err, DEN_INTERNAL, ENOMEM, "cache directory") : 0;
}

/* Only one at a time works on the same thing. */
static int lock_take(struct place *p, const char *ref, struct den_err *err)
{
	char name[48];

	snprintf(name, sizeof(name), "%s.lock", p->name);
	p->lock = openat(p->dir, name, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (p->lock < 0)
		return den_fail_sys(err, errno, "lock");
	if (flock(p->lock, LOCK_EX | LOCK_NB) < 0)
		return den_fail(err, DEN_CONFLICT, errno == EWOULDBLOCK ? 0 : errno,
			"'%.80s' is being fetched already", ref);
	return 0;
}

static int place_open(const char *what, const char *ref, const char *platform, struct place *p,
	struct den_err *err)
{
	auto_free char *base = NULL;
	struct sha256 s;
	char hex[65];

	if (cache_path(&base, err) < 0 || dir_make(base, err) < 0)
		return -1;
	p->dir = open(base, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (p->dir < 0)
		return den_fail_sys(err, errno, "'%.100s'", base);
	sha256_init(&s);
	sha256_add(&s, what, strlen(what) + 1);
	sha256_add(&s, ref, strlen(ref) + 1);
	sha256_add(&s, platform ? platform : "", platform ? strlen(platform) : 0);
	sha256_hex(&s, hex);
	snprintf(p->name, sizeof(p->name), "%s-%.24s", what, hex);
	if (lock_take(p, ref, err) < 0)
		return -1;
	if (asprintf(&p->path, "%s/%s", base, p->name) < 0)
		return den_fail(err, DEN_INTERNAL, ENOMEM, "cache directory");
	if (mkdirat(p->dir, p->name, 0700) < 0 && errno != EEXIST)
		return den_fail_sys(err, errno, "make directory '%.100s'", p->path);
	return 0;
}

static void place_remove(struct place *p)
{
	char name[48];

	(void)tree_remove_at(p->dir, p->name, NULL);
	snprintf(name, sizeof(name), "%s.lock", p->name);
	(void)unlinkat(p->dir, name, 0);
}

/* ---- den-fetch ------------------------------------------------------------------------------- */

/* Beside den, as in a build directory, or where it is installed. */
static char *program_find(void)
{
	char exe[4096], *slash, *path = NULL;
	ssize_t n = readlink("/proc/self/exe", exe, sizeof(exe) - 1);

	if (n > 0) {
		exe[n] = '\0';
		slash = strrchr(exe, '/');
		if (slash && asprintf(&path, "%.*s/den-fetch", (int)(slash - exe), exe) >= 0 &&
			access(path, X_OK) == 0)
			return path;
		free(path);
	}
	path = mem_strdup(DEN_LIBEXEC "/den-fetch");
	if (access(path, X_OK) == 0)
		return path;
	free(path);
	return NULL;
}

static void option_add(char ***argv, const char *name, const char *value)
{
	if (!value)
		return;
	strv_add(argv, name);
	strv_add(argv, value);
}

/* den-fetch leaves with the numbers that den does. */
static enum den_code code_of(int status)
{
	static const enum den_code codes[] = { [2] = DEN_INVALID,
		[3] = DEN_NOT_FOUND,
		[4] = DEN_CONFLICT,
		[5] = DEN_DENIED,
		[6] = DEN_LIMIT,
		[7] = DEN_TIMEOUT,
		[8] = DEN_UNSUPPORTED };

	return status >= 2 && status <= 8 ? codes[status] : DEN_INTERNAL;
}

static int program_run(const struct work *w, const char *verb, const struct fetch_opt *opt,
	const char *first, const char *second, struct den_err *err)
{
	auto_free char *program = program_find();
	auto_helper h = { .out = -1 };
	auto_strv argv = NULL;

	if (!program)
		return den_fail(err, DEN_UNSUPPORTED, 0,
			"den-fetch, which speaks with registries, is neither beside den nor "
			"in " DEN_LIBEXEC);
	if (first[0] == '-' || second[0] == '-')
		return den_fail(err, DEN_INVALID, 0, "'%.60s' is no reference to an image",
			first[0] == '-' ? first : second);
	strv_add(&argv, program);
	strv_add(&argv, verb);
	if (opt->plain_http)
		strv_add(&argv, "--plain-http");
	if (w->quiet)
		strv_add(&argv, "--quiet");
	option_add(&argv, "--platform", opt->platform);
	option_add(&argv, "--user", opt->user);
	if (opt->password_stdin)
		strv_add(&argv, "--password-stdin");
	option_add(&argv, "--auth", opt->auth);
	option_add(&argv, "--ca", opt->ca);
	strv_add(&argv, first);
	strv_add(&argv, second);
	if (helper_start(&h, argv, false, opt->password_stdin, err) < 0)
		return -1;
	if (helper_wait(&h, "den-fetch", err) < 0) {
		if (!interrupt_signal())
			err->code = code_of(h.status);
		return -1;
	}
	return 0;
}

int fetch_pull(const struct work *w, const char *ref, const struct fetch_opt *opt,
	const struct import_opt *import, char **ret_id, char **ret_name, struct den_err *err)
{
	auto_free char *name = mem_strndup(ref, strcspn(ref, "@"));
	struct place p = { .dir = -1, .lock = -1 };
	struct import_opt i = *import;
	char detail[160];
	int r;

	snprintf(detail, sizeof(detail), "pulled from %.120s", ref);
	i.detail = detail;
	i.name = i.name ? i.name : name;
	r = place_open("pull", ref, opt->platform, &p, err);
	if (r == 0)
		r = program_run(w, "pull", opt, ref, p.path, err);
	if (r == 0)
		r = import_path(w, p.path, &i, ret_id, ret_name, err);
	/* what was broken off stays, and the next try goes on from there */
	if (p.path && p.lock >= 0 &&
		(r == 0 || (!interrupt_signal() && err->code != DEN_TIMEOUT &&
				   err->code != DEN_INTERNAL && err->code != DEN_LIMIT)))
		place_remove(&p);
	place_close(&p);
	return r;
}

int fetch_push(const struct work *w, const char *template_ref, const char *ref,
	const struct fetch_opt *opt, enum export_pack pack, struct den_err *err)
{
	const struct export_opt export = { .pack = pack };
	struct place p = { .dir = -1, .lock = -1 };
	int r = place_open("push", ref, NULL, &p, err);

	if (r == 0) {
		/* from scratch: what an earlier try left may be of another template */
		(void)tree_remove_at(p.dir, p.name, NULL);
		r = mkdirat(p.dir, p.name, 0700) < 0 ? den_fail_sys(err, errno, "'%.100s'", p.path)
						     : 0;
	}
	if (r == 0)
		r = export_template(w, template_ref, p.path, &export, err);
	if (r == 0)
		r = program_run(w, "push", opt, p.path, ref, err);
	if (p.path && p.lock >= 0)
		place_remove(&p);
	place_close(&p);
	return r;
}
