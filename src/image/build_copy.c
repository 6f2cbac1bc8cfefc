/* COPY and ADD */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "build_parts.h"
#include "buf.h"
#include "decompress.h"
#include "fd.h"
#include "mem.h"
#include "parse.h"
#include "retar.h"
#include "spool.h"
#include "strv.h"
#include "tar.h"

#define USERS_MAX (1U << 20)

struct copying {
	struct state *state;
	char **sources; /* expanded */
	char *dest; /* expanded, as written */
	char *path; /* dest, absolute */
	bool dest_is_dir; /* it ends in a slash, or has to hold several things */
	char *chown; /* NULL: root */
	int mode; /* -1: as it is */
	/* from the directory */
	struct context_items items;
	char sum[65]; /* of what was packed to find the key */
	/* from another template */
	char *from; /* NULL: from the directory */
	/* in the box */
	uint32_t uid, gid;
};

static void copying_free(struct copying *c)
{
	strv_free(c->sources);
	free(c->dest);
	free(c->path);
	free(c->chown);
	free(c->from);
	context_items_free(&c->items);
}

/* ---- owners ---------------------------------------------------------------------------------- */

static int to_buf(const void *data, size_t n, void *user, struct den_err *err)
{
	struct buf *b = user;

	if (b->len + n > USERS_MAX)
		return den_fail(err, DEN_LIMIT, 0, "the file is longer than %u bytes", USERS_MAX);
	buf_add(b, data, n);
	return 0;
}

/* "name:x:1000:1000:..." in the box's own file: field 2 is the id, field 3 of a user his group. */
static int id_of_name(struct den_box *box, const char *file, const char *name, uint32_t *ret,
	uint32_t *ret_gid, struct den_err *err)
{
	auto_buf b = { 0 };
	size_t n = strlen(name);

	if (den_file_read(box, file, NULL, to_buf, &b, err) < 0)
		return den_wrap(err, "--chown");
	for (const char *p = buf_str(&b); *p; p += strcspn(p, "\n"), p += *p == '\n') {
		unsigned id, gid = 0;

		if (strncmp(p, name, n) || p[n] != ':')
			continue;
		if (sscanf(p + n, ":%*[^:\n]:%u:%u", &id, &gid) < 1 &&
			sscanf(p + n, "::%u:%u", &id, &gid) < 1)
			continue;
		*ret = id;
		if (ret_gid)
			*ret_gid = gid;
		return 0;
	}
	return den_fail(
		err, DEN_NOT_FOUND, 0, "--chown: there is no '%.60s' in %s of the box", name, file);
}

static int id_get(struct den_box *box, const char *file, const char *text, uint32_t *ret,
	uint32_t *ret_gid, struct den_err *err)
{
	uint64_t v;

	if (text[strspn(text, "0123456789")] == '\0') {
		if (parse_u64(text, 0, UINT32_MAX - 1, &v, err) < 0)
			return den_wrap(err, "--chown");
		*ret = (uint32_t)v;
		if (ret_gid)
			*ret_gid = (uint32_t)v;
		return 0;
	}
	return id_of_name(box, file, text, ret, ret_gid, err);
}

/* "user", "user:group", "1000:1000" */
static int owner_get(struct copying *c, struct den_box *box, struct den_err *err)
{
	auto_free char *user = NULL;
	char *group;

	if (!c->chown)
		return 0;
	user = mem_strdup(c->chown);
	group = strchr(user, ':');
	if (group)
		*group++ = '\0';
	if (*user && id_get(box, "/etc/passwd", user, &c->uid, &c->gid, err) < 0)
		return -1;
	return group && *group ? id_get(box, "/etc/group", group, &c->gid, NULL, err) : 0;
}

/* ---- where it goes --------------------------------------------------------------------------- */

static int see_type(const struct den_entry *e, void *user, struct den_err *err)
{
	(void)err;
	*(bool *)user = e->type && !strcmp(e->type, "directory");
	return 0;
}

static int is_dir(
	struct den_box *box, const char *path, bool *ret, bool *there, struct den_err *err)
{
	*ret = false;
	*there = den_file_stat(box, path, NULL, see_type, ret, err) == 0;
	return *there || err->code == DEN_NOT_FOUND ? 0 : -1;
}

/* Makes the directory that takes things; a new one belongs to whom they belong. */
static int dir_make(struct copying *c, struct den_box *box, const char *path, struct den_err *err)
{
	const struct den_file_opt opt = { .size = sizeof(opt), .parents = true };
	bool dir, there;
	char owner[32];

	if (is_dir(box, path, &dir, &there, err) < 0)
		return -1;
	if (dir)
		return 0;
	if (there)
		return den_fail(err, DEN_CONFLICT, 0, "'%.100s' is there and no directory", path);
	if (den_file_mkdir(box, path, &opt, err) < 0)
		return -1;
	if (!c->chown)
		return 0;
	snprintf(owner, sizeof(owner), "%u:%u", c->uid, c->gid);
	return den_file_chown(box, path, owner, NULL, err);
}

/* The directory to unpack in, and the file's new name (NULL: it keeps its own). */
static int place_find(
	struct copying *c, struct den_box *box, char **dir, char **name, struct den_err *err)
{
	const char *slash = strrchr(c->path, '/');
	bool there, into = c->dest_is_dir;

	if (!into && is_dir(box, c->path, &into, &there, err) < 0)
		return -1;
	*name = NULL;
	if (into) {
		*dir = mem_strdup(c->path);
	} else {
		*dir = slash == c->path ? mem_strdup("/")
					: mem_strndup(c->path, (size_t)(slash - c->path));
		*name = mem_strdup(slash + 1);
	}
	return dir_make(c, box, *dir, err);
}

/* ---- from the directory ---------------------------------------------------------------------- */

static struct context_pack_opt pack_opt(const struct copying *c, const char *rename)
{
	return (struct context_pack_opt){
		.uid = c->uid, .gid = c->gid, .mode = c->mode, .rename = rename
	};
}

/* Reads everything once for the key. Owners are not known yet: they are in the key by name. */
static int sum_make(struct build *b, struct copying *c, struct den_err *err)
{
	struct context_pack_opt opt = { .mode = c->mode };
	struct context_packer *p;
	auto_free char *buf = mem_alloc(64U << 10);
	ssize_t n;

	p = context_packer_new(&b->context, &c->items, &opt);
	while ((n = context_packer_read(buf, 64U << 10, p, err)) > 0)
		;
	if (n == 0)
		context_packer_sum(p, c->sum);
	context_packer_free(p);
	return n < 0 ? -1 : 0;
}

static int send_items(struct build *b, struct copying *c, const struct context_items *items,
	struct den_box *box, const char *dir, const char *name, struct den_err *err)
{
	struct context_pack_opt opt = pack_opt(c, name);
	struct context_packer *p;
	int r;

	if (!items->n)
		return 0;
	p = context_packer_new(&b->context, items, &opt);
	r = den_tar_in(box, dir, NULL, context_packer_read, p, err);
	context_packer_free(p);
	return r;
}

static int copy_items(
	struct build *b, struct state *s, struct den_box *box, void *user, struct den_err *err)
{
	auto_free char *dir = NULL, *name = NULL;
	struct copying *c = user;
	char before[65];

	(void)s;
	if (owner_get(c, box, err) < 0 || place_find(c, box, &dir, &name, err) < 0 ||
		send_items(b, c, &c->items, box, dir, name, err) < 0)
		return -1;
	/* what went in has to be what the key says, or the next build would believe a lie */
	memcpy(before, c->sum, sizeof(before));
	if (sum_make(b, c, err) < 0)
		return -1;
	if (strcmp(before, c->sum))
		return den_fail(
			err, DEN_CONFLICT, 0, "files changed while they were copied; build again");
	return 0;
}

/* ---- ADD: archives --------------------------------------------------------------------------- */

static bool header_is_tar(const unsigned char *h)
{
	unsigned sum = 0, want = 0;

	for (size_t i = 0; i < TAR_BLOCK; i++)
		sum += i >= 148 && i < 156 ? ' ' : h[i];
	for (size_t i = 148; i < 156; i++)
		if (h[i] >= '0' && h[i] <= '7')
			want = want * 8 + (h[i] - '0');
	return h[0] && sum == want;
}

static ssize_t fd_source(void *buf, size_t cap, void *user, struct den_err *err)
{
	return interrupt_read(*(int *)user, buf, cap, err);
}

/* Whether a file is a tar archive, also compressed: by what is in it, not by its name. */
static int is_archive(const struct build *b, const char *path, bool *ret, struct den_err *err)
{
	auto_fd fd = context_file(&b->context, path, err);
	unsigned char head[TAR_BLOCK];
	struct decompress *d;
	size_t have = 0;
	ssize_t n = 0;

	*ret = false;
	if (fd < 0)
		return -1;
	if (decompress_new(fd_source, &fd, 0, &d, err) < 0)
		return err->code == DEN_UNSUPPORTED ? den_wrap(err, "'%.80s'", path) : -1;
	while (have < sizeof(head) &&
		(n = decompress_read(head + have, sizeof(head) - have, d, NULL)) > 0)
		have += (size_t)n;
	decompress_free(d);
	*ret = have == sizeof(head) && header_is_tar(head);
	return interrupt_check(err);
}

static int archive_send(struct build *b, struct copying *c, struct den_box *box, const char *path,
	const char *dir, struct den_err *err)
{
	struct retar_opt opt = {
		.owner = c->chown != NULL, .uid = c->uid, .gid = c->gid, .mode = c->mode
	};
	auto_fd fd = context_file(&b->context, path, err);
	struct decompress *d;
	struct retar *t;
	int r;

	if (fd < 0 || decompress_new(fd_source, &fd, 0, &d, err) < 0)
		return -1;
	t = retar_new(decompress_read, d, &opt);
	r = den_tar_in(box, dir, NULL, retar_read, t, err);
	retar_free(t);
	decompress_free(d);
	return r < 0 ? den_wrap(err, "unpack '%.80s'", path) : 0;
}

/* Archives are unpacked, all else is copied. */
static int add_items(
	struct build *b, struct state *s, struct den_box *box, void *user, struct den_err *err)
{
	struct copying *c = user;
	struct context_items plain = { 0 }, all = c->items;
	auto_strv archives = NULL;
	int r = 0;

	for (size_t i = 0; r == 0 && i < all.n; i++) {
		bool archive = false;

		if (!all.list[i].dir && !all.list[i].text)
			r = is_archive(b, all.list[i].path, &archive, err);
		if (archive) {
			strv_add(&archives, all.list[i].path);
			continue;
		}
		plain.list = mem_realloc(plain.list, (plain.n + 1) * sizeof(*plain.list));
		plain.list[plain.n++] = all.list[i]; /* borrowed */
	}
	if (r == 0 && !archives) {
		free(plain.list);
		return copy_items(b, s, box, c, err);
	}
	if (r == 0)
		r = owner_get(c, box, err);
	if (r == 0)
		r = dir_make(c, box, c->path, err);
	for (char **a = archives; r == 0 && a && *a; a++)
		r = archive_send(b, c, box, *a, c->path, err);
	if (r == 0)
		r = send_items(b, c, &plain, box, c->path, NULL, err);
	free(plain.list);
	return r;
}

/* ---- from another template ------------------------------------------------------------------- */

static int to_spool(const void *data, size_t n, void *user, struct den_err *err)
{
	if (interrupt_check(err) < 0)
		return -1;
	return fd_write_all(*(int *)user, data, n, err);
}

/* Out of one box, through a file, into the other: both cannot be waited for at once. */
static int move_one(struct copying *c, struct den_box *from, struct den_box *box,
	const char *source, bool dir, const char *into, const char *name, struct den_err *err)
{
	const struct den_file_opt out = { .size = sizeof(out), .contents = dir };
	struct retar_opt opt = { .owner = true,
		.uid = c->uid,
		.gid = c->gid,
		.mode = c->mode,
		.rename = dir ? NULL : name };
	auto_fd fd = spool_new(err);
	struct stretch s = { .fd = fd };
	struct retar *t;
	int r;

	if (fd < 0 || den_tar_out(from, source, &out, to_spool, &fd, err) < 0)
		return -1;
	s.left = (uint64_t)lseek(fd, 0, SEEK_END);
	t = retar_new(stretch_read, &s, &opt);
	r = den_tar_in(box, into, NULL, retar_read, t, err);
	retar_free(t);
	return r;
}

struct listing {
	const char *pattern;
	char **found;
};

static int see_name(const struct den_entry *e, void *user, struct den_err *err)
{
	struct listing *l = user;

	(void)err;
	if (path_match(l->pattern, e->path))
		strv_add(&l->found, e->path);
	return 0;
}

/* The paths that a source names in a box. */
static int box_find(struct den_box *from, const char *source, char ***ret, struct den_err *err)
{
	auto_free char *clean = path_clean(source);
	struct listing l = { 0 };
	auto_buf top = { 0 };
	unsigned depth = 1;

	if (!clean)
		return den_fail(err, DEN_INVALID, 0, "'%.100s' leads above /", source);
	if (!path_is_pattern(clean)) {
		buf_addf(&top, "/%s", clean);
		strv_add(ret, buf_str(&top));
		return 0;
	}
	/* list from the last directory that is no pattern */
	l.pattern = clean;
	for (const char *slash; (slash = strchr(l.pattern, '/'));) {
		auto_free char *part = mem_strndup(l.pattern, (size_t)(slash - l.pattern));

		if (path_is_pattern(part))
			break;
		buf_addf(&top, "/%s", part);
		l.pattern = slash + 1;
	}
	for (const char *p = l.pattern; *p; p++)
		depth += *p == '/';
	if (den_file_list(from, top.len ? buf_str(&top) : "/", depth, NULL, see_name, &l, err) < 0)
		return -1;
	for (char **f = l.found; f && *f; f++) {
		auto_free char *full = NULL;

		if (asprintf(&full, "%s/%s", top.len ? buf_str(&top) : "", *f) >= 0)
			strv_add(ret, full);
	}
	if (!l.found)
		return den_fail(err, DEN_NOT_FOUND, 0, "nothing there matches '%.100s'", source);
	strv_free(l.found);
	return 0;
}

static int copy_from(
	struct build *b, struct state *s, struct den_box *box, void *user, struct den_err *err)
{
	auto_free char *dir = NULL, *name = NULL;
	struct copying *c = user;
	auto_strv found = NULL;
	auto_den_box from = NULL;
	size_t n;

	(void)s;
	if (work_box(b->w, c->from, &from, err) < 0)
		return -1;
	for (char **p = c->sources; *p; p++)
		if (box_find(from, *p, &found, err) < 0)
			return -1;
	n = strv_len(found);
	for (size_t i = 0; i < n; i++) {
		bool is, there;

		if (is_dir(from, found[i], &is, &there, err) < 0)
			return -1;
		if (!there)
			return den_fail(
				err, DEN_NOT_FOUND, 0, "'%.100s' is not in --from", found[i]);
		c->dest_is_dir = c->dest_is_dir || is || n > 1;
	}
	if (owner_get(c, box, err) < 0 || place_find(c, box, &dir, &name, err) < 0)
		return -1;
	for (size_t i = 0; i < n; i++) {
		bool is, there;

		if (is_dir(from, found[i], &is, &there, err) < 0 ||
			move_one(c, from, box, found[i], is, dir, name, err) < 0)
			return den_wrap(err, "'%.100s'", found[i]);
	}
	return 0;
}

/* ---- what was written ------------------------------------------------------------------------ */

static int flags_get(
	struct build *b, const struct df_step *step, struct copying *c, struct den_err *err)
{
	const char *chown = df_flag(step, "chown"), *chmod = df_flag(step, "chmod");
	auto_free char *mode = NULL;
	uint64_t v = 0;

	c->mode = -1;
	if (chown && build_expand(b, c->state, chown, &c->chown, err) < 0)
		return -1;
	if (!chmod)
		return 0;
	if (build_expand(b, c->state, chmod, &mode, err) < 0)
		return -1;
	if (!*mode || strlen(mode) > 5 || mode[strspn(mode, "01234567")])
		return den_fail(
			err, DEN_INVALID, 0, "--chmod=%.40s: write it in octal, like 0755", mode);
	for (const char *p = mode; *p; p++)
		v = v * 8 + (uint64_t)(*p - '0');
	c->mode = (int)(v & 07777);
	return 0;
}

static bool is_url(const char *s)
{
	return !strncmp(s, "http://", 7) || !strncmp(s, "https://", 8) ||
	       !strncmp(s, "ftp://", 6) || !strncmp(s, "git@", 4) || !strncmp(s, "git://", 6) ||
	       !strncmp(s, "ssh://", 6);
}

static const struct df_heredoc *doc_find(const struct df_step *step, const char *word)
{
	for (size_t i = 0; i < step->n_docs; i++)
		if (!strcmp(step->docs[i].word, word))
			return &step->docs[i];
	return NULL;
}

/* A heredoc's text keeps its quotes: only variables are put in. */
static int doc_add(
	struct build *b, struct copying *c, const struct df_heredoc *d, struct den_err *err)
{
	auto_buf quoted = { 0 };
	auto_free char *text = NULL;

	if (!d->expand) {
		context_add_text(&c->items, d->name, d->text);
		return 0;
	}
	for (const char *p = d->text; *p; p++) {
		if (*p == '\'' || *p == '"' || (*p == b->file.escape && p[1] != '$'))
			buf_add(&quoted, &b->file.escape, 1);
		buf_add(&quoted, p, 1);
	}
	if (build_expand(b, c->state, buf_str(&quoted), &text, err) < 0)
		return -1;
	context_add_text(&c->items, d->name, text);
	return 0;
}

static int source_add(struct build *b, const struct df_step *step, struct copying *c,
	const char *word, struct den_err *err)
{
	const struct df_heredoc *doc = doc_find(step, word);
	auto_free char *source = NULL;

	if (doc)
		return doc_add(b, c, doc, err);
	if (build_expand(b, c->state, word, &source, err) < 0)
		return -1;
	if (is_url(source))
		return den_fail(err, DEN_UNSUPPORTED, 0,
			"'%.80s': a build has no network, and a URL gives other bytes tomorrow; "
			"download it into the "
			"directory and COPY it",
			source);
	strv_add(&c->sources, source);
	return c->from ? 0 : context_find(&b->context, source, &c->items, err);
}

static int words_get(
	struct build *b, const struct df_step *step, struct copying *c, struct den_err *err)
{
	auto_strv words = NULL;
	size_t n;

	if (step->list)
		words = strv_copy((const char *const *)step->list);
	else if (df_words(step->text, b->file.escape, &words, err) < 0)
		return -1;
	n = strv_len(words);
	if (n < 2)
		return den_fail(err, DEN_INVALID, 0, "it is written %s SOURCE... DESTINATION",
			df_kind_str(step->kind));
	if (build_expand(b, c->state, words[n - 1], &c->dest, err) < 0)
		return -1;
	for (size_t i = 0; i + 1 < n; i++)
		if (source_add(b, step, c, words[i], err) < 0)
			return -1;
	c->path = build_path(c->state, c->dest);
	n = strlen(c->dest);
	c->dest_is_dir = c->items.n > 1 || strv_len(c->sources) > 1 || !n ||
			 c->dest[n - 1] == '/' || !strcmp(c->dest, ".") ||
			 (n > 1 && !strcmp(c->dest + n - 2, "/.")) || !strcmp(c->path, "/");
	for (size_t i = 0; i < c->items.n; i++)
		c->dest_is_dir = c->dest_is_dir || c->items.list[i].dir;
	return 0;
}

static int copy_step(struct build *b, size_t stage, const struct df_step *step, struct copying *c,
	struct den_err *err)
{
	const char *from = df_flag(step, "from");
	auto_free char *name = NULL;
	struct sha256 key;
	char mode[16];

	if (flags_get(b, step, c, err) < 0)
		return -1;
	if (from && (build_expand(b, c->state, from, &name, err) < 0 ||
			    build_source(b, stage, name, &c->from, err) < 0))
		return den_wrap(err, "--from");
	if (words_get(b, step, c, err) < 0 || (!c->from && sum_make(b, c, err) < 0))
		return -1;
	snprintf(mode, sizeof(mode), "%d", c->mode);
	key_begin(&key, c->state, df_kind_str(step->kind));
	key_text(&key, c->from);
	key_texts(&key, c->from ? c->sources : NULL);
	key_text(&key, c->sum);
	key_text(&key, c->path);
	key_text(&key, c->dest_is_dir ? "/" : "");
	key_text(&key, c->chown);
	key_text(&key, mode);
	return build_files(b, c->state, &key,
		c->from		       ? copy_from
		: step->kind == DF_ADD ? add_items
				       : copy_items,
		c, err);
}

int build_copy(struct build *b, size_t stage, struct state *s, const struct df_step *step,
	struct den_err *err)
{
	struct copying c = { .state = s };
	int r = copy_step(b, stage, step, &c, err);

	copying_free(&c);
	return r;
}
