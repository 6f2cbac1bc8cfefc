#include "retar.h"

#include <string.h>

#include "buf.h"
#include "mem.h"
#include "tar.h"

#define CHUNK (64U << 10)

struct retar {
	den_source in;
	void *user;
	struct retar_opt opt;
	struct tar_reader *reader;
	struct buf out;
	size_t at;
	uint64_t size;
	bool ended, file;
	char chunk[CHUNK];
};

/* "top/a" is "NEW/a". */
static void name_change(const struct retar *r, const char *name, struct buf *ret)
{
	while (!strncmp(name, "./", 2))
		name += 2;
	if (r->opt.rename) {
		buf_addstr(ret, r->opt.rename);
		name += strcspn(name, "/");
	}
	buf_addstr(ret, name);
}

static int on_entry(const struct tar_entry *e, void *user, struct den_err *err)
{
	struct retar *r = user;
	struct tar_entry n = *e;
	auto_buf name = { 0 }, target = { 0 };

	r->file = false;
	if (e->type == TAR_CHAR_DEV || e->type == TAR_BLOCK_DEV)
		return 0;
	name_change(r, e->name, &name);
	n.name = buf_str(&name);
	if (!*n.name)
		return 0;
	if (e->type == TAR_HARDLINK) {
		name_change(r, e->target, &target);
		n.target = buf_str(&target);
	}
	if (r->opt.owner) {
		n.uid = r->opt.uid;
		n.gid = r->opt.gid;
	}
	if (r->opt.mode >= 0 && e->type != TAR_SYMLINK && e->type != TAR_HARDLINK)
		n.mode = (uint32_t)r->opt.mode;
	r->size = e->size;
	r->file = e->type == TAR_FILE;
	return tar_put_entry(&r->out, &n, err);
}

static int on_data(const void *p, size_t n, void *user, struct den_err *err)
{
	struct retar *r = user;

	(void)err;
	if (r->file)
		buf_add(&r->out, p, n); /* at most one chunk's worth before it is taken */
	return 0;
}

static int on_end(void *user, struct den_err *err)
{
	struct retar *r = user;

	(void)err;
	if (r->file)
		tar_put_pad(&r->out, r->size);
	r->file = false;
	return 0;
}

struct retar *retar_new(den_source in, void *user, const struct retar_opt *opt)
{
	static const struct tar_ops ops = { on_entry, on_data, on_end };
	struct retar *r = mem_new(struct retar);

	r->in = in;
	r->user = user;
	r->opt = *opt;
	r->reader = tar_reader_new(&ops, r);
	return r;
}

static int more(struct retar *r, struct den_err *err)
{
	ssize_t n = r->in(r->chunk, sizeof(r->chunk), r->user, err);

	if (n < 0)
		return -1;
	if (n > 0)
		return tar_reader_feed(r->reader, r->chunk, (size_t)n, err);
	r->ended = true;
	if (tar_reader_finish(r->reader, err) < 0)
		return -1;
	tar_put_end(&r->out);
	return 0;
}

ssize_t retar_read(void *buf, size_t cap, void *user, struct den_err *err)
{
	struct retar *r = user;
	size_t n;

	while (r->at == r->out.len && !r->ended) {
		r->at = r->out.len = 0;
		if (more(r, err) < 0)
			return -1;
	}
	n = MIN(cap, r->out.len - r->at);
	if (n)
		memcpy(buf, r->out.p + r->at, n);
	r->at += n;
	return (ssize_t)n;
}

void retar_free(struct retar *r)
{
	if (!r)
		return;
	tar_reader_free(r->reader);
	buf_free(&r->out);
	free(r);
}
