#include "warm.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "clock.h"
#include "e2b_parts.h"
#include "log.h"
#include "mem.h"
#include "parse.h"

#define QUIET_MS 300 /* nobody made a box for so long */
#define PATIENCE_MS 2000 /* where somebody always does, one is made so often all the same */
#define RECOUNT_MS 30000 /* some may have gone by themselves */
#define RETRY_MS 5000 /* what could not be made */
#define SHAPES 4 /* of a template, that are told apart */
#define READY_MAX 1000

/* What is asked for, as far as it decides how a box is built. Texts are its own. */
struct form {
	struct den_box_spec spec;
	double weight; /* how often it was asked for of late; 0: free */
};

struct warm {
	char *template_name;
	uint64_t want, ready;
	struct form forms[SHAPES];
	int64_t counted_ns; /* 0: it has to be counted */
	int64_t retry_ns;
	bool told;
};

static struct warm warms[WARM_MAX];
static size_t n_warms;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t woken = PTHREAD_COND_INITIALIZER;
static unsigned making; /* requests that make a box now */
static int64_t last_made; /* when one was last made for somebody */
static bool stopping, running;
static pthread_t thread;

int warm_parse(const char *text, struct warm_setting *ret, struct den_err *err)
{
	const char *eq = strrchr(text, '=');

	if (!eq || eq == text)
		return den_fail(
			err, DEN_INVALID, 0, "'%.60s' is not TEMPLATE=N, like base=4", text);
	ret->name = text;
	return parse_u64(eq + 1, 0, READY_MAX, &ret->n, err);
}

void warm_set(const struct warm_setting *all, size_t n)
{
	for (size_t i = 0; i < n && n_warms < WARM_MAX; i++)
		warms[n_warms++] = (struct warm){ .want = all[i].n,
			.template_name = strndup(
				all[i].name, (size_t)(strrchr(all[i].name, '=') - all[i].name)) };
}

/* ---- what is asked for ---- */

static bool same_text(const char *a, const char *b)
{
	return !strcmp(a ? a : "", b ? b : "");
}

static bool form_is(const struct form *f, const struct den_box_spec *s)
{
	const struct den_box_spec *a = &f->spec;

	return f->weight > 0 && same_text(a->wall, s->wall) && same_text(a->net, s->net) &&
	       same_text(a->hostname, s->hostname) && same_text(a->history, s->history) &&
	       same_text(a->policy, s->policy) && a->cpu_milli == s->cpu_milli &&
	       a->memory == s->memory && a->pids == s->pids && a->disk == s->disk && a->reseed == s->reseed;
}

static void form_free(struct form *f)
{
	const char *const texts[] = { f->spec.wall, f->spec.net, f->spec.hostname, f->spec.history,
		f->spec.policy };

	for (size_t i = 0; i < ARRAY_SIZE(texts); i++)
		free((char *)texts[i]);
	*f = (struct form){ 0 };
}

static char *copy(const char *s)
{
	return s ? mem_strdup(s) : NULL;
}

static void form_set(struct form *f, const char *template_name, const struct den_box_spec *s)
{
	form_free(f);
	f->weight = 1;
	f->spec = (struct den_box_spec){ .size = sizeof(f->spec),
		.template_name = template_name,
		.wall = copy(s->wall),
		.net = copy(s->net),
		.hostname = copy(s->hostname),
		.history = copy(s->history),
		.policy = copy(s->policy),
		.cpu_milli = s->cpu_milli,
		.memory = s->memory,
		.pids = s->pids,
		.disk = s->disk,
		.reseed = s->reseed };
}

/* What is asked for most of late weighs most. */
static void form_asked(struct warm *w, const struct den_box_spec *s)
{
	struct form *least = &w->forms[0], *found = NULL;

	for (size_t i = 0; i < SHAPES; i++) {
		struct form *f = &w->forms[i];

		if (form_is(f, s))
			found = f;
		f->weight *= 0.9;
		if (f->weight < least->weight)
			least = f;
	}
	if (found)
		found->weight += 1;
	else
		form_set(least, w->template_name, s);
}

static struct form *form_most(struct warm *w)
{
	struct form *most = &w->forms[0];

	for (size_t i = 1; i < SHAPES; i++)
		if (w->forms[i].weight > most->weight)
			most = &w->forms[i];
	return most->weight > 0 ? most : NULL;
}

/* Ports, folders, a name that is the host name: no two boxes are asked for like that. */
static bool one_of_many(const struct den_box_spec *s)
{
	return !s->ephemeral && !s->n_mounts && !s->publish && !s->policy_name && !s->hostname &&
	       !s->name;
}

void warm_asked(const struct den_box_spec *s)
{
	pthread_mutex_lock(&lock);
	making++;
	for (size_t i = 0; i < n_warms; i++) {
		if (!same_text(warms[i].template_name, s->template_name))
			continue;
		if (one_of_many(s))
			form_asked(&warms[i], s);
		warms[i].counted_ns = 0;
	}
	pthread_mutex_unlock(&lock);
}

void warm_done(void)
{
	pthread_mutex_lock(&lock);
	making--;
	last_made = clock_mono_ns();
	pthread_mutex_unlock(&lock);
}

/* ---- the thread ---- */

/* With the lock. */
static void nap(int64_t ms)
{
	struct timespec t;

	clock_gettime(CLOCK_REALTIME, &t);
	t.tv_sec += ms / 1000;
	t.tv_nsec += ms % 1000 * 1000000;
	if (t.tv_nsec >= 1000000000) {
		t.tv_nsec -= 1000000000;
		t.tv_sec++;
	}
	if (!stopping)
		pthread_cond_timedwait(&woken, &lock, &t);
}

/* With the lock; until nobody makes one. */
static void await_quiet(void)
{
	int64_t until = clock_mono_ns() + PATIENCE_MS * NS_PER_MS;

	for (;;) {
		int64_t now = clock_mono_ns();

		if (stopping || now >= until ||
			(!making && now - last_made >= QUIET_MS * NS_PER_MS))
			return;
		nap(50);
	}
}

/* A copy that stays what it is while the lock is let go. */
static bool form_take(struct warm *w, struct form *ret)
{
	struct form *f = form_most(w);

	*ret = (struct form){ 0 };
	if (!f)
		return false;
	form_set(ret, w->template_name, &f->spec);
	return true;
}

/* No box can be ready for it (its policy grants secrets, say): what others ask for comes next. */
static void form_forget(struct warm *w, const struct form *gone)
{
	for (size_t i = 0; i < SHAPES; i++)
		if (form_is(&w->forms[i], &gone->spec))
			form_free(&w->forms[i]);
}

static int count(struct den *d, const struct form *f, uint64_t *ret, struct den_err *err)
{
	struct den_box_info *all;
	size_t n;

	if (den_ready_list(d, &f->spec, &all, &n, err) < 0)
		return -1;
	den_box_infos_free(all, n);
	*ret = n;
	return 0;
}

/* Of the template, but of a shape that is not asked for now: one of them makes room for one that is. */
static void drop_other(struct den *d, struct warm *w, const struct form *f)
{
	struct den_box_info *all, *like;
	size_t n, n_like, of = 0;
	struct den_err err;

	if (den_ready_list(d, NULL, &all, &n, &err) < 0)
		return;
	if (den_ready_list(d, &f->spec, &like, &n_like, &err) < 0) {
		den_box_infos_free(all, n);
		return;
	}
	for (size_t i = 0; i < n; i++)
		of += !strcmp(all[i].template_name, w->template_name);
	for (size_t i = 0; i < n && of > w->want; i++) {
		bool wanted = strcmp(all[i].template_name, w->template_name);

		for (size_t k = 0; k < n_like; k++)
			wanted |= !strcmp(all[i].id, like[k].id);
		if (wanted)
			continue;
		(void)den_ready_drop(d, all[i].id, &err);
		of--;
	}
	den_box_infos_free(like, n_like);
	den_box_infos_free(all, n);
}

static void failed(struct warm *w, const struct den_err *err)
{
	w->retry_ns = clock_mono_ns() + RETRY_MS * NS_PER_MS;
	if (!w->told)
		log_line("info", "warm", "%s: %s; trying again", w->template_name, err->msg);
	w->told = true;
}

/* With the lock, which is let go for the work. true: there may be more to do at once */
static bool step(struct den *d, struct warm *w)
{
	int64_t now = clock_mono_ns();
	bool recount = !w->counted_ns || now - w->counted_ns > RECOUNT_MS * NS_PER_MS, last;
	uint64_t have = w->ready;
	struct den_err err;
	struct form f;
	int r = 0;

	if (now < w->retry_ns || (!recount && have >= w->want) || !form_take(w, &f))
		return false;
	await_quiet();
	if (stopping) {
		form_free(&f);
		return false;
	}
	w->counted_ns = now;
	pthread_mutex_unlock(&lock);
	if (recount)
		r = count(d, &f, &have, &err);
	if (r == 0 && have < w->want) {
		r = den_ready_make(d, &f.spec, &err);
		have += r == 0;
	}
	last = r == 0 && have >= w->want;
	if (last && recount)
		drop_other(d, w, &f);
	pthread_mutex_lock(&lock);
	if (r < 0) {
		if (err.code == DEN_UNSUPPORTED)
			form_forget(w, &f);
		failed(w, &err);
	} else {
		w->ready = have;
		w->told = false;
	}
	form_free(&f);
	return r == 0 && !last;
}

static void *run(void *unused)
{
	struct den_err err;
	struct den *d;

	(void)unused;
	if (serve_den(&d, &err) < 0) {
		log_line("warn", "warm", "no boxes are kept ready: %s", err.msg);
		return NULL;
	}
	pthread_mutex_lock(&lock);
	while (!stopping) {
		bool more = false;

		for (size_t i = 0; i < n_warms && !stopping; i++)
			more |= step(d, &warms[i]);
		if (!more)
			nap(250);
	}
	pthread_mutex_unlock(&lock);
	den_close(d);
	return NULL;
}

/* Before anybody has asked: what E2B's clients ask for. */
static int start(struct den_err *err)
{
	for (size_t i = 0; i < n_warms; i++) {
		auto_free char *policy = NULL;
		struct den_box_spec s;

		if (e2b_default_spec(warms[i].template_name, &s, &policy, err) < 0)
			return -1;
		form_asked(&warms[i], &s);
	}
	if (!n_warms)
		return 0;
	if (pthread_create(&thread, NULL, run, NULL))
		return den_fail(err, DEN_INTERNAL, 0, "start a thread");
	running = true;
	return 0;
}

static void stop(void)
{
	pthread_mutex_lock(&lock);
	stopping = true;
	pthread_cond_signal(&woken);
	pthread_mutex_unlock(&lock);
	if (running)
		pthread_join(thread, NULL);
}

void warm_gauges(struct buf *b)
{
	if (!n_warms)
		return;
	buf_addstr(b, "# HELP den_ready_boxes Boxes that are ready, when they were last counted.\n"
		      "# TYPE den_ready_boxes gauge\n");
	pthread_mutex_lock(&lock);
	for (size_t i = 0; i < n_warms; i++)
		buf_addf(b, "den_ready_boxes{template=\"%s\"} %llu\n", warms[i].template_name,
			(unsigned long long)warms[i].ready);
	pthread_mutex_unlock(&lock);
}

const struct serve_part warm_part = { "warm", start, stop };
