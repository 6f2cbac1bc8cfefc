/*
 * Users of a box, and the paths they mean.
 *
 * Files are asked for by users who are not logged in anywhere, so their homes are looked up in the box's own
 * /etc/passwd. That is remembered for a few seconds: it is asked with every call and changes hardly ever.
 */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "b64.h"
#include "clock.h"
#include "envd.h"
#include "mem.h"
#include "parse.h"

#define PASSWD_MAX (1U << 20)
#define KNOWN 512
#define KNOWN_NS (10 * NS_PER_SEC)
#define PATH_MAX_BYTES 8192

/* ---- remembered ---- */

static struct known {
	char id[E2B_ID_SIZE];
	char asked[64]; /* "": the box's own */
	struct person p;
	int64_t when;
} known[KNOWN];
static pthread_mutex_t known_lock = PTHREAD_MUTEX_INITIALIZER;

static struct known *known_place(const char *id, const char *asked)
{
	uint32_t h = 2166136261;

	for (; *id; id++)
		h = (h ^ (uint8_t)*id) * 16777619;
	for (; *asked; asked++)
		h = (h ^ (uint8_t)*asked) * 16777619;
	return &known[h % KNOWN];
}

static bool known_get(const char *id, const char *asked, struct person *ret)
{
	struct known *k = known_place(id, asked);
	bool found;

	pthread_mutex_lock(&known_lock);
	found = !strcmp(k->id, id) && !strcmp(k->asked, asked) && clock_mono_ns() - k->when < KNOWN_NS;
	if (found)
		*ret = k->p;
	pthread_mutex_unlock(&known_lock);
	return found;
}

static void known_put(const char *id, const char *asked, const struct person *p)
{
	struct known *k = known_place(id, asked);

	pthread_mutex_lock(&known_lock);
	memcpy(k->id, id, sizeof(k->id));
	memcpy(k->asked, asked, strlen(asked) + 1); /* envd_username(): it fits */
	k->p = *p;
	k->when = clock_mono_ns();
	pthread_mutex_unlock(&known_lock);
}

/* ---- looked up ---- */

static int passwd_sink(const void *data, size_t n, void *user, struct den_err *err)
{
	struct buf *b = user;

	if (b->len + n > PASSWD_MAX)
		return den_fail(err, DEN_LIMIT, 0, "/etc/passwd of the box is larger than 1 MiB");
	buf_add(b, data, n);
	return 0;
}

static bool number(const char *name)
{
	return !name[strspn(name, "0123456789")];
}

/* name:x:uid:gid:comment:home:shell. A name that is a number means that number, as everywhere in den. */
static bool line_is(char *line, const char *name, struct person *ret)
{
	char *f[7], *save = line;
	uint64_t uid, gid;

	for (int i = 0; i < 7; i++) {
		f[i] = strsep(&save, ":");
		if (!f[i])
			return false;
	}
	if (strcmp(number(name) ? f[2] : f[0], name) || parse_u64(f[2], 0, UINT32_MAX - 1, &uid, NULL) < 0 ||
		parse_u64(f[3], 0, UINT32_MAX - 1, &gid, NULL) < 0)
		return false;
	*ret = (struct person){ .uid = (uint32_t)uid, .gid = (uint32_t)gid };
	memcpy(ret->name, name, strlen(name) + 1);
	if (f[5][0] != '/' || strlen(f[5]) >= sizeof(ret->home))
		f[5] = (char *)"/";
	memcpy(ret->home, f[5], strlen(f[5]) + 1);
	return true;
}

static int look_up(struct envd *e, const char *name, struct person *ret, struct den_err *err)
{
	auto_buf text = { 0 };
	char *save, *line;
	uint64_t uid;

	if (den_file_read(e->box, "/etc/passwd", NULL, passwd_sink, &text, err) < 0 && err->code != DEN_NOT_FOUND)
		return -1;
	buf_str(&text);
	for (save = text.p; (line = strsep(&save, "\n"));)
		if (line_is(line, name, ret))
			return 0;
	if (!strcmp(name, "root")) { /* whom a box has in any case */
		*ret = (struct person){ .name = "root", .home = "/" };
		return 0;
	}
	if (number(name) && parse_u64(name, 0, UINT32_MAX - 1, &uid, NULL) == 0) {
		*ret = (struct person){ .home = "/", .uid = (uint32_t)uid, .gid = (uint32_t)uid };
		memcpy(ret->name, name, strlen(name) + 1);
		return 0;
	}
	return den_fail(err, DEN_NOT_FOUND, 0, "invalid username: '%s'", name);
}

static int own_name(struct envd *e, char ret[static 64], struct den_err *err)
{
	struct den_box_info *info;
	const char *user;

	if (den_box_info(e->box, &info, err) < 0)
		return -1;
	user = info->user ? info->user : "root";
	if (strlen(user) >= 64)
		user = "root";
	memcpy(ret, user, strlen(user) + 1);
	den_box_infos_free(info, 1);
	ret[strcspn(ret, ":")] = '\0'; /* "user:group" */
	return 0;
}

int person_get(struct envd *e, const char *name, struct person *ret, struct den_err *err)
{
	char real[64];

	if (known_get(e->id, name, ret))
		return 0;
	if (!*name && own_name(e, real, err) < 0)
		return -1;
	if (look_up(e, *name ? name : real, ret, err) < 0)
		return -1;
	known_put(e->id, name, ret);
	return 0;
}

/* ---- who asks, and for what ---- */

int envd_username(struct req *r, char ret[static 64], struct den_err *err)
{
	const char *header = req_header(r, "Authorization");
	char text[128];
	ssize_t n;

	ret[0] = '\0';
	if (!header || strncasecmp(header, "Basic ", 6))
		return 0;
	header += 6 + strspn(header + 6, " ");
	n = b64_get(text, sizeof(text) - 1, header, strlen(header), B64_STD);
	if (n < 0 || memchr(text, '\0', (size_t)n))
		return den_fail(err, DEN_INVALID, 0, "Authorization: Basic is followed by base64 of 'user:'");
	text[n] = '\0';
	text[strcspn(text, ":")] = '\0';
	if (strlen(text) > 63)
		return den_fail(err, DEN_INVALID, 0, "a user's name has at most 63 characters");
	memcpy(ret, text, strlen(text) + 1);
	return 0;
}

int person_path(const struct person *p, const char *path, char **ret, struct den_err *err)
{
	auto_buf whole = { 0 }, out = { 0 };
	char *save, *part;

	if (path[0] == '~' && path[1] && path[1] != '/')
		return den_fail(err, DEN_INVALID, 0, "cannot expand '%.100s': only '~' and '~/' are known", path);
	if (strlen(path) > PATH_MAX_BYTES)
		return den_fail(err, DEN_INVALID, ENAMETOOLONG, "the path has more than %d bytes", PATH_MAX_BYTES);
	if (path[0] != '/') {
		buf_addstr(&whole, p->home);
		buf_addstr(&whole, "/");
		path += path[0] == '~';
	}
	buf_addstr(&whole, path);
	buf_str(&whole);
	for (save = whole.p; (part = strsep(&save, "/"));) {
		if (!*part || !strcmp(part, "."))
			continue;
		if (!strcmp(part, "..")) {
			while (out.len && out.p[--out.len] != '/')
				;
			continue;
		}
		buf_addstr(&out, "/");
		buf_addstr(&out, part);
	}
	if (!out.len)
		buf_addstr(&out, "/");
	*ret = mem_strdup(buf_str(&out));
	return 0;
}
