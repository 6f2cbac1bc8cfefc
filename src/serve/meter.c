/*
 * Theory of operation: one thread with a libden handle of its own goes round all running boxes, at most every 5
 * seconds and at most 40 boxes a second (so a thousand boxes are looked at every 25 seconds: what is measured are
 * counters, so a longer step loses nothing of CPU time). What a box used since the last look is kept in
 * memory and added to serve.db every 30 seconds, or when somebody wants to know, by hour and box, in one transaction.
 *
 * The kernel counts a box's CPU time from its start. `meter_mark` has how much of it was written, so that a
 * server that comes back counts what was used while it was away, once.
 */
#include "meter.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "boxes.h"
#include "clock.h"
#include "db.h"
#include "den.h"
#include "events.h"
#include "log.h"
#include "mem.h"
#include "serve.h"
#include "strv.h"

#define ROUND_NS (5 * NS_PER_SEC)
#define FLUSH_NS (30 * NS_PER_SEC)
#define BETWEEN_NS (25 * NS_PER_MS)
#define STEP_MAX_MS 60000 /* a longer gap was a machine asleep, or a box that was paused */
#define HOUR_MS 3600000LL
#define SLOTS 4096

struct metered {
	struct metered *next;
	char id[32], org[33], key[33];
	int64_t started_ms, at_ms; /* of the box; of the last look, 0: none in this run of it */
	uint64_t cpu_usec; /* counted so far, of this run */
	uint64_t round; /* last seen in */
	bool known; /* owner and mark were read */
	/* not yet written */
	uint64_t add_cpu_usec, add_wall_ms, add_in, add_out;
	double add_mem, add_disk; /* MiB seconds */
	uint64_t net_in, net_out;
	struct meter_sample ring[METER_KEEP];
	unsigned n, head;
};

static struct {
	pthread_mutex_t lock; /* the table; never held in libden or SQLite */
	struct metered *slots[SLOTS];
	pthread_t thread;
	pthread_cond_t wake;
	bool running, stop;
	/* Looking, writing, forgetting: one at a time. Two looks at once would take the older for a box that was started
	 * again. Taken before lock. */
	pthread_mutex_t work;
} meter = { .lock = PTHREAD_MUTEX_INITIALIZER, .work = PTHREAD_MUTEX_INITIALIZER };

static const char usage_table[] =
	"CREATE TABLE usage (hour INTEGER, box TEXT, org TEXT, key TEXT, cpu_usec INTEGER NOT NULL, "
	"wall_ms INTEGER NOT NULL, memory_mib_ms INTEGER NOT NULL, disk_mib_ms INTEGER NOT NULL, "
	"net_in INTEGER NOT NULL, net_out INTEGER NOT NULL, PRIMARY KEY (hour, box)) WITHOUT ROWID";
static const char mark_table[] =
	"CREATE TABLE meter_mark (box TEXT PRIMARY KEY, started_ms INTEGER NOT NULL, "
	"cpu_usec INTEGER NOT NULL) WITHOUT ROWID";
static const char *const steps[] = {
	usage_table,
	"CREATE INDEX usage_org ON usage (org, hour)",
	mark_table,
};

static struct metered **slot(const char *id)
{
	uint32_t h = 2166136261U;

	for (const char *p = id; *p; p++)
		h = (h ^ (uint8_t)*p) * 16777619U;
	return &meter.slots[h % SLOTS];
}

static struct metered *find(const char *id, bool make)
{
	struct metered **at = slot(id), *m;

	for (m = *at; m; m = m->next)
		if (!strcmp(m->id, id))
			return m;
	if (!make || strlen(id) >= sizeof(m->id))
		return NULL;
	m = mem_new(struct metered);
	snprintf(m->id, sizeof(m->id), "%s", id);
	m->next = *at;
	*at = m;
	return m;
}

/* ---- what others ask ---- */

int meter_last(const char *box_id, struct meter_sample *out, size_t max, size_t *n)
{
	struct metered *m;
	size_t have = 0;

	pthread_mutex_lock(&meter.lock);
	m = find(box_id, false);
	if (m) {
		have = MIN((size_t)m->n, max);
		for (size_t i = 0; i < have; i++)
			out[i] = m->ring[(m->head + METER_KEEP - have + i) % METER_KEEP];
	}
	pthread_mutex_unlock(&meter.lock);
	*n = have;
	return 0;
}

/* Bytes through the gate come as events, one at the end of each connection. */
static void on_event(const char *kind, const char *org, const char *box_id, const json_t *data)
{
	json_int_t in, out;
	struct metered *m;

	if (!box_id || strcmp(kind, "net.connection"))
		return;
	in = json_integer_value(json_object_get(data, "bytes_in"));
	out = json_integer_value(json_object_get(data, "bytes_out"));
	pthread_mutex_lock(&meter.lock);
	m = find(box_id, true);
	if (m && in >= 0 && out >= 0) {
		if (org && !m->org[0])
			snprintf(m->org, sizeof(m->org), "%s", org);
		m->net_in += (uint64_t)in;
		m->net_out += (uint64_t)out;
		m->add_in += (uint64_t)in;
		m->add_out += (uint64_t)out;
	}
	pthread_mutex_unlock(&meter.lock);
}

/* ---- looking ---- */

struct facts {
	struct den_stats stats;
	struct den_box_info *info; /* the first time */
	int64_t mark_started, mark_cpu;
	bool marked;
};

static int mark_take(struct db_row *row, void *user)
{
	struct facts *f = user;

	f->mark_started = db_int(row, 0);
	f->mark_cpu = db_int(row, 1);
	f->marked = true;
	return 1;
}

static void owner_take(struct metered *m, const struct facts *f)
{
	const char *owner = f->info->owner ? f->info->owner : "", *slash = strchr(owner, '/');

	m->known = true;
	snprintf(m->org, sizeof(m->org), "%.*s",
		slash ? (int)MIN((size_t)(slash - owner), (size_t)32) : 0, owner);
	snprintf(m->key, sizeof(m->key), "%s", slash ? slash + 1 : "");
	m->started_ms = f->info->started_ms;
	m->cpu_usec = f->marked && f->mark_started == m->started_ms ? (uint64_t)f->mark_cpu : 0;
}

static void count(struct metered *m, const struct facts *f, int64_t now)
{
	const struct den_stats *s = &f->stats;
	struct meter_sample *at = &m->ring[m->head];
	uint64_t step = m->at_ms ? (uint64_t)MIN(MAX(now - m->at_ms, 0), STEP_MAX_MS) : 0;
	uint64_t cpu = s->has & DEN_STAT_CPU ? s->cpu_usec : m->cpu_usec;
	/* it was started again: the kernel counts anew */
	uint64_t used = cpu >= m->cpu_usec ? cpu - m->cpu_usec : cpu;

	*at = (struct meter_sample){
		.time_ms = now,
		.cpu_usec = cpu,
		.cpu_permille = step ? (uint32_t)MIN(used / step, 1000000ULL) : 0,
		.memory = s->has & DEN_STAT_MEMORY ? s->memory : 0,
		.memory_limit = s->has & DEN_STAT_MEMORY_LIMIT ? s->memory_limit : 0,
		.disk = s->has & DEN_STAT_DISK ? s->disk : 0,
		.disk_limit = s->has & DEN_STAT_DISK_LIMIT ? s->disk_limit : 0,
		.net_in = m->net_in,
		.net_out = m->net_out,
	};
	m->head = (m->head + 1) % METER_KEEP;
	m->n = MIN(m->n + 1, (unsigned)METER_KEEP);
	m->add_cpu_usec += used;
	m->add_wall_ms += step;
	m->add_mem += (double)at->memory / 1048576 * (double)step / 1000;
	m->add_disk += (double)at->disk / 1048576 * (double)step / 1000;
	m->cpu_usec = cpu;
	m->at_ms = now;
}

static void look_at(struct den *d, const char *id, uint64_t round)
{
	struct facts f = { 0 };
	struct den_box *box = NULL;
	struct den_err err;
	struct metered *m;
	bool known;

	pthread_mutex_lock(&meter.lock);
	m = find(id, true);
	known = m && m->known;
	pthread_mutex_unlock(&meter.lock);
	if (!m || den_box_open(d, id, &box, &err) < 0)
		return;
	if (!known && den_box_info(box, &f.info, &err) == 0 &&
		db_each(&err, mark_take, &f,
			"SELECT started_ms, cpu_usec FROM meter_mark WHERE box = ?", "s", id) < 0)
		log_line("error", "meter", "%s", err.msg);
	if ((known || f.info) && den_box_stats(box, &f.stats, &err) == 0) {
		pthread_mutex_lock(&meter.lock);
		if (!m->known)
			owner_take(m, &f);
		count(m, &f, clock_wall_ms());
		m->round = MAX(m->round, round);
		pthread_mutex_unlock(&meter.lock);
	}
	if (f.info)
		den_box_infos_free(f.info, 1);
	den_box_close(box);
}

static void look(struct den *d, const char *id, uint64_t round)
{
	const char *state = boxes_state(id);

	if (!state || strcmp(state, "running"))
		return;
	pthread_mutex_lock(&meter.work);
	look_at(d, id, round);
	pthread_mutex_unlock(&meter.work);
}

/* ---- writing ---- */

static int row_write(const struct metered *m, struct den_err *err)
{
	int64_t hour = clock_wall_ms() / HOUR_MS * HOUR_MS;

	if (db_run(err, NULL,
		    "INSERT INTO usage (hour, box, org, key, cpu_usec, wall_ms, memory_mib_ms, "
		    "disk_mib_ms, net_in, net_out) "
		    "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (hour, box) DO UPDATE SET "
		    "cpu_usec = cpu_usec + excluded.cpu_usec, wall_ms = wall_ms + "
		    "excluded.wall_ms, "
		    "memory_mib_ms = memory_mib_ms + excluded.memory_mib_ms, disk_mib_ms = "
		    "disk_mib_ms + excluded.disk_mib_ms, "
		    "net_in = net_in + excluded.net_in, net_out = net_out + excluded.net_out",
		    "isssiiiiii", hour, m->id, m->org, m->key, (int64_t)m->add_cpu_usec,
		    (int64_t)m->add_wall_ms, (int64_t)(m->add_mem * 1000),
		    (int64_t)(m->add_disk * 1000), (int64_t)m->add_in, (int64_t)m->add_out) < 0)
		return -1;
	return db_run(err, NULL,
		"INSERT OR REPLACE INTO meter_mark (box, started_ms, cpu_usec) VALUES (?, ?, ?)",
		"sii", m->id, m->started_ms, (int64_t)m->cpu_usec);
}

static bool has_news(const struct metered *m)
{
	return m->add_cpu_usec || m->add_wall_ms || m->add_in || m->add_out;
}

/* Copies of what is to be written: SQLite may wait for the disk. */
static struct metered *news_take(size_t *n)
{
	struct metered *list = NULL;
	size_t count_of = 0, cap = 0;

	pthread_mutex_lock(&meter.lock);
	for (size_t i = 0; i < SLOTS; i++)
		for (struct metered *m = meter.slots[i]; m; m = m->next) {
			if (!has_news(m))
				continue;
			if (count_of == cap) {
				cap = cap ? cap * 2 : 16;
				list = mem_realloc(list, cap * sizeof(*list));
			}
			list[count_of++] = *m;
			m->add_cpu_usec = m->add_wall_ms = m->add_in = m->add_out = 0;
			m->add_mem = m->add_disk = 0;
		}
	pthread_mutex_unlock(&meter.lock);
	*n = count_of;
	return list;
}

/* It could not be written: the next time. */
static void news_give_back(const struct metered *list, size_t n)
{
	pthread_mutex_lock(&meter.lock);
	for (size_t i = 0; i < n; i++) {
		struct metered *m = find(list[i].id, false);

		if (!m)
			continue;
		m->add_cpu_usec += list[i].add_cpu_usec;
		m->add_wall_ms += list[i].add_wall_ms;
		m->add_in += list[i].add_in;
		m->add_out += list[i].add_out;
		m->add_mem += list[i].add_mem;
		m->add_disk += list[i].add_disk;
	}
	pthread_mutex_unlock(&meter.lock);
}

static void flush(void)
{
	struct den_err err;
	size_t n;
	auto_free struct metered *list = news_take(&n);
	bool ok = true;

	if (!n)
		return;
	if (db_begin(&err) < 0) {
		ok = false;
	} else {
		for (size_t i = 0; i < n && ok; i++)
			ok = row_write(&list[i], &err) == 0;
		ok = db_end(ok, &err) == 0 && ok;
	}
	if (!ok) {
		log_line("error", "meter", "usage is not written, and will be tried again: %s",
			err.msg);
		news_give_back(list, n);
	}
}

static void meter_flush(void)
{
	pthread_mutex_lock(&meter.work);
	flush();
	pthread_mutex_unlock(&meter.work);
}

void meter_fresh(struct den *d, const char *box_id)
{
	if (box_id)
		look(d, box_id, 0);
	meter_flush();
}

/* Those that do not run any more: what they used is written; they are forgotten after an hour. */
static void sweep(uint64_t round)
{
	pthread_mutex_lock(&meter.work);
	pthread_mutex_lock(&meter.lock);
	for (size_t i = 0; i < SLOTS; i++)
		for (struct metered **at = &meter.slots[i]; *at;) {
			struct metered *m = *at;

			if (m->round < round)
				m->at_ms = 0, m->known = false; /* read anew when it runs again */
			if (m->round + 720 < round && !has_news(m)) {
				*at = m->next;
				free(m);
			} else {
				at = &m->next;
			}
		}
	pthread_mutex_unlock(&meter.lock);
	pthread_mutex_unlock(&meter.work);
}

/* ---- the thread ---- */

static bool collect(const char *id, void *user)
{
	strv_add(user, id);
	return false; /* go on */
}

static bool nap(int64_t ns)
{
	struct timespec t;
	bool stop;

	clock_gettime(CLOCK_MONOTONIC, &t);
	t.tv_sec += ns / NS_PER_SEC;
	t.tv_nsec += ns % NS_PER_SEC;
	if (t.tv_nsec >= NS_PER_SEC) {
		t.tv_nsec -= NS_PER_SEC;
		t.tv_sec++;
	}
	pthread_mutex_lock(&meter.lock);
	while (!meter.stop && pthread_cond_timedwait(&meter.wake, &meter.lock, &t) != ETIMEDOUT)
		;
	stop = meter.stop;
	pthread_mutex_unlock(&meter.lock);
	return !stop;
}

static bool go_round(struct den *d, uint64_t round)
{
	auto_strv ids = NULL;
	char none[32];
	struct den_err err;

	(void)boxes_find(collect, &ids, none, &err);
	for (char **id = ids; id && *id; id++) {
		const char *state = boxes_state(*id);

		if (!state || strcmp(state, "running"))
			continue;
		look(d, *id, round);
		if (!nap(BETWEEN_NS))
			return false;
	}
	sweep(round);
	return true;
}

static void *meter_main(void *arg)
{
	struct den *d = arg;
	int64_t flushed = clock_mono_ns();

	pthread_setname_np(pthread_self(), "meter");
	for (uint64_t round = 1; nap(ROUND_NS); round++) {
		if (!go_round(d, round))
			break;
		if (clock_mono_ns() - flushed >= FLUSH_NS) {
			meter_flush();
			flushed = clock_mono_ns();
		}
	}
	meter_flush();
	den_close(d);
	return NULL;
}

int meter_start(struct den_err *err)
{
	pthread_condattr_t mono;
	struct den *d;
	int e;

	if (db_migrate("meter", steps, ARRAY_SIZE(steps), err) < 0 || serve_den(&d, err) < 0)
		return -1;
	events_hook(on_event);
	pthread_condattr_init(&mono);
	pthread_condattr_setclock(&mono, CLOCK_MONOTONIC);
	pthread_cond_init(&meter.wake, &mono);
	e = pthread_create(&meter.thread, NULL, meter_main, d);
	if (e) {
		den_close(d);
		return den_fail_sys(err, e, "meter: thread");
	}
	meter.running = true;
	return 0;
}

void meter_stop(void)
{
	if (!meter.running)
		return;
	pthread_mutex_lock(&meter.lock);
	meter.stop = true;
	pthread_cond_broadcast(&meter.wake);
	pthread_mutex_unlock(&meter.lock);
	pthread_join(meter.thread, NULL);
	meter.running = false;
}
