#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include <jansson.h>

#include "fd.h"
#include "fetch.h"
#include "guard.h"
#include "parse.h"

#define SECRET_MAX (64U << 10)
#define FILE_MAX (4U << 20)
#define PEM_MARK "CERTIFICATE-----" /* also of "BEGIN TRUSTED CERTIFICATE-----" */

static const char usage[] =
	"den-fetch pull [OPTION...] REF LAYOUTDIR   an image from a registry into an OCI image "
	"layout directory\n"
	"den-fetch push [OPTION...] LAYOUTDIR REF   and back; both print the image's digest\n"
	"\n"
	"REF is HOST[:PORT]/NAME[:TAG][@sha256:...]. 'den template pull' and 'push' run this.\n"
	"\n"
	"  --platform OS/ARCH[/VARIANT]  the image for this platform; else for this machine's\n"
	"  --user NAME                   log in; the password comes with --password-stdin\n"
	"  --password-stdin              read the password, or without --user a token, from stdin\n"
	"  --auth FILE                   credentials as in ~/.docker/config.json\n"
	"  --ca FILE                     trust these certificates (PEM) instead of the system's\n"
	"  --plain-http                  speak http: whoever is on the way can read everything\n"
	"  --jobs N                      blobs at a time, 1 to 16; else 4\n"
	"  --timeout SECONDS             give up a connection on which nothing moves; else 30\n"
	"  --drop UID:GID                started as root: become this user first\n"
	"  --quiet                       no progress on stderr\n"
	"\n"
	"Ctrl-C leaves only what came so far, as files '.part-...'; the next pull goes on from "
	"there.\n"
	"\n"
	"Exit status: 0 done; 2 wrong call or text; 3 not there; 4 a digest or a size is wrong; 5 "
	"not allowed;\n"
	"6 a limit; 7 too slow or broken off; 8 not supported; 1 anything else.\n";

struct call {
	bool push, password_stdin, help;
	const char *user, *auth, *ca, *platform, *ref, *dir;
	struct guard guard;
};

enum {
	OPT_PLATFORM = 256,
	OPT_USER,
	OPT_STDIN,
	OPT_AUTH,
	OPT_CA,
	OPT_PLAIN,
	OPT_JOBS,
	OPT_TIMEOUT,
	OPT_DROP,
	OPT_QUIET,
	OPT_HELP
};

static const struct option options[] = {
	{ "platform", required_argument, NULL, OPT_PLATFORM },
	{ "user", required_argument, NULL, OPT_USER },
	{ "password-stdin", no_argument, NULL, OPT_STDIN },
	{ "auth", required_argument, NULL, OPT_AUTH },
	{ "ca", required_argument, NULL, OPT_CA },
	{ "plain-http", no_argument, NULL, OPT_PLAIN },
	{ "jobs", required_argument, NULL, OPT_JOBS },
	{ "timeout", required_argument, NULL, OPT_TIMEOUT },
	{ "drop", required_argument, NULL, OPT_DROP },
	{ "quiet", no_argument, NULL, OPT_QUIET },
	{ "help", no_argument, NULL, OPT_HELP },
	{ 0 },
};

static int option_take(struct call *c, struct fetch *f, int opt, struct den_err *err)
{
	uint64_t v;

	switch (opt) {
	case OPT_PLATFORM:
		return platform_parse(optarg, &f->platform, err);
	case OPT_USER:
		c->user = optarg;
		return strchr(optarg, ':') || !*optarg
			       ? den_fail(err, DEN_INVALID, 0,
					 "--user: a name has no ':' and is not empty")
			       : 0;
	case OPT_STDIN:
		c->password_stdin = true;
		return 0;
	case OPT_AUTH:
		c->auth = optarg;
		return 0;
	case OPT_CA:
		c->ca = optarg;
		return 0;
	case OPT_PLAIN:
		f->plain = true;
		return 0;
	case OPT_JOBS:
		if (parse_u64(optarg, 1, 16, &v, err) < 0)
			return den_wrap(err, "--jobs");
		f->jobs = (unsigned)v;
		return 0;
	case OPT_TIMEOUT:
		if (parse_u64(optarg, 1, 3600, &v, err) < 0)
			return den_wrap(err, "--timeout");
		f->stall_sec = (unsigned)v;
		return 0;
	case OPT_DROP:
		return guard_parse_drop(optarg, &c->guard, err);
	case OPT_QUIET:
		f->quiet = true;
		return 0;
	}
	return 0;
}

static int call_parse(struct call *c, struct fetch *f, int argc, char **argv, struct den_err *err)
{
	int opt;

	opterr = 0;
	while ((opt = getopt_long(argc, argv, ":", options, NULL)) != -1) {
		if (opt == OPT_HELP) {
			c->help = true;
			return 0;
		}
		if (opt == ':')
			return den_fail(err, DEN_INVALID, 0,
				"'%.60s' wants a value; see den-fetch --help", argv[optind - 1]);
		if (opt == '?' && optopt > 0 && optopt < OPT_PLATFORM)
			return den_fail(err, DEN_INVALID, 0,
				"'-%c' is not an option; see den-fetch --help", optopt);
		if (opt == '?')
			return den_fail(err, DEN_INVALID, 0,
				"'%.60s' is not an option, or takes no value; see den-fetch --help",
				argv[optind - 1]);
		if (option_take(c, f, opt, err) < 0)
			return -1;
	}
	argv += optind;
	argc -= optind;
	if (argc != 3 || (strcmp(argv[0], "pull") && strcmp(argv[0], "push")))
		return den_fail(err, DEN_INVALID, 0,
			"den-fetch pull REF LAYOUTDIR, or push LAYOUTDIR REF; see den-fetch "
			"--help");
	c->push = !strcmp(argv[0], "push");
	c->ref = argv[c->push ? 2 : 1];
	c->dir = argv[c->push ? 1 : 2];
	if (c->auth && c->password_stdin)
		return den_fail(err, DEN_INVALID, 0,
			"--auth and --password-stdin contradict each other; give one");
	if (c->user && !c->password_stdin)
		return den_fail(
			err, DEN_INVALID, 0, "--user needs its password; give --password-stdin");
	return ref_parse(c->ref, &f->ref, err);
}

static int file_text(const char *path, size_t max, char **ret, size_t *ret_len, struct den_err *err)
{
	auto_fd fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);

	if (fd < 0)
		return den_fail_sys(err, errno, "open '%.100s'", path);
	if (fd_read_all(fd, max, ret, ret_len, err) < 0)
		return den_wrap(err, "'%.100s'", path);
	return 0;
}

static int login_read_stdin(struct call *c, struct login *l, struct den_err *err)
{
	char *text;
	size_t n;

	if (fd_read_all(STDIN_FILENO, SECRET_MAX, &text, &n, err) < 0)
		return den_wrap(err, "password from stdin");
	while (n && (text[n - 1] == '\n' || text[n - 1] == '\r'))
		text[--n] = '\0';
	if (c->user) {
		l->user = mem_strdup(c->user);
		l->password = text;
	} else {
		l->bearer = text;
	}
	if (!n || strlen(text) != n)
		return den_fail(err, DEN_INVALID, 0, "there is no password on stdin");
	for (const char *p = text; !c->user && *p; p++) /* it becomes a header's value */
		if (*p <= ' ' || *p >= 0x7f)
			return den_fail(err, DEN_INVALID, 0,
				"what is on stdin is not a token; for a password give --user NAME "
				"too");
	return 0;
}

/* Everything that is outside the layout directory is read here, before the guard closes. */
static int files_read(struct call *c, struct fetch *f, struct den_err *err)
{
	auto_free char *text = NULL;
	size_t n;

	if (c->ca && file_text(c->ca, FILE_MAX, &f->ca, &f->ca_len, err) < 0)
		return den_wrap(err, "--ca");
	/* libcurl's word for it would be that the registry is not trusted */
	if (c->ca && !memmem(f->ca, f->ca_len, PEM_MARK, strlen(PEM_MARK)))
		return den_fail(err, DEN_INVALID, 0,
			"--ca: '%.80s' holds no certificate in PEM (-----BEGIN CERTIFICATE-----)",
			c->ca);
	if (c->password_stdin)
		return login_read_stdin(c, &f->auth.login, err);
	if (!c->auth)
		return 0;
	if (file_text(c->auth, FILE_MAX, &text, &n, err) < 0 ||
		auth_file_parse(text, n, f->ref.host, f->ref.repo, &f->auth.login, &f->auth.helper,
			err) < 0) {
		den_wrap(err, "--auth");
		n = 0;
	}
	if (text)
		explicit_bzero(text, strlen(text));
	return n ? 0 : -1;
}

static int fetch_run(struct call *c, struct fetch *f, struct den_err *err)
{
	uid_t uid = c->guard.drop ? c->guard.uid : (uid_t)-1;
	struct digest d;
	uint64_t seed;
	int r;

	if (files_read(c, f, err) < 0 ||
		layout_open(&f->layout, c->dir, !c->push, uid, c->guard.gid, err) < 0)
		return -1;
	c->guard.dir = f->layout.top;
	if (guard_enter(&c->guard, err) < 0)
		return den_wrap(err, "before the network");
	/* else names that collide in jansson's tables could be chosen */
	if (getrandom(&seed, sizeof(seed), 0) == sizeof(seed))
		json_object_seed((size_t)seed | 1);
	if (curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK)
		return den_fail(err, DEN_INTERNAL, 0, "libcurl does not start");
	r = c->push ? fetch_push(f, &d, err) : fetch_pull(f, &d, err);
	progress_clear(&f->progress);
	registry_close(f);
	curl_global_cleanup();
	if (r == 0 && (printf("sha256:%s\n", d.hex) < 0 || fflush(stdout)))
		return den_fail_sys(err, errno, "write to standard output");
	return r;
}

static void say_error(const struct den_err *err)
{
	auto_buf b = { 0 };

	buf_addstr(&b, "den: ");
	for (const char *p = err->msg; *p; p++) /* it may quote a stranger */
		buf_addf(&b, *p >= ' ' && *p < 0x7f ? "%c" : "\\x%02x", (unsigned char)*p);
	buf_addstr(&b, "\n");
	(void)fd_write_all(STDERR_FILENO, b.p, b.len, NULL);
}

int main(int argc, char **argv)
{
	struct fetch f = { .jobs = 4, .stall_sec = 30, .layout = { -1, -1 } };
	struct call c = { 0 };
	struct den_err err = { 0 };
	int r;

	/* a file that we open must not become our stderr */
	for (int fd = 0; fd <= 2; fd++)
		if (fcntl(fd, F_GETFD) < 0 && errno == EBADF)
			(void)!open("/dev/null", O_RDWR);
	signal(SIGPIPE, SIG_IGN);
	platform_host(&f.platform);
	r = call_parse(&c, &f, argc, argv, &err);
	if (r == 0 && c.help) {
		fputs(usage, stdout);
		return 0;
	}
	if (r == 0)
		r = fetch_run(&c, &f, &err);
	layout_close(&f.layout);
	auth_free(&f.auth);
	free(f.ca);
	if (r < 0)
		say_error(&err);
	return r < 0 ? err_exit_status(err.code) : 0;
}
