/* Which ports of a box are whose; proxy.c carries what goes through them. */
#include "ports.h"

#include <stdio.h>
#include <stdlib.h>

#include "boxes.h"
#include "buf.h"
#include "db.h"
#include "mem.h"
#include "serve.h"

static const char *const steps[] = {
	"CREATE TABLE ports (box TEXT NOT NULL, port INTEGER NOT NULL, public INTEGER NOT NULL, PRIMARY KEY (box, port))"
	" WITHOUT ROWID;",
};

int ports_start(struct den_err *err)
{
	return db_migrate("ports", steps, ARRAY_SIZE(steps), err);
}

int ports_set_public(const char *box_id, uint16_t port, bool public, struct den_err *err)
{
	return db_run(err, NULL, "INSERT INTO ports VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET public = excluded.public",
		"sii", box_id, (int64_t)port, (int64_t)public);
}

int ports_forget(const char *box_id, uint16_t port, struct den_err *err)
{
	if (port)
		return db_run(err, NULL, "DELETE FROM ports WHERE box = ? AND port = ?", "si", box_id, (int64_t)port);
	return db_run(err, NULL, "DELETE FROM ports WHERE box = ?", "s", box_id);
}

struct found {
	struct port_setting *p;
	size_t n;
};

static int setting_add(struct db_row *row, void *user)
{
	struct found *f = user;

	f->p = mem_realloc(f->p, (f->n + 1) * sizeof(*f->p));
	f->p[f->n++] = (struct port_setting){ (uint16_t)db_int(row, 0), db_int(row, 1) };
	return 0;
}

int ports_list(const char *box_id, struct port_setting **ret, size_t *n, struct den_err *err)
{
	struct found f = { 0 };

	if (db_each(err, setting_add, &f, "SELECT port, public FROM ports WHERE box = ? ORDER BY port", "s", box_id) < 0) {
		free(f.p);
		return -1;
	}
	*ret = f.p;
	*n = f.n;
	return 0;
}

static int public_read(struct db_row *row, void *user)
{
	*(bool *)user = db_int(row, 0);
	return 1;
}

bool ports_public(const char *box_id, uint16_t port)
{
	struct box_traffic t;
	struct den_err err;
	bool public = false;
	int64_t n;

	if (!boxes_traffic(box_id, &t))
		return false;
	n = db_each(&err, public_read, &public, "SELECT public FROM ports WHERE box = ? AND port = ?", "si", box_id,
		(int64_t)port);
	return n == 1 ? public : n == 0 && t.open;
}

char *ports_url(const char *box_id, uint16_t port)
{
	auto_buf b = { 0 };

	buf_addf(&b, "http%s://%u-%s.%s/", serve.tls ? "s" : "", port, box_id, serve.domain);
	return mem_strdup(buf_str(&b));
}
