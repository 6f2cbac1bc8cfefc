#include "keys.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include "clock.h"
#include "db.h"
#include "mem.h"
#include "sha256.h"

static const char *const steps[] = {
	"CREATE TABLE keys (id TEXT PRIMARY KEY, hash BLOB NOT NULL UNIQUE, org TEXT NOT NULL, name TEXT NOT NULL,"
	" scopes INTEGER NOT NULL, boxes INTEGER NOT NULL, cpu_milli INTEGER NOT NULL, memory INTEGER NOT NULL,"
	" disk INTEGER NOT NULL, rate INTEGER NOT NULL, created_ms INTEGER NOT NULL, revoked_ms INTEGER NOT NULL)"
	" WITHOUT ROWID;"
	"CREATE INDEX keys_org ON keys (org);",
};

static const struct {
	const char *name;
	uint32_t bit;
} scope_names[] = {
	{ "boxes", SCOPE_BOXES },
	{ "read", SCOPE_READ },
	{ "secrets", SCOPE_SECRETS },
	{ "templates", SCOPE_TEMPLATES },
	{ "admin", SCOPE_ADMIN },
};

uint32_t key_scope_parse(const char *name)
{
	for (size_t i = 0; i < ARRAY_SIZE(scope_names); i++)
		if (!strcmp(name, scope_names[i].name))
			return scope_names[i].bit;
	return 0;
}

void key_scope_each(uint32_t scopes, void (*fn)(const char *name, void *user), void *user)
{
	for (size_t i = 0; i < ARRAY_SIZE(scope_names); i++)
		if (scopes & scope_names[i].bit)
			fn(scope_names[i].name, user);
}

int key_org_check(const char *org, struct den_err *err)
{
	size_t n = strlen(org);

	if (n && n <= 32 && strspn(org, "abcdefghijklmnopqrstuvwxyz0123456789-") == n && org[0] >= 'a' && org[0] <= 'z')
		return 0;
	return den_fail(err, DEN_INVALID, 0,
		"an organisation is named with a-z, 0-9 and -, beginning with a letter, at most 32; '%.40s' is not", org);
}

bool key_hash(const char *text, uint8_t ret[static 32])
{
	struct sha256 s;

	if ((strncmp(text, "den_", 4) && strncmp(text, "e2b_", 4)) || strlen(text) != KEY_TEXT - 1 ||
		strspn(text + 4, "0123456789abcdef") != 40)
		return false;
	sha256_init(&s);
	sha256_add(&s, text + 4, 40);
	sha256_end(&s, ret);
	return true;
}

static void hex(char *out, const uint8_t *p, size_t n)
{
	for (size_t i = 0; i < n; i++)
		snprintf(out + 2 * i, 3, "%02x", p[i]);
}

int keys_start(struct den_err *err)
{
	return db_migrate("keys", steps, ARRAY_SIZE(steps), err);
}

static int check_name(const char *name, struct den_err *err)
{
	if (strlen(name) > 64)
		return den_fail(err, DEN_INVALID, 0, "a key's name has at most 64 bytes");
	for (; *name; name++)
		if ((unsigned char)*name < 0x20 || *name == 0x7f)
			return den_fail(err, DEN_INVALID, 0, "a key's name has no control characters");
	return 0;
}

int keys_create(const char *org, const char *name, uint32_t scopes, const struct quota *q, char ret_text[static KEY_TEXT],
	struct key_info *ret, struct den_err *err)
{
	struct key_info k = { .created_ms = clock_wall_ms() };
	uint8_t secret[20], id[8], hash[32];
	char text[KEY_TEXT] = "e2b_";

	org = org ? org : "default";
	name = name ? name : "";
	if (key_org_check(org, err) < 0 || check_name(name, err) < 0)
		return -1;
	if (getrandom(secret, sizeof(secret), 0) != sizeof(secret) || getrandom(id, sizeof(id), 0) != sizeof(id))
		return den_fail_sys(err, errno, "getrandom");
	hex(text + 4, secret, sizeof(secret));
	hex(k.who.key, id, sizeof(id));
	snprintf(k.who.org, sizeof(k.who.org), "%s", org);
	snprintf(k.who.name, sizeof(k.who.name), "%s", name);
	k.who.scopes = scopes ? scopes : SCOPE_DEFAULT;
	k.who.admin = k.who.scopes & SCOPE_ADMIN;
	if (q)
		k.who.quota = *q;
	(void)key_hash(text, hash);
	if (db_run(err, NULL, "INSERT INTO keys VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 0)", "sbssiiiiiii", k.who.key, hash,
		sizeof(hash), org, name, (int64_t)k.who.scopes, (int64_t)k.who.quota.boxes,
		(int64_t)k.who.quota.cpu_milli, (int64_t)k.who.quota.memory, (int64_t)k.who.quota.disk,
		(int64_t)k.who.quota.rate, k.created_ms) < 0)
		return -1;
	memcpy(ret_text, text, sizeof(text));
	explicit_bzero(text, sizeof(text));
	explicit_bzero(secret, sizeof(secret));
	if (ret)
		*ret = k;
	return 0;
}

#define KEY_COLUMNS "id, org, name, scopes, boxes, cpu_milli, memory, disk, rate, created_ms, revoked_ms"

static struct key_info key_read(struct db_row *row)
{
	struct key_info k = { .created_ms = db_int(row, 9), .revoked_ms = db_int(row, 10) };

	snprintf(k.who.key, sizeof(k.who.key), "%s", db_text(row, 0));
	snprintf(k.who.org, sizeof(k.who.org), "%s", db_text(row, 1));
	snprintf(k.who.name, sizeof(k.who.name), "%s", db_text(row, 2));
	k.who.scopes = (uint32_t)db_int(row, 3);
	k.who.admin = k.who.scopes & SCOPE_ADMIN;
	k.who.quota = (struct quota){ (uint64_t)db_int(row, 4), (uint64_t)db_int(row, 5), (uint64_t)db_int(row, 6),
		(uint64_t)db_int(row, 7), (uint64_t)db_int(row, 8) };
	return k;
}

struct key_list {
	struct key_info *k;
	size_t n;
};

static int key_add(struct db_row *row, void *user)
{
	struct key_list *l = user;

	l->k = mem_realloc(l->k, (l->n + 1) * sizeof(*l->k));
	l->k[l->n++] = key_read(row);
	return 0;
}

int keys_list(const char *org, struct key_info **ret, size_t *n, struct den_err *err)
{
	struct key_list l = { 0 };
	int64_t r;

	if (org)
		r = db_each(err, key_add, &l,
			"SELECT " KEY_COLUMNS " FROM keys WHERE org = ? ORDER BY created_ms, id", "s", org);
	else
		r = db_each(err, key_add, &l, "SELECT " KEY_COLUMNS " FROM keys ORDER BY created_ms, id", "");
	if (r < 0) {
		free(l.k);
		return -1;
	}
	*ret = l.k;
	*n = l.n;
	return 0;
}

int keys_revoke(const char *org, const char *id, struct den_err *err)
{
	int64_t now = clock_wall_ms(), n = 0;

	if (db_run(err, &n, "UPDATE keys SET revoked_ms = ? WHERE id = ? AND revoked_ms = 0 AND org = coalesce(?, org)",
		"iss", now, id, org) < 0)
		return -1;
	return n ? 0 : den_fail(err, DEN_NOT_FOUND, 0, "no key '%.40s' that works; 'den key ls' lists them", id);
}

static int key_one(struct db_row *row, void *user)
{
	*(struct key_info *)user = key_read(row);
	return 1;
}

int keys_find(const uint8_t hash[static 32], struct key_info *ret, struct den_err *err)
{
	int64_t r = db_each(err, key_one, ret, "SELECT " KEY_COLUMNS " FROM keys WHERE hash = ?", "b", hash, (size_t)32);

	return r < 0 ? -1 : r ? 0 : den_fail(err, DEN_NOT_FOUND, 0, "no such key");
}

int keys_by_id(const char *id, struct key_info *ret, struct den_err *err)
{
	int64_t r = db_each(err, key_one, ret, "SELECT " KEY_COLUMNS " FROM keys WHERE id = ?", "s", id);

	return r < 0 ? -1 : r ? 0 : den_fail(err, DEN_NOT_FOUND, 0, "no such key");
}

static int row_there(struct db_row *row, void *user)
{
	(void)row;
	(void)user;
	return 1;
}

int keys_first(char ret_text[static KEY_TEXT], struct den_err *err)
{
	int64_t n = db_each(err, row_there, NULL, "SELECT 1 FROM keys LIMIT 1", "");

	ret_text[0] = '\0';
	if (n)
		return n < 0 ? -1 : 0;
	return keys_create("default", "first", SCOPE_DEFAULT | SCOPE_ADMIN, NULL, ret_text, NULL, err);
}
