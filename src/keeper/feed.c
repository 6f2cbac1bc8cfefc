/*
 * The feed: what happens to a box, told to a server as it happens.
 *
 * A server that wants to know has a datagram socket at STATE/serve/feed.sock, and every keeper sends it one JSON
 * object for each event. It is told and not asked: a keeper never waits for it. The kernel's queue of such a socket
 * is short (10 on some systems), and a hundred keepers may fill it at once, so what does not fit is kept for a moment
 * and tried again; what is too much even then is lost. The folder belongs to the server, which has fewer rights than we do, so its socket is opened as what it is:
 * no link is followed, or it could make us send to a socket of somebody else.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "clock.h"
#include "fd.h"
#include "json.h"
#include "keeper.h"

#define LOOK_NS NS_PER_SEC /* so often it is looked for at most */
#define SHOWN 256	   /* bytes of a command line */
#define FEED_MAX (60U << 10)
#define KEPT_MAX (256U << 10) /* bytes that wait for room */
#define AGAIN_MS 5
#define LAST_MS 200 /* how long the last words of a keeper that leaves are tried */

/* Of this process: there is one keeper in it. */
static int feed_fd = -1;
static int64_t feed_looked;
static struct buf kept; /* each a u32 length and bytes */
static struct loop_timer again;
static struct keeper *feed_keeper;

static int feed_connect(struct keeper *k)
{
	auto_fd dir = openat(k->store->fd, "serve", O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	auto_fd at = dir < 0 ? -1 : openat(dir, "feed.sock", O_PATH | O_NOFOLLOW | O_CLOEXEC), fd = -1;
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	struct stat st;

	if (at < 0 || fstat(at, &st) < 0 || !S_ISSOCK(st.st_mode))
		return -1;
	fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return -1;
	snprintf(a.sun_path, sizeof(a.sun_path), "/proc/self/fd/%d", at);
	if (connect(fd, (struct sockaddr *)&a, sizeof(a)) < 0)
		return -1;
	return fd_take(&fd);
}

/* false: there is no room just now */
static bool feed_send(const void *p, size_t n)
{
	if (send(feed_fd, p, n, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0 || errno == EMSGSIZE)
		return true;
	if (errno == EAGAIN || errno == ENOBUFS || errno == EINTR)
		return false;
	fd_close(&feed_fd); /* the server went; another may come */
	buf_free(&kept);
	return true;
}

static bool feed_flush(void)
{
	while (kept.len && feed_fd >= 0) {
		uint32_t n;

		memcpy(&n, kept.p, sizeof(n));
		if (!feed_send(kept.p + sizeof(n), n))
			return false;
		if (kept.len)
			buf_consume(&kept, sizeof(n) + n);
	}
	buf_free(&kept);
	return true;
}

static void again_cb(struct loop_timer *t)
{
	struct keeper *k = feed_keeper;

	if (!feed_flush())
		loop_timer_set(k->loop, t, clock_mono_ns() + AGAIN_MS * NS_PER_MS);
}

static void feed_put(struct keeper *k, const struct buf *b)
{
	uint32_t n = (uint32_t)b->len;

	if (!kept.len && feed_send(b->p, b->len))
		return;
	if (kept.len + n + sizeof(n) > KEPT_MAX || feed_fd < 0)
		return;
	buf_add(&kept, &n, sizeof(n));
	buf_add(&kept, b->p, n);
	feed_keeper = k;
	again.cb = again_cb;
	if (!again.when)
		loop_timer_set(k->loop, &again, clock_mono_ns() + AGAIN_MS * NS_PER_MS);
}

void feed_last(void)
{
	int64_t until = clock_mono_ns() + LAST_MS * NS_PER_MS;

	while (!feed_flush() && clock_mono_ns() < until)
		(void)poll(&(struct pollfd){ .fd = feed_fd, .events = POLLOUT }, 1, AGAIN_MS);
}

bool feed_wanted(struct keeper *k)
{
	int64_t now;

	if (k->ready) /* nobody's box: nothing happens to it */
		return false;
	if (feed_fd >= 0)
		return true;
	now = clock_mono_ns();
	if (!k->store || (feed_looked && now - feed_looked < LOOK_NS))
		return false;
	feed_looked = now;
	feed_fd = feed_connect(k);
	return feed_fd >= 0;
}

void feed_text(struct keeper *k, const char *kind, const char *text)
{
	const struct box_spec *s = &k->row.info.spec;
	struct json j = { 0 };
	size_t n = text ? strlen(text) : 0;

	if (!feed_wanted(k))
		return;
	while (n && text[n - 1] == '\n')
		n--;
	json_open(&j, NULL, '{');
	json_str(&j, "kind", kind);
	json_str(&j, "box", k->id.s);
	json_str(&j, "owner", s->owner);
	json_i64(&j, "time", clock_wall_ms());
	if (n && n < FEED_MAX) {
		auto_free char *data = strndup(text, n);

		json_raw(&j, "data", data ? data : "{}");
	} else {
		json_raw(&j, "data", "{}");
	}
	json_close(&j, '}');
	feed_put(k, &j.b);
	buf_free(&j.b);
}

static void feed_json(struct keeper *k, const char *kind, struct json *j)
{
	json_close(j, '}');
	feed_text(k, kind, buf_str(&j->b));
	buf_free(&j->b);
}

void feed_state(struct keeper *k, const char *kind)
{
	const struct box_info *i = &k->row.info;
	struct json j = { 0 };

	if (!feed_wanted(k))
		return;
	json_open(&j, NULL, '{');
	json_str(&j, "name", i->spec.name);
	json_str(&j, "template", i->spec.template_name);
	json_str(&j, "state", box_state_str[i->state]);
	json_str(&j, "reason", i->reason);
	if (i->spec.from)
		json_str(&j, "from", i->spec.from);
	feed_json(k, kind, &j);
}

void feed_number(struct keeper *k, const char *kind, const char *key, uint64_t number, const char *key2,
	const char *text)
{
	struct json j = { 0 };

	if (!feed_wanted(k))
		return;
	json_open(&j, NULL, '{');
	json_u64(&j, key, number);
	if (text)
		json_str(&j, key2, text);
	feed_json(k, kind, &j);
}

/* A file operation changed something, or could have. */
static void feed_file(struct keeper *k, const struct exec_info *i)
{
	static const char *const change[] = { "write", "mkdir", "move", "remove", "chmod", "chown", "tarin" };
	struct json j = { 0 };

	if (!i->ended_ms || !i->argv || !i->argv[0] || !i->argv[1] || !i->result.exited || i->result.status)
		return;
	for (size_t n = 0; n < ARRAY_SIZE(change); n++) {
		if (strcmp(i->argv[0], change[n]))
			continue;
		json_open(&j, NULL, '{');
		json_str(&j, "operation", i->argv[0]);
		json_bytes(&j, "path", i->argv[1], MIN(strlen(i->argv[1]), 4096U));
		if (!strcmp(i->argv[0], "move") && i->argv[2])
			json_bytes(&j, "to", i->argv[2], MIN(strlen(i->argv[2]), 4096U));
		feed_json(k, "file.changed", &j);
		return;
	}
}

void feed_exec(struct keeper *k, const struct exec_info *i)
{
	struct json j = { 0 };
	size_t left = SHOWN;

	if (!feed_wanted(k))
		return;
	if (i->flags & EXEC_BUILTIN) {
		feed_file(k, i);
		return;
	}
	json_open(&j, NULL, '{');
	json_u64(&j, "pid", i->pid);
	json_str(&j, "user", i->user);
	if (i->tag)
		json_str(&j, "tag", i->tag);
	json_bool(&j, "tty", i->flags & EXEC_TTY);
	json_open(&j, "argv", '[');
	for (size_t n = 0; i->argv && i->argv[n] && left; n++) {
		size_t part = MIN(strlen(i->argv[n]), left);

		json_bytes(&j, NULL, i->argv[n], part);
		left -= part;
	}
	json_close(&j, ']');
	if (i->ended_ms) {
		json_bool(&j, "exited", i->result.exited);
		json_u64(&j, "status", i->result.status);
		json_str(&j, "reason", exec_reason_str[i->result.reason]);
		json_i64(&j, "ms", MAX(i->ended_ms - i->started_ms, 0));
	}
	feed_json(k, i->ended_ms ? "exec.ended" : "exec.started", &j);
}
