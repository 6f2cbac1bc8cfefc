#include "json.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

static void key_out(struct json *j, const char *key)
{
	if (j->comma)
		buf_addstr(&j->b, ",");
	j->comma = true;
	if (key) {
		buf_addf(&j->b, "\"%s\":", key);
	}
}

/* Length of the valid UTF-8 sequence at s (at most n bytes), 0 when it is not one. */
static size_t utf8_len(const unsigned char *s, size_t n)
{
	size_t len;
	uint32_t cp;

	if (s[0] < 0x80)
		return 1;
	if (s[0] >= 0xc2 && s[0] <= 0xdf)
		len = 2, cp = s[0] & 0x1f;
	else if ((s[0] & 0xf0) == 0xe0)
		len = 3, cp = s[0] & 0x0f;
	else if (s[0] >= 0xf0 && s[0] <= 0xf4)
		len = 4, cp = s[0] & 0x07;
	else
		return 0;
	if (n < len)
		return 0;
	for (size_t i = 1; i < len; i++) {
		if ((s[i] & 0xc0) != 0x80)
			return 0;
		cp = cp << 6 | (s[i] & 0x3f);
	}
	if ((len == 3 && (cp < 0x800 || (cp >= 0xd800 && cp <= 0xdfff))) ||
		(len == 4 && (cp < 0x10000 || cp > 0x10ffff)))
		return 0;
	return len;
}

static void string_out(struct buf *b, const char *text, size_t n)
{
	const unsigned char *s = (const unsigned char *)text;

	buf_add(b, "\"", 1);
	for (size_t i = 0; i < n;) {
		size_t len = utf8_len(s + i, n - i);

		if (len == 0) {
			buf_addstr(b, "\\ufffd");
			i++;
			continue;
		}
		if (s[i] == '"' || s[i] == '\\')
			buf_addf(b, "\\%c", s[i]);
		else if (s[i] == '\n')
			buf_addstr(b, "\\n");
		else if (s[i] < 0x20 || s[i] == 0x7f)
			buf_addf(b, "\\u%04x", s[i]);
		else
			buf_add(b, s + i, len);
		i += len;
	}
	buf_add(b, "\"", 1);
}

void json_open(struct json *j, const char *key, char bracket)
{
	key_out(j, key);
	buf_add(&j->b, &bracket, 1);
	j->comma = false;
}

void json_close(struct json *j, char bracket)
{
	buf_add(&j->b, &bracket, 1);
	j->comma = true;
}

void json_bytes(struct json *j, const char *key, const char *s, size_t n)
{
	key_out(j, key);
	string_out(&j->b, s, n);
}

void json_str(struct json *j, const char *key, const char *s)
{
	if (s)
		json_bytes(j, key, s, strlen(s));
	else
		json_nothing(j, key);
}

void json_u64(struct json *j, const char *key, uint64_t v)
{
	key_out(j, key);
	buf_addf(&j->b, "%llu", (unsigned long long)v);
}

void json_i64(struct json *j, const char *key, int64_t v)
{
	key_out(j, key);
	buf_addf(&j->b, "%lld", (long long)v);
}

void json_bool(struct json *j, const char *key, bool v)
{
	key_out(j, key);
	buf_addstr(&j->b, v ? "true" : "false");
}

void json_raw(struct json *j, const char *key, const char *text)
{
	key_out(j, key);
	buf_addstr(&j->b, text);
}

void json_nothing(struct json *j, const char *key)
{
	key_out(j, key);
	buf_addstr(&j->b, "null");
}

void format_time(int64_t wall_ms, char out[static 32])
{
	time_t t = (time_t)(wall_ms / 1000);
	struct tm tm;

	gmtime_r(&t, &tm);
	strftime(out, 32, "%Y-%m-%dT%H:%M:%SZ", &tm);
}

void json_time(struct json *j, const char *key, int64_t wall_ms)
{
	char text[32];

	if (!wall_ms) {
		json_nothing(j, key);
		return;
	}
	format_time(wall_ms, text);
	json_str(j, key, text);
}

void text_printable(struct buf *out, const char *text, size_t n)
{
	const unsigned char *s = (const unsigned char *)text;

	for (size_t i = 0; i < n;) {
		size_t len = utf8_len(s + i, n - i);
		/* C1 controls (U+0080..U+009F) steer some terminals too */
		int control = s[i] < 0x20 || s[i] == 0x7f ||
			      (len == 2 && s[i] == 0xc2 && s[i + 1] < 0xa0);

		if (len == 0 || control) {
			buf_addf(out, "\\x%02x", s[i]);
			i++;
			if (len == 2 && control)
				buf_addf(out, "\\x%02x", s[i++]);
			continue;
		}
		buf_add(out, s + i, len);
		i += len;
	}
}
