#include "multipart.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "buf.h"
#include "mem.h"

/* ---- parameters of a header ---- */

/* A quoted string from after its first quote: its text, and *end after its last one. NULL: it has no end. */
static char *quoted(const char *p, const char **end)
{
	static const struct {
		const char *code;
		char c;
	} coded[] = { { "%22", '"' }, { "%0D", '\r' }, { "%0A", '\n' } };
	auto_buf b = { 0 };

	for (; *p && *p != '"'; p++) {
		char c = *p;

		for (size_t i = 0; c == '%' && i < ARRAY_SIZE(coded); i++)
			if (!strncasecmp(p, coded[i].code, 3)) {
				c = coded[i].c;
				p += 2;
				break;
			}
		if (c == '\\' && p[1] == '"')
			c = *++p;
		buf_add(&b, &c, 1);
	}
	if (!*p)
		return NULL;
	*end = p + 1;
	return mem_strdup(buf_str(&b));
}

char *multipart_param(const char *value, const char *name)
{
	const char *p = value + strcspn(value, ";");
	size_t len = strlen(name);

	while (*p == ';') {
		auto_free char *text = NULL;
		const char *key;
		bool fits;

		p += 1 + strspn(p + 1, " \t");
		key = p;
		p += strcspn(p, "=;");
		if (*p != '=')
			continue;
		fits = (size_t)(p - key) == len && !strncasecmp(key, name, len);
		p++;
		if (*p == '"') {
			text = quoted(p + 1, &p);
			if (!text)
				return NULL;
		} else {
			size_t n = strcspn(p, "; \t");

			text = mem_strndup(p, n);
			p += n;
		}
		if (fits)
			return mem_take(&text);
		p += strcspn(p, ";");
	}
	return NULL;
}

/* ---- beginning and end ---- */

int multipart_init(struct multipart *m, const char *type, struct den_err *err)
{
	static const char allowed[] = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz'()+_,-./:=? ";
	auto_free char *boundary = NULL;
	size_t n;

	*m = (struct multipart){ 0 };
	if (strncasecmp(type, "multipart/form-data", 19) || !strchr("; \t", type[19]))
		return den_fail(err, DEN_INVALID, 0, "the body is not multipart/form-data");
	boundary = multipart_param(type, "boundary");
	n = boundary ? strlen(boundary) : 0;
	if (n < 1 || n > 70 || strspn(boundary, allowed) != n || boundary[n - 1] == ' ')
		return den_fail(err, DEN_INVALID, 0, "multipart/form-data without a boundary of 1 to 70 characters");
	memcpy(m->delim, "\r\n--", 4);
	memcpy(m->delim + 4, boundary, n + 1);
	m->n_delim = n + 4;
	m->match = 2; /* the first delimiter may stand at the very beginning */
	m->head = mem_alloc(MULTIPART_HEAD_MAX + 1);
	return 0;
}

static void part_forget(struct multipart *m)
{
	free(m->name);
	free(m->filename);
	m->name = m->filename = NULL;
}

void multipart_free(struct multipart *m)
{
	part_forget(m);
	free(m->head);
	m->head = NULL;
}

/* ---- the states ---- */

static void take(const char **p, size_t *n, size_t used)
{
	*p += used;
	*n -= used;
}

/* Where the delimiter begins, or what may become it with more bytes; NULL: nowhere. */
static const char *delim_find(const struct multipart *m, const char *p, size_t n)
{
	const char *end = p + n;

	while ((p = memchr(p, '\r', (size_t)(end - p)))) {
		if (!memcmp(p, m->delim, MIN((size_t)(end - p), m->n_delim)))
			return p;
		p++;
	}
	return NULL;
}

/* Looks for the delimiter. Bytes before it are data. A CR is in it only once, at its beginning, so what turns out
 * not to be one can begin anew only at the byte that did not fit. */
static int scan(struct multipart *m, const char **p, size_t *n)
{
	const char *cr;

	while (*n && m->match && m->match < m->n_delim) {
		if (**p != m->delim[m->match]) {
			m->data = m->delim;
			m->len = m->match;
			m->match = 0;
			return MULTIPART_DATA;
		}
		m->match++;
		take(p, n, 1);
	}
	if (m->match == m->n_delim) {
		m->match = 0;
		return MULTIPART_PART_END;
	}
	if (!*n)
		return MULTIPART_MORE;
	cr = delim_find(m, *p, *n);
	m->data = *p;
	m->len = cr ? (size_t)(cr - *p) : *n;
	take(p, n, m->len);
	if (!cr)
		return MULTIPART_DATA;
	m->match = 1;
	take(p, n, 1);
	return m->len ? MULTIPART_DATA : -2; /* -2: go on */
}

/* What follows a delimiter on its line. 1: go on */
static int after(struct multipart *m, const char **p, size_t *n, struct den_err *err)
{
	char c = **p;

	take(p, n, 1);
	if (m->dashes == 0 && c == '\r' && !m->cr) {
		m->cr = true;
		return 1;
	}
	if (m->cr && c == '\n') {
		if (++m->parts > MULTIPART_PARTS_MAX)
			return den_fail(err, DEN_LIMIT, 0, "more than %d parts", MULTIPART_PARTS_MAX);
		m->state = MP_HEADERS;
		m->n_head = 0;
		m->cr = false;
		return 1;
	}
	if (!m->cr && c == '-') {
		if (++m->dashes == 2)
			m->state = MP_DONE;
		return 1;
	}
	if (!m->cr && m->dashes == 0 && (c == ' ' || c == '\t'))
		return 1;
	return den_fail(err, DEN_INVALID, 0, "a multipart delimiter is followed by something else than a line end");
}

static int headers_read(struct multipart *m, struct den_err *err)
{
	static const char key[] = "content-disposition:";

	m->head[m->n_head] = '\0';
	if (memchr(m->head, '\0', m->n_head))
		return den_fail(err, DEN_INVALID, 0, "a part's headers have a NUL byte");
	for (char *line = m->head; *line;) {
		char *end = strstr(line, "\r\n");

		if (!end)
			break;
		*end = '\0';
		if (!strncasecmp(line, key, sizeof(key) - 1) && !m->name) {
			const char *value = line + sizeof(key) - 1;

			part_forget(m);
			m->name = multipart_param(value, "name");
			m->filename = multipart_param(value, "filename");
		}
		line = end + 2;
	}
	if (!m->name)
		return den_fail(err, DEN_INVALID, 0, "a part has no name in its Content-Disposition");
	m->state = MP_DATA;
	m->match = 0;
	return MULTIPART_PART;
}

/* 1: go on */
static int headers(struct multipart *m, const char **p, size_t *n, struct den_err *err)
{
	while (*n) {
		if (m->n_head == MULTIPART_HEAD_MAX)
			return den_fail(err, DEN_LIMIT, 0, "a part has more than %d bytes of headers",
				MULTIPART_HEAD_MAX);
		m->head[m->n_head++] = **p;
		take(p, n, 1);
		if (m->n_head == 2 && !memcmp(m->head, "\r\n", 2))
			return headers_read(m, err);
		if (m->n_head >= 4 && !memcmp(m->head + m->n_head - 4, "\r\n\r\n", 4))
			return headers_read(m, err);
	}
	return MULTIPART_MORE;
}

int multipart_next(struct multipart *m, const char **p, size_t *n, struct den_err *err)
{
	int r;

	for (;;) {
		switch (m->state) {
		case MP_DONE:
			take(p, n, *n); /* an epilogue means nothing */
			return MULTIPART_END;
		case MP_HEADERS:
			return headers(m, p, n, err);
		case MP_AFTER:
			if (!*n)
				return MULTIPART_MORE;
			if (after(m, p, n, err) < 0)
				return -1;
			continue;
		default:
			break;
		}
		r = scan(m, p, n);
		if (r == MULTIPART_PART_END) {
			bool first = m->state == MP_PREAMBLE;

			m->state = MP_AFTER;
			m->dashes = 0;
			m->cr = false;
			part_forget(m);
			if (first)
				continue;
			return r;
		}
		if (r == -2 || (r == MULTIPART_DATA && (m->state == MP_PREAMBLE || !m->len)))
			continue;
		return r;
	}
}
