#include "log.h"

#include <poll.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "clock.h"

static bool as_text;
static atomic_uint dropped;
static int level_min = 1;

static int level_number(const char *level)
{
	return !strcmp(level, "debug")	? 0
	       : !strcmp(level, "info") ? 1
	       : !strcmp(level, "warn") ? 2
					: 3;
}

void log_set_text(bool on)
{
	as_text = on;
}

bool log_is_text(void)
{
	return as_text;
}

void log_set_level(const char *level)
{
	level_min = level_number(level);
}

/* One write() a line, so that lines of several threads do not mix. Whoever reads the log may be slow or stuck; the
 * server must not be: what does not fit is counted, and the number told when there is room again. */
static void line_put(struct buf *b)
{
	struct pollfd p = { .fd = 2, .events = POLLOUT };
	unsigned lost;
	char note[128];
	ssize_t n;

	buf_add(b, "\n", 1);
	if (poll(&p, 1, 0) == 0) {
		dropped++;
		return;
	}
	lost = atomic_exchange(&dropped, 0);
	if (lost) {
		snprintf(note, sizeof(note),
			as_text ? "%u lines of the log were lost\n"
				: "{\"level\":\"warn\",\"what\":\"log\",\"text\":\"%u lines were "
				  "lost\"}\n",
			lost);
		n = write(2, note, strlen(note));
	}
	n = write(2, b->p, b->len);
	(void)n; /* there is nobody to tell */
}

void log_begin(struct log *l, const char *level, const char *what)
{
	*l = (struct log){ .level = level, .what = what };
	json_open(&l->j, NULL, '{');
	if (!as_text) {
		json_time(&l->j, "time", clock_wall_ms());
		json_str(&l->j, "level", level);
		json_str(&l->j, "what", what);
	}
}

void log_end(struct log *l)
{
	auto_buf line = { 0 };
	char when[32];

	json_close(&l->j, '}');
	if (level_number(l->level) < level_min) {
		buf_free(&l->j.b);
		return;
	}
	if (as_text) {
		format_time(clock_wall_ms(), when);
		buf_addf(&line, "%s %-5s %s ", when, l->level, l->what);
	}
	buf_add(&line, l->j.b.p, l->j.b.len);
	line_put(&line);
	buf_free(&l->j.b);
}

void log_line(const char *level, const char *what, const char *fmt, ...)
{
	char text[1024], when[32];
	auto_buf line = { 0 };
	struct log l;
	va_list ap;

	if (level_number(level) < level_min)
		return;
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	if (!as_text) {
		log_begin(&l, level, what);
		json_str(&l.j, "text", text);
		log_end(&l);
		return;
	}
	format_time(clock_wall_ms(), when);
	buf_addf(&line, "%s %-5s %s: ", when, level, what);
	text_printable(&line, text, strlen(text));
	line_put(&line);
}
