/* What a build says, line by line. Lines are written together: each write waits for the disk. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "build.h"
#include "clock.h"
#include "db.h"
#include "log.h"
#include "mem.h"

#define LINE_MAX_BYTES 4096
#define LINES_MAX 20000 /* of one build */
#define BATCH 200
#define BATCH_MS 200

/* Text of a program may be anything; a client gets JSON. */
static char *clean(const char *p, size_t n)
{
	json_t *j;
	char *s = mem_strndup(p, n);

	for (size_t i = 0; s[i]; i++)
		if ((unsigned char)s[i] < ' ' && s[i] != '\t')
			s[i] = ' ';
	j = json_string(s);
	for (size_t i = 0; !j && s[i]; i++)
		if ((unsigned char)s[i] >= 128)
			s[i] = '?';
	json_decref(j);
	return s;
}

static void add(struct build *b, const char *level, const char *p, size_t n)
{
	static const char full[] = "more lines than are kept: the rest is left out";
	struct line *l;

	if (b->lines_all > LINES_MAX)
		return;
	if (b->lines_all++ == LINES_MAX)
		p = full, n = strlen(full), level = "warn";
	b->lines = mem_realloc(b->lines, (b->n_lines + 1) * sizeof(*b->lines));
	l = &b->lines[b->n_lines++];
	*l = (struct line){ clock_wall_ms(), level, b->step[0] ? mem_strdup(b->step) : NULL,
		clean(p, MIN(n, LINE_MAX_BYTES)) };
	if (b->n_lines >= BATCH)
		build_flush(b);
}

void build_say(struct build *b, const char *level, const char *fmt, ...)
{
	char text[1024];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	add(b, level, text, strlen(text));
}

void build_output(int stream, const void *data, size_t n, void *user)
{
	struct build *b = user;

	if (stream == 0) {
		if (clock_wall_ms() - b->flushed_ms >= BATCH_MS)
			build_flush(b);
		return;
	}
	for (const char *p = data; n;) {
		struct buf *tail = &b->tail[stream == 2];
		const char *end = memchr(p, '\n', n);
		size_t k = end ? (size_t)(end - p) : n;

		if (tail->len < LINE_MAX_BYTES)
			buf_add(tail, p, MIN(k, LINE_MAX_BYTES - tail->len));
		if (end) {
			add(b, stream == 2 ? "warn" : "info", buf_str(tail), tail->len);
			buf_consume(tail, tail->len);
		}
		p += k + (end != NULL);
		n -= k + (end != NULL);
	}
}

void build_output_end(struct build *b)
{
	for (int i = 0; i < 2; i++)
		if (b->tail[i].len) {
			add(b, i ? "warn" : "info", buf_str(&b->tail[i]), b->tail[i].len);
			buf_consume(&b->tail[i], b->tail[i].len);
		}
}

void build_flush(struct build *b)
{
	static const char sql[] = "INSERT INTO e2b_lines SELECT ?1, count(*), ?2, ?3, ?4, ?5 FROM "
				  "e2b_lines WHERE build = ?1";
	struct den_err err;
	int r = 0;

	b->flushed_ms = clock_wall_ms();
	if (b->n_lines)
		r = db_begin(&err);
	for (size_t i = 0; i < b->n_lines && r == 0; i++)
		r = db_run(&err, NULL, sql, "sisss", b->id, b->lines[i].time_ms, b->lines[i].level,
			b->lines[i].step, b->lines[i].text);
	if (b->n_lines && db_end(r == 0, r == 0 ? &err : NULL) < 0)
		log_line("warn", "e2b", "log of build %s: %s", b->id, err.msg);
	for (size_t i = 0; i < b->n_lines; i++) {
		free(b->lines[i].step);
		free(b->lines[i].text);
	}
	b->n_lines = 0;
}
