/* What is said of a file, and files in the name of somebody. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "clock.h"
#include "envd.h"
#include "mem.h"

/* ---- how it is written ---- */

void entry_permissions(char type, uint32_t mode, char out[static 16])
{
	static const char rwx[] = "rwxrwxrwx";
	char *p = out;

	/* in the order of Go's bits */
	if (strchr("dL", type))
		*p++ = type;
	if (strchr("cb", type))
		*p++ = 'D';
	if (strchr("pS", type))
		*p++ = type;
	if (mode & 04000)
		*p++ = 'u';
	if (mode & 02000)
		*p++ = 'g';
	if (type == 'c')
		*p++ = 'c';
	if (mode & 01000)
		*p++ = 't';
	if (p == out)
		*p++ = '-';
	for (int i = 0; i < 9; i++)
		*p++ = mode & (0400U >> i) ? rwx[i] : '-';
	*p = '\0';
}

static const struct {
	const char *type, *name;
	char letter;
} types[] = {
	{ "file", "FILE_TYPE_FILE", '-' },
	{ "directory", "FILE_TYPE_DIRECTORY", 'd' },
	{ "symlink", "FILE_TYPE_SYMLINK", 'L' },
	{ "fifo", "FILE_TYPE_UNSPECIFIED", 'p' },
	{ "socket", "FILE_TYPE_UNSPECIFIED", 'S' },
	{ "char", "FILE_TYPE_UNSPECIFIED", 'c' },
	{ "block", "FILE_TYPE_UNSPECIFIED", 'b' },
};

/* A file's time may be any number; JSON's is of the years 1 to 9999. */
static void time_put(struct json *j, int64_t ns)
{
	int64_t s = ns / NS_PER_SEC - (ns % NS_PER_SEC < 0), rest = ns - s * NS_PER_SEC;
	char text[64], *end;
	struct tm tm;
	time_t t = (time_t)s;

	gmtime_r(&t, &tm);
	end = text + strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%S", &tm);
	snprintf(end, 16, ".%09dZ", (int)rest);
	json_str(j, "modifiedTime", text);
}

static void owner_put(struct json *j, const char *key, const char *name, uint32_t id)
{
	char number[16];

	snprintf(number, sizeof(number), "%u", id);
	json_str(j, key, name ? name : number);
}

static void metadata_put(struct json *j, const struct den_entry *e)
{
	const size_t skip = sizeof(ENVD_XATTR) - 1;

	if (!e->xattrs || !e->xattrs[0])
		return;
	json_open(j, "metadata", '{');
	for (size_t i = 0; e->xattrs[i]; i++) {
		const char *x = e->xattrs[i], *eq = strchr(x, '=');

		if (eq && !strncmp(x, ENVD_XATTR, skip))
			json_member(j, x + skip, (size_t)(eq - x) - skip, eq + 1);
	}
	json_close(j, '}');
}

void entry_put(struct json *j, const char *key, const char *path, const struct den_entry *e)
{
	const char *slash = strrchr(path, '/'), *name = "FILE_TYPE_UNSPECIFIED";
	char letter = '-', text[24];

	for (size_t i = 0; i < ARRAY_SIZE(types); i++)
		if (!strcmp(e->type, types[i].type)) {
			name = types[i].name;
			letter = types[i].letter;
		}
	json_open(j, key, '{');
	json_str(j, "name", slash && slash[1] ? slash + 1 : path);
	json_str(j, "type", name);
	json_str(j, "path", path);
	snprintf(text, sizeof(text), "%llu", (unsigned long long)e->size);
	json_str(j, "size", text); /* 64 bits travel as text */
	json_u64(j, "mode", e->mode & 0777);
	entry_permissions(e->link ? 'L' : letter, e->link ? e->link_mode : e->mode, text);
	json_str(j, "permissions", text);
	owner_put(j, "owner", e->user, e->uid);
	owner_put(j, "group", e->group, e->gid);
	time_put(j, e->mtime_ns);
	if (e->real || e->target)
		json_str(j, "symlinkTarget", e->real ? e->real : e->target);
	metadata_put(j, e);
	json_close(j, '}');
}

/* ---- looking ---- */

struct look {
	struct json *j;
	const char *key, *path;
};

static int look_fn(const struct den_entry *entry, void *user, struct den_err *err)
{
	struct look *l = user;

	(void)err;
	entry_put(l->j, l->key, l->path, entry);
	return 0;
}

int entry_look(struct envd *e, const struct person *p, const char *path, const char *key, struct json *j,
	struct den_err *err)
{
	struct look l = { j, key, path };
	struct den_file_opt opt = { .size = sizeof(opt), .user = p->name, .xattr_prefix = ENVD_XATTR };
	int r = den_file_stat(e->box, path, &opt, look_fn, &l, err);

	if (r < 0 && err->code == DEN_DENIED) {
		opt.user = NULL;
		r = den_file_stat(e->box, path, &opt, look_fn, &l, err);
	}
	if (r < 0 && (err->code == DEN_NOT_FOUND || err->sys == ELOOP)) { /* or a link that leads nowhere */
		opt.no_follow = true;
		r = den_file_stat(e->box, path, &opt, look_fn, &l, err);
	}
	return r;
}

/* ---- in his name ---- */

int as_person_chown(struct envd *e, const struct person *p, const char *path, struct den_err *err)
{
	char owner[32];

	snprintf(owner, sizeof(owner), "%u:%u", p->uid, p->gid);
	return den_file_chown(e->box, path, owner, NULL, err);
}

/* As root, from the first directory that is missing on, each given to him. */
static int make_way(struct envd *e, const struct person *p, const char *path, struct den_err *err)
{
	auto_free char *part = mem_strdup(path);

	for (char *s = strchr(part + 1, '/');; s = s ? strchr(s + 1, '/') : NULL) {
		if (s)
			*s = '\0';
		if (den_file_mkdir(e->box, part, NULL, err) == 0) {
			if (as_person_chown(e, p, part, err) < 0)
				return -1;
		} else if (err->sys != EEXIST && err->sys != EROFS) {
			return -1;
		}
		if (!s)
			return 0;
		*s = '/';
	}
}

int as_person_mkdir(struct envd *e, const struct person *p, const char *path, bool parents, struct den_err *err)
{
	struct den_file_opt opt = { .size = sizeof(opt), .user = p->name, .parents = parents };

	if (den_file_mkdir(e->box, path, &opt, err) == 0)
		return 0;
	if (err->code != DEN_DENIED)
		return -1;
	return make_way(e, p, path, err);
}

int as_person_parents(struct envd *e, const struct person *p, const char *path, struct den_err *err)
{
	auto_free char *dir = mem_strdup(path);
	char *slash = strrchr(dir, '/');

	if (!slash || slash == dir)
		return 0;
	*slash = '\0';
	return as_person_mkdir(e, p, dir, true, err);
}
