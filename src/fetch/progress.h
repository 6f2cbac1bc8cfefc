/* One line a second on stderr. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct progress {
	const char *doing; /* "pulling" */
	unsigned done, total;
	uint64_t bytes, bytes_total; /* bytes may go back when a blob starts anew */
	int64_t last;
	bool quiet, shown, terminal;
};

void progress_init(struct progress *p, const char *doing, bool quiet);
void progress_tick(struct progress *p); /* often; it looks at the clock itself */
void progress_clear(struct progress *p); /* before anything else is written to the terminal */
