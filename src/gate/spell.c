#include "spell.h"

#include <string.h>

#include "encode.h"
#include "mem.h"

#define ESCAPE_MAX 10 /* of one, "&#x00026;" */

enum escape { ESCAPE_NONE, ESCAPE_MORE, ESCAPE_WHOLE };

static const struct {
	const char *text;
	char byte;
} names[] = { { "&amp;", '&' }, { "&lt;", '<' }, { "&gt;", '>' }, { "&quot;", '"' }, { "&apos;", '\'' },
	{ "&plus;", '+' }, { "&equals;", '=' }, { "&sol;", '/' }, { "&colon;", ':' }, { "\\/", '/' },
	{ "\\\"", '"' }, { "\\\\", '\\' }, { "\\'", '\'' } };

bool spell_begins(uint8_t a)
{
	return a == '%' || a == '\\' || a == '&';
}

bool spell_begins_two(uint8_t a, uint8_t b)
{
	if (a == '%')
		return hex_digit((char)b) >= 0;
	if (a == '\\')
		return b && strchr("ux/\"\\'", b);
	return a == '&' && b && strchr("#algqpesc", b);
}

static enum escape name_look(const char *e, size_t n, uint8_t *ret)
{
	enum escape r = ESCAPE_NONE;

	for (unsigned i = 0; i < ARRAY_SIZE(names); i++) {
		if (names[i].text[0] != e[0] || (n > 1 && names[i].text[1] != e[1]) ||
			strncmp(names[i].text, e, n) != 0)
			continue;
		r = ESCAPE_MORE;
		if (names[i].text[n])
			continue;
		*ret = (uint8_t)names[i].byte;
		return ESCAPE_WHOLE;
	}
	return r;
}

/* h: a hex digit */
static enum escape form_look(const char *form, const char *e, size_t n, uint8_t *ret)
{
	for (size_t i = 0; i < n; i++)
		if (form[i] == 'h' ? hex_digit(e[i]) < 0 : form[i] != e[i]) /* also behind its end */
			return ESCAPE_NONE;
	if (form[n])
		return ESCAPE_MORE;
	*ret = (uint8_t)(hex_digit(e[n - 2]) << 4 | hex_digit(e[n - 1]));
	return ESCAPE_WHOLE;
}

/* &#38; and &#x26;, with zeros in front */
static enum escape number_look(const char *e, size_t n, uint8_t *ret)
{
	bool hex = n > 2 && (e[2] | 0x20) == 'x';
	size_t from = hex ? 3 : 2;
	unsigned value = 0;

	if (n < 2)
		return ESCAPE_MORE;
	if (e[1] != '#')
		return ESCAPE_NONE;
	for (size_t i = from; i < n; i++) {
		int digit = hex_digit(e[i]);

		if (e[i] == ';' && i > from) {
			*ret = (uint8_t)value;
			return ESCAPE_WHOLE;
		}
		if (digit < 0 || digit >= (hex ? 16 : 10))
			return ESCAPE_NONE;
		value = value * (hex ? 16 : 10) + (unsigned)digit;
		if (value > 255)
			return ESCAPE_NONE;
	}
	return ESCAPE_MORE;
}

/* Are these bytes an escape, its beginning, or neither? */
static enum escape escape_look(const char *e, size_t n, uint8_t *ret)
{
	enum escape r = e[0] == '%' ? ESCAPE_NONE : name_look(e, n, ret), s;

	if (r == ESCAPE_WHOLE)
		return r;
	if (e[0] == '&')
		s = number_look(e, n, ret);
	else if (e[0] == '%')
		s = form_look("%hh", e, n, ret);
	else
		s = n > 1 && e[1] == 'x' ? form_look("\\xhh", e, n, ret) : form_look("\\u00hh", e, n, ret);
	if (e[0] == '\\' && n == 1)
		return ESCAPE_MORE;
	return s == ESCAPE_NONE ? r : s;
}

size_t spell_read(const char *p, size_t n, unsigned levels, bool end, uint8_t *ret)
{
	char e[ESCAPE_MAX + 1] = { 0 };
	size_t at, first;

	if (!n)
		return 0;
	if (!levels) {
		*ret = (uint8_t)*p;
		return 1;
	}
	at = first = spell_read(p, n, levels - 1, end, ret);
	if (!at || !spell_begins(*ret))
		return at;
	e[0] = (char)*ret;
	for (size_t have = 1; have < ESCAPE_MAX; have++) {
		uint8_t byte;
		size_t len = spell_read(p + at, n - at, levels - 1, end, &byte);

		if (!len && !end)
			return 0;
		if (!len || !byte)
			break;
		e[have] = (char)byte;
		at += len;
		switch (escape_look(e, have + 1, &byte)) {
		case ESCAPE_WHOLE:
			*ret = byte;
			return at;
		case ESCAPE_NONE:
			return first;
		case ESCAPE_MORE:
			break;
		}
	}
	return first;
}
