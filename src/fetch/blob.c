/*
 * Blobs that come. Each goes to .part-HEX as it comes and is summed up on the way; it gets its name
 * when all of it is there and the sum is right. What is there of an earlier try is summed first,
 * and the rest is asked for with Range.
 *
 * Never are more bytes taken than the descriptor says. A blob that turns out wrong is removed; one
 * that only did not come to its end stays, for the next time.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "fd.h"
#include "fetch.h"

#define RESTARTS 2

struct pull_state;

struct download {
	struct http_req req;
	const struct descriptor *d;
	struct pull_state *all;
	struct sha256 sum;
	uint64_t got;
	int fd;
	unsigned restarts;
	bool resumed; /* part of it came from an earlier try, in this process or another */
};

struct pull_state {
	struct fetch *f;
	struct den_err *err;
	bool failed;
};

static int part_restart(struct download *b, struct den_err *err)
{
	if (ftruncate(b->fd, 0) < 0)
		return den_fail_sys(err, errno, "empty a part");
	b->all->f->progress.bytes -= b->got;
	b->got = 0;
	b->resumed = false;
	sha256_init(&b->sum);
	return 0;
}

static int part_take_up(struct download *b, struct den_err *err)
{
	struct stat st;

	if (layout_part_open(&b->all->f->layout, &b->d->digest, &b->fd, err) < 0)
		return -1;
	sha256_init(&b->sum);
	if (fstat(b->fd, &st) < 0)
		return den_fail_sys(err, errno, "look at a part");
	if ((uint64_t)st.st_size > b->d->size)
		return part_restart(b, err);
	if (file_sum(b->fd, (uint64_t)st.st_size, &b->sum, err) < 0)
		return -1;
	b->got = (uint64_t)st.st_size;
	b->resumed = b->got > 0;
	b->all->f->progress.bytes += b->got;
	return 0;
}

static int on_prepare(struct http_req *r, struct den_err *err)
{
	struct download *b = r->user;

	if (b->fd < 0 && part_take_up(b, err) < 0)
		return -1;
	/* as long as it should be, and wrong, else we would not be here */
	if (b->got && b->got == b->d->size && part_restart(b, err) < 0)
		return -1;
	if (b->got)
		b->resumed = true;
	r->from = b->got;
	return 0;
}

static int lie(struct download *b, uint64_t says, struct den_err *err)
{
	layout_part_remove(&b->all->f->layout, &b->d->digest);
	return den_fail(err, DEN_CONFLICT, 0,
		"blob %.12s has %llu bytes at the registry, and its image says %llu: nothing of it "
		"is kept",
		b->d->digest.hex, (unsigned long long)says, (unsigned long long)b->d->size);
}

static int on_head(struct http_req *r, struct den_err *err)
{
	struct download *b = r->user;

	if (r->status == 206) {
		if (!r->from || !r->has_range || r->range_from != r->from)
			return den_fail(err, DEN_CONFLICT, 0,
				"blob %.12s: the registry sends another part than was asked for",
				b->d->digest.hex);
		if (r->range_total && r->range_total != b->d->size)
			return lie(b, r->range_total, err);
		return 0;
	}
	if (r->status != 200)
		return 0;
	if (r->length >= 0 && (uint64_t)r->length != b->d->size)
		return lie(b, (uint64_t)r->length, err);
	return b->got ? part_restart(b, err) : 0; /* it does not know Range: from the beginning */
}

static int on_data(struct http_req *r, const void *p, size_t n, struct den_err *err)
{
	struct download *b = r->user;
	const char *at = p;
	size_t left = n;

	if (n > b->d->size - b->got) {
		layout_part_remove(&b->all->f->layout, &b->d->digest);
		return den_fail(err, DEN_CONFLICT, 0,
			"blob %.12s is more than the %llu bytes that its image says: nothing of it "
			"is kept",
			b->d->digest.hex, (unsigned long long)b->d->size);
	}
	sha256_add(&b->sum, p, n);
	while (left) {
		ssize_t w = pwrite(b->fd, at, left, (off_t)b->got);

		if (w < 0 && errno == EINTR)
			continue;
		if (w < 0)
			return den_fail_sys(err, errno, "write blob %.12s to the layout directory",
				b->d->digest.hex);
		at += w;
		left -= (size_t)w;
		b->got += (uint64_t)w;
		b->all->f->progress.bytes += (uint64_t)w;
	}
	return 0;
}

/* What there was from before may have been the wrong part: once more, from the beginning. */
static bool may_restart(struct download *b)
{
	return b->resumed && b->restarts++ < RESTARTS;
}

/* 1: whole and right; 0: begin anew; -1 */
static int blob_judge(struct download *b, struct den_err *err)
{
	struct http_req *r = &b->req;
	struct digest got;
	char what[32];

	snprintf(what, sizeof(what), "blob %.12s", b->d->digest.hex);
	if (r->failed) {
		*err = r->err;
		return -1;
	}
	if (r->status == 416 && may_restart(b))
		return part_restart(b, err) < 0 ? -1 : 0;
	if (r->status != 200 && r->status != 206)
		return registry_refusal(b->all->f, r, what, err);
	if (b->got != b->d->size)
		return lie(b, b->got, err);
	digest_end(&b->sum, &got);
	if (digest_same(&got, &b->d->digest))
		return 1;
	if (may_restart(b))
		return part_restart(b, err) < 0 ? -1 : 0;
	layout_part_remove(&b->all->f->layout, &b->d->digest);
	return den_fail(err, DEN_CONFLICT, 0,
		"%s has another digest, %.12s...: damaged or exchanged at the registry, nothing of "
		"it is kept",
		what, got.hex);
}

static void on_done(struct http_req *r)
{
	struct download *b = r->user;
	struct pull_state *all = b->all;
	int verdict = blob_judge(b, all->err);

	if (verdict == 0) {
		http_submit(all->f->http, r);
		return;
	}
	if (verdict < 0 || layout_part_keep(&all->f->layout, &b->d->digest, all->err) < 0) {
		all->failed = true;
		http_stop(all->f->http);
		return;
	}
	fd_close(&b->fd);
	all->f->progress.done++;
}

static bool listed_before(const struct descriptor *list, size_t i)
{
	for (size_t k = 0; k < i; k++)
		if (digest_same(&list[k].digest, &list[i].digest))
			return true;
	return false;
}

static void download_add(struct pull_state *all, struct download *b, const struct descriptor *d)
{
	char name[80];

	snprintf(name, sizeof(name), "sha256:%s", d->digest.hex);
	http_req_init(&b->req);
	b->req.url = registry_url(all->f, "blobs", name);
	b->req.prepare = on_prepare;
	b->req.head = on_head;
	b->req.data = on_data;
	b->req.done = on_done;
	b->req.user = b;
	b->d = d;
	b->all = all;
	http_submit(all->f->http, &b->req);
}

int blobs_pull(struct fetch *f, const struct descriptor *list, size_t n, struct den_err *err)
{
	auto_free struct download *all = mem_zalloc(n * sizeof(*all));
	struct pull_state state = { .f = f, .err = err };
	int r = 0;

	for (size_t i = 0; i < n; i++) {
		all[i].fd = -1;
		if (listed_before(list, i))
			continue;
		f->progress.total++;
		f->progress.bytes_total += list[i].size;
	}
	for (size_t i = 0; i < n && r >= 0; i++) {
		if (listed_before(list, i))
			continue;
		r = layout_has(&f->layout, &list[i], err);
		if (r > 0) {
			f->progress.done++;
			f->progress.bytes += list[i].size;
			progress_tick(&f->progress);
		} else if (r == 0) {
			download_add(&state, &all[i], &list[i]);
		}
	}
	if (r >= 0)
		r = http_run(f->http, err);
	else
		http_stop(f->http);
	for (size_t i = 0; i < n; i++) {
		http_req_free(&all[i].req);
		fd_close(&all[i].fd);
	}
	return r < 0 || state.failed ? -1 : 0;
}
