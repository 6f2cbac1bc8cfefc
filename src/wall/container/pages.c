/* What pages_save.c and pages_load.c share: the table of what is where. */
#include "pages.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fd.h"
#include "mem.h"
#include "pages_fds.h"

#define MAGIC "denpage1"
#define PIECES_MAX (1U << 20)
#define ADDRESS_END (1ULL << 57)
#define PART_PIECES 256
#define PART_PAGES 1024 /* two that work in the same 2 MB of addresses wait for each other: those have one lock */

struct head {
	char magic[8];
	uint64_t n;
};

int pages_table_write(int dirfd, const struct piece *v, size_t n, struct den_err *err)
{
	auto_fd fd = openat(dirfd, PAGES_FILE, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
	struct head h = { MAGIC, n };

	if (fd < 0)
		return den_fail_sys(err, errno, "images");
	if (fd_write_all(fd, &h, sizeof(h), err) < 0)
		return -1;
	return fd_write_all(fd, v, n * sizeof(*v), err);
}

static bool is_sound(const struct piece *p)
{
	return p->file < PAGES_FILES_MAX && p->pid && p->start % PAGE == 0 && p->at % PAGE == 0 && p->pages &&
	       p->pages <= PIECE_PAGES && p->start < ADDRESS_END && p->at < ADDRESS_END;
}

int pages_table_read(int dirfd, struct piece **ret, size_t *ret_n, struct den_err *err)
{
	auto_fd fd = openat(dirfd, PAGES_FILE, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	auto_free char *text = NULL;
	struct head h;
	size_t len;

	*ret = NULL;
	*ret_n = 0;
	if (fd < 0)
		return errno == ENOENT ? 0 : den_fail_sys(err, errno, "images");
	if (fd_read_all(fd, sizeof(h) + PIECES_MAX * sizeof(struct piece), &text, &len, err) < 0)
		return -1;
	if (len < sizeof(h))
		goto damaged;
	memcpy(&h, text, sizeof(h));
	if (memcmp(h.magic, MAGIC, sizeof(h.magic)) || !h.n || h.n > PIECES_MAX ||
		len != sizeof(h) + h.n * sizeof(struct piece))
		goto damaged;
	*ret = mem_alloc(h.n * sizeof(**ret));
	memcpy(*ret, text + sizeof(h), h.n * sizeof(**ret));
	*ret_n = h.n;
	for (size_t i = 0; i < h.n; i++)
		if (!is_sound(&(*ret)[i])) {
			free(mem_take(ret));
			goto damaged;
		}
	return 0;
damaged:
	return den_fail(err, DEN_UNSUPPORTED, 0, "what was saved of the programs is damaged: '" PAGES_FILE "'");
}

size_t *pages_parts(const struct piece *v, size_t n, size_t *ret_n)
{
	size_t *begin = mem_alloc((n + 1) * sizeof(*begin)), parts = 0;

	for (size_t i = 0; i < n; parts++) {
		size_t first = i, pages = 0;

		begin[parts] = first;
		for (; i < n && i - first < PART_PIECES && pages < PART_PAGES; i++)
			pages += v[i].pages;
	}
	begin[parts] = n;
	*ret_n = parts;
	return begin;
}

static int piece_compare(const void *a, const void *b)
{
	const struct piece *x = a, *y = b;

	return x->pid != y->pid ? (x->pid < y->pid ? -1 : 1) : (x->start > y->start) - (x->start < y->start);
}

static int page_compare(const void *a, const void *b)
{
	const struct hide_page *x = a, *y = b;

	return x->pid != y->pid ? (x->pid < y->pid ? -1 : 1) : (x->address > y->address) - (x->address < y->address);
}

static bool is_before(const struct hide_page *k, const struct piece *v)
{
	return k->pid != v->pid ? k->pid < v->pid : k->address < v->start;
}

/* The first n pages of it go to *out; it is the rest. */
static void cut(struct piece *v, uint64_t n, struct piece *out, size_t *n_out)
{
	if (n) {
		out[*n_out] = *v;
		out[(*n_out)++].pages = n;
	}
	v->start += n * PAGE;
	v->at += n * PAGE;
	v->pages -= n;
}

struct piece *pages_leave_out(struct piece *all, size_t n, struct hide_page *kept, size_t n_kept, size_t *ret_n)
{
	struct piece *out = mem_alloc((n + n_kept + 1) * sizeof(*out));
	size_t k = 0;

	*ret_n = 0;
	qsort(all, n, sizeof(*all), piece_compare);
	qsort(kept, n_kept, sizeof(*kept), page_compare);
	for (size_t i = 0; i < n; i++) {
		struct piece v = all[i];

		while (k < n_kept && is_before(&kept[k], &v))
			k++;
		for (; k < n_kept && kept[k].pid == v.pid && kept[k].address < v.start + v.pages * PAGE; k++) {
			struct piece gone[1];
			size_t one = 0;

			if (kept[k].address < v.start) /* the same one again */
				continue;
			cut(&v, (kept[k].address - v.start) / PAGE, out, ret_n);
			cut(&v, 1, gone, &one);
		}
		cut(&v, v.pages, out, ret_n);
	}
	return out;
}
