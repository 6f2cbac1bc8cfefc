#include "box_args.h"
#include "cli.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "clock.h"
#include "fd.h"
#include "mem.h"
#include "parse.h"
#include "srt.h"
#include "strv.h"
#include "tty.h"

#define ENV_FILE_MAX (1 << 20)

/* Absolute, and nothing in it that means another place than it says. */
static int check_box_path(const char *path, struct den_err *err)
{
	if (path[0] != '/')
		return den_fail(err, DEN_INVALID, 0,
			"'%.80s' is not an absolute path in the box (nor ro or rw)", path);
	for (const char *p = path; *p;) {
		size_t n;

		p += strspn(p, "/");
		n = strcspn(p, "/");
		if ((n == 1 && p[0] == '.') || (n == 2 && p[0] == '.' && p[1] == '.'))
			return den_fail(err, DEN_INVALID, 0,
				"path in the box '%.80s' may not hold . or ..", path);
		p += n;
	}
	if (!path[strspn(path, "/")])
		return den_fail(
			err, DEN_INVALID, 0, "a mount cannot take the place of the box's /");
	return 0;
}

int mount_parse(const char *text, char **host, char **box, bool *ro, struct den_err *err)
{
	auto_free char *left = mem_strdup(text), *full = NULL;
	char *colon = strrchr(left, ':');
	bool read_only = false;

	if (colon && colon != left && (!strcmp(colon, ":ro") || !strcmp(colon, ":rw"))) {
		read_only = colon[2] == 'o';
		*colon = '\0';
		colon = strrchr(left, ':');
	}
	if (!colon || colon == left || !colon[1])
		return den_fail(err, DEN_INVALID, 0,
			"'%.80s' is not a mount; write it like /host/dir:/dir/in/box or "
			"./dir:/dir:ro",
			text);
	*colon = '\0';
	if (check_box_path(colon + 1, err) < 0)
		return -1;
	full = realpath(left, NULL);
	if (!full)
		return den_fail_sys(err, errno, "host path '%.80s'", left);
	*box = mem_strdup(colon + 1);
	*host = mem_take(&full);
	*ro = read_only;
	return 0;
}

int env_parse(const char *text, char ***env, struct den_err *err)
{
	size_t n = strcspn(text, "=");
	auto_free char *pair = NULL;
	const char *value;

	if (n == 0)
		return den_fail(
			err, DEN_INVALID, 0, "'%.60s' names no variable; write it like K=V", text);
	if (text[n] == '=') {
		strv_env_put(env, text);
		return 0;
	}
	value = getenv(text);
	if (!value)
		return den_fail(err, DEN_INVALID, 0,
			"%.60s is not set here, so it cannot be passed on; write %.60s=VALUE", text,
			text);
	if (asprintf(&pair, "%s=%s", text, value) < 0)
		return den_fail(err, DEN_INTERNAL, ENOMEM, "environment");
	strv_env_put(env, pair);
	return 0;
}

int env_file_parse(const char *path, char ***env, struct den_err *err)
{
	auto_free char *text = NULL;
	auto_fd fd = open(path, O_RDONLY | O_CLOEXEC);
	size_t len, number = 0;

	if (fd < 0)
		return den_fail_sys(err, errno, "environment file '%.80s'", path);
	if (fd_read_all(fd, ENV_FILE_MAX, &text, &len, err) < 0)
		return den_wrap(err, "environment file '%.80s'", path);
	if (strlen(text) != len)
		return den_fail(err, DEN_INVALID, 0, "environment file '%.80s' is not text", path);
	for (char *line = text, *end; line && *line; line = end) {
		end = strchr(line, '\n');
		if (end)
			*end++ = '\0';
		number++;
		if (line[0] && line[strlen(line) - 1] == '\r')
			line[strlen(line) - 1] = '\0';
		if (!line[0] || line[0] == '#')
			continue;
		if (env_parse(line, env, err) < 0)
			return den_wrap(err, "environment file '%.80s', line %zu", path, number);
	}
	return 0;
}

int env_make(const struct args *a, char ***ret, struct den_err *err)
{
	auto_strv env = NULL;

	for (size_t i = 0; a->env_files && a->env_files[i]; i++)
		if (env_file_parse(a->env_files[i], &env, err) < 0)
			return den_wrap(err, "--env-file");
	for (size_t i = 0; a->env && a->env[i]; i++)
		if (env_parse(a->env[i], &env, err) < 0)
			return den_wrap(err, "--env");
	*ret = mem_take(&env);
	return 0;
}

void box_args_free(struct box_args *b)
{
	for (size_t i = 0; i < b->n_mounts; i++) {
		free((char *)b->mounts[i].host);
		free((char *)b->mounts[i].box);
	}
	free(b->mounts);
	strv_free(b->env);
	free(b->workdir);
	net_args_free(&b->net);
	*b = (struct box_args){ 0 };
}

/* Root of the box acts as the owner of what is shared with it (SECURITY.md). */
static void warn_share(const struct args *a, const char *host, bool ro)
{
	struct stat st;

	if (ro || geteuid() != 0 || stat(host, &st) < 0 || st.st_uid != 0 || !(st.st_mode & 0001))
		return;
	cli_note(a,
		"warning: '%s' is root's and others may enter it: the box could leave setuid "
		"programs of "
		"root there; share it with :ro, or give it to a user",
		host);
}

static int add_mounts(const struct args *a, char *const *texts, struct box_args *ret, struct den_err *err)
{
	for (; texts && *texts; texts++) {
		char *host, *box;
		bool ro;

		if (mount_parse(*texts, &host, &box, &ro, err) < 0)
			return -1;
		warn_share(a, host, ro);
		ret->mounts = mem_realloc(ret->mounts, (ret->n_mounts + 1) * sizeof(*ret->mounts));
		ret->mounts[ret->n_mounts++] = (struct den_mount){ host, box, ro };
	}
	return 0;
}

/* What sandbox-runtime's settings say about files; its network is net_args_make()'s. */
static int add_srt(const struct args *a, struct box_args *ret, struct den_err *err)
{
	auto_srt s = { 0 };

	if (srt_read(a->srt_settings, true, &s, err) < 0 || add_mounts(a, s.mounts, ret, err) < 0)
		return -1;
	for (char **note = s.notes; note && *note; note++)
		cli_note(a, "--srt-settings: %s", *note);
	ret->workdir = mem_take(&s.workdir);
	return 0;
}

int box_args_make(const struct args *a, struct box_args *ret, struct den_err *err)
{
	if (env_make(a, &ret->env, err) < 0)
		return -1;
	if (a->srt_settings && add_srt(a, ret, err) < 0)
		return den_wrap(err, "--srt-settings");
	if (add_mounts(a, a->mounts, ret, err) < 0)
		return den_wrap(err, "--mount");
	if (net_args_make(a, NULL, &ret->net, err) < 0)
		return -1;
	ret->spec = (struct den_box_spec){
		.size = sizeof(ret->spec),
		.name = a->name,
		.template_name = a->template_name,
		.wall = a->wall,
		.net = net_args_given(a) ? NULL : a->net,
		.policy = ret->net.policy,
		.policy_name = ret->net.name,
		.hostname = a->hostname,
		.user = a->user,
		.workdir = a->workdir ? a->workdir : ret->workdir,
		.env = (const char *const *)ret->env,
		.mounts = ret->mounts,
		.n_mounts = ret->n_mounts,
		.cpu_milli = a->cpus,
		.memory = a->memory,
		.pids = a->pids,
		.disk = a->disk,
		.nofile = a->nofile,
		.reseed = a->reseed,
		.max_runtime_ms = a->max_runtime,
		.history = a->history,
	};
	return box_args_lease(a, &ret->spec, err);
}

/* "never" is 0 */
static int parse_time(const char *text, const char *option, uint64_t *ret, struct den_err *err)
{
	if (!strcmp(text, "never")) {
		*ret = 0;
		return 0;
	}
	return parse_duration(text, ret, err) < 0 ? den_wrap(err, "--%s", option) : 0;
}

static int check_action(const char *text, const char *option, struct den_err *err)
{
	if (!text || !strcmp(text, "delete") || !strcmp(text, "pause") || !strcmp(text, "pause-disk") ||
		!strcmp(text, "stop"))
		return 0;
	return den_fail(err, DEN_INVALID, 0, "--%s is delete, pause, pause-disk or stop, not '%.30s'", option, text);
}

int lease_args_make(const struct args *a, struct den_lease *ret, struct den_err *err)
{
	struct den_lease l = { .size = sizeof(l), .expires_ms = DEN_LEASE_KEEP, .idle_ms = DEN_IDLE_KEEP,
		.on_expire = a->on_expire, .on_idle = a->on_idle, .extend = a->extend };
	uint64_t ms;

	if (check_action(a->on_expire, "on-expire", err) < 0 || check_action(a->on_idle, "on-idle", err) < 0)
		return -1;
	if (a->ttl) {
		if (parse_time(a->ttl, "ttl", &ms, err) < 0)
			return -1;
		l.expires_ms = ms ? clock_wall_ms() + (int64_t)MIN(ms, 1ULL << 50) : 0;
	}
	if (a->idle && parse_time(a->idle, "idle", &l.idle_ms, err) < 0)
		return -1;
	if (a->idle_pause) {
		if (parse_time(a->idle_pause, "idle-pause", &l.idle_ms, err) < 0)
			return -1;
		l.on_idle = "pause-disk";
	}
	*ret = l;
	return 0;
}

int box_args_lease(const struct args *a, struct den_box_spec *ret, struct den_err *err)
{
	struct den_lease l;

	if (lease_args_make(a, &l, err) < 0)
		return -1;
	ret->expires_ms = l.expires_ms == DEN_LEASE_KEEP ? 0 : l.expires_ms;
	ret->idle_ms = l.idle_ms == DEN_IDLE_KEEP ? 0 : l.idle_ms;
	ret->on_expire = l.on_expire;
	ret->on_idle = l.on_idle;
	ret->labels = (const char *const *)a->labels;
	return 0;
}

bool args_tty(const struct args *a)
{
	if (a->tty || a->no_tty || a->detach || a->no_stdin)
		return a->tty;
	return isatty(STDIN_FILENO) && isatty(STDOUT_FILENO);
}

bool args_stdin(const struct args *a)
{
	struct stat st;

	if (a->no_stdin || fstat(STDIN_FILENO, &st) < 0)
		return false;
	if (a->detach) /* whoever attaches later types at the terminal; there is no other stdin */
		return a->tty;
	/* /dev/null: end of file is what the program reads without a stream, too */
	return !(S_ISCHR(st.st_mode) && st.st_rdev == makedev(1, 3));
}

void exec_args_make(const struct args *a, char **argv, char ***env, struct den_exec_opt *ret)
{
	static const char *const shell[] = { "/bin/bash", "-l", NULL };
	bool tty = args_tty(a);
	const char *term = getenv("TERM");

	*ret = (struct den_exec_opt){
		.size = sizeof(*ret),
		.argv = argv && argv[0] ? (const char *const *)argv : shell,
		.tag = a->tag,
		.timeout_ms = a->timeout,
		.cpu_ms = a->cpu_time,
		.grace_ms = args_given(a, "grace") ? MAX(a->grace, 1) : 0,
		.max_output = a->max_output,
		.keep = a->keep,
	};
	if (args_stdin(a))
		ret->flags |= DEN_EXEC_STDIN;
	ret->flags |= a->detach ? DEN_EXEC_DETACH : DEN_EXEC_KILL_ON_CLOSE;
	if (tty) {
		ret->flags |= DEN_EXEC_TTY;
		tty_size(&ret->rows, &ret->cols);
		if (term && *term && !strv_env_get(*env, "TERM")) {
			auto_free char *pair = NULL;

			if (asprintf(&pair, "TERM=%s", term) >= 0)
				strv_env_put(env, pair);
		}
	}
	ret->env = (const char *const *)*env;
}
