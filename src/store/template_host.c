/*
 * The template "host": which version fits the host now, building it, finding it again, sweeping.
 *
 * Invariants
 *   1. A directory host-VERSION is complete: it got that name by rename() after syncfs().
 *   2. It never changes afterwards; a host that changed has another version.
 *   3. Only who holds .lock makes or removes anything in templates/. The kernel frees the lock of
 *      a killed holder, so what .tmp-* the next holder finds belongs to nobody.
 */
#include "template.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "fd.h"
#include "mem.h"
#include "place.h"
#include "strv.h"
#include "template_make.h"

#define HOST "host"
#define FORMAT 2 /* what the builder makes; a change makes all versions new */
#define TMP_PREFIX ".tmp-"
#define SMALL_MAX (1 << 20)
#define NAME_SIZE 64
#define DIR_FLAGS (O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)

/* What a change of the host shows in. Not /etc itself, which changes with each new address. */
static const char *const watched[] = {
	"/usr",
	"/usr/bin",
	"/usr/local",
	"/etc/passwd",
	"/etc/group",
	"/etc/ld.so.cache",
	"/var/lib/dpkg/status",
	"/etc/ssl/certs",
	"/etc/apt",
	"/etc/apt/sources.list.d",
};

/* Those of the host that are either links into /usr or, on a system without merged /usr, trees. */
static const char *const beside_usr[] = { "bin", "sbin", "lib", "lib32", "lib64", "libx32" };

static uint64_t mix(uint64_t h, uint64_t v)
{
	for (int i = 0; i < 8; i++, v >>= 8)
		h = (h ^ (v & 0xff)) * 0x100000001b3; /* FNV-1a: tells apart, protects nothing */
	return h;
}

/* Inode numbers and times, but no device numbers: those of many file systems change with each
 * boot. Only whether /usr/local is mounted counts, because it is a tree then. */
static uint64_t host_state(void)
{
	uint64_t h = 0xcbf29ce484222325;
	dev_t usr = 0;

	for (size_t i = 0; i < ARRAY_SIZE(watched); i++) {
		struct stat st = { 0 };

		if (fstatat(AT_FDCWD, watched[i], &st, 0) < 0) {
			h = mix(h, 0);
			continue;
		}
		usr = i == 0 ? st.st_dev : usr;
		h = mix(h, st.st_ino);
		h = mix(h, (uint64_t)st.st_mtim.tv_sec);
		h = mix(h, (uint64_t)st.st_mtim.tv_nsec);
		h = mix(h, st.st_dev == usr);
	}
	return h;
}

static void version_compose(uint64_t state, bool idmap, bool id_range, char out[static 17])
{
	uint64_t h = mix(state, FORMAT);

	h = mix(h, idmap);
	h = mix(h, !idmap && id_range); /* with idmap the range makes no difference */
	h = mix(h, geteuid());
	snprintf(out, 17, "%016" PRIx64, h);
}

static bool version_is_sane(const char *v)
{
	return strspn(v, "0123456789abcdef") == 16 && v[16] == '\0';
}

void template_free(struct template *t)
{
	for (size_t i = 0; i < t->n_trees; i++) {
		free(t->trees[i].at);
		strv_free(t->trees[i].lowers);
	}
	free(t->trees);
	free(t->name);
	free(t->version);
	free(t->detail);
	free(t->owners_path);
	*t = (struct template){ 0 };
}

static void tree_add(struct template *t, const char *base, char *line)
{
	struct template_tree tree = { 0 };
	char *lower;

	tree.at = mem_strdup(strsep(&line, "\t"));
	while ((lower = strsep(&line, "\t"))) {
		auto_buf path = { 0 };

		if (lower[0] != '/')
			buf_addf(&path, "%s/", base);
		buf_addstr(&path, lower);
		strv_add(&tree.lowers, buf_str(&path));
	}
	t->trees = mem_realloc(t->trees, (t->n_trees + 1) * sizeof(*t->trees));
	t->trees[t->n_trees++] = tree;
}

static int small_read(int dirfd, const char *name, char **ret, struct den_err *err)
{
	auto_fd fd = openat(dirfd, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);

	if (fd < 0)
		return den_fail_sys(err, errno, "open '%s'", name);
	return fd_read_all(fd, SMALL_MAX, ret, NULL, err);
}

int template_open_version(int statefd, const char *state_path, const char *name,
	const char *version, struct template *ret, struct den_err *err)
{
	auto_buf base = { 0 };
	auto_free char *trees = NULL, *detail = NULL;
	char rel[NAME_SIZE], *rest, *line;
	struct template t = { 0 };
	auto_fd fd = -1;

	if (strcmp(name, HOST) != 0)
		return den_fail(
			err, DEN_NOT_FOUND, 0, "no template '%.60s'; there is: " HOST, name);
	if (!version_is_sane(version))
		return den_fail(
			err, DEN_INVALID, 0, "'%.60s' is no version of a template", version);
	snprintf(rel, sizeof(rel), PLACE_TEMPLATES "/" HOST "-%s", version);
	fd = openat(statefd, rel, DIR_FLAGS);
	if (fd < 0)
		return den_fail(err, den_code_of_errno(errno), errno,
			"template " HOST ", version %s", version);
	if (small_read(fd, "trees", &trees, err) < 0 || small_read(fd, "detail", &detail, err) < 0)
		return den_wrap(err, "template " HOST ", version %s", version);
	buf_addf(&base, "%s/%s", state_path, rel);
	rest = trees;
	while ((line = strsep(&rest, "\n")))
		if (*line)
			tree_add(&t, buf_str(&base), line);
	if (faccessat(fd, "owners", F_OK, AT_SYMLINK_NOFOLLOW) == 0) {
		buf_addstr(&base, "/owners");
		t.owners_path = mem_strdup(buf_str(&base));
	}
	t.name = mem_strdup(name);
	t.version = mem_strdup(version);
	t.detail = mem_take(&detail);
	*ret = t;
	return 0;
}

static int lock_take(int dirfd, bool wait, int *ret, struct den_err *err)
{
	auto_fd fd = openat(dirfd, ".lock", O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);

	if (fd < 0)
		return den_fail_sys(err, errno, "open the lock of the templates");
	while (flock(fd, LOCK_EX | (wait ? 0 : LOCK_NB)) < 0)
		if (errno != EINTR)
			return den_fail(err, DEN_CONFLICT, errno, "lock the templates");
	*ret = fd_take(&fd);
	return 0;
}

/* Adds the host's directory `path` as a tree: our layer above, the directory itself below. */
static int tree_build(struct make *m, int skelfd, const char *path, struct buf *trees,
	bool *ret_local, struct den_err *err)
{
	char name[32];

	snprintf(name, sizeof(name), "%s", path);
	for (char *p = name; *p; p++)
		if (*p == '/')
			*p = '-';
	if (skel_make(m, path, skelfd, name, ret_local, err) < 0)
		return den_wrap(err, "layer above '/%s'", path);
	buf_addf(trees, "/%s\tskel/%s\t/%s\n", path, name, path);
	buf_addf(&m->notes, "/%s: the host's, read-only below the box's own changes\n", path);
	return 0;
}

static int beside_usr_build(
	struct make *m, int skelfd, const char *name, struct buf *trees, struct den_err *err)
{
	char target[64];
	struct stat st;
	bool local;
	ssize_t n;

	if (fstatat(m->src, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return 0;
	if (S_ISDIR(st.st_mode)) {
		auto_fd fd = -1;

		if (make_dir(m, name, &fd, err) < 0)
			return -1;
		return tree_build(m, skelfd, name, trees, &local, err);
	}
	n = S_ISLNK(st.st_mode) ? readlinkat(m->src, name, target, sizeof(target) - 1) : -1;
	if (n <= 0 || n == sizeof(target) - 1)
		return 0;
	target[n] = '\0';
	if (symlinkat(target, m->dst, name) < 0)
		return den_fail_sys(err, errno, "make link '%s'", name);
	return 0;
}

static int trees_build(struct make *m, int tmpfd, struct buf *trees, struct den_err *err)
{
	auto_fd skelfd = -1;
	bool local = false, none;

	if (mkdirat(tmpfd, "skel", 0755) < 0)
		return den_fail_sys(err, errno, "make 'skel'");
	skelfd = openat(tmpfd, "skel", DIR_FLAGS);
	if (skelfd < 0)
		return den_fail_sys(err, errno, "open 'skel'");
	buf_addstr(trees, "/\troot\n");
	if (tree_build(m, skelfd, "usr", trees, &local, err) < 0)
		return -1;
	if (local && tree_build(m, skelfd, "usr/local", trees, &none, err) < 0)
		return -1;
	for (size_t i = 0; i < ARRAY_SIZE(beside_usr); i++)
		if (beside_usr_build(m, skelfd, beside_usr[i], trees, err) < 0)
			return -1;
	return 0;
}

static void detail_compose(struct make *m, struct buf *out)
{
	buf_addf(out, "/: %u files and links of /etc and /var that all may read, %zu accounts\n",
		m->copied, m->n_users);
	buf_add(out, m->notes.p, m->notes.len);
	buf_addf(out, "hidden: %u entries of them that others on the host may not read\n",
		m->hidden);
	if (!m->idmap)
		buf_addf(out, "owned by the box: %u directories, %u setuid programs\n", m->dirs,
			m->setuid);
	buf_addf(out,
		"left out: %u allow-listed entries that are not root's, not for all to read, "
		"not files, or too large\n",
		m->left_out - m->credentials);
	if (m->credentials)
		buf_addf(out, "left out: %u with a password or private key: %s%s\n", m->credentials,
			buf_str(&m->secret_names), m->credentials > 8 ? ", ..." : "");
}

static int build_into(struct make *m, int tmpfd, struct den_err *err)
{
	auto_buf trees = { 0 }, detail = { 0 };

	if (accounts_make(m, err) < 0 || table_make(m, err) < 0 ||
		trees_build(m, tmpfd, &trees, err) < 0)
		return -1;
	detail_compose(m, &detail);
	if (file_replace_at(tmpfd, "trees", trees.p, trees.len, 0644, err) < 0 ||
		file_replace_at(tmpfd, "detail", detail.p, detail.len, 0644, err) < 0)
		return -1;
	if (m->owners.len &&
		file_replace_at(tmpfd, "owners", m->owners.p, m->owners.len, 0644, err) < 0)
		return -1;
	make_tell(m, "writing to disk");
	if (syncfs(tmpfd) < 0)
		return den_fail_sys(err, errno, "write to disk");
	return 0;
}

static int build(int dirfd, const char *version, bool idmap, bool id_range,
	template_progress progress, void *user, struct den_err *err)
{
	char tmp[NAME_SIZE], name[NAME_SIZE];
	auto_fd tmpfd = -1, rootfd = -1, src = open("/", DIR_FLAGS);
	struct make m;
	int ret;

	snprintf(name, sizeof(name), HOST "-%s", version);
	snprintf(tmp, sizeof(tmp), TMP_PREFIX HOST "-%s", version);
	/* 0700: without idmap there are setuid programs of the caller's inside. */
	if (tree_remove_at(dirfd, tmp, err) < 0)
		return -1;
	if (mkdirat(dirfd, tmp, 0700) < 0)
		return den_fail_sys(err, errno, "make '%s'", tmp);
	tmpfd = openat(dirfd, tmp, DIR_FLAGS);
	if (src < 0 || tmpfd < 0 || mkdirat(tmpfd, "root", 0755) < 0)
		return den_fail_sys(err, errno, "make '%s/root'", tmp);
	rootfd = openat(tmpfd, "root", DIR_FLAGS);
	if (rootfd < 0)
		return den_fail_sys(err, errno, "open '%s/root'", tmp);
	make_init(&m, src, rootfd, idmap, id_range);
	m.progress = progress;
	m.user = user;
	ret = build_into(&m, tmpfd, err);
	make_free(&m);
	if (ret == 0 && renameat(dirfd, tmp, dirfd, name) < 0)
		ret = den_fail_sys(err, errno, "rename '%s'", tmp);
	if (ret < 0) {
		tree_remove_at(dirfd, tmp, NULL);
		return -1;
	}
	return fsync(dirfd) < 0 ? den_fail_sys(err, errno, "write to disk") : 0;
}

static int templates_open(int statefd, int *ret, struct den_err *err)
{
	int fd;

	if (mkdirat(statefd, PLACE_TEMPLATES, 0700) < 0 && errno != EEXIST)
		return den_fail_sys(err, errno, "make '" PLACE_TEMPLATES "'");
	fd = openat(statefd, PLACE_TEMPLATES, DIR_FLAGS);
	if (fd < 0)
		return den_fail_sys(err, errno, "open '" PLACE_TEMPLATES "'");
	*ret = fd;
	return 0;
}

int template_open(int statefd, const char *state_path, const char *name, bool idmap,
	bool have_id_range, template_progress progress, void *user, struct template *ret,
	struct den_err *err)
{
	auto_fd dirfd = -1, lock = -1;
	struct den_err first;
	char version[17];

	version_compose(host_state(), idmap, have_id_range, version);
	if (template_open_version(statefd, state_path, name, version, ret, &first) == 0)
		return 0;
	if (strcmp(name, HOST) != 0 || first.code != DEN_NOT_FOUND) {
		if (err)
			*err = first;
		return -1;
	}
	if (templates_open(statefd, &dirfd, err) < 0 || lock_take(dirfd, true, &lock, err) < 0)
		return den_wrap(err, "make template " HOST);
	/* Whoever had the lock before us may have made it. */
	if (template_open_version(statefd, state_path, name, version, ret, &first) == 0)
		return 0;
	if (build(dirfd, version, idmap, have_id_range, progress, user, err) < 0)
		return den_wrap(err, "make template " HOST);
	return template_open_version(statefd, state_path, name, version, ret, err);
}

void template_host_state(char ret[static 17])
{
	version_compose(host_state(), false, false, ret);
}

/* Would template_open() choose it now? */
static bool version_is_current(uint64_t state, const char *version)
{
	for (int flags = 0; flags < 4; flags++) {
		char now[17];

		version_compose(state, flags & 1, flags & 2, now);
		if (strcmp(now, version) == 0)
			return true;
	}
	return false;
}

static int sweep_one(int dirfd, const char *name, uint64_t state, template_used used, void *user,
	unsigned *removed, struct den_err *err)
{
	const char *version = name + strlen(HOST "-");
	char tmp[NAME_SIZE];

	if (strncmp(name, TMP_PREFIX, strlen(TMP_PREFIX)) == 0) {
		++*removed;
		return tree_remove_at(dirfd, name, err);
	}
	if (strncmp(name, HOST "-", strlen(HOST "-")) != 0 || !version_is_sane(version) ||
		version_is_current(state, version) || used(HOST, version, user))
		return 0;
	/* Out of sight in one step: a half-removed version must never look whole. */
	snprintf(tmp, sizeof(tmp), TMP_PREFIX "old-%s", version);
	if (renameat(dirfd, name, dirfd, tmp) < 0)
		return den_fail_sys(err, errno, "rename '%s'", name);
	++*removed;
	return tree_remove_at(dirfd, tmp, err);
}

int template_sweep(
	int statefd, template_used used, void *user, unsigned *ret_removed, struct den_err *err)
{
	auto_fd dirfd = openat(statefd, PLACE_TEMPLATES, DIR_FLAGS), lock = -1;
	uint64_t state = host_state();
	unsigned removed = 0;
	struct den_err busy;
	struct dirent *de;
	int ret = 0;
	DIR *d;

	if (dirfd < 0 && errno != ENOENT)
		return den_fail_sys(err, errno, "open '" PLACE_TEMPLATES "'");
	if (dirfd >= 0 && lock_take(dirfd, false, &lock, &busy) < 0 && busy.sys != EWOULDBLOCK) {
		if (err)
			*err = busy;
		return -1;
	}
	if (lock >= 0) {
		d = fdopendir(fcntl(dirfd, F_DUPFD_CLOEXEC, 3));
		if (!d)
			return den_fail_sys(err, errno, "list '" PLACE_TEMPLATES "'");
		while (ret == 0 && (de = readdir(d)))
			ret = sweep_one(dirfd, de->d_name, state, used, user, &removed, err);
		closedir(d);
	}
	if (ret < 0)
		return den_wrap(err, "sweep templates");
	if (ret_removed)
		*ret_removed = removed;
	return 0;
}
