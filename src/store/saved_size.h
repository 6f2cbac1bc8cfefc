/* What images take on disk: blocks that are there, not bytes that a manifest names. */
#pragma once

#include "store.h"

/* Files that were counted already. Checkpoints of a box share some, and so do boxes and templates (saved_share()): those
 * count once. */
struct saved_seen {
	struct {
		uint64_t dev, ino;
	} * at;
	size_t n, room; /* room: a power of two, or 0 */
};
void saved_seen_free(struct saved_seen *s);
#define auto_saved_seen __attribute__((cleanup(saved_seen_free))) struct saved_seen

/* All that is below STATE/memory/ID, in the making or whole, as blocks. seen NULL: for this box alone. */
uint64_t saved_disk(struct store *s, const struct box_id *id, struct saved_seen *seen);
