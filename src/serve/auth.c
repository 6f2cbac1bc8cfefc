#include "auth.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/random.h>
#include <unistd.h>

#include "auth_limit.h"
#include "buf.h"
#include "clock.h"
#include "db.h"
#include "fd.h"
#include "http.h"
#include "keys.h"
#include "mem.h"
#include "serve.h"
#include "sha256.h"

/*
 * Every request looks up a key, so what the database said is kept by hash for as long as the database's version
 * stays. A change by anybody, `den key revoke` in another process too, changes the version, and then the row is
 * read again before it is believed.
 */
#define CACHE_SETS 256
#define CACHE_WAYS 4
#define KNOWN_PEERS 4
#define PLAIN_COOKIE "den_session"
#define SECURE_COOKIE "__Host-den_session"

struct cached {
	uint8_t hash[32];
	int64_t version;
	struct key_info key;
	struct bucket rate;
	uint64_t peers[KNOWN_PEERS]; /* hashed addresses from which it came before */
	unsigned next_peer;
	uint64_t used;
	bool there;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct cached cache[CACHE_SETS][CACHE_WAYS];
static uint64_t uses;
static uint8_t secret[32];

static const char *const steps[] = {
	"CREATE TABLE sessions (hash BLOB PRIMARY KEY, key TEXT NOT NULL, expires_ms INTEGER NOT NULL) WITHOUT ROWID;",
};

/* ---- start ---- */

static int secret_make(struct den_err *err)
{
	if (getrandom(secret, sizeof(secret), 0) != sizeof(secret))
		return den_fail_sys(err, errno, "getrandom");
	return file_replace_at(AT_FDCWD, "secret", secret, sizeof(secret), 0600, err);
}

static int secret_load(struct den_err *err)
{
	auto_fd fd = open("secret", O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	ssize_t n;

	if (fd < 0 && errno == ENOENT)
		return secret_make(err);
	n = fd < 0 ? -1 : read(fd, secret, sizeof(secret));
	if (n == sizeof(secret))
		return 0;
	return den_fail_sys(err, n < 0 ? errno : EINVAL,
		"the server's secret (serve/secret; remove it and all tokens of boxes change)");
}

int auth_start(struct den_err *err)
{
	if (secret_load(err) < 0 || keys_start(err) < 0 || db_migrate("sessions", steps, ARRAY_SIZE(steps), err) < 0)
		return -1;
	return db_run(err, NULL, "DELETE FROM sessions WHERE expires_ms < ?", "i", clock_wall_ms());
}

/* ---- small things ---- */

bool auth_same(const char *a, const char *b)
{
	size_t n = a ? strlen(a) : 0;

	return n && b && strlen(b) == n && CRYPTO_memcmp(a, b, n) == 0;
}

void auth_box_token(const char *box_id, const char *what, char out[static 41])
{
	uint8_t mac[32];
	unsigned n = sizeof(mac);
	char text[96];
	int len = snprintf(text, sizeof(text), "%.40s/%.40s", what, box_id);

	HMAC(EVP_sha256(), secret, sizeof(secret), (const uint8_t *)text, (size_t)len, mac, &n);
	for (int i = 0; i < 20; i++)
		snprintf(out + 2 * i, 3, "%02x", mac[i]);
}

bool auth_scope(const struct who *w, const char *scope)
{
	uint32_t bit = scope ? key_scope_parse(scope) : 0;

	if (!scope || w->admin)
		return true;
	if (bit == SCOPE_READ)
		bit |= SCOPE_BOXES; /* who may use boxes may look at them */
	return w->scopes & bit;
}

/* Names beginning with "o." belong to organisations: nobody else may give or see one. */
int auth_name(const struct who *w, const char *name, char **ret, struct den_err *err)
{
	auto_buf b = { 0 };

	if (!name[0] || strlen(name) > 128 || !strncmp(name, "o.", 2))
		return den_fail(err, DEN_INVALID, 0, "'%.60s' cannot be a name here%s", name,
			name[0] == 'o' ? ": those that begin with 'o.' are taken" : "");
	if (strcmp(w->org, "default"))
		buf_addf(&b, "o.%s.", w->org);
	buf_addstr(&b, name);
	*ret = mem_strdup(buf_str(&b));
	return 0;
}

const char *auth_name_seen(const struct who *w, const char *stored, bool shared)
{
	size_t n = strlen(w->org);

	if (strncmp(stored, "o.", 2))
		return shared || !strcmp(w->org, "default") ? stored : NULL;
	if (!strncmp(stored + 2, w->org, n) && stored[2 + n] == '.')
		return stored + 3 + n;
	return w->admin ? stored : NULL;
}

/* ---- keys ---- */

/* Who has one IPv6 address has a network of them: they count as one. */
static uint64_t peer_hash(const char *peer)
{
	uint64_t h = 14695981039346656037U;
	size_t n = strlen(peer);
	struct in6_addr v6;

	if (inet_pton(AF_INET6, peer, &v6) == 1 && !IN6_IS_ADDR_V4MAPPED(&v6)) {
		peer = (const char *)v6.s6_addr;
		n = 8;
	}
	for (; n; n--, peer++)
		h = (h ^ (uint8_t)*peer) * 1099511628211U;
	return h | 1;
}

static struct cached *cache_find(const uint8_t hash[static 32])
{
	struct cached *set = cache[hash[0] % CACHE_SETS];

	for (int i = 0; i < CACHE_WAYS; i++)
		if (set[i].there && CRYPTO_memcmp(set[i].hash, hash, 32) == 0)
			return &set[i];
	return NULL;
}

static struct cached *cache_put(const uint8_t hash[static 32], const struct key_info *k, int64_t version)
{
	struct cached *set = cache[hash[0] % CACHE_SETS], *c = cache_find(hash);

	if (!c) {
		c = &set[0];
		for (int i = 1; i < CACHE_WAYS; i++)
			if (set[i].used < c->used)
				c = &set[i];
		*c = (struct cached){ .there = true };
		memcpy(c->hash, hash, 32);
	}
	c->key = *k;
	c->version = version;
	return c;
}

static bool peer_known(const struct cached *c, uint64_t peer)
{
	for (int i = 0; i < KNOWN_PEERS; i++)
		if (c->peers[i] == peer)
			return true;
	return false;
}

static int refuse_attempt(struct req *r, struct den_err *err)
{
	req_set(r, "Retry-After", "5");
	return den_fail(err, DEN_LIMIT, 0, "too many wrong keys from your address; wait a few seconds");
}

/* Counts the request against the key; the lock is held. */
static int spend(struct req *r, struct cached *c, struct den_err *err)
{
	uint64_t rate = c->key.who.quota.rate;
	unsigned wait;
	char text[16];

	if (!rate)
		return 0;
	wait = bucket_take(&c->rate, (double)rate / 60, (double)MAX(rate / 6, 1U), clock_mono_ns());
	if (!wait)
		return 0;
	snprintf(text, sizeof(text), "%u", wait);
	req_set(r, "Retry-After", text);
	return den_fail(err, DEN_LIMIT, 0, "this key may ask %llu times a minute; try again in %u s",
		(unsigned long long)rate, wait);
}

/* What the database says of the hash, from memory if nothing has changed since. */
static int lookup(const uint8_t hash[static 32], struct key_info *ret, struct den_err *err)
{
	int64_t version = db_version();
	struct cached *c;
	bool fresh;

	pthread_mutex_lock(&lock);
	c = cache_find(hash);
	fresh = c && c->version == version && version >= 0;
	if (fresh)
		*ret = c->key;
	pthread_mutex_unlock(&lock);
	if (fresh)
		return 0;
	if (keys_find(hash, ret, err) < 0)
		return -1;
	pthread_mutex_lock(&lock);
	cache_put(hash, ret, version);
	pthread_mutex_unlock(&lock);
	return 0;
}

static int check_key(struct req *r, const char *key, struct who *ret, struct den_err *err)
{
	uint64_t peer = peer_hash(req_peer(r));
	struct key_info k;
	struct cached *c;
	uint8_t hash[32];
	bool known;
	int res;

	if (!key_hash(key, hash))
		return limit_attempt(peer) ? refuse_attempt(r, err)
					   : den_fail(err, DEN_DENIED, 0, "that is no key: they are e2b_ and 40 hexadecimal digits");
	pthread_mutex_lock(&lock);
	c = cache_find(hash);
	known = c && peer_known(c, peer);
	pthread_mutex_unlock(&lock);
	/* Who has come with this key before is not locked out by a neighbour who guesses. */
	if (!known && limit_blocked(peer))
		return refuse_attempt(r, err);
	if (lookup(hash, &k, err) < 0) {
		if (err->code != DEN_NOT_FOUND)
			return -1;
		return limit_attempt(peer) ? refuse_attempt(r, err) : den_fail(err, DEN_DENIED, 0, "no such key");
	}
	if (k.revoked_ms)
		return den_fail(err, DEN_DENIED, 0, "this key was revoked");
	pthread_mutex_lock(&lock);
	c = cache_find(hash);
	res = c ? spend(r, c, err) : 0;
	if (c) {
		c->used = ++uses;
		if (!peer_known(c, peer))
			c->peers[c->next_peer++ % KNOWN_PEERS] = peer;
	}
	pthread_mutex_unlock(&lock);
	if (res == 0)
		*ret = k.who;
	return res;
}

/* ---- sessions ---- */

static bool session_hash(const char *session, uint8_t ret[static 32])
{
	struct sha256 s;

	if (strncmp(session, "ses_", 4) || strlen(session) != AUTH_SESSION - 1)
		return false;
	sha256_init(&s);
	sha256_add(&s, session, AUTH_SESSION - 1);
	sha256_end(&s, ret);
	return true;
}

int auth_session_make(const struct who *w, char ret[static AUTH_SESSION], struct den_err *err)
{
	uint8_t r[20], hash[32];

	if (getrandom(r, sizeof(r), 0) != sizeof(r))
		return den_fail_sys(err, errno, "getrandom");
	strcpy(ret, "ses_");
	for (int i = 0; i < 20; i++)
		snprintf(ret + 4 + 2 * i, 3, "%02x", r[i]);
	(void)session_hash(ret, hash);
	if (db_run(err, NULL, "DELETE FROM sessions WHERE expires_ms < ?", "i", clock_wall_ms()) < 0)
		return -1;
	return db_run(err, NULL, "INSERT INTO sessions VALUES (?, ?, ?)", "bsi", hash, sizeof(hash), w->key,
		clock_wall_ms() + AUTH_SESSION_MS);
}

static int read_key_id(struct db_row *row, void *user)
{
	snprintf(user, 17, "%s", db_text(row, 0));
	return 1;
}

int auth_session_check(const char *session, struct who *ret, struct den_err *err)
{
	struct key_info k;
	uint8_t hash[32];
	char id[17];
	int64_t n = 0;

	if (session_hash(session, hash))
		n = db_each(err, read_key_id, id, "SELECT key FROM sessions WHERE hash = ? AND expires_ms > ?", "bi",
			hash, sizeof(hash), clock_wall_ms());
	if (n < 0)
		return -1;
	if (n == 0 || keys_by_id(id, &k, err) < 0 || k.revoked_ms)
		return den_fail(err, DEN_DENIED, 0, "the session has ended; sign in again");
	*ret = k.who;
	return 0;
}

int auth_session_end(const char *session, struct den_err *err)
{
	uint8_t hash[32];

	if (!session_hash(session, hash))
		return 0;
	return db_run(err, NULL, "DELETE FROM sessions WHERE hash = ?", "b", hash, sizeof(hash));
}

/* A browser sends the cookie by itself, so a request must show that our own page made it: by a header that
 * other origins cannot set, or, for a WebSocket, which has no such header, by its Origin. */
static int check_page(const struct req *r, struct den_err *err)
{
	const char *method = req_method(r), *origin = req_header(r, "Origin"), *host = req_header(r, "Host");
	const char *bare = origin ? strstr(origin, "://") : NULL;

	if (req_header(r, "Upgrade")) {
		if (bare && host && !strcasecmp(bare + 3, host))
			return 0;
		return den_fail(err, DEN_DENIED, 0, "a WebSocket of another origin may not use the page's session");
	}
	if (!strcmp(method, "GET") || !strcmp(method, "HEAD") || !strcmp(method, "OPTIONS") || req_header(r, "X-Den-Page"))
		return 0;
	return den_fail(err, DEN_DENIED, 0, "with the page's session a change needs the header X-Den-Page: 1");
}

static int check_session(struct req *r, const char *session, struct who *ret, struct den_err *err)
{
	uint64_t peer = peer_hash(req_peer(r));

	if (limit_blocked(peer))
		return refuse_attempt(r, err);
	if (check_page(r, err) < 0)
		return -1;
	if (auth_session_check(session, ret, err) == 0)
		return 0;
	if (err->code == DEN_DENIED && limit_attempt(peer))
		return refuse_attempt(r, err);
	return -1;
}

bool auth_still(const struct who *w)
{
	struct key_info k;
	struct den_err err;

	return keys_by_id(w->key, &k, &err) == 0 ? !k.revoked_ms : err.code != DEN_NOT_FOUND;
}

int auth_check(struct req *r, const char *key, struct who *ret, struct den_err *err)
{
	if (!key || !*key)
		return den_fail(err, DEN_DENIED, 0, "a key is needed: 'den key create' makes one");
	return strncmp(key, "ses_", 4) ? check_key(r, key, ret, err) : check_session(r, key, ret, err);
}

/* ---- what was sent ---- */

/* Through a proxy that ends TLS, too: --url says that there is one, and it says so itself. A client that claims it
 * for a plain connection chooses only what its own cookie is called. */
static bool tls_outside(const struct req *r)
{
	const char *proto = req_header(r, "X-Forwarded-Proto");

	return req_tls(r) || (proto && !strcasecmp(proto, "https") && serve.url && !strncmp(serve.url, "https://", 8));
}

const char *auth_session_cookie(const struct req *r)
{
	return tls_outside(r) ? SECURE_COOKIE : PLAIN_COOKIE;
}

bool auth_session_is(const char *cookie)
{
	return !strncmp(cookie, PLAIN_COOKIE "=", sizeof(PLAIN_COOKIE)) ||
	       !strncmp(cookie, SECURE_COOKIE "=", sizeof(SECURE_COOKIE));
}

struct cookies {
	const char *name;
	const char *value; /* up to ; or blank */
	unsigned found;
};

static void cookies_look(const char *header, const char *value, void *user)
{
	struct cookies *c = user;
	size_t n = strlen(c->name);

	if (strcasecmp(header, "Cookie"))
		return;
	while (*value) {
		value += strspn(value, " \t;");
		if (!strncmp(value, c->name, n) && value[n] == '=') {
			c->value = value + n + 1;
			c->found++;
		}
		value += strcspn(value, ";");
	}
}

const char *auth_session_sent(const struct req *r)
{
	static _Thread_local char value[AUTH_SESSION];
	struct cookies c = { .name = auth_session_cookie(r) };

	req_each_header(r, cookies_look, &c);
	if (c.found != 1 || strcspn(c.value, "; \t") != sizeof(value) - 1)
		return NULL;
	memcpy(value, c.value, sizeof(value) - 1);
	value[sizeof(value) - 1] = '\0';
	return value;
}

const char *auth_sent(const struct req *r)
{
	const char *bearer = req_header(r, "Authorization"), *key = req_header(r, "X-API-Key");

	if (bearer && !strncasecmp(bearer, "Bearer ", 7))
		return bearer + 7 + strspn(bearer + 7, " ");
	return key ? key : auth_session_sent(r);
}
