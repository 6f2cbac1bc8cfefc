/* The unified diff of change.h. */
#include <stdlib.h>
#include <string.h>

#include "change_parts.h"
#include "fd.h"
#include "mem.h"
#include "tar.h"
#include "text_diff.h"

#define CONTEXT 3U
#define FLUSH (64U << 10)
#define BINARY_LOOK 8000U

/* ---- texts ----------------------------------------------------------------------------------- */

bool text_is(const char *p, size_t n)
{
	return n <= TEXT_MAX && !memchr(p, '\0', MIN(n, (size_t)BINARY_LOOK)) &&
		text_count(p, n) <= TEXT_LINES_MAX;
}

int text_read(const struct view_dir *d, const char *name, const struct view_node *n, char **ret,
	size_t *ret_len, struct den_err *err)
{
	auto_free char *text = NULL;
	struct den_err e = { 0 };
	auto_fd fd = -1;

	if (S_ISLNK(n->st.st_mode)) {
		if (view_dir_readlink(d, name, ret, err) < 0)
			return -1;
		*ret_len = strlen(*ret);
		return 1;
	}
	if (!S_ISREG(n->st.st_mode) || n->st.st_size > (off_t)TEXT_MAX)
		return 0;
	if (view_dir_open_node(d, name, n, &fd, err) < 0)
		return -1;
	if (fd_read_all(fd, TEXT_MAX, &text, ret_len, &e) < 0) {
		if (e.code == DEN_LIMIT && !e.sys)
			return 0; /* it grew */
		if (err)
			*err = e;
		return -1;
	}
	if (!text_is(text, *ret_len))
		return 0;
	*ret = mem_take(&text);
	return 1;
}

/* ---- writing --------------------------------------------------------------------------------- */

struct writer {
	change_sink sink;
	void *user;
	struct buf out;
};

static int writer_flush(struct writer *w, size_t above, struct den_err *err)
{
	if (w->out.len <= above)
		return 0;
	if (w->sink(w->out.p, w->out.len, w->user, err) < 0)
		return -1;
	w->out.len = 0;
	return 0;
}

/* As git does: quoted, like a string of C, when a byte in it is not plain. */
static void name_put(struct buf *b, const char *prefix, const char *path)
{
	static const char named[] = { ['\a'] = 'a', ['\b'] = 'b', ['\t'] = 't', ['\n'] = 'n',
		['\v'] = 'v', ['\f'] = 'f', ['\r'] = 'r', ['"'] = '"', ['\\'] = '\\' };
	bool plain = true;

	for (const char *p = path; *p && plain; p++)
		plain = *p >= ' ' && *p <= '~' && *p != '"' && *p != '\\';
	if (plain) {
		buf_addf(b, "%s%s", prefix, path);
		return;
	}
	buf_addf(b, "\"%s", prefix);
	for (const char *p = path; *p; p++) {
		unsigned char c = (unsigned char)*p;

		if (c < sizeof(named) && named[c])
			buf_addf(b, "\\%c", named[c]);
		else if (c < ' ' || c > '~')
			buf_addf(b, "\\%03o", c);
		else
			buf_add(b, p, 1);
	}
	buf_addstr(b, "\"");
}

/* "--- a/x": a TAB tells where a name with spaces ends. */
static void file_line_put(struct buf *b, const char *mark, const char *prefix, const char *path)
{
	buf_addf(b, "%s ", mark);
	if (!path) {
		buf_addstr(b, "/dev/null\n");
		return;
	}
	name_put(b, prefix, path);
	buf_addstr(b, strchr(path, ' ') ? "\t\n" : "\n");
}

static int lines_put(struct writer *w, char mark, const struct text_lines *t, size_t from, size_t n,
	struct den_err *err)
{
	for (size_t i = from; i < from + n; i++) {
		const char *p = t->p + t->at[i];
		size_t len = t->at[i + 1] - t->at[i];

		buf_add(&w->out, &mark, 1);
		buf_add(&w->out, p, len);
		if (p[len - 1] != '\n')
			buf_addstr(&w->out, "\n\\ No newline at end of file\n");
		if (writer_flush(w, FLUSH, err) < 0)
			return -1;
	}
	return 0;
}

static void range_put(struct buf *b, char mark, size_t from, size_t n)
{
	/* Of no lines it is the line before that is named. */
	buf_addf(b, " %c%zu", mark, n ? from + 1 : from);
	if (n != 1)
		buf_addf(b, ",%zu", n);
}

/* Hunks [first, last) with what is around and between them. */
static int block_put(struct writer *w, const struct text_lines *a, const struct text_lines *b,
	const struct text_hunk *h, size_t first, size_t last, struct den_err *err)
{
	size_t before = MIN((size_t)CONTEXT, h[first].a), i = h[first].a - before;
	size_t end = MIN(a->n, h[last - 1].a + h[last - 1].n_a + CONTEXT);
	size_t end_b = h[last - 1].b + h[last - 1].n_b + (end - h[last - 1].a - h[last - 1].n_a);

	buf_addstr(&w->out, "@@");
	range_put(&w->out, '-', i, end - i);
	range_put(&w->out, '+', h[first].b - before, end_b - (h[first].b - before));
	buf_addstr(&w->out, " @@\n");
	for (size_t k = first; k < last; k++) {
		if (lines_put(w, ' ', a, i, h[k].a - i, err) < 0 ||
			lines_put(w, '-', a, h[k].a, h[k].n_a, err) < 0 ||
			lines_put(w, '+', b, h[k].b, h[k].n_b, err) < 0)
			return -1;
		i = h[k].a + h[k].n_a;
	}
	return lines_put(w, ' ', a, i, end - i, err);
}

static int hunks_put(struct writer *w, const char *text_a, size_t len_a, const char *text_b,
	size_t len_b, struct den_err *err)
{
	auto_free struct text_hunk *h = NULL;
	struct text_lines a, b;
	int r = 0;
	size_t n;

	text_split(text_a, len_a, &a);
	text_split(text_b, len_b, &b);
	text_number((struct text_lines *[]){ &a, &b }, 2);
	n = text_diff(&a, &b, &h);
	for (size_t i = 0, j; i < n && r == 0; i = j) {
		for (j = i + 1; j < n && h[j].a - (h[j - 1].a + h[j - 1].n_a) <= 2 * CONTEXT; j++)
			;
		r = block_put(w, &a, &b, h, i, j, err);
	}
	text_lines_free(&a);
	text_lines_free(&b);
	return r;
}

/* ---- files ----------------------------------------------------------------------------------- */

static bool is_shown(const struct view_node *n)
{
	return n->there && (S_ISREG(n->st.st_mode) || S_ISLNK(n->st.st_mode));
}

static unsigned git_mode(const struct view_node *n)
{
	return S_ISLNK(n->st.st_mode) ? 0120000 : (unsigned)n->st.st_mode;
}

static int content_put(
	struct writer *w, const struct view_entry *e, bool was, bool is, struct den_err *err)
{
	auto_free char *a = NULL, *b = NULL;
	size_t len_a = 0, len_b = 0;
	int ra, rb;

	ra = was ? text_read(e->dir[0], e->name, &e->node[0], &a, &len_a, err) : 1;
	rb = ra < 0 ? -1 : is ? text_read(e->dir[1], e->name, &e->node[1], &b, &len_b, err) : 1;
	if (rb < 0)
		return -1;
	if (!ra || !rb) {
		buf_addstr(&w->out, "Binary files ");
		was ? name_put(&w->out, "a/", e->path) : buf_addstr(&w->out, "/dev/null");
		buf_addstr(&w->out, " and ");
		is ? name_put(&w->out, "b/", e->path) : buf_addstr(&w->out, "/dev/null");
		buf_addstr(&w->out, " differ\n");
		return 0;
	}
	if (!len_a && !len_b)
		return 0;
	file_line_put(&w->out, "---", "a/", was ? e->path : NULL);
	file_line_put(&w->out, "+++", "b/", is ? e->path : NULL);
	return hunks_put(w, a ?: "", len_a, b ?: "", len_b, err);
}

/* One file: was it there before, is it now; what: CHANGED_*. */
static int file_put(struct writer *w, const struct view_entry *e, bool was, bool is, uint32_t what,
	struct den_err *err)
{
	buf_addstr(&w->out, "diff --git ");
	name_put(&w->out, "a/", e->path);
	buf_addstr(&w->out, " ");
	name_put(&w->out, "b/", e->path);
	buf_addstr(&w->out, "\n");
	if (!was)
		buf_addf(&w->out, "new file mode %06o\n", git_mode(&e->node[1]));
	else if (!is)
		buf_addf(&w->out, "deleted file mode %06o\n", git_mode(&e->node[0]));
	else if (what & CHANGED_MODE)
		buf_addf(&w->out, "old mode %06o\nnew mode %06o\n", git_mode(&e->node[0]),
			git_mode(&e->node[1]));
	if (was && is && !(what & (CHANGED_CONTENT | CHANGED_TARGET)))
		return 0;
	return content_put(w, e, was, is, err);
}

static int change_put(
	const struct view_entry *e, const struct change *c, void *user, struct den_err *err)
{
	struct writer *w = user;
	bool was = is_shown(&e->node[0]), is = is_shown(&e->node[1]);
	int r = 0;

	if (was && is && c->type_a == c->type_b) {
		if (c->what & (CHANGED_CONTENT | CHANGED_TARGET | CHANGED_MODE))
			r = file_put(w, e, true, true, c->what, err);
	} else {
		if (was)
			r = file_put(w, e, true, false, c->what, err);
		if (is && r == 0)
			r = file_put(w, e, false, true, c->what, err);
	}
	return r < 0 ? den_wrap(err, "'%s'", tar_show(e->path).s) : writer_flush(w, FLUSH, err);
}

int changes_text(const struct view *a, const struct view *b, change_sink sink, void *user,
	struct den_err *err)
{
	struct writer out = { .sink = sink, .user = user };
	int r = changes_walk(a, b, change_put, &out, err);

	if (r == 0)
		r = writer_flush(&out, 0, err);
	buf_free(&out.out);
	return r;
}
