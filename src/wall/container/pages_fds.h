/* Pages that den saves itself: what the keeper tells the library in CRIU's process, and the kernel's interface that both
 * use. The keeper fills in `ranges` while nothing of the box runs, before CRIU looks; the library fills in the rest. */
#pragma once

#include <stdint.h>
#include <sys/ioctl.h>

#define PAGE 4096UL
#define HIDE_RANGES_MAX 4096
#define HIDE_KEPT_MAX 32768

struct hide_range {
	uint64_t pid, start, end; /* pid: as the box has it */
	uint64_t asked;		  /* CRIU wanted to know: else its content is not to be kept (MAP_DROPPABLE) */
};

struct hide_page {
	uint64_t pid, address;
};

/* In a file in memory that both have mapped. */
struct hide {
	uint32_t n_ranges, n_kept;
	uint32_t used; /* CRIU was told of no page in them */
	struct hide_range ranges[HIDE_RANGES_MAX];
	struct hide_page kept[HIDE_KEPT_MAX]; /* but of these: CRIU keeps them */
};

/* /proc/PID/pagemap, since Linux 6.7 */
struct scan_region {
	uint64_t start, end, categories;
};

struct scan_arg {
	uint64_t size, flags, start, end, walk_end, vec, vec_len, max_pages;
	uint64_t inverted, mask, anyof, wanted;
};

#define SCAN_PAGES _IOWR('f', 16, struct scan_arg)
enum { SCAN_FILE = 1 << 2, SCAN_PRESENT = 1 << 3, SCAN_SWAPPED = 1 << 4, SCAN_ZERO = 1 << 5, SCAN_GUARD = 1 << 8 };
