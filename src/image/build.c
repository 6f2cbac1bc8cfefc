#include "build.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "build_parts.h"
#include "fd.h"
#include "mem.h"
#include "oci_json.h"
#include "parse.h"
#include "strv.h"

void state_free(struct state *s)
{
	char *const strs[] = { s->ref, s->user, s->workdir, s->stop_signal };
	char **const strvs[] = { s->env, s->entrypoint, s->cmd, s->shell, s->labels, s->ports,
		s->args, s->dirs };

	for (size_t i = 0; i < ARRAY_SIZE(strs); i++)
		free(strs[i]);
	for (size_t i = 0; i < ARRAY_SIZE(strvs); i++)
		strv_free(strvs[i]);
	*s = (struct state){ 0 };
}

static char **copy_of(char *const *v)
{
	return strv_copy((const char *const *)v);
}

static char *dup_or_null(const char *s)
{
	return s ? mem_strdup(s) : NULL;
}

static void text_set(char **field, char *value)
{
	free(*field);
	*field = value;
}

static void texts_set(char ***field, char **value)
{
	strv_free(*field);
	*field = value;
}

/* What a stage that begins FROM another gets of it. ARG is not handed down. */
static struct state state_copy(const struct state *s)
{
	return (struct state){ .ref = mem_strdup(s->ref),
		.user = dup_or_null(s->user),
		.workdir = dup_or_null(s->workdir),
		.stop_signal = dup_or_null(s->stop_signal),
		.env = copy_of(s->env),
		.entrypoint = copy_of(s->entrypoint),
		.cmd = copy_of(s->cmd),
		.shell = copy_of(s->shell),
		.labels = copy_of(s->labels),
		.ports = copy_of(s->ports),
		.dirs = copy_of(s->dirs) };
}

/* ---- variables ------------------------------------------------------------------------------- */

/* ENV goes over ARG. */
static const char *stage_lookup(const char *name, void *user)
{
	const struct state *s = user;
	const char *v = strv_env_get(s->env, name);

	return v ? v : strv_env_get(s->args, name);
}

int build_expand(const struct build *b, const struct state *s, const char *text, char **ret,
	struct den_err *err)
{
	return df_expand(text, b->file.escape, stage_lookup, (void *)s, ret, err);
}

static void pair_put(char ***env, const char *name, const char *value)
{
	auto_free char *pair = NULL;

	if (asprintf(&pair, "%s=%s", name, value) >= 0)
		strv_env_put(env, pair);
}

/* What the user said with --build-arg; NULL: nothing. */
static const char *arg_given(const struct build *b, const char *name)
{
	size_t n = strlen(name);

	for (char *const *a = b->opt->args; a && *a; a++)
		if (!strncmp(*a, name, n) && (!(*a)[n] || (*a)[n] == '='))
			return (*a)[n] ? *a + n + 1 : getenv(name);
	return NULL;
}

/* global: before the first FROM, where there is no stage yet. */
static int step_arg(struct build *b, struct state *s, const struct df_step *step, bool global,
	struct den_err *err)
{
	auto_strv names = NULL;
	auto_strv values = NULL;

	if (df_pairs(step->text, b->file.escape, true, &names, &values, err) < 0)
		return -1;
	for (size_t i = 0; names && names[i]; i++) {
		bool lone = !strcmp(values[i], DF_NO_VALUE);
		const char *value = arg_given(b, names[i]);
		auto_free char *own = NULL;

		strv_add(&b->used, names[i]);
		if (!value && !lone) {
			if (build_expand(b, s, values[i], &own, err) < 0)
				return -1;
			value = own;
		}
		if (!value && !global)
			value = strv_env_get(b->args, names[i]);
		if (value)
			pair_put(&s->args, names[i], value);
	}
	return 0;
}

/* ---- steps that change no file --------------------------------------------------------------- */

static int step_pairs(struct build *b, struct state *s, const struct df_step *step, char ***into,
	struct den_err *err)
{
	auto_strv names = NULL;
	auto_strv values = NULL;
	auto_strv done = NULL;

	if (df_pairs(step->text, b->file.escape, false, &names, &values, err) < 0)
		return -1;
	/* all of a line sees the variables as they were before it */
	for (size_t i = 0; names && names[i]; i++) {
		auto_free char *name = NULL, *value = NULL, *pair = NULL;

		if (build_expand(b, s, names[i], &name, err) < 0 ||
			build_expand(b, s, values[i], &value, err) < 0)
			return -1;
		if (!*name || asprintf(&pair, "%s=%s", name, value) < 0)
			return den_fail(err, DEN_INVALID, 0, "a name is empty");
		strv_add(&done, pair);
	}
	for (char **p = done; p && *p; p++)
		strv_env_put(into, *p);
	return 0;
}

char *build_path(const struct state *s, const char *path)
{
	auto_free char *joined = NULL, *clean = NULL;
	char *full = NULL;

	if (path[0] == '/')
		joined = mem_strdup(path);
	else if (asprintf(&joined, "%s/%s", s->workdir ? s->workdir : "", path) < 0)
		return mem_strdup("/");
	clean = path_clean(joined);
	/* above the top is the top, as in any file system */
	if (asprintf(&full, "/%s", clean ? clean : "") < 0)
		return mem_strdup("/");
	return full;
}

static int step_workdir(
	struct build *b, struct state *s, const struct df_step *step, struct den_err *err)
{
	auto_free char *path = NULL;

	if (build_expand(b, s, step->text, &path, err) < 0)
		return -1;
	if (!*path)
		return den_fail(err, DEN_INVALID, 0, "it is empty after its variables are put in");
	text_set(&s->workdir, build_path(s, path));
	if (strcmp(s->workdir, "/"))
		strv_add(&s->dirs, s->workdir);
	return 0;
}

static int step_text(struct build *b, struct state *s, const struct df_step *step, char **field,
	struct den_err *err)
{
	char *value;

	if (build_expand(b, s, step->text, &value, err) < 0)
		return -1;
	if (!*value) {
		free(value);
		return den_fail(err, DEN_INVALID, 0, "it is empty after its variables are put in");
	}
	text_set(field, value);
	return 0;
}

static int step_expose(
	struct build *b, struct state *s, const struct df_step *step, struct den_err *err)
{
	auto_strv words = NULL;
	auto_free char *text = NULL;

	if (build_expand(b, s, step->text, &text, err) < 0 ||
		df_words(text, b->file.escape, &words, err) < 0)
		return -1;
	for (char **w = words; w && *w; w++) {
		size_t n = strspn(*w, "0123456789-");
		auto_free char *port = NULL;

		if (!n || (strcmp(*w + n, "") && strcmp(*w + n, "/tcp") && strcmp(*w + n, "/udp") &&
				  strcmp(*w + n, "/sctp")))
			return den_fail(err, DEN_INVALID, 0,
				"'%.40s' is no port; write it like 80 or 53/udp", *w);
		if (asprintf(&port, "%s%s", *w, (*w)[n] ? "" : "/tcp") >= 0)
			strv_add(&s->ports, port);
	}
	return 0;
}

/* The list, or the text for the shell. "[]" takes away what was there. */
static char **command_of(const struct state *s, const struct df_step *step)
{
	char **v = NULL;

	if (step->list)
		return copy_of(step->list);
	if (!strcmp(step->text, "[]"))
		return NULL;
	v = copy_of(s->shell);
	if (!v) {
		strv_add(&v, "/bin/sh");
		strv_add(&v, "-c");
	}
	strv_add(&v, step->text);
	return v;
}

static int step_entrypoint(struct state *s, const struct df_step *step)
{
	texts_set(&s->entrypoint, command_of(s, step));
	if (!s->cmd_here) /* that of the template below was made for another entrypoint */
		texts_set(&s->cmd, NULL);
	return 0;
}

static int step_cmd(struct state *s, const struct df_step *step)
{
	texts_set(&s->cmd, command_of(s, step));
	s->cmd_here = true;
	return 0;
}

static int step_left_out(const struct build *b, const struct df_step *step, const char *why)
{
	work_note(b->w, "line %u: %s is left out: %s", step->line, df_kind_str(step->kind), why);
	return 0;
}

/* ---- files ----------------------------------------------------------------------------------- */

void key_text(struct sha256 *k, const char *text)
{
	sha256_add(k, text ? "+" : "-", 1);
	if (text)
		sha256_add(k, text, strlen(text) + 1);
}

void key_texts(struct sha256 *k, char *const *v)
{
	for (; v && *v; v++)
		key_text(k, *v);
	key_text(k, NULL);
}

void key_begin(struct sha256 *k, const struct state *s, const char *what)
{
	sha256_init(k);
	key_text(k, "den build 1");
	key_text(k, s->ref);
	key_texts(k, s->dirs);
	key_text(k, what);
}

static int dirs_make(struct state *s, struct den_box *box, struct den_err *err)
{
	const struct den_file_opt opt = { .size = sizeof(opt), .parents = true };

	for (char **d = s->dirs; d && *d; d++)
		if (den_file_mkdir(box, *d, &opt, err) < 0)
			return -1;
	return 0;
}

static int nothing_more(
	struct build *b, struct state *s, struct den_box *box, void *user, struct den_err *err)
{
	(void)b, (void)s, (void)box, (void)user, (void)err;
	return 0;
}

int build_files(struct build *b, struct state *s, struct sha256 *key, step_fn make, void *user,
	struct den_err *err)
{
	struct den_template_opt opt = { .size = sizeof(opt), .detail = "a step of a build" };
	auto_template known = NULL;
	auto_den_box box = NULL;
	char hex[65], name[80];
	char *id;

	sha256_hex(key, hex);
	snprintf(name, sizeof(name), BUILD_CACHE "%s", hex);
	opt.name = name;
	if (!b->opt->no_cache && den_template_get(b->w->den, name, &known, err) == 0) {
		work_note(b->w, "  as before");
		id = mem_strdup(known->id);
	} else {
		if (!b->opt->no_cache && err->code != DEN_NOT_FOUND)
			return -1;
		if (work_box(b->w, s->ref, &box, err) < 0 || dirs_make(s, box, err) < 0 ||
			make(b, s, box, user, err) < 0 ||
			den_template_commit(box, NULL, &opt, &id, err) < 0)
			return -1;
	}
	text_set(&s->ref, id);
	texts_set(&s->dirs, NULL);
	return 0;
}

/* ---- stages ---------------------------------------------------------------------------------- */

/* "image AS name" */
static int from_parse(const struct build *b, const struct df_step *step, char **ret_image,
	char **ret_name, struct den_err *err)
{
	struct state globals = { .args = b->args };
	auto_strv words = NULL;
	const char *platform = df_flag(step, "platform");
	char arch[32];
	size_t n;

	if (df_words(step->text, b->file.escape, &words, err) < 0)
		return -1;
	n = strv_len(words);
	if (n != 1 && (n != 3 || strcasecmp(words[1], "AS")))
		return den_fail(err, DEN_INVALID, 0,
			"it is written FROM TEMPLATE or FROM TEMPLATE AS NAME");
	if (platform && platform[0] != '$') {
		if (oci_platform_parse(platform, arch, err) < 0)
			return -1;
		if (strcmp(arch, oci_arch()))
			return den_fail(err, DEN_UNSUPPORTED, 0,
				"--platform=%.40s: this machine is linux/%s", platform, oci_arch());
	}
	if (ret_image && build_expand(b, &globals, words[0], ret_image, err) < 0)
		return -1;
	if (ret_name)
		*ret_name = n == 3 ? mem_strdup(words[2]) : NULL;
	return 0;
}

/* The number of an earlier stage, or n_stages. */
static size_t stage_find(const struct build *b, size_t before, const char *name, bool numbers)
{
	uint64_t number;

	for (size_t i = before; i-- > 0;)
		if (b->stages[i].name && !strcasecmp(b->stages[i].name, name))
			return i;
	if (numbers && before && parse_u64(name, 0, before - 1, &number, NULL) == 0)
		return (size_t)number;
	return b->n_stages;
}

static int stage_run(struct build *b, size_t number, struct den_err *err);

static int template_load(struct build *b, const char *name, struct state *s, struct den_err *err)
{
	auto_template t = NULL;

	if (!strcmp(name, "scratch") || !strcmp(name, "host")) {
		s->ref = mem_strdup(strcmp(name, "host") ? "empty" : "host");
		return 0;
	}
	if (den_template_get(b->w->den, name, &t, err) < 0) {
		if (err->code != DEN_NOT_FOUND)
			return -1;
		return den_fail(err, DEN_NOT_FOUND, 0,
			"there is no template '%.80s'; 'den template ls' lists them, 'den template "
			"pull %.80s' brings it",
			name, name);
	}
	s->ref = mem_strdup(t->id);
	return config_load(t, s, err);
}

static int stage_begin(struct build *b, size_t number, struct den_err *err)
{
	struct stage *st = &b->stages[number];
	auto_free char *image = NULL;
	size_t other;

	if (from_parse(b, &b->file.steps[st->from], &image, NULL, err) < 0)
		return -1;
	if (!*image)
		return den_fail(err, DEN_INVALID, 0,
			"no template is named, after its variables are put in");
	other = stage_find(b, number, image, false);
	if (other == b->n_stages)
		return template_load(b, image, &st->state, err);
	if (stage_run(b, other, err) < 0)
		return -1;
	st->state = state_copy(&b->stages[other].state);
	return 0;
}

int build_source(struct build *b, size_t before, const char *name, char **ret, struct den_err *err)
{
	size_t other = stage_find(b, before, name, true);
	struct state s = { 0 };
	int r;

	if (other == b->n_stages) {
		r = template_load(b, name, &s, err);
	} else {
		r = stage_run(b, other, err);
		if (r == 0)
			s.ref = mem_strdup(b->stages[other].state.ref);
	}
	if (r == 0)
		*ret = mem_take(&s.ref);
	state_free(&s);
	return r;
}

static int step_run(struct build *b, size_t stage, const struct df_step *step, struct den_err *err)
{
	struct state *s = &b->stages[stage].state;

	switch (step->kind) {
	case DF_RUN:
		return build_run(b, s, step, err);
	case DF_COPY:
	case DF_ADD:
		return build_copy(b, stage, s, step, err);
	case DF_ENV:
		return step_pairs(b, s, step, &s->env, err);
	case DF_LABEL:
		return step_pairs(b, s, step, &s->labels, err);
	case DF_ARG:
		return step_arg(b, s, step, false, err);
	case DF_WORKDIR:
		return step_workdir(b, s, step, err);
	case DF_USER:
		return step_text(b, s, step, &s->user, err);
	case DF_STOPSIGNAL:
		return step_text(b, s, step, &s->stop_signal, err);
	case DF_EXPOSE:
		return step_expose(b, s, step, err);
	case DF_ENTRYPOINT:
		return step_entrypoint(s, step);
	case DF_CMD:
		return step_cmd(s, step);
	case DF_SHELL:
		texts_set(&s->shell, copy_of(step->list));
		return 0;
	case DF_VOLUME:
		return step_left_out(b, step, "all directories of a box are its own");
	case DF_HEALTHCHECK:
		return step_left_out(b, step, "den does not watch programs");
	case DF_MAINTAINER:
		return step_left_out(
			b, step, "write LABEL org.opencontainers.image.authors=... instead");
	case DF_ONBUILD:
		return den_fail(err, DEN_UNSUPPORTED, 0,
			"steps for later builds are not supported; write them into those builds");
	case DF_FROM:
	case DF_KINDS:
		break;
	}
	return den_fail(err, DEN_INTERNAL, 0, "a step of an unknown kind");
}

static void step_tell(struct build *b, const struct df_step *step)
{
	work_note(b->w, "[%u/%u] %s %.100s%s", ++b->step, b->steps, df_kind_str(step->kind),
		step->text, strlen(step->text) > 100 ? "..." : "");
}

/* Directories of the last WORKDIR that no step needed. */
static int dirs_finish(struct build *b, struct state *s, struct den_err *err)
{
	struct sha256 key;

	if (!s->dirs)
		return 0;
	key_begin(&key, s, "dirs");
	return build_files(b, s, &key, nothing_more, NULL, err);
}

static int stage_run(struct build *b, size_t number, struct den_err *err)
{
	struct stage *st = &b->stages[number];

	if (st->done)
		return 0;
	step_tell(b, &b->file.steps[st->from]);
	if (stage_begin(b, number, err) < 0)
		return den_wrap(err, "line %u: FROM", b->file.steps[st->from].line);
	for (size_t i = st->from + 1; i < st->end; i++) {
		const struct df_step *step = &b->file.steps[i];

		step_tell(b, step);
		if (interrupt_check(err) < 0)
			return -1;
		if (step_run(b, number, step, err) < 0)
			return den_wrap(err, "line %u: %s", step->line, df_kind_str(step->kind));
	}
	if (dirs_finish(b, &st->state, err) < 0)
		return den_wrap(err, "make the working directory");
	st->done = true;
	return 0;
}

/* ---- all of it ------------------------------------------------------------------------------- */

static int stages_find(struct build *b, struct den_err *err)
{
	struct state globals = { 0 };
	int r = 0;

	for (size_t i = 0; r == 0 && i < b->file.n; i++) {
		const struct df_step *step = &b->file.steps[i];
		struct stage *st;

		if (step->kind != DF_FROM) {
			if (!b->n_stages)
				r = step_arg(b, &globals, step, true, err);
			if (b->n_stages)
				b->stages[b->n_stages - 1].end = i + 1;
		} else {
			b->stages = mem_realloc(b->stages, (b->n_stages + 1) * sizeof(*b->stages));
			st = &b->stages[b->n_stages++];
			*st = (struct stage){ .from = i, .end = i + 1 };
			r = from_parse(b, step, NULL, &st->name, err);
		}
		if (r < 0)
			den_wrap(err, "line %u: %s", step->line, df_kind_str(step->kind));
	}
	b->args = mem_take(&globals.args);
	state_free(&globals);
	return r;
}

static int target_find(const struct build *b, size_t *ret, struct den_err *err)
{
	const char *names[64], *near;
	int n = 0;

	*ret = b->n_stages - 1;
	if (!b->opt->target)
		return 0;
	*ret = stage_find(b, b->n_stages, b->opt->target, true);
	if (*ret < b->n_stages)
		return 0;
	for (size_t i = 0; i < b->n_stages && n < 64; i++)
		if (b->stages[i].name)
			names[n++] = b->stages[i].name;
	near = parse_nearest(b->opt->target, names, n);
	return den_fail(err, DEN_NOT_FOUND, 0, "there is no stage '%.60s'%s%.60s%s", b->opt->target,
		near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
}

static void args_warn(const struct build *b)
{
	for (char *const *a = b->opt->args; a && *a; a++) {
		size_t n = strcspn(*a, "=");
		bool used = false;

		for (char **u = b->used; u && *u; u++)
			used = used || (strlen(*u) == n && !strncmp(*u, *a, n));
		if (!used)
			work_note(b->w, "warning: no ARG %.*s uses the --build-arg",
				(int)MIN(n, 60U), *a);
	}
}

/* Its files are there; what is still missing are its name and its configuration. */
static int finish(struct build *b, struct state *s, char **ret_id, struct den_err *err)
{
	static const char *const none[] = { NULL };
	auto_free char *config = NULL;
	struct den_template_opt opt = { .size = sizeof(opt),
		.name = b->opt->name,
		.detail = "made by a build",
		.user = s->user,
		.workdir = s->workdir,
		.env = (const char *const *)s->env,
		.entrypoint = (const char *const *)s->entrypoint,
		.cmd = (const char *const *)s->cmd };
	auto_den_box box = NULL;

	if (config_text(s, &config, err) < 0)
		return -1;
	opt.config = config;
	if (strcmp(s->ref, "host") && strcmp(s->ref, "empty")) {
		opt.base = s->ref;
		return den_template_stack(b->w->den, none, &opt, ret_id, err);
	}
	/* nothing was added to what is no image itself */
	if (work_box(b->w, s->ref, &box, err) < 0)
		return -1;
	return den_template_commit(box, NULL, &opt, ret_id, err);
}

static int file_read(struct build *b, const char *path, struct den_err *err)
{
	bool in = !strcmp(path, "-");
	auto_fd fd =
		in ? fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3) : open(path, O_RDONLY | O_CLOEXEC);
	auto_free char *text = NULL;
	size_t n;

	if (fd < 0)
		return den_fail_sys(err, errno, "'%.100s'", path);
	if (fd_read_all(fd, DOCKERFILE_MAX, &text, &n, err) < 0 ||
		dockerfile_parse(text, n, &b->file, err) < 0)
		return den_wrap(err, "%.100s", in ? "standard input" : path);
	return 0;
}

static int build_all(struct build *b, char **ret_id, struct den_err *err)
{
	auto_free char *path = NULL;
	size_t target;

	if (!b->opt->file && asprintf(&path, "%s/Dockerfile", b->opt->dir) < 0)
		return den_fail(err, DEN_INTERNAL, ENOMEM, "build");
	if (file_read(b, b->opt->file ? b->opt->file : path, err) < 0 ||
		context_open(b->opt->dir, b->opt->file, &b->context, err) < 0 ||
		stages_find(b, err) < 0 || target_find(b, &target, err) < 0)
		return -1;
	for (size_t i = 0; i <= target; i++)
		b->steps += (unsigned)(b->stages[i].end - b->stages[i].from);
	if (stage_run(b, target, err) < 0)
		return -1;
	args_warn(b);
	return finish(b, &b->stages[target].state, ret_id, err);
}

int build_template(
	const struct work *w, const struct build_opt *opt, char **ret_id, struct den_err *err)
{
	struct build b = { .w = w, .opt = opt, .context.fd = -1 };
	int r = build_all(&b, ret_id, err);

	for (size_t i = 0; i < b.n_stages; i++) {
		free(b.stages[i].name);
		state_free(&b.stages[i].state);
	}
	free(b.stages);
	strv_free(b.args);
	strv_free(b.used);
	context_close(&b.context);
	dockerfile_free(&b.file);
	return r;
}
