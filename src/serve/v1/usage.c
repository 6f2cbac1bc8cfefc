/* /v1/usage: what was used, added up. meter.c writes the table. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "auth.h"
#include "boxes.h"
#include "db.h"
#include "den.h"
#include "handlers.h"
#include "mem.h"
#include "meter.h"
#include "serve.h"

#define SUMS                                                                                       \
	"SUM(cpu_usec), SUM(wall_ms), SUM(memory_mib_ms), SUM(disk_mib_ms), SUM(net_in), "         \
	"SUM(net_out), MIN(hour), "                                                                \
	"MAX(hour) FROM usage WHERE hour >= ? AND hour < ? AND (? IS NULL OR org = ?) AND (? IS "  \
	"NULL OR box = ?) "

/* SQL is always a literal (db.h); what the first columns are is the question's kind. */
static const struct {
	const char *by, *sql;
} kinds[] = {
	{ "box", "SELECT box, org, key, NULL, " SUMS "GROUP BY box ORDER BY MIN(hour), box" },
	{ "key", "SELECT NULL, org, key, NULL, " SUMS "GROUP BY org, key ORDER BY org, key" },
	{ "org", "SELECT NULL, org, NULL, NULL, " SUMS "GROUP BY org ORDER BY org" },
	{ "hour", "SELECT NULL, NULL, NULL, hour, " SUMS "GROUP BY hour ORDER BY hour" },
};

static json_t *real(int64_t thousandths)
{
	return json_real((double)thousandths / 1000);
}

static int row_take(struct db_row *row, void *user)
{
	struct price_use use = { .cpu_usec = db_int(row, 4), .memory_mib_ms = db_int(row, 6),
		.disk_mib_ms = db_int(row, 7), .net_in = db_int(row, 8), .net_out = db_int(row, 9) };
	json_t *o = json_object();

	json_object_set_new(o, "box", v1_text(db_text(row, 0)));
	json_object_set_new(o, "name", json_null());
	json_object_set_new(o, "org", v1_text(db_text(row, 1)));
	json_object_set_new(o, "key", v1_text(db_text(row, 2)));
	json_object_set_new(o, "cpu_ms", json_integer(db_int(row, 4) / 1000));
	json_object_set_new(o, "wall_ms", json_integer(db_int(row, 5)));
	json_object_set_new(o, "memory_mib_s", real(db_int(row, 6)));
	json_object_set_new(o, "disk_mib_s", real(db_int(row, 7)));
	json_object_set_new(o, "net_in", json_integer(db_int(row, 8)));
	json_object_set_new(o, "net_out", json_integer(db_int(row, 9)));
	json_object_set_new(o, "cost",
		serve.prices.given ? json_real(price_of(&serve.prices, &use)) : json_null());
	json_object_set_new(o, "from", v1_time(db_int(row, 10)));
	json_object_set_new(o, "to", v1_time(db_int(row, 11) + 3600000));
	json_array_append_new(user, o);
	return 0;
}

/* Names of those that still are. */
static int names_add(struct req *r, json_t *rows, struct den_err *err)
{
	struct den_box_info *infos;
	auto_json *names = json_object();
	json_t *o;
	size_t n, i;

	if (boxes_list(r, &infos, &n, err) < 0)
		return -1;
	for (size_t k = 0; k < n; k++) {
		const char *seen =
			infos[k].name ? auth_name_seen(req_who(r), infos[k].name, false) : NULL;

		if (infos[k].name)
			json_object_set_new(
				names, infos[k].id, v1_text(seen ? seen : infos[k].name));
	}
	den_box_infos_free(infos, n);
	json_array_foreach(rows, i, o)
	{
		const char *id = json_string_value(json_object_get(o, "box"));
		json_t *name = id ? json_object_get(names, id) : NULL;

		if (name)
			json_object_set(o, "name", name);
	}
	return 0;
}

/* What counts against the caller's quota of disk, now. */
static int disk_now(struct req *r, json_t **ret, struct den_err *err)
{
	const struct who *w = req_who(r);
	struct den_disk_use use;
	char owner[64];

	snprintf(owner, sizeof(owner), "%s/%s", w->org, w->key);
	if (den_disk_use(req_den(r), owner, &use, err) < 0)
		return -1;
	*ret = json_pack("{so sI sI sI}", "quota", v1_count(w->quota.disk), "boxes", (json_int_t)use.boxes, "images",
		(json_int_t)use.images, "templates", (json_int_t)use.templates);
	return 0;
}

int v1_usage(struct req *r, struct den_err *err)
{
	const char *by = req_query(r, "by"), *from = req_query(r, "from"), *to = req_query(r, "to"),
		   *org = req_who(r)->admin ? req_query(r, "org") : req_who(r)->org;
	int64_t a = 0, b = INT64_MAX;
	const char *box = req_query(r, "box");
	json_t *rows, *disk;
	char id[21];
	size_t k = 0;

	if (!QUERY(r, err, "box", "from", "to", "by", "org", ) ||
		(from && v1_time_parse(from, &a, err) < 0) ||
		(to && v1_time_parse(to, &b, err) < 0))
		return -1;
	if (!req_who(r)->admin && req_query(r, "org") && strcmp(req_query(r, "org"), org))
		return den_fail(err, DEN_DENIED, 0,
			"usage of another organisation is for keys with the scope 'admin'");
	while (by && k < ARRAY_SIZE(kinds) && strcmp(kinds[k].by, by))
		k++;
	if (k == ARRAY_SIZE(kinds))
		return den_fail(err, DEN_INVALID, 0, "by is box, key, org or hour");
	if (box && boxes_id(box, id))
		box = id;
	meter_fresh(req_den(r), box);
	rows = json_array();
	if (db_each(err, row_take, rows, kinds[k].sql, "iissss", a / 3600000 * 3600000, b, org, org,
		    box, box) < 0 ||
		(k == 0 && names_add(r, rows, err) < 0) || disk_now(r, &disk, err) < 0) {
		json_decref(rows);
		return -1;
	}
	return req_reply_json(r, 200, json_pack("{so so so so}", "usage", rows, "disk", disk, "prices",
					  prices_json(&serve.prices), "currency",
					  prices_currency(&serve.prices)));
}
