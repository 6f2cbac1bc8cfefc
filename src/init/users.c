#include "users.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>

#include "fd.h"
#include "mem.h"
#include "tar.h"

#define FILE_MAX (4U << 20)
#define LINE_MAX_BYTES (64U << 10) /* a group's members stand in one line */
#define ID_NONE UINT32_MAX	   /* means "leave it" to the kernel, so nobody can have it */

/* The whole file, or "" when there is nothing fit to be read. */
static char *etc_read(int etc, const char *name)
{
	auto_fd fd = openat(etc, name, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	struct stat st;
	char *text;

	if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || st.st_size > (off_t)FILE_MAX ||
		fd_read_all(fd, FILE_MAX, &text, NULL, NULL) < 0)
		return mem_strdup("");
	return text;
}

static bool id_parse(const char *s, uint32_t *ret)
{
	uint64_t v = 0;

	if (!*s)
		return false;
	for (; *s; s++) {
		if (*s < '0' || *s > '9')
			return false;
		v = v * 10 + (uint64_t)(*s - '0');
		if (v >= ID_NONE)
			return false;
	}
	*ret = (uint32_t)v;
	return true;
}

/* Cuts the next line off *text into fields; 0: the end. Fewer than max fields, and lines that are
 * too long, are passed over; the last field keeps what is left. */
static int line_next(char **text, char **field, int max)
{
	while (**text) {
		char *line = *text, *end = strchrnul(line, '\n');
		int n = 0;

		*text = *end ? end + 1 : end;
		if (end - line > (ptrdiff_t)LINE_MAX_BYTES)
			continue;
		*end = '\0';
		for (field[n++] = line; n < max && (line = strchr(line, ':')); n++) {
			*line++ = '\0';
			field[n] = line;
		}
		if (n == max && field[0][0])
			return 1;
	}
	return 0;
}

struct passwd_line {
	char *name, *home, *shell;
	uint32_t uid, gid;
};

static int passwd_next(char **text, struct passwd_line *ret)
{
	char *f[7];

	while (line_next(text, f, 7))
		if (strlen(f[0]) < sizeof(((struct user *)0)->name) && id_parse(f[2], &ret->uid) &&
			id_parse(f[3], &ret->gid)) {
			ret->name = f[0];
			ret->home = f[5];
			ret->shell = f[6];
			return 1;
		}
	return 0;
}

struct group_line {
	char *name, *members;
	uint32_t gid;
};

static int group_next(char **text, struct group_line *ret)
{
	char *f[4];

	while (line_next(text, f, 4))
		if (id_parse(f[2], &ret->gid)) {
			ret->name = f[0];
			ret->members = f[3];
			return 1;
		}
	return 0;
}

static void path_set(char *dest, size_t cap, const char *path, const char *instead)
{
	if (path[0] != '/' || strlen(path) >= cap)
		path = instead;
	memcpy(dest, path, strlen(path) + 1);
}

static bool member_of(const struct group_line *g, const char *name)
{
	size_t n = strlen(name);

	for (const char *p = g->members; *p;) {
		size_t len = strcspn(p, ",");

		if (len == n && !memcmp(p, name, n))
			return true;
		p += len + (p[len] == ',');
	}
	return false;
}

static void groups_add(int etc, struct user *u)
{
	auto_free char *text = etc_read(etc, "group");
	struct group_line g;

	for (char *p = text; u->n_groups < USER_GROUPS && group_next(&p, &g);) {
		bool known = g.gid == u->gid;

		for (int i = 0; i < u->n_groups; i++)
			known |= u->groups[i] == g.gid;
		if (!known && member_of(&g, u->name))
			u->groups[u->n_groups++] = g.gid;
	}
}

int group_lookup_at(int etc, const char *spec, gid_t *ret, struct den_err *err)
{
	auto_free char *text = NULL;
	struct group_line g;

	if (id_parse(spec, ret))
		return 0;
	text = etc_read(etc, "group");
	for (char *p = text; group_next(&p, &g);)
		if (!strcmp(g.name, spec)) {
			*ret = g.gid;
			return 0;
		}
	if (!strcmp(spec, "root")) {
		*ret = 0;
		return 0;
	}
	return den_fail(err, DEN_NOT_FOUND, 0, "no group '%s' in the box", tar_show(spec).s);
}

/* A number means the number, even if some line has it as a name: who asks for 1000 must not get the
 * user "1000" with uid 0. */
static int user_find(int etc, const char *spec, struct user *u, struct den_err *err)
{
	auto_free char *text = etc_read(etc, "passwd");
	struct passwd_line line;
	uint32_t uid = ID_NONE;
	bool number = id_parse(spec, &uid);

	path_set(u->home, sizeof(u->home), "/", "/");
	path_set(u->shell, sizeof(u->shell), "/bin/sh", "/bin/sh");
	for (char *p = text; passwd_next(&p, &line);) {
		if (number ? line.uid != uid : strcmp(line.name, spec))
			continue;
		u->uid = line.uid;
		u->gid = line.gid;
		memcpy(u->name, line.name, strlen(line.name) + 1); /* passwd_next(): it fits */
		path_set(u->home, sizeof(u->home), line.home, "/");
		path_set(u->shell, sizeof(u->shell), line.shell, "/bin/sh");
		return 0;
	}
	if (number) {
		u->uid = u->gid = uid;
		return 0;
	}
	if (!strcmp(spec, "root")) { /* a box without /etc/passwd has a root all the same */
		memcpy(u->name, "root", sizeof("root"));
		return 0;
	}
	return den_fail(err, DEN_NOT_FOUND, 0, "no user '%s' in the box", tar_show(spec).s);
}

int user_lookup_at(int etc, const char *spec, struct user *ret, struct den_err *err)
{
	const char *colon = strchr(spec, ':');
	auto_free char *name = mem_strndup(spec, colon ? (size_t)(colon - spec) : strlen(spec));
	auto_free struct user *u = mem_new(struct user);

	if (!*name || (colon && (!colon[1] || strchr(colon + 1, ':'))))
		return den_fail(err, DEN_INVALID, 0,
			"'%s' is not a user; write it like name, 1000, name:group or 1000:1000",
			tar_show(spec).s);
	if (user_find(etc, name, u, err) < 0)
		return -1;
	if (colon) {
		if (group_lookup_at(etc, colon + 1, &u->gid, err) < 0)
			return -1;
	} else if (u->name[0]) {
		groups_add(etc, u);
	}
	*ret = *u;
	return 0;
}

static int etc_open(void)
{
	return open("/etc", O_PATH | O_DIRECTORY | O_CLOEXEC); /* -1: nothing will be found there */
}

int user_lookup(const char *spec, struct user *ret, struct den_err *err)
{
	auto_fd etc = etc_open();

	return user_lookup_at(etc, spec, ret, err);
}

int group_lookup(const char *spec, gid_t *ret, struct den_err *err)
{
	auto_fd etc = etc_open();

	return group_lookup_at(etc, spec, ret, err);
}

/* ---- names of many numbers ------------------------------------------------------------------- */

#define CACHE 64

struct names {
	char *text;
	bool groups;
	struct {
		bool filled;
		uint32_t id;
		char name[256]; /* empty: none */
	} cache[CACHE];
};

struct user_names {
	struct names users, groups;
};

static void names_find(struct names *n, uint32_t id, char *ret, size_t cap)
{
	auto_free char *copy = mem_strdup(n->text); /* the parsers cut it up */
	struct passwd_line u;
	struct group_line g;
	char *p = copy;

	ret[0] = '\0';
	while (n->groups ? group_next(&p, &g) : passwd_next(&p, &u)) {
		const char *name = n->groups ? g.name : u.name;

		if ((n->groups ? g.gid : u.uid) != id || strlen(name) >= cap)
			continue;
		memcpy(ret, name, strlen(name) + 1);
		return;
	}
}

static const char *names_get(struct names *n, uint32_t id)
{
	const char *name = n->cache[id % CACHE].name;

	if (!n->cache[id % CACHE].filled || n->cache[id % CACHE].id != id) {
		names_find(n, id, n->cache[id % CACHE].name, sizeof(n->cache[0].name));
		n->cache[id % CACHE].filled = true;
		n->cache[id % CACHE].id = id;
	}
	return *name ? name : NULL;
}

struct user_names *user_names_new(int etc)
{
	struct user_names *n = mem_new(struct user_names);

	n->users.text = etc_read(etc, "passwd");
	n->groups.text = etc_read(etc, "group");
	n->groups.groups = true;
	return n;
}

const char *user_names_user(struct user_names *n, uid_t uid)
{
	return names_get(&n->users, uid);
}

const char *user_names_group(struct user_names *n, gid_t gid)
{
	return names_get(&n->groups, gid);
}

void user_names_free(struct user_names *n)
{
	if (!n)
		return;
	free(n->users.text);
	free(n->groups.text);
	free(n);
}
