/*
 * What only init can tell, behind a wall with a kernel of its own: which processes there are. It is asked and
 * waited for, for a moment: what it says is hostile, so it is taken apart here and nothing else passes.
 */
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "keeper.h"

#define TELL_MS 2000
#define PS_MAX 2000
#define SILENT_S 60 /* who did not answer is left alone: everybody else waits meanwhile */

enum { HAS_PIDS = 1 << 5, HAS_PIDS_MAX = 1 << 6 }; /* of box_stats.has */

struct proc {
	uint64_t pid, ppid, uid, state, cpu, mem;
	uint64_t tasks;
	uint64_t tree; /* milliseconds, with the children it has waited for */
	const char *comm;
	size_t comm_len;
};

static bool proc_get(const struct wire_value *rec, struct proc *ret)
{
	struct wire_reader rd = wire_reader(rec->p, rec->len);
	struct proc p = { 0 };
	struct wire_value v;

	while (wire_next(&rd, &v, NULL) > 0) {
		if (v.tag == F_PID)
			(void)wire_u64(&v, 1 << 22, &p.pid, NULL);
		else if (v.tag == F_PPID)
			(void)wire_u64(&v, 1 << 22, &p.ppid, NULL);
		else if (v.tag == F_UID)
			(void)wire_u64(&v, UINT32_MAX, &p.uid, NULL);
		else if (v.tag == F_STATE)
			(void)wire_u64(&v, 127, &p.state, NULL);
		else if (v.tag == F_CPU_USEC)
			(void)wire_u64(&v, INT64_MAX, &p.cpu, NULL);
		else if (v.tag == F_CPU_MS)
			(void)wire_u64(&v, INT64_MAX / 1000, &p.tree, NULL);
		else if (v.tag == F_PIDS_NOW)
			(void)wire_u64(&v, 1 << 22, &p.tasks, NULL);
		else if (v.tag == F_MEM_BYTES)
			(void)wire_u64(&v, INT64_MAX, &p.mem, NULL);
		else if (v.tag == F_COMM && v.len <= 512 && !memchr(v.p, 0, v.len)) {
			p.comm = v.p;
			p.comm_len = v.len;
		}
	}
	*ret = p;
	return p.pid > 0 && p.comm;
}

/* The answer, as it came. */
static int ask(struct keeper *k, struct buf *ret)
{
	if (!k->init_up || k->row.info.state == BOX_PAUSED)
		return -1;
	if (k->inside_silent_ns && clock_mono_ns() - k->inside_silent_ns < SILENT_S * NS_PER_SEC)
		return -1;
	buf_free(&k->inside);
	k->inside = (struct buf){ 0 };
	k->inside_known = false;
	conn_send(&k->init, WM_PS, 0, NULL, 0);
	init_attend(k, &k->inside_known, TELL_MS);
	if (!k->inside_known) {
		k->inside_silent_ns = k->init_up ? clock_mono_ns() : 0;
		return -1;
	}
	*ret = k->inside;
	k->inside = (struct buf){ 0 };
	return 0;
}

void inside_answer(struct keeper *k, const struct wire_frame *f)
{
	k->inside_silent_ns = 0; /* even if it is late */
	if (k->inside_known)
		return;
	buf_add(&k->inside, f->p, f->len);
	k->inside_known = true;
}

void inside_ps(struct keeper *k, struct buf *b)
{
	auto_buf text = { 0 };
	struct wire_reader rd;
	struct wire_value v;
	size_t n = 0;

	if (ask(k, &text) < 0)
		return;
	rd = wire_reader(text.p, text.len);
	while (n < PS_MAX && b->len < WIRE_MAX_PAYLOAD - 4096 && wire_next(&rd, &v, NULL) > 0) {
		auto_buf rec = { 0 };
		struct proc p;

		if (v.tag != F_RECORD2 || !proc_get(&v, &p))
			continue;
		wire_put_u64(&rec, F_PID, p.pid);
		wire_put_u64(&rec, F_PPID, p.ppid);
		wire_put_u64(&rec, F_INIT_PID, p.pid);
		wire_put_u64(&rec, F_UID, p.uid);
		wire_put_u64(&rec, F_STATE, p.state);
		wire_put_u64(&rec, F_CPU_USEC, p.cpu);
		wire_put_u64(&rec, F_MEM_BYTES, p.mem);
		wire_put_bytes(&rec, F_COMM, p.comm, p.comm_len);
		wire_put_bytes(b, F_RECORD2, rec.p, rec.len);
		n++;
	}
}

static int by_parent(const void *a, const void *b)
{
	const struct proc *p = a, *q = b;

	return p->ppid < q->ppid ? -1 : p->ppid > q->ppid;
}

/* The first one with that parent, or with a later one; in order of parents. */
static size_t first_child(const struct proc *all, size_t n, uint64_t parent)
{
	size_t low = 0, high = n;

	while (low < high) {
		size_t mid = low + (high - low) / 2;

		if (all[mid].ppid < parent)
			low = mid + 1;
		else
			high = mid;
	}
	return low;
}

/* Of root and all below it. Its program reaps its orphans, so all of it hangs together. Each is looked at once,
 * whatever the list says: pids may come twice, and be their own ancestors. */
static uint64_t inside_tree(struct proc *all, size_t n, uint64_t root)
{
	auto_free size_t *queue = mem_alloc((n + 1) * sizeof(*queue));
	auto_free bool *in = mem_zalloc(n + 1);
	size_t end = 0;
	uint64_t sum = 0;

	qsort(all, n, sizeof(*all), by_parent);
	for (size_t i = 0; i < n; i++)
		if (all[i].pid == root && !in[i]) {
			in[i] = true;
			queue[end++] = i;
		}
	for (size_t at = 0; at < end; at++) {
		const struct proc *p = &all[queue[at]];

		sum += MIN(p->tree, UINT64_MAX - sum);
		for (size_t i = first_child(all, n, p->pid); i < n && all[i].ppid == p->pid && !in[i]; i++) {
			in[i] = true;
			queue[end++] = i;
		}
	}
	return sum;
}

int inside_cpu(struct keeper *k, uint64_t root, uint64_t *usec)
{
	auto_buf text = { 0 };
	auto_free struct proc *all = NULL;
	struct wire_reader rd;
	struct wire_value v;
	size_t n = 0;

	if (!root || ask(k, &text) < 0)
		return -1;
	all = mem_alloc(PS_MAX * sizeof(*all));
	rd = wire_reader(text.p, text.len);
	while (n < PS_MAX && wire_next(&rd, &v, NULL) > 0)
		if (v.tag == F_RECORD2 && proc_get(&v, &all[n]))
			n++;
	*usec = MIN(inside_tree(all, n, root), UINT64_MAX / 1000) * 1000;
	return 0;
}

/* How many processes and threads there are, as the box says; how many there may be is known here. */
void inside_stats(struct keeper *k, struct box_stats *st)
{
	auto_buf text = { 0 };
	struct wire_reader rd;
	struct wire_value v;
	struct proc p;

	st->pids_max = k->row.info.spec.pids ? MIN(k->row.info.spec.pids, k->ops->pids_max) : k->ops->pids_max;
	st->has |= HAS_PIDS_MAX;
	st->pids = 0; /* the host's count is of the kernel's own threads */
	if (ask(k, &text) < 0)
		return;
	rd = wire_reader(text.p, text.len);
	for (size_t n = 0; n < PS_MAX && wire_next(&rd, &v, NULL) > 0; n++)
		if (v.tag == F_RECORD2 && proc_get(&v, &p))
			st->pids += MAX(p.tasks, 1U);
	st->has |= HAS_PIDS;
}
