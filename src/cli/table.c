#include "table.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "clock.h"
#include "json.h"
#include "mem.h"
#include "parse.h"

void table_cell(struct table *t, const char *text)
{
	struct buf b = { 0 };

	if (!text || !text[0])
		text = "-";
	text_printable(&b, text, strlen(text));
	if (t->n == t->cap) {
		t->cap = t->cap ? t->cap * 2 : 64;
		t->cells = mem_realloc(t->cells, t->cap * sizeof(*t->cells));
	}
	buf_str(&b);
	t->cells[t->n++] = b.p;
}

void table_cellf(struct table *t, const char *fmt, ...)
{
	char text[256];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	table_cell(t, text);
}

void table_size(struct table *t, uint64_t bytes)
{
	char text[16];

	format_size(bytes, text);
	table_cell(t, text);
}

void table_age(struct table *t, int64_t since_ms)
{
	int64_t s = (clock_wall_ms() - since_ms) / 1000;

	if (!since_ms)
		table_cell(t, NULL);
	else if (s < 60)
		table_cellf(t, "%llds", (long long)MAX(s, 0));
	else if (s < 3600)
		table_cellf(t, "%lldm", (long long)s / 60);
	else if (s < 86400)
		table_cellf(t, "%lldh", (long long)s / 3600);
	else
		table_cellf(t, "%lldd", (long long)s / 86400);
}

/* Code points, which is right for all but wide and combining characters. */
static size_t width(const char *s)
{
	size_t n = 0;

	for (; *s; s++)
		n += (*s & 0xc0) != 0x80;
	return n;
}

static void pad(struct buf *out, size_t n)
{
	while (n--)
		buf_add(out, " ", 1);
}

static void print_cell(struct buf *out, const char *text, size_t wide, bool right, bool last)
{
	size_t w = width(text), rest = wide > w ? wide - w : 0;

	if (right)
		pad(out, rest);
	buf_addstr(out, text);
	if (!right && !last)
		pad(out, rest);
	buf_addstr(out, last ? "\n" : "  ");
}

void table_print(const struct table *t, struct buf *out)
{
	size_t wide[16] = { 0 };

	assert(t->cols <= ARRAY_SIZE(wide) && t->n % t->cols == 0);
	for (size_t i = 0; i < t->cols; i++)
		wide[i] = width(t->heads[i] + (t->heads[i][0] == '>'));
	for (size_t i = 0; i < t->n; i++)
		wide[i % t->cols] = MAX(wide[i % t->cols], width(t->cells[i]));
	for (size_t i = 0; i < t->cols; i++) {
		bool right = t->heads[i][0] == '>';

		print_cell(out, t->heads[i] + right, wide[i], right, i + 1 == t->cols);
	}
	for (size_t i = 0; i < t->n; i++)
		print_cell(out, t->cells[i], wide[i % t->cols], t->heads[i % t->cols][0] == '>',
			(i + 1) % t->cols == 0);
}

void table_free(struct table *t)
{
	for (size_t i = 0; i < t->n; i++)
		free(t->cells[i]);
	free(t->cells);
	t->cells = NULL;
	t->n = 0;
}

void format_duration(uint64_t ms, char out[static 32])
{
	uint64_t s = ms / 1000;

	if (ms < 1000)
		snprintf(out, 32, "%llums", (unsigned long long)ms);
	else if (ms < 60000 && ms % 1000)
		snprintf(out, 32, "%llu.%llus", (unsigned long long)s,
			(unsigned long long)(ms % 1000 / 100));
	else if (s < 60)
		snprintf(out, 32, "%llus", (unsigned long long)s);
	else if (s < 3600 && s % 60)
		snprintf(out, 32, "%llum%llus", (unsigned long long)(s / 60),
			(unsigned long long)(s % 60));
	else if (s < 3600)
		snprintf(out, 32, "%llum", (unsigned long long)(s / 60));
	else if (s % 3600 / 60)
		snprintf(out, 32, "%lluh%llum", (unsigned long long)(s / 3600),
			(unsigned long long)(s % 3600 / 60));
	else
		snprintf(out, 32, "%lluh", (unsigned long long)(s / 3600));
}

void text_wrapped(struct buf *out, const char *text, size_t indent, size_t wide)
{
	size_t at = indent;

	while (*text) {
		size_t n = strcspn(text, " \n");

		if (at > indent && at + 1 + n > wide) {
			buf_addf(out, "\n%*s", (int)indent, "");
			at = indent;
		} else if (at > indent) {
			buf_addstr(out, " ");
			at++;
		}
		text_printable(out, text, n);
		at += n;
		text += n;
		text += strspn(text, " \n");
	}
	buf_addstr(out, "\n");
}
