/* What sandbox-runtime's settings say about files, as shares of a box. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "buf.h"
#include "mem.h"
#include "srt.h"
#include "strv.h"

#define MOUNTS_MAX 64 /* what a box takes */
#define ENTRIES_MAX 200000 /* looked at for files to protect */

struct share {
	char *path;
	bool ro;
};
struct shares {
	struct share v[MOUNTS_MAX];
	size_t n;
	unsigned seen;
};

static void shares_free(struct shares *s)
{
	for (size_t i = 0; i < s->n; i++)
		free(s->v[i].path);
}
#define auto_shares __attribute__((cleanup(shares_free))) struct shares

static bool is_below(const char *path, const char *top)
{
	size_t n = strlen(top);

	return !strncmp(path, top, n) && (path[n] == '/' || !path[n]);
}

/* Where the box has its own, and may write. */
static bool is_own(const char *path)
{
	return !strcmp(path, "/tmp") || !strcmp(path, "/var/tmp") || is_below(path, "/dev");
}

/* ~ and . are what they are for srt; links stay, for the box finds the path by the same name. */
static int full_path(const char *text, char **ret, struct den_err *err)
{
	const char *home = getenv("HOME");
	auto_free char *cwd = NULL;
	auto_buf full = { 0 }, clean = { 0 };

	if (strchr(text, ':'))
		return den_fail(err, DEN_UNSUPPORTED, 0,
			"'%.80s': a path with a colon cannot be shared", text);
	if (strpbrk(text, "*?[{"))
		return den_fail(err, DEN_UNSUPPORTED, 0,
			"'%.80s': patterns do not work on Linux; name the paths one by one", text);
	if (text[0] == '~' && (text[1] == '/' || !text[1])) {
		if (!home || home[0] != '/')
			return den_fail(err, DEN_INVALID, 0, "'%.80s': HOME is not set", text);
		buf_addf(&full, "%s%s", home, text + 1);
	} else if (text[0] == '/') {
		buf_addstr(&full, text);
	} else {
		cwd = getcwd(NULL, 0);
		if (!cwd)
			return den_fail_sys(err, errno, "present directory");
		buf_addf(&full, "%s/%s", cwd, text);
	}
	for (const char *p = buf_str(&full); *p;) {
		size_t n;

		p += strspn(p, "/");
		n = strcspn(p, "/");
		if (n == 2 && p[0] == '.' && p[1] == '.') {
			*ret = realpath(buf_str(&full), NULL);
			return *ret ? 0 : den_fail_sys(err, errno, "'%.80s'", text);
		}
		if (n && !(n == 1 && p[0] == '.'))
			buf_addf(&clean, "/%.*s", (int)n, p);
		p += n;
	}
	if (!clean.len)
		return den_fail(err, DEN_UNSUPPORTED, 0,
			"'%.80s' is all of the host; name the directories that are needed", text);
	*ret = mem_strdup(buf_str(&clean));
	return 0;
}

static int add_share(struct shares *s, const char *path, bool ro, struct den_err *err)
{
	for (size_t i = 0; i < s->n; i++) {
		if (!strcmp(s->v[i].path, path)) {
			s->v[i].ro |= ro;
			return 0;
		}
	}
	if (s->n == MOUNTS_MAX)
		return den_fail(err, DEN_LIMIT, 0,
			"more than %d paths to share or protect; share less", MOUNTS_MAX);
	s->v[s->n++] = (struct share){ mem_strdup(path), ro };
	return 0;
}

/* Read-only within a share. A directory above it could be renamed, and another put in its place; not so one
 * that something is mounted on, so each between the two becomes a share, too. */
static int add_guard(struct shares *s, const char *top, const char *path, struct den_err *err)
{
	for (const char *p = path + strlen(top); *p && (p = strchr(p + 1, '/'));) {
		auto_free char *above = mem_strndup(path, (size_t)(p - path));

		if (add_share(s, above, false, err) < 0)
			return -1;
	}
	return add_share(s, path, true, err);
}

static const char *share_of(const struct shares *s, const char *path)
{
	for (size_t i = 0; i < s->n; i++)
		if (is_below(path, s->v[i].path))
			return s->v[i].path;
	return NULL;
}

static bool shared(const struct shares *s, const char *path)
{
	return share_of(s, path) != NULL;
}

static int must_exist(const char *path, const char *why, struct den_err *err)
{
	if (access(path, F_OK) == 0)
		return 0;
	if (errno != ENOENT && errno != ENOTDIR)
		return den_fail_sys(err, errno, "'%.80s'", path);
	return den_fail(err, DEN_NOT_FOUND, 0,
		"'%.80s' does not exist, so it cannot be %s; make it first", path, why);
}

/* ---- the files that srt protects in what it lets be written ------------------------------------ */

/* A program that may write these has its commands run outside, by the next shell, editor or git. */
static bool is_protected(const char *parent, const char *name, bool git_config)
{
	static const char *const any[] = { ".gitconfig", ".gitmodules", ".bashrc", ".bash_profile",
		".zshrc", ".zprofile", ".profile", ".ripgreprc", ".mcp.json", ".vscode", ".idea" };

	for (size_t i = 0; i < ARRAY_SIZE(any); i++)
		if (!strcmp(name, any[i]))
			return true;
	if (!strcmp(parent, ".git"))
		return !strcmp(name, "hooks") || (!strcmp(name, "config") && !git_config);
	if (!strcmp(parent, ".claude"))
		return !strcmp(name, "commands") || !strcmp(name, "agents");
	return false;
}

static unsigned char type_of(DIR *d, const struct dirent *e)
{
	struct stat st;

	if (e->d_type != DT_UNKNOWN || fstatat(dirfd(d), e->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return e->d_type;
	return (unsigned char)IFTODT(st.st_mode);
}

static int protect(struct shares *s, const char *dir, const struct srt_files *f, int depth,
	struct den_err *err)
{
	const char *parent = strrchr(dir, '/') + 1;
	struct dirent *e;
	int r = 0;
	DIR *d = opendir(dir);

	if (!d) /* a file, or one that we may not look into: then the box, which is less, may not either */
		return 0;
	while (r == 0 && (e = readdir(d))) {
		auto_buf path = { 0 };
		bool inner = !strcmp(e->d_name, ".git") || !strcmp(e->d_name, ".claude");
		unsigned char type;

		if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, ".."))
			continue;
		if (++s->seen > ENTRIES_MAX) {
			r = den_fail(err, DEN_LIMIT, 0,
				"'%.80s' holds too many files to find those to protect; share less "
				"of it, or "
				"lower mandatoryDenySearchDepth",
				dir);
			break;
		}
		buf_addf(&path, "%s/%s", dir, e->d_name);
		type = type_of(d, e);
		if (!is_protected(parent, e->d_name, f->git_config))
			;
		else if (type == DT_LNK)
			r = den_fail(err, DEN_UNSUPPORTED, 0,
				"'%.80s' is a link, which cannot be kept from being written; put "
				"the file "
				"itself there, or share less",
				buf_str(&path));
		else
			r = add_guard(s, share_of(s, dir), buf_str(&path), err);
		if (r == 0 && type == DT_DIR && (depth > 1 || inner) &&
			strcmp(e->d_name, "node_modules") &&
			!is_protected(parent, e->d_name, f->git_config))
			r = protect(s, buf_str(&path), f, depth - 1, err);
	}
	closedir(d);
	return r;
}

/* ---- keys ------------------------------------------------------------------------------------ */

static int add_paths(
	struct shares *s, char *const *paths, bool ro, const char *key, struct den_err *err)
{
	for (; paths && *paths; paths++) {
		auto_free char *path = NULL;

		if (full_path(*paths, &path, err) < 0)
			return den_wrap(err, "filesystem: %s", key);
		if (is_own(path))
			continue;
		if (must_exist(path, "shared", err) < 0 ||
			(ro && shared(s, path) ? 0 : add_share(s, path, ro, err)) < 0)
			return den_wrap(err, "filesystem: %s", key);
	}
	return 0;
}

/* Only what lies in a share can be written at all. */
static int deny_write(struct shares *s, char *const *paths, struct den_err *err)
{
	for (; paths && *paths; paths++) {
		auto_free char *path = NULL;

		if (full_path(*paths, &path, err) < 0)
			return den_wrap(err, "filesystem: denyWrite");
		if (!shared(s, path))
			continue;
		if (must_exist(path, "kept from being written", err) < 0 ||
			add_guard(s, share_of(s, path), path, err) < 0)
			return den_wrap(err, "filesystem: denyWrite");
	}
	return 0;
}

static int deny_read(
	struct shares *s, const struct srt_files *f, struct srt *ret, struct den_err *err)
{
	for (char *const *p = f->deny_read; p && *p; p++) {
		auto_free char *path = NULL;
		auto_buf note = { 0 };

		/* all but what is shared: a box has nothing else */
		if (!strcmp(*p, "/"))
			continue;
		if (full_path(*p, &path, err) < 0)
			return den_wrap(err, "filesystem: denyRead");
		if (!shared(s, path))
			continue;
		if (access(path, F_OK) == 0)
			return den_fail(err, DEN_UNSUPPORTED, 0,
				"filesystem: denyRead: '%.80s' lies in what is shared with the "
				"box, and a part "
				"of a share cannot be hidden; share less, or move it",
				path);
		buf_addf(&note, "denyRead: '%s' does not exist; if it comes to be, the box sees it",
			path);
		strv_add(&ret->notes, buf_str(&note));
	}
	return 0;
}

static int by_length(const void *a, const void *b)
{
	size_t x = strlen(((const struct share *)a)->path),
	       y = strlen(((const struct share *)b)->path);

	return x < y   ? -1
	       : x > y ? 1
		       : strcmp(((const struct share *)a)->path, ((const struct share *)b)->path);
}

int srt_mounts(const struct srt_files *f, struct srt *ret, struct den_err *err)
{
	auto_shares s = { 0 };
	auto_free char *cwd = getcwd(NULL, 0);
	size_t writable;

	if (add_paths(&s, f->allow_write, false, "allowWrite", err) < 0)
		return -1;
	writable = s.n;
	if (add_paths(&s, f->allow_read, true, "allowRead", err) < 0 ||
		deny_read(&s, f, ret, err) < 0 || deny_write(&s, f->deny_write, err) < 0)
		return -1;
	for (size_t i = 0; i < writable; i++)
		if (!s.v[i].ro && protect(&s, s.v[i].path, f, f->depth, err) < 0)
			return den_wrap(err, "filesystem: allowWrite");
	if (cwd && shared(&s, cwd))
		ret->workdir = mem_strdup(cwd);
	qsort(s.v, s.n, sizeof(s.v[0]), by_length);
	for (size_t i = 0; i < s.n; i++) {
		auto_buf text = { 0 };

		buf_addf(&text, "%s:%s%s", s.v[i].path, s.v[i].path, s.v[i].ro ? ":ro" : "");
		strv_add(&ret->mounts, buf_str(&text));
	}
	return 0;
}
