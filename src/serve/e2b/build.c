/* A build from its first box to its last tag. */
#include "build.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>

#include "clock.h"
#include "db.h"
#include "events.h"
#include "log.h"
#include "mem.h"
#include "run.h"
#include "share.h"
#include "strv.h"

#define READY_MS (10 * 60 * 1000LL) /* a start command may take so long to come up */
#define READY_NAP_MS 300
#define BUILD_MS (4 * 3600 * 1000LL) /* all of it: a build that hangs holds a place of others */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t room = PTHREAD_COND_INITIALIZER;
static unsigned running;

void build_free(struct build *b)
{
	if (!b)
		return;
	den_box_close(b->box); /* ephemeral: it goes */
	den_close(b->den);
	json_decref(b->body);
	json_decref(b->config);
	strv_free(b->tags);
	strv_free(b->env);
	free(b->name);
	free(b->user);
	free(b->workdir);
	free(b->lines);
	buf_free(&b->tail[0]);
	buf_free(&b->tail[1]);
	free(b);
}

/* ---- what it is from ---- */

static const struct who everybody = { .org = "default" };

/* Images that stand for templates which every server has. */
static const struct {
	const char *image, *name;
} known[] = {
	{ "e2bdev/base", "base" },
	{ "e2bdev/code-interpreter", "code-interpreter-v1" },
};

static char *known_image(const char *image)
{
	size_t n = strcspn(image, ":@");

	for (size_t i = 0; i < ARRAY_SIZE(known); i++)
		if (strlen(known[i].image) == n && !strncmp(image, known[i].image, n))
			return mem_strdup(
				i == 0 && serve.e2b_template ? serve.e2b_template : known[i].name);
	return NULL;
}

/* The registry that an image names: this machine's own services are not for everybody to knock at. */
static int registry_check(const struct who *w, const char *image, struct den_err *err)
{
	size_t n = strcspn(image, "/"), host = strcspn(image, ":/");
	bool digits = strspn(image, "0123456789.") >= host, named = memchr(image, '.', host);

	if (w->admin || !image[n] ||
		(!named && !memchr(image, ':', n) && strncmp(image, "localhost", host)))
		return 0; /* no registry is named */
	if (image[0] == '[' || digits || !named)
		return den_fail(err, DEN_DENIED, 0,
			"fromImage: '%.100s' is on a registry near the server; it takes a key with "
			"the scope "
			"'admin' to pull from there",
			image);
	return 0;
}

/* Of a template that everybody has: what runs in it, and its memory, are its own organisation's. */
static int from_shared(struct build *b, const char *id, const char *stored, char **ret,
	struct den_err *err)
{
	bool may = b->who.admin || !strcmp(b->who.org, everybody.org);
	struct den_template *t;

	if (den_template_get(b->den, stored, &t, err) < 0)
		return -1;
	*ret = t->files ? mem_strdup(t->files) : t->baked && !may ? NULL : mem_strdup(stored);
	den_templates_free(t, 1);
	return *ret ? 0 : den_fail(err, DEN_NOT_FOUND, 0, "template '%.100s' not found", id);
}

static int from_image(struct build *b, const char *image, char **ret, struct den_err *err)
{
	struct den_template *t;
	auto_free char *name = NULL, *same = known_image(image);

	if (same)
		return from_shared(b, image, same, ret, err);
	if (json_is_object(json_object_get(b->body, "fromImageRegistry")))
		return den_fail(err, DEN_UNSUPPORTED, 0,
			"fromImageRegistry: pull the image with 'den template pull' on the server, "
			"where its credentials are, and build from that template");
	if (registry_check(&b->who, image, err) < 0)
		return -1;
	if (asprintf(&name, "pulled/%s", image) < 0)
		abort();
	if (den_template_get(b->den, name, &t, err) == 0) {
		den_templates_free(t, 1);
	} else {
		build_say(b, "info", "pulling %.200s", image);
		build_flush(b);
		if (launch_pull(image, name, err) < 0)
			return den_wrap(err, "pull %.100s", image);
	}
	*ret = mem_take(&name);
	return 0;
}

static int from_template(struct build *b, const char *id, char **ret, struct den_err *err)
{
	auto_free char *own = NULL, *shared = NULL;
	struct den_template *t;

	if (!strcmp(id, "base") && serve.e2b_template)
		id = serve.e2b_template;
	if (e2b_template_stored(&b->who, id, NULL, &own, err) < 0 ||
		e2b_template_stored(&everybody, id, NULL, &shared, err) < 0)
		return -1;
	if (den_template_get(b->den, own, &t, err) < 0)
		return err->code == DEN_NOT_FOUND ? from_shared(b, id, shared, ret, err) : -1;
	*ret = t->files ? mem_strdup(t->files) : mem_take(&own); /* steps are for files */
	den_templates_free(t, 1);
	return 0;
}

static int from(struct build *b, char **ret, struct den_err *err)
{
	const char *image = json_string_value(json_object_get(b->body, "fromImage")),
		   *name = json_string_value(json_object_get(b->body, "fromTemplate"));

	if (image && *image)
		return from_image(b, image, ret, err);
	return from_template(b, name && *name ? name : "base", ret, err);
}

/* ---- the box ---- */

static void labels_keep(struct build *b, const struct den_template *t)
{
	json_t *j = t->config ? json_loads(t->config, 0, NULL) : NULL;

	b->config = json_is_object(j) ? j : json_object();
	if (j != b->config)
		json_decref(j);
	if (!json_is_object(json_object_get(b->config, "config")))
		json_object_set_new(b->config, "config", json_object());
	if (!json_is_object(json_object_get(json_object_get(b->config, "config"), "Labels")))
		json_object_set_new(json_object_get(b->config, "config"), "Labels", json_object());
}

void build_limit(const struct build *b, struct den_box_spec *s)
{
	const struct quota *q = &b->who.quota;

	if (q->cpu_milli)
		s->cpu_milli = s->cpu_milli ? MIN(s->cpu_milli, q->cpu_milli) : q->cpu_milli;
	if (q->memory)
		s->memory = s->memory ? MIN(s->memory, q->memory) : q->memory;
}

static int box_make(struct build *b, const char *stored, struct den_err *err)
{
	char owner[64], label[64];
	const char *const labels[] = { label, NULL };
	struct den_box_spec spec = { .size = sizeof(spec),
		.template_name = stored,
		.ephemeral = true,
		.history = "manual",
		.owner = owner,
		.labels = labels,
		.policy = "{\"version\":1,\"presets\":[\"open\"]}",
		.expires_ms = clock_wall_ms() + BUILD_MS,
		.on_expire = "delete",
		.cpu_milli = b->cpus * 1000,
		.memory = b->memory_mb << 20 };

	snprintf(owner, sizeof(owner), "%s/%s", b->who.org, b->who.key);
	snprintf(label, sizeof(label), "e2b.build=%s", b->id);
	build_limit(b, &spec);
	if (den_box_create(b->den, &spec, &b->box, err) == 0)
		return 0;
	if (err->code != DEN_UNSUPPORTED || b->who.quota.cpu_milli || b->who.quota.memory)
		return -1;
	spec.cpu_milli = spec.memory = 0; /* a host that cannot enforce limits */
	return den_box_create(b->den, &spec, &b->box, err);
}

/* Whatever it is from, clients expect a user `user` and bash. */
static int box_prepare(struct build *b, struct den_err *err)
{
	static const char script[] =
		"id -u user >/dev/null 2>&1 || useradd -m -s /bin/bash user 2>/dev/null || "
		"adduser -D -s /bin/bash user; mkdir -p /home/user && chown user: /home/user";
	struct den_exec_opt opt = { .size = sizeof(opt),
		.user = "root",
		.cwd = "/",
		.argv = (const char *const[]){ "/bin/sh", "-c", script, NULL } };
	struct den_exec_result res;
	struct den_box_info *i;

	if (den_box_info(b->box, &i, err) < 0)
		return -1;
	b->user = mem_strdup(
		i->user && strcmp(i->user, "root") && strcmp(i->user, "0") ? i->user : "user");
	b->workdir = mem_strdup(i->workdir && strcmp(i->workdir, "/") ? i->workdir : "/home/user");
	b->env = strv_copy(i->env);
	den_box_infos_free(i, 1);
	if (strcmp(b->user, "user"))
		return 0;
	if (run_wait(b->box, &opt, build_output, b, &res, err) < 0)
		return -1;
	if (!res.exited || res.status)
		return den_fail(err, DEN_CONFLICT, 0,
			"the image has no user 'user', and none could be made");
	return 0;
}

static int base(struct build *b, struct den_err *err)
{
	auto_free char *stored = NULL;
	struct den_template *t;

	snprintf(b->step, sizeof(b->step), "base");
	if (from(b, &stored, err) < 0 || den_template_get(b->den, stored, &t, err) < 0)
		return -1;
	labels_keep(b, t);
	den_templates_free(t, 1);
	build_say(b, "info", "[base] FROM %.200s", stored);
	build_flush(b);
	return box_make(b, stored, err) < 0 ? -1 : box_prepare(b, err);
}

/* ---- the start command, seen to come up ---- */

static int ready_wait(struct build *b, const char *ready, struct den_err *err)
{
	const char *const argv[] = { "/bin/bash", "-l", "-c", ready, NULL };
	int64_t until = clock_wall_ms() + READY_MS;
	struct den_exec_result res = { 0 };

	while (clock_wall_ms() < until) {
		struct den_exec_opt opt = { .size = sizeof(opt),
			.argv = argv,
			.user = b->user,
			.cwd = b->workdir,
			.env = (const char *const *)b->env,
			.timeout_ms = READY_MS };

		if (run_wait(b->box, &opt, build_output, b, &res, err) < 0)
			return -1;
		if (res.exited && res.status == 0)
			return 0;
		nanosleep(&(struct timespec){ .tv_nsec = READY_NAP_MS * NS_PER_MS }, NULL);
	}
	return den_fail(err, DEN_TIMEOUT, 0,
		"the ready command did not succeed within %lld minutes", READY_MS / 60000);
}

static int start_try(struct build *b, const char *start, const char *ready, struct den_err *err)
{
	const char *const argv[] = { "/bin/bash", "-l", "-c", start, NULL };
	struct den_exec_opt opt = { .size = sizeof(opt),
		.argv = argv,
		.user = b->user,
		.cwd = b->workdir,
		.tag = "den.start",
		.env = (const char *const *)b->env };
	struct den_err ignored;
	int r = 0;

	if (start) {
		build_say(b, "info", "[finalize] starting: %.300s", start);
		r = run_detached(b->box, &opt, err);
	}
	if (r == 0 && ready)
		r = ready_wait(b, ready, err);
	if (start) /* it starts anew in each box: what it holds in memory is not kept */
		(void)den_kill(b->box, "den.start", SIGKILL, DEN_SCOPE_TREE, &ignored);
	return r;
}

/* ---- the template ---- */

static void label_set(struct build *b, const char *name, const char *value)
{
	json_t *labels = json_object_get(json_object_get(b->config, "config"), "Labels");

	if (value)
		json_object_set_new(labels, name, json_string(value));
}

static char *config_text(struct build *b, const char *start, const char *ready)
{
	json_t *config = json_object_get(b->config, "config"), *env = json_array();
	struct utsname u;
	char text[32];

	for (char **e = b->env; e && *e; e++)
		json_array_append_new(env, json_string(*e));
	json_object_set_new(config, "Env", env);
	json_object_set_new(config, "User", json_string(b->user));
	json_object_set_new(config, "WorkingDir", json_string(b->workdir));
	label_set(b, "den.start", start);
	label_set(b, "den.ready", ready);
	if (b->cpus) {
		snprintf(text, sizeof(text), "%llu", (unsigned long long)b->cpus * 1000);
		label_set(b, "den.cpu", text);
	}
	if (b->memory_mb) {
		snprintf(text, sizeof(text), "%llu", (unsigned long long)b->memory_mb << 20);
		label_set(b, "den.memory", text);
	}
	if (!json_object_get(b->config, "architecture") && uname(&u) == 0)
		json_object_set_new(b->config, "architecture",
			json_string(!strcmp(u.machine, "x86_64")    ? "amd64"
				    : !strcmp(u.machine, "aarch64") ? "arm64"
								    : u.machine));
	json_object_set_new(b->config, "os", json_string("linux"));
	return json_dumps(b->config, JSON_COMPACT | JSON_SORT_KEYS);
}

static int commit(struct build *b, const char *config, char **ret_id, struct den_err *err)
{
	auto_free char *first = NULL, *detail = NULL;
	struct den_template_opt opt = { .size = sizeof(opt),
		.config = config,
		.user = b->user,
		.workdir = b->workdir,
		.env = (const char *const *)b->env };

	if (asprintf(&detail, "built by %s as %s", b->who.org, b->name) < 0)
		abort();
	opt.detail = detail;
	if (e2b_template_stored(&b->who, b->name, b->tags[0], &first, err) < 0)
		return -1;
	opt.name = first;
	if (den_template_commit(b->box, NULL, &opt, ret_id, err) < 0)
		return -1;
	for (char **tag = b->tags + 1; *tag; tag++) {
		auto_free char *stored = NULL;

		if (e2b_template_stored(&b->who, b->name, *tag, &stored, err) < 0 ||
			den_template_tag(b->den, first, stored, err) < 0)
			return -1;
	}
	return 0;
}

static int finalize(struct build *b, char **ret_id, struct den_err *err)
{
	const char *start = json_string_value(json_object_get(b->body, "startCmd")),
		   *ready = json_string_value(json_object_get(b->body, "readyCmd"));
	auto_free char *config = NULL;

	snprintf(b->step, sizeof(b->step), "finalize");
	start = start && *start ? start : NULL;
	ready = ready && *ready ? ready : NULL;
	if (start_try(b, start, ready, err) < 0)
		return -1;
	build_say(b, "info", "[finalize] saving the template");
	build_flush(b);
	config = config_text(b, start, ready);
	if (!config)
		return den_fail(err, DEN_INVALID, 0, "an ENV is no UTF-8");
	if (build_unbake(b, err) < 0 || commit(b, config, ret_id, err) < 0)
		return -1;
	if (start)
		build_bake(b, start, ready);
	return 0;
}

/* ---- its thread ---- */

static void state_set(
	struct build *b, const char *state, const struct den_err *why, const char *image)
{
	bool end = strcmp(state, "building");
	struct den_err err;

	if (db_run(&err, NULL,
		    "UPDATE e2b_builds SET state = ?, reason = ?, step = ?, image = ?, ended_ms = "
		    "? WHERE id = ?",
		    "ssssis", state, why ? why->msg : NULL, b->step, image,
		    end ? clock_wall_ms() : (int64_t)0, b->id) < 0)
		log_line("error", "e2b", "build %s: %s", b->id, err.msg);
}

/* One place is never the same organisation's as all others. */
static struct share *turn_take(const struct build *b)
{
	struct share *mine = NULL;
	char name[64];

	snprintf(name, sizeof(name), "builds %s", b->who.org);
	pthread_mutex_lock(&lock);
	while (running >= BUILDS_MAX || !(mine = share_take(name, MAX(BUILDS_MAX - 1, 1))))
		pthread_cond_wait(&room, &lock);
	running++;
	pthread_mutex_unlock(&lock);
	return mine;
}

static void turn_give(struct share *mine)
{
	share_give(mine);
	pthread_mutex_lock(&lock);
	running--;
	pthread_cond_broadcast(&room);
	pthread_mutex_unlock(&lock);
}

static void *build_main(void *user)
{
	struct build *b = user;
	auto_free char *image = NULL;
	struct share *turn;
	struct den_err err;

	turn = turn_take(b);
	state_set(b, "building", NULL, NULL);
	if (serve_den(&b->den, &err) < 0 || base(b, &err) < 0 || build_steps(b, &err) < 0 ||
		finalize(b, &image, &err) < 0) {
		build_output_end(b);
		build_say(b, "error", "%s", err.msg);
		build_flush(b);
		state_set(b, "error", &err, NULL);
	} else {
		build_say(b, "info", "built %s", b->name);
		build_flush(b);
		e2b_template_changed();
		state_set(b, "ready", NULL, image);
		events_post("template.made", b->who.org, NULL, json_pack("{s:s}", "name", b->name));
	}
	turn_give(turn);
	build_free(b);
	return NULL;
}

int build_begin(struct build *b, struct den_err *err)
{
	pthread_attr_t attr;
	pthread_t thread;
	int r;

	pthread_attr_init(&attr);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	pthread_attr_setstacksize(&attr, 512 << 10);
	r = pthread_create(&thread, &attr, build_main, b);
	pthread_attr_destroy(&attr);
	if (r == 0)
		return 0;
	build_free(b);
	return den_fail_sys(err, r, "a thread for the build");
}
