/*
 * Checkpoints and turns. rollback.c goes back to them.
 *
 * A checkpoint is made in this order: the snapshot is on disk, then its row (with the new head) is,
 * then it is acknowledged.
 *
 * A turn is an exec or a file operation. When one has ended and was answered, it is looked whether
 * anything changed (a fingerprint of the box's own changes, or on btrfs, when there are too many
 * files for that, a snapshot compared with the last), and if so a checkpoint is made. The client
 * does not wait for it; the next request does.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "clock.h"
#include "fd.h"
#include "fsop.h"
#include "history.h"
#include "keeper.h"
#include "parse.h"
#include "saved.h"

/* Entries that are looked at one by one: beyond that a snapshot is cheaper, and of a plain pool nothing is. */
#define PRINT_MAX_BTRFS 300
#define PRINT_MAX_PLAIN 50000
#define MESSAGE_MAX 400
#define CHECKPOINTS_MAX 5000 /* thinned early beyond that */
#define THIN_EVERY 50
#define TURN_SLOW_MS 1000
#define TURN_SHARE 20
#define PRINT_SKIPS 32 /* looks that are spared when there were too many entries at the last one */

/* As home_fingerprint(). */
static int look(struct keeper *k, uint64_t *print, struct den_err *err)
{
	bool plain = k->pool && k->pool->kind == POOL_PLAIN;
	int r;

	if (!plain && k->print_skips) {
		k->print_skips--;
		k->print_bytes = 0;
		return 0;
	}
	r = home_fingerprint(k, plain ? PRINT_MAX_PLAIN : PRINT_MAX_BTRFS, print, err);
	k->print_skips = r == 0 ? PRINT_SKIPS : 0;
	return r;
}

int need_history(const struct keeper *k, struct den_err *err)
{
	if (!k->row.work)
		return den_fail(err, DEN_UNSUPPORTED, 0,
			"this box has no history: it is a throwaway box, or was made with --history off");
	return 0;
}

/* ---- the fingerprint of head, for the next keeper ---- */

#define PRINT_FILE "print"

/* Not synced: without it, or with an old one, a checkpoint too many is made. */
void box_print_set(struct keeper *k, uint64_t print, bool known)
{
	auto_fd fd = -1;
	char text[64];

	k->print = print;
	k->print_known = known;
	snprintf(text, sizeof(text), "%llu %llu %llu\n", (unsigned long long)k->row.work,
		(unsigned long long)k->row.head, (unsigned long long)print);
	unlinkat(k->boxfd, PRINT_FILE, 0);
	if (known)
		fd = openat(k->boxfd, PRINT_FILE, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd >= 0)
		(void)!write(fd, text, strlen(text));
}

/* A keeper that died while it made a checkpoint may have left the box held still. (Who holds its disk lets
 * go by himself.) */
static void let_go(struct keeper *k)
{
	struct den_err ignored;

	if (k->row.work && k->row.info.state == BOX_RUNNING)
		(void)k->ops->freeze(&k->wall, false, &ignored);
}

/* What the keeper before this one knew of the present, or left of its work on it. */
void box_print_load(struct keeper *k)
{
	auto_fd fd = openat(k->boxfd, PRINT_FILE, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	unsigned long long work, head, print;
	char text[64] = "";

	let_go(k);
	if (fd < 0 || read(fd, text, sizeof(text) - 1) <= 0 ||
		sscanf(text, "%llu %llu %llu", &work, &head, &print) != 3)
		return;
	if (work == k->row.work && head == k->row.head) {
		k->print = print;
		k->print_known = true;
	}
}

/* Right after the present was made as head is. */
void box_print_now(struct keeper *k)
{
	uint64_t print = 0;
	struct den_err ignored;
	int r = k->row.work ? look(k, &print, &ignored) : 0;

	if (k->row.work)
		box_print_set(k, print, r > 0);
}

/* ---- making one ---- */

/* A plain pool copies file by file: nothing may change meanwhile. Of a disk, nothing may between the
 * snapshot and the look at what it is like after it. */
static bool hold_still(struct keeper *k)
{
	struct den_err ignored;

	return !k->saving && (k->pool->kind == POOL_PLAIN || k->row.info.spec.disk) && k->row.info.state == BOX_RUNNING &&
		k->ops->freeze(&k->wall, true, &ignored) == 0;
}

/* *print, *known: the fingerprint from before; of a disk, the one from after, since holding it writes to it. */
int box_snapshot(struct keeper *k, uint64_t number, uint64_t *print, bool *known, struct den_err *err)
{
	char from[64], to[64], like[64];
	struct den_err ignored;
	bool held;
	int r;

	home_name(k, 'w', k->row.work, from);
	home_name(k, 'c', number, to);
	home_name(k, 'c', k->row.head, like);
	if (faccessat(k->pool->fd, to, F_OK, AT_SYMLINK_NOFOLLOW) == 0 && home_discard(k, to, err) < 0)
		return -1; /* of a keeper that died before it had a row */
	if (faccessat(k->pool->fd, like, F_OK, AT_SYMLINK_NOFOLLOW) < 0)
		like[0] = '\0';
	held = hold_still(k);
	r = k->ops->settle(&k->wall, k->fsfd, SETTLE_HOLD, err);
	if (r == 0) {
		r = home_snapshot(k, from, like[0] ? like : NULL, to, true, err);
		(void)k->ops->settle(&k->wall, k->fsfd, SETTLE_GO, &ignored);
	}
	if (r == 0 && k->row.info.spec.disk)
		*known = (held || !box_is_up(k)) && look(k, print, &ignored) > 0;
	if (held)
		(void)k->ops->freeze(&k->wall, false, &ignored);
	return r < 0 ? den_wrap(err, "checkpoint") : 0;
}

/* The row of a snapshot that is there. */
int box_record(struct keeper *k, uint64_t number, enum ckpt_kind kind, const char *message, const char *origin,
	uint64_t images, struct den_err *err)
{
	struct ckpt c = { .number = number, .parent = (int64_t)k->row.head, .created_ms = clock_wall_ms(),
		.turn = k->row.turn, .size = k->print_bytes, .images = images, .kind = kind, .message = (char *)message, .origin = (char *)origin };
	uint64_t head = k->row.head, next = k->row.next;
	int64_t pending = k->row.pending;

	k->row.head = number;
	k->row.next = number + 1;
	if (kind == CKPT_MERGE)
		k->row.pending = -1;
	if (history_add(k->store, &k->row, &c, err) == 0) {
		feed_number(k, "checkpoint.made", "number", number, "checkpoint", ckpt_kind_str[kind]);
		return 0;
	}
	k->row.head = head;
	k->row.next = next;
	k->row.pending = pending;
	return -1;
}

int box_checkpoint(struct keeper *k, enum ckpt_kind kind, const char *message, const char *origin,
	uint64_t *ret, struct den_err *err)
{
	uint64_t number = k->row.next, print = 0;
	struct den_err ignored;
	char name[64];
	bool known;

	if (need_history(k, err) < 0 || home_open(k, err) < 0)
		return -1;
	known = look(k, &print, &ignored) > 0;
	if (box_snapshot(k, number, &print, &known, err) < 0)
		return -1;
	if (box_record(k, number, kind, message, origin, 0, err) < 0) {
		home_name(k, 'c', number, name);
		(void)home_discard(k, name, &ignored);
		return -1;
	}
	box_print_set(k, print, known);
	*ret = number;
	return 0;
}

/* Is the present other than head? 1, 0; -1: cannot be told. *known: *print is its fingerprint. */
static int is_changed(struct keeper *k, uint64_t *print, bool *known, struct den_err *err)
{
	int r;

	if (home_open(k, err) < 0)
		return -1;
	r = look(k, print, err);
	if (r < 0)
		return -1;
	*known = r > 0;
	return !(r > 0 && k->print_known && *print == k->print);
}

/* A snapshot that turned out to hold nothing new is taken back. 1: made, *ret set; 0: nothing new. */
int box_checkpoint_if_changed(struct keeper *k, enum ckpt_kind kind, const char *message, uint64_t *ret,
	struct den_err *err)
{
	uint64_t print = 0, number = k->row.next;
	char head[64], name[64];
	struct den_err ignored;
	bool known;
	int r;

	r = is_changed(k, &print, &known, err);
	if (r <= 0)
		return r;
	if (box_snapshot(k, number, &print, &known, err) < 0)
		return -1;
	home_name(k, 'c', k->row.head, head);
	home_name(k, 'c', number, name);
	if (faccessat(k->pool->fd, head, F_OK, AT_SYMLINK_NOFOLLOW) == 0 &&
		pool_differs(k->pool, head, name, &ignored) == 0)
		r = 0;
	if (r > 0 && box_record(k, number, kind, message, NULL, 0, err) < 0)
		r = -1;
	if (r <= 0)
		(void)home_discard(k, name, &ignored);
	if (r >= 0)
		box_print_set(k, print, known);
	if (r > 0)
		*ret = number;
	return r;
}

/* ---- turns ---- */

static bool only_looks(char *const *argv)
{
	static const char *const ops[] = { "read", "stat", "list", "watch", "tarout" };

	for (size_t i = 0; argv && argv[0] && i < ARRAY_SIZE(ops); i++)
		if (!strcmp(argv[0], ops[i]))
			return true;
	return false;
}

/*
 * A checkpoint that takes long (a plain pool with many files) keeps everybody waiting. Then several
 * turns share one: at most a twentieth of the time goes into them.
 */
static bool too_soon(struct keeper *k)
{
	int64_t next = k->turn_at + TURN_SHARE * k->turn_cost;

	if (k->turn_cost < TURN_SLOW_MS * NS_PER_MS || clock_mono_ns() >= next)
		return false;
	loop_timer_set(k->loop, &k->turn_later, next);
	return true;
}

void box_turn_end(struct keeper *k)
{
	auto_buf message = { 0 };
	struct den_err err;
	uint64_t number;
	int64_t begin = clock_mono_ns();

	buf_add(&message, k->turn_message.p, k->turn_message.len);
	buf_free(&k->turn_message);
	if (k->gone || !k->row_written || k->merging || !k->row.work)
		return;
	/* What goes wrong here (a full disk) is told by the next checkpoint that somebody asks for. */
	if (box_checkpoint_if_changed(k, CKPT_TURN, buf_str(&message), &number, &err) > 0 &&
		number % THIN_EVERY == 0)
		(void)box_prune(k, 0, false, &number, &err);
	k->turn_at = clock_mono_ns();
	k->turn_cost = k->turn_at - begin;
}

static void turn_later_cb(struct loop_timer *t)
{
	struct keeper *k = CONTAINER_OF(t, struct keeper, turn_later);

	k->turn_due = true;
	work_run(k);
}

static void turn_end_cb(struct loop_deferred *d)
{
	struct keeper *k = CONTAINER_OF(d, struct keeper, turn_end);

	k->turn_open = false;
	k->turn_later.cb = turn_later_cb;
	if (k->gone || !too_soon(k)) {
		k->turn_due = true;
		work_run(k);
	}
}

void box_turn(struct keeper *k, const struct exec_info *x)
{
	bool builtin = x->flags & EXEC_BUILTIN;

	if (!k->row.work || k->gone || (builtin && only_looks(x->argv)))
		return;
	k->row.turn++;
	if (k->row.info.spec.history != HISTORY_ON)
		return;
	if (k->turn_message.len)
		buf_addstr(&k->turn_message, "; ");
	for (size_t i = 0; x->argv && x->argv[i] && k->turn_message.len < MESSAGE_MAX && (!builtin || i < 2); i++) {
		if (i)
			buf_addstr(&k->turn_message, " ");
		buf_add(&k->turn_message, x->argv[i], MIN(strlen(x->argv[i]), (size_t)MESSAGE_MAX));
	}
	k->turn_message.len = MIN(k->turn_message.len, (size_t)MESSAGE_MAX);
	if (!k->turn_open) {
		k->turn_open = true;
		k->turn_end.cb = turn_end_cb;
		loop_defer(k->loop, &k->turn_end);
	}
}

/* Whoever looks at the history sees the turns that have ended. */
static int look_at(struct keeper *k, struct den_err *err)
{
	if (k->turn_later.when && !k->merging) {
		loop_timer_clear(&k->turn_later);
		box_turn_end(k);
	}
	return need_history(k, err);
}

/* ---- requests ---- */

int box_resolve(struct keeper *k, const char *ref, uint64_t *ret, struct den_err *err)
{
	struct ckpt *all = NULL;
	size_t n = 0;
	int r;

	if (look_at(k, err) < 0 || history_list(k->store, &k->id, &all, &n, err) < 0)
		return -1;
	r = history_resolve(all, n, &k->row, ref, ret, err);
	ckpts_free(all, n);
	return r;
}

/* What a box on disk comes back from stays, and what a fork is just being made of. */
static size_t keep_needed(struct keeper *k, uint64_t *numbers, size_t n)
{
	size_t left = 0;

	for (size_t i = 0; i < n; i++)
		if ((k->row.info.on_disk != ON_DISK_FULL || numbers[i] != k->row.info.images) &&
			!memory_in_use(k, numbers[i]))
			numbers[left++] = numbers[i];
	return left;
}

int box_prune(struct keeper *k, uint64_t keep_ms, bool everything, uint64_t *ret, struct den_err *err)
{
	auto_free uint64_t *gone = NULL;
	struct ckpt *all = NULL;
	size_t n = 0, n_gone = 0;
	int r;

	if (look_at(k, err) < 0 || home_pool(k, err) < 0 ||
		history_list(k->store, &k->id, &all, &n, err) < 0)
		return -1;
	history_thin(all, n, &k->row, clock_wall_ms(), keep_ms, everything || n > CHECKPOINTS_MAX, &gone, &n_gone);
	ckpts_free(all, n);
	if (!everything && !keep_ms && n > CHECKPOINTS_MAX) /* too many: the oldest, and no more than must be */
		n_gone = MIN(n_gone, n - CHECKPOINTS_MAX);
	n_gone = keep_needed(k, gone, n_gone);
	r = n_gone ? history_remove(k->store, &k->id, gone, n_gone, err) : 0;
	for (size_t i = 0; r == 0 && i < n_gone; i++) {
		char name[64];

		home_name(k, 'c', gone[i], name);
		saved_remove(k->store, &k->id, gone[i]);
		r = home_discard(k, name, err);
	}
	*ret = n_gone;
	return r;
}

int req_checkpoint(struct client *c, const struct wire_frame *f, struct buf *out, struct den_err *err)
{
	auto_free char *message = NULL;
	uint64_t number;

	if (field_str(f, F_MSG, 4096, &message, err) < 0)
		return -1;
	if (field_u64(f, F_FLAGS, 0) & SAVE_FULL)
		return memory_checkpoint(c->k, message, out, err);
	if (box_checkpoint(c->k, CKPT_MANUAL, message, NULL, &number, err) < 0)
		return -1;
	wire_put_u64(out, F_NUMBER, number);
	return 0;
}

static void put_ckpt(struct keeper *k, struct buf *b, const struct ckpt *c, bool head)
{
	uint64_t own, shared;

	wire_put_u64(b, F_NUMBER, c->number);
	wire_put_u64(b, F_PARENT, (uint64_t)(c->parent + 1));
	wire_put_u64(b, F_CREATED_MS, (uint64_t)c->created_ms);
	wire_put_u64(b, F_TURN, c->turn);
	wire_put_u64(b, F_SIZE, c->size);
	wire_put_str(b, F_KIND, ckpt_kind_str[c->kind]);
	wire_put_str(b, F_MSG, c->message);
	wire_put_str(b, F_ORIGIN, c->origin);
	wire_put_str(b, F_TAG, c->tags);
	wire_put_u64(b, F_HEAD, head);
	if (c->images) {
		wire_put_u64(b, F_FULL, 1);
		wire_put_u64(b, F_IMAGES, c->images);
		saved_usage(k->store, &k->id, c->number, &own, &shared);
		wire_put_u64(b, F_IMAGES_DISK, own);
		wire_put_u64(b, F_IMAGES_SHARED, shared);
	}
}

static void send_ckpt(struct client *c, const struct ckpt *ckpt)
{
	auto_buf rec = { 0 }, b = { 0 };

	put_ckpt(c->k, &rec, ckpt, ckpt->number == c->k->row.head);
	wire_put_bytes(&b, F_RECORD, rec.p, rec.len);
	conn_send_buf(&c->conn, WM_RECORD, 0, &b);
}

int req_log(struct client *c, const struct wire_frame *f, struct buf *out, struct den_err *err)
{
	struct keeper *k = c->k;
	struct ckpt *all = NULL;
	size_t n = 0;

	(void)f, (void)out;
	if (look_at(k, err) < 0 || history_list(k->store, &k->id, &all, &n, err) < 0)
		return -1;
	if (!n || all[0].number) {
		struct ckpt base = { .parent = -1, .created_ms = k->row.info.created_ms, .kind = CKPT_BASE,
			.message = (char *)"as the template is", .tags = (char *)"" };

		send_ckpt(c, &base);
	}
	for (size_t i = 0; i < n; i++)
		send_ckpt(c, &all[i]);
	ckpts_free(all, n);
	return 0;
}

/* A tag must not look like any other reference. */
static int check_tag(const char *tag, struct den_err *err)
{
	static const char ok[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
	size_t n = strlen(tag);

	if (!n || n > 64 || strspn(tag, ok) != n || strspn(tag, "0123456789") == n || tag[0] == '-' ||
		!strcmp(tag, "head") || !strcmp(tag, "now") || !strcmp(tag, "base"))
		return den_fail(err, DEN_INVALID, 0,
			"'%.70s' cannot be a tag: letters, digits, . _ -, at most 64, not a number alone, and not "
			"'head', 'now' or 'base'", tag);
	return 0;
}

int req_tag(struct client *c, const struct wire_frame *f, struct buf *out, struct den_err *err)
{
	auto_free char *ref = NULL, *tag = NULL;
	struct keeper *k = c->k;
	uint64_t number;

	(void)out;
	if (field_str(f, F_REF, 64, &ref, err) < 0 || field_str(f, F_TAG, 255, &tag, err) < 0 || look_at(k, err) < 0)
		return -1;
	if (check_tag(tag ? tag : "", err) < 0)
		return -1;
	if (field_u64(f, F_FLAGS, 0) & 1)
		return history_untag(k->store, &k->id, tag, err);
	if (box_resolve(k, ref, &number, err) < 0)
		return -1;
	if (!number)
		return den_fail(err, DEN_INVALID, 0, "the beginning is called 'base' already");
	return history_tag(k->store, &k->id, tag, number, err);
}

/* The checkpoint that undoing so many turns leads to. */
static int undo_target(struct keeper *k, uint64_t turns, uint64_t *ret, struct den_err *err)
{
	uint64_t made;
	char ref[32];

	/* what has no checkpoint yet is the newest */
	if (box_checkpoint_if_changed(k, CKPT_ROLLBACK, "before undo", &made, err) < 0)
		return -1;
	snprintf(ref, sizeof(ref), "~%llu", (unsigned long long)turns);
	return box_resolve(k, ref, ret, err);
}

/* One connection to the database for all of it. */
static int rollback_held(struct keeper *k, uint64_t number, bool programs, uint64_t *before, struct den_err *err)
{
	int r;

	store_hold(k->store);
	r = box_rollback(k, number, true, programs, before, err);
	store_let_go(k->store);
	return r;
}

int req_rollback(struct client *c, const struct wire_frame *f, struct buf *out, struct den_err *err)
{
	uint64_t turns = field_u64(f, F_COUNT, 0), number, before;
	auto_free char *ref = NULL;

	if (field_str(f, F_REF, 64, &ref, err) < 0 || look_at(c->k, err) < 0)
		return -1;
	if (c->k->merging)
		return den_fail(err, DEN_CONFLICT, 0, "a merge into this box is under way");
	/* it would be started again */
	if ((box_is_up(c->k) || c->k->row.info.on_disk) && lease_left(c->k, err) < 0)
		return -1;
	if ((turns ? undo_target(c->k, turns, &number, err) : box_resolve(c->k, ref, &number, err)) < 0)
		return -1;
	if (rollback_held(c->k, number, !turns && !(field_u64(f, F_FLAGS, 0) & ROLLBACK_DISK), &before, err) < 0)
		return -1;
	wire_put_u64(out, F_NUMBER, before);
	wire_put_u64(out, F_HEAD, number);
	return 0;
}

int req_prune(struct client *c, const struct wire_frame *f, struct buf *out, struct den_err *err)
{
	uint64_t removed;

	if (box_prune(c->k, field_u64(f, F_TIMEOUT_MS, 0), field_u64(f, F_FLAGS, 0) & 1, &removed, err) < 0)
		return -1;
	wire_put_u64(out, F_COUNT, removed);
	return 0;
}

/* "now" or nothing: the present, which gets a checkpoint if it has none. */
int box_point(struct keeper *k, const char *ref, uint64_t *ret, struct den_err *err)
{
	uint64_t made;

	if (ref && *ref && strcmp(ref, "now"))
		return box_resolve(k, ref, ret, err);
	if (look_at(k, err) < 0 ||
		box_checkpoint_if_changed(k, CKPT_MANUAL, "for a fork or a comparison", &made, err) < 0)
		return -1;
	*ret = k->row.head;
	return 0;
}

int req_fork_point(struct client *c, const struct wire_frame *f, struct buf *out, struct den_err *err)
{
	auto_free char *ref = NULL;
	uint64_t number;
	char from[64];

	if (field_str(f, F_REF, 64, &ref, err) < 0)
		return -1;
	if (field_u64(f, F_FLAGS, 0) & SAVE_FULL)
		return memory_point(c, ref, field_u64(f, F_FLAGS, 0) & SAVE_LEND, out, err);
	if (box_point(c->k, ref, &number, err) < 0)
		return -1;
	snprintf(from, sizeof(from), "%s@%llu", c->k->id.s, (unsigned long long)number);
	wire_put_str(out, F_FROM, from);
	return 0;
}
