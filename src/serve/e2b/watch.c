/*
 * Watchers of directories: as a stream, and as one that is asked from time to time (Python's blocking client).
 *
 * Each watcher of the second kind is a thread with a connection of its own that fills a bounded queue: whoever does
 * not ask loses the oldest events, and who does not ask for an hour loses the watcher.
 */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "boxes.h"
#include "clock.h"
#include "envd.h"
#include "mem.h"
#include "serve.h"

#define TICK_MS 200
#define PER_BOX 32
#define IN_ALL 512
#define QUEUE_MAX 4096
#define QUEUE_BYTES (512U << 10) /* IN_ALL of them fit into memory */
#define UNASKED_NS (3600 * NS_PER_SEC)
#define STACK (512U << 10)

/* ---- what both say ---- */

static const char *event_type(const char *event)
{
	static const struct {
		const char *event, *type;
	} types[] = { { "create", "EVENT_TYPE_CREATE" }, { "write", "EVENT_TYPE_WRITE" },
		{ "remove", "EVENT_TYPE_REMOVE" }, { "rename", "EVENT_TYPE_RENAME" }, { "chmod", "EVENT_TYPE_CHMOD" } };

	for (size_t i = 0; event && i < ARRAY_SIZE(types); i++)
		if (!strcmp(event, types[i].event))
			return types[i].type;
	return NULL;
}

/* What is watched, for whom, and with what to look at it. */
struct scene {
	struct person who;
	char *path;
	bool recursive, entries;
	struct envd look; /* a second connection: the first is busy telling */
};

static void event_put(struct json *j, const char *key, struct scene *w, const struct den_entry *entry)
{
	json_open(j, key, '{');
	json_str(j, "name", *entry->path ? entry->path : ".");
	json_str(j, "type", event_type(entry->event));
	if (w->entries && strcmp(entry->event, "remove") && strcmp(entry->event, "rename")) {
		auto_buf path = { 0 };
		struct json one = { 0 };
		struct den_err gone;

		buf_addstr(&path, w->path[1] ? w->path : "");
		buf_addstr(&path, "/");
		buf_addstr(&path, entry->path);
		if (entry_look(&w->look, &w->who, buf_str(&path), NULL, &one, &gone) == 0)
			json_raw(j, "entry", buf_str(&one.b));
		buf_free(&one.b);
	}
	json_close(j, '}');
}

static int is_dir(const struct den_entry *entry, void *user, struct den_err *err)
{
	(void)err;
	*(bool *)user = !strcmp(entry->type, "directory");
	return 0;
}

/* Reads the arguments; *code is set where it fails. */
static int scene_read(struct req *r, struct envd *e, const json_t *args, struct scene *w, enum connect_code *code,
	struct den_err *err)
{
	const char *path = json_string_value(json_object_get(args, "path"));
	char user[64];
	bool dir = false;

	*code = CONNECT_INVALID_ARGUMENT;
	w->recursive = json_is_true(json_object_get(args, "recursive"));
	w->entries = json_is_true(json_object_get(args, "includeEntry"));
	if (envd_username(r, user, err) < 0)
		return -1;
	if (person_get(e, user, &w->who, err) < 0) {
		*code = err->code == DEN_NOT_FOUND ? CONNECT_UNAUTHENTICATED : connect_code_of(err);
		return -1;
	}
	if (person_path(&w->who, path ? path : "", &w->path, err) < 0)
		return -1;
	if (den_file_stat(e->box, w->path, NULL, is_dir, &dir, err) < 0) {
		*code = connect_code_of(err);
		if (err->code == DEN_NOT_FOUND && err->sys)
			den_fail(err, DEN_NOT_FOUND, ENOENT, "path '%.180s' does not exist", w->path);
		return -1;
	}
	return dir ? 0 : den_fail(err, DEN_INVALID, ENOTDIR, "path '%.180s' is not a directory", w->path);
}

static void scene_free(struct scene *w)
{
	free(w->path);
	envd_leave(&w->look);
}

/* As root: who is asked to watch is told of everything, as with other files. */
static int scene_watch(struct den_box *box, struct scene *w, den_entry_fn fn, void *user, struct den_err *err)
{
	struct den_file_opt opt = { .size = sizeof(opt), .recursive = w->recursive, .tick_ms = TICK_MS };

	return den_file_watch(box, w->path, &opt, fn, user, err);
}

/* ---- the stream ---- */

struct streamed {
	struct rpc *s;
	struct scene *w;
	bool started;
};

static void message(struct rpc *s, const char *text)
{
	size_t at = connect_begin(&s->out, 0);

	buf_addstr(&s->out, text);
	connect_end(&s->out, at);
	rpc_flush(s);
}

static int stream_fn(const struct den_entry *entry, void *user, struct den_err *err)
{
	struct streamed *x = user;

	if (!x->started) {
		x->started = true;
		message(x->s, "{\"start\":{}}");
	} else if (event_type(entry->event)) {
		struct json j = { 0 };

		json_open(&j, NULL, '{');
		event_put(&j, "filesystem", x->w, entry);
		json_close(&j, '}');
		message(x->s, buf_str(&j.b));
		buf_free(&j.b);
	}
	if (x->s->gone || rpc_wait(x->s, -1, 0, "{\"keepalive\":{}}") < 0)
		return den_fail(err, DEN_CONFLICT, 0, "nobody listens");
	return 0;
}

int watch_dir(struct req *r, struct den_err *err)
{
	auto_envd e = { 0 };
	auto_json *args = NULL;
	auto_rpc s = { 0 };
	struct scene w = { 0 };
	struct streamed x = { &s, &w, false };
	enum connect_code code;
	int got = rpc_stream_enter(r, &e, &s, &args, err);

	if (got)
		return got < 0 ? -1 : 0;
	if (scene_read(r, &e, args, &w, &code, err) < 0) {
		got = envd_gone(r, &e) ? 0 : rpc_stream_refuse(&s, code, "%s", err->msg);
	} else {
		w.look = (struct envd){ 0 };
		memcpy(w.look.id, e.id, sizeof(e.id));
		if (w.entries && boxes_open_any(r, e.id, &w.look.box, err) < 0)
			got = rpc_stream_failed(&s, err);
		else if (scene_watch(e.box, &w, stream_fn, &x, err) < 0 && !s.gone && !s.over)
			got = rpc_stream_failed(&s, err);
		else if (!s.gone && !s.over)
			got = rpc_finish(&s); /* the directory went */
	}
	scene_free(&w);
	return got;
}

/* ---- the ones that are asked ---- */

struct watcher {
	struct list link;
	char name[33], box[E2B_ID_SIZE];
	struct scene w;
	unsigned refs; /* the list, the thread, who asks */
	bool listed, stop, started, ended;
	struct den_err err;
	char *queue[QUEUE_MAX]; /* JSON of an event each */
	size_t first, n, bytes;
	int64_t asked;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static struct list watchers = LIST_INIT(watchers);

/* with the lock held, these three */
static void watcher_drop_oldest(struct watcher *x)
{
	x->bytes -= strlen(x->queue[x->first]);
	free(x->queue[x->first]);
	x->first = (x->first + 1) % QUEUE_MAX;
	x->n--;
}

static void watcher_unref(struct watcher *x)
{
	if (--x->refs)
		return;
	while (x->n)
		watcher_drop_oldest(x);
	scene_free(&x->w);
	free(x);
}

static void watcher_unlist(struct watcher *x)
{
	if (!x->listed)
		return;
	x->listed = false;
	x->stop = true;
	list_remove(&x->link);
	watcher_unref(x);
}

static void watcher_push(struct watcher *x, const struct den_entry *entry)
{
	struct json j = { 0 };

	event_put(&j, NULL, &x->w, entry); /* may wait: not under the lock */
	pthread_mutex_lock(&lock);
	while (x->n == QUEUE_MAX || (x->n && x->bytes + j.b.len > QUEUE_BYTES))
		watcher_drop_oldest(x);
	x->bytes += j.b.len;
	x->queue[(x->first + x->n++) % QUEUE_MAX] = mem_strdup(buf_str(&j.b));
	pthread_mutex_unlock(&lock);
	buf_free(&j.b);
}

static int watcher_fn(const struct den_entry *entry, void *user, struct den_err *err)
{
	struct watcher *x = user;
	bool stop;

	if (x->started && event_type(entry->event))
		watcher_push(x, entry);
	pthread_mutex_lock(&lock);
	if (!x->started) {
		x->started = true;
		pthread_cond_broadcast(&changed);
	}
	stop = x->stop || clock_mono_ns() - x->asked > UNASKED_NS;
	pthread_mutex_unlock(&lock);
	return stop ? den_fail(err, DEN_CONFLICT, 0, "nobody asks") : 0;
}

static int watcher_run(struct watcher *x, struct den *d, struct den_err *err)
{
	auto_box *box = NULL;

	if (den_box_open(d, x->box, &box, err) < 0 ||
		(x->w.entries && den_box_open(d, x->box, &x->w.look.box, err) < 0))
		return -1;
	return scene_watch(box, &x->w, watcher_fn, x, err);
}

static void *watcher_thread(void *user)
{
	struct watcher *x = user;
	struct den_err err = { 0 };
	struct den *d = NULL;
	bool unasked;

	if (serve_den(&d, &err) == 0)
		watcher_run(x, d, &err);
	envd_leave(&x->w.look); /* before what it came from */
	den_close(d);
	pthread_mutex_lock(&lock);
	unasked = clock_mono_ns() - x->asked > UNASKED_NS;
	x->ended = true;
	x->err = err;
	pthread_cond_broadcast(&changed);
	if (unasked || !boxes_state(x->box))
		watcher_unlist(x);
	watcher_unref(x);
	pthread_mutex_unlock(&lock);
	return NULL;
}

static int watcher_launch(struct watcher *x, struct den_err *err)
{
	pthread_attr_t attr;
	pthread_t t;
	int sys;

	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, STACK);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	x->refs++;
	sys = pthread_create(&t, &attr, watcher_thread, x);
	pthread_attr_destroy(&attr);
	if (!sys)
		return 0;
	x->refs--;
	return den_fail(err, DEN_LIMIT, sys, "no more watchers");
}

static bool has_room(const char *box)
{
	size_t all = 0, own = 0;

	list_for_each(l, &watchers) {
		all++;
		own += !strcmp(CONTAINER_OF(l, struct watcher, link)->box, box);
	}
	return all < IN_ALL && own < PER_BOX;
}

/* Puts it into the list, starts it and waits until it watches. */
static int watcher_add(struct watcher *x, struct den_err *err)
{
	int r = -1;

	pthread_mutex_lock(&lock);
	if (!has_room(x->box)) {
		den_fail(err, DEN_LIMIT, 0, "%d watchers for this box, or %d in all; remove some", PER_BOX, IN_ALL);
	} else if (watcher_launch(x, err) == 0) {
		x->refs++;
		x->listed = true;
		list_append(&watchers, &x->link);
		while (!x->started && !x->ended)
			pthread_cond_wait(&changed, &lock);
		r = x->started ? 0 : -1;
		if (r < 0) {
			*err = x->err;
			watcher_unlist(x);
		}
	}
	watcher_unref(x);
	pthread_mutex_unlock(&lock);
	return r;
}

int watcher_create(struct req *r, struct den_err *err)
{
	auto_envd e = { 0 };
	auto_json *args = NULL;
	struct watcher *x;
	enum connect_code code;
	char name[33];
	uint8_t raw[16];
	int got = rpc_enter(r, &e, &args, err);

	if (got)
		return got < 0 ? -1 : 0;
	if (getrandom(raw, sizeof(raw), 0) != sizeof(raw))
		return den_fail(err, DEN_INTERNAL, errno, "random bytes");
	for (size_t i = 0; i < sizeof(raw); i++)
		snprintf(name + 2 * i, 3, "%02x", raw[i]);
	x = mem_new(struct watcher);
	x->refs = 1;
	x->asked = clock_mono_ns();
	memcpy(x->name, name, sizeof(x->name));
	memcpy(x->box, e.id, sizeof(e.id));
	memcpy(x->w.look.id, e.id, sizeof(e.id));
	if (scene_read(r, &e, args, &x->w, &code, err) < 0) {
		watcher_unref(x); /* nobody else knows it */
		return envd_gone(r, &e) ? 0 : rpc_refuse(r, code, "%s", err->msg);
	}
	if (watcher_add(x, err) < 0)
		return rpc_failed(r, &e, err);
	return req_reply_json(r, 200, json_pack("{ss}", "watcherId", name));
}

/* with the lock held; NULL: none */
static struct watcher *watcher_find(const char *box, const json_t *args)
{
	const char *name = json_string_value(json_object_get(args, "watcherId"));

	list_for_each(l, &watchers) {
		struct watcher *x = CONTAINER_OF(l, struct watcher, link);

		if (name && !strcmp(x->name, name) && !strcmp(x->box, box))
			return x;
	}
	return NULL;
}

static int say_missing(struct req *r, const json_t *args)
{
	const char *name = json_string_value(json_object_get(args, "watcherId"));

	return rpc_refuse(r, CONNECT_NOT_FOUND, "watcher with id %.64s not found", name ? name : "");
}

int watcher_events(struct req *r, struct den_err *err)
{
	auto_envd e = { 0 };
	auto_json *args = NULL;
	struct json j = { 0 };
	struct watcher *x;
	int got = rpc_enter(r, &e, &args, err);

	if (got)
		return got < 0 ? -1 : 0;
	json_open(&j, NULL, '{');
	json_open(&j, "events", '[');
	pthread_mutex_lock(&lock);
	x = watcher_find(e.id, args);
	if (x)
		x->asked = clock_mono_ns();
	while (x && x->n) {
		json_raw(&j, NULL, x->queue[x->first]);
		watcher_drop_oldest(x);
	}
	pthread_mutex_unlock(&lock);
	json_close(&j, ']');
	json_close(&j, '}');
	if (x)
		return rpc_reply(r, &j);
	buf_free(&j.b);
	return say_missing(r, args);
}

int watcher_remove(struct req *r, struct den_err *err)
{
	auto_envd e = { 0 };
	auto_json *args = NULL;
	struct watcher *x;
	int got = rpc_enter(r, &e, &args, err);

	if (got)
		return got < 0 ? -1 : 0;
	pthread_mutex_lock(&lock);
	x = watcher_find(e.id, args);
	if (x)
		watcher_unlist(x);
	pthread_mutex_unlock(&lock);
	return x ? rpc_reply_empty(r) : say_missing(r, args);
}
