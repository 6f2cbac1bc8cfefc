#include "idempotency.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "auth.h"
#include "boxes.h"
#include "clock.h"
#include "db.h"
#include "labels.h"
#include "mem.h"
#include "sha256.h"
#include "strv.h"

#define KEY_MAX 255
#define DAY_MS 86400000LL
#define SWEEP_EACH 256 /* keys */
#define AT_WORK 64 /* creates with a key at the same time; more wait */

static const char *const steps[] = {
	"CREATE TABLE idempotency (key TEXT PRIMARY KEY, body TEXT NOT NULL, box TEXT, at INTEGER "
	"NOT NULL) WITHOUT ROWID",
	"CREATE INDEX idempotency_at ON idempotency (at)",
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t let_go = PTHREAD_COND_INITIALIZER;
static char at_work[AT_WORK][65];
static _Atomic unsigned since_sweep;

int v1_idem_start(struct den_err *err)
{
	if (db_migrate("v1", steps, ARRAY_SIZE(steps), err) < 0)
		return -1;
	v1_idem_sweep();
	return 0;
}

void v1_idem_sweep(void)
{
	struct den_err err;

	(void)db_run(&err, NULL, "DELETE FROM idempotency WHERE at < ?", "i",
		(int64_t)(clock_wall_ms() - DAY_MS));
}

static void key_take(const char *key)
{
	pthread_mutex_lock(&lock);
	for (;;) {
		int free_slot = -1;
		bool taken = false;

		for (int i = 0; i < AT_WORK; i++) {
			if (!at_work[i][0])
				free_slot = i;
			else if (!strcmp(at_work[i], key))
				taken = true;
		}
		if (!taken && free_slot >= 0) {
			memcpy(at_work[free_slot], key, sizeof(at_work[0]));
			break;
		}
		pthread_cond_wait(&let_go, &lock);
	}
	pthread_mutex_unlock(&lock);
}

static void key_give(const char *key)
{
	pthread_mutex_lock(&lock);
	for (int i = 0; i < AT_WORK; i++)
		if (!strcmp(at_work[i], key))
			at_work[i][0] = '\0';
	pthread_cond_broadcast(&let_go);
	pthread_mutex_unlock(&lock);
}

void v1_idem_end(struct idem *i)
{
	struct den_err err;

	if (!i->active)
		return;
	if (!i->done)
		(void)db_run(&err, NULL, "DELETE FROM idempotency WHERE key = ? AND box IS NULL",
			"s", i->key);
	key_give(i->key);
	i->active = false;
}

static int hashes(
	struct req *r, const char *key, const json_t *body, struct idem *i, struct den_err *err)
{
	auto_free char *text = json_dumps(body, JSON_COMPACT | JSON_SORT_KEYS);
	const char *org = req_who(r)->org;
	struct sha256 s;

	if (!*key || strlen(key) > KEY_MAX)
		return den_fail(
			err, DEN_INVALID, 0, "Idempotency-Key: 1 to %d characters", KEY_MAX);
	sha256_init(&s);
	sha256_add(&s, org, strlen(org) + 1);
	sha256_add(&s, key, strlen(key));
	sha256_hex(&s, i->key);
	sha256_init(&s);
	sha256_add(&s, text ? text : "", text ? strlen(text) : 0);
	sha256_hex(&s, i->body);
	return 0;
}

struct found {
	char body[65], box[32];
};

static int row_take(struct db_row *row, void *user)
{
	struct found *f = user;

	snprintf(f->body, sizeof(f->body), "%s", db_text(row, 0));
	snprintf(f->box, sizeof(f->box), "%s", db_null(row, 1) ? "" : db_text(row, 1));
	return 0;
}

/* The box that was made before a crash took the news of it. *ret[0] '\0': there is none */
static int by_label(struct req *r, const struct idem *i, char ret[static 32], struct den_err *err)
{
	struct den_box_info *infos;
	char label[100];
	size_t n;

	snprintf(label, sizeof(label), "%s=%s", LABEL_IDEMPOTENCY, i->key);
	if (boxes_list(r, &infos, &n, err) < 0)
		return -1;
	for (size_t k = 0; k < n; k++)
		for (const char *const *l = infos[k].labels; l && *l; l++)
			if (!strcmp(*l, label))
				snprintf(ret, 32, "%s", infos[k].id);
	den_box_infos_free(infos, n);
	return 0;
}

static int again(
	struct req *r, struct idem *i, struct found *f, struct den_box **box, struct den_err *err)
{
	if (strcmp(f->body, i->body))
		return den_fail(err, DEN_CONFLICT, 0,
			"this Idempotency-Key was used with another body: use a new key for a new "
			"request");
	if (!f->box[0] && by_label(r, i, f->box, err) < 0)
		return -1;
	if (!f->box[0])
		return 0;
	if (boxes_open(r, f->box, box, err) < 0) {
		if (err->code == DEN_NOT_FOUND)
			return den_fail(err, DEN_CONFLICT, 0,
				"the box that this Idempotency-Key made is gone (%s): use a new "
				"key for a new box",
				f->box);
		return -1;
	}
	return v1_idem_done(i, f->box, err) < 0 ? -1 : 1;
}

int v1_idem_begin(struct req *r, const json_t *body, struct idem *i, struct den_box **box,
	struct den_err *err)
{
	const char *key = req_header(r, "Idempotency-Key");
	struct found f = { 0 };
	int res = 0;

	if (!key)
		return 0;
	if (hashes(r, key, body, i, err) < 0)
		return -1;
	key_take(i->key);
	i->active = true;
	if (db_each(err, row_take, &f, "SELECT body, box FROM idempotency WHERE key = ?", "s",
		    i->key) < 0)
		return -1;
	if (f.body[0]) {
		res = again(r, i, &f, box, err);
		i->done = i->done || res < 0; /* the row stays: it is not ours */
		return res;
	}
	if (++since_sweep % SWEEP_EACH == 0)
		v1_idem_sweep();
	return db_run(err, NULL,
		"INSERT INTO idempotency (key, body, box, at) VALUES (?, ?, NULL, ?)", "ssi",
		i->key, i->body, clock_wall_ms());
}

void v1_idem_label(const struct idem *i, char ***labels)
{
	char label[100];

	if (!i->active)
		return;
	snprintf(label, sizeof(label), "%s=%s", LABEL_IDEMPOTENCY, i->key);
	strv_add(labels, label);
}

int v1_idem_done(struct idem *i, const char *box_id, struct den_err *err)
{
	if (!i->active)
		return 0;
	i->done = true;
	return db_run(
		err, NULL, "UPDATE idempotency SET box = ? WHERE key = ?", "ss", box_id, i->key);
}
