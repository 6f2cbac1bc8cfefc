#include "progress.h"

#include <stdio.h>
#include <unistd.h>

#include "clock.h"

void progress_init(struct progress *p, const char *doing, bool quiet)
{
	*p = (struct progress){ .doing = doing,
		.quiet = quiet,
		.last = clock_mono_ns(),
		.terminal = isatty(STDERR_FILENO) };
}

void progress_tick(struct progress *p)
{
	const double mib = 1024 * 1024;
	int64_t now = clock_mono_ns();

	if (p->quiet || now - p->last < NS_PER_SEC || !p->total)
		return;
	p->last = now;
	p->shown = true;
	dprintf(STDERR_FILENO, "%s%s %u/%u layers, %.1f of %.1f MiB%s", p->terminal ? "\r" : "",
		p->doing, p->done, p->total, (double)p->bytes / mib, (double)p->bytes_total / mib,
		p->terminal ? "\033[K" : "\n");
}

void progress_clear(struct progress *p)
{
	if (p->shown && p->terminal)
		dprintf(STDERR_FILENO, "\r\033[K");
	p->shown = false;
}
