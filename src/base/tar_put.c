/* The writing half of tar.h. */
#include <stdio.h>
#include <string.h>

#include "mem.h"
#include "tar.h"

/* A ustar header as it lies in the archive. */
struct header {
	char name[100], mode[8], uid[8], gid[8], size[12], mtime[12], sum[8], type, link[100];
	char magic[6], version[2], uname[32], gname[32], major[8], minor[8], prefix[155], pad[12];
};
static_assert(sizeof(struct header) == TAR_BLOCK, "a header is a block");

static const char type_char[] = { [TAR_FILE] = '0', [TAR_DIR] = '5', [TAR_SYMLINK] = '2',
	[TAR_HARDLINK] = '1', [TAR_FIFO] = '6' };

struct tar_shown tar_show(const char *name)
{
	struct tar_shown t;
	size_t n = 0;

	/* Only ASCII: whether longer characters are harmless depends on the terminal. */
	for (; name[n] && n < sizeof(t.s) - 4; n++)
		t.s[n] = name[n] >= ' ' && name[n] <= '~' ? name[n] : '?';
	memcpy(t.s + n, name[n] ? "..." : "", name[n] ? 4 : 1);
	return t;
}

static bool octal_fits(uint64_t v, size_t width)
{
	return v >> (3 * (width - 1)) == 0;
}

static void octal_put(char *field, size_t width, uint64_t v)
{
	char text[32];

	snprintf(text, sizeof(text), "%0*llo", (int)width - 1, (unsigned long long)v);
	memcpy(field, text, width);
}

static void header_put(struct buf *b, struct header *h)
{
	const unsigned char *p = (const unsigned char *)h;
	unsigned sum = 0;

	memcpy(h->magic, "ustar", 6);
	memcpy(h->version, "00", 2);
	memset(h->sum, ' ', sizeof(h->sum));
	for (size_t i = 0; i < TAR_BLOCK; i++)
		sum += p[i];
	octal_put(h->sum, 7, sum);
	buf_add(b, h, sizeof(*h));
}

/* "LENGTH key=value\n", where LENGTH counts its own digits. */
static void pax_put(struct buf *b, const char *key, const void *value, size_t n)
{
	size_t body = strlen(key) + n + 3, digits = 1, next;
	char len[24];

	while ((next = (size_t)snprintf(len, sizeof(len), "%zu", body + digits)) != digits)
		digits = next;
	buf_addf(b, "%s %s=", len, key);
	buf_add(b, value, n);
	buf_add(b, "\n", 1);
}

static void pax_put_str(struct buf *b, const char *key, const char *value)
{
	pax_put(b, key, value, strlen(value));
}

static void pax_put_u64(struct buf *b, const char *key, uint64_t v)
{
	char text[24];

	pax_put(b, key, text, (size_t)snprintf(text, sizeof(text), "%llu", (unsigned long long)v));
}

/* Seconds and nanoseconds count upward from the second, also before 1970, where the text counts
 * downward: -2 s + 0.75 s is "-1.25". */
static void pax_put_mtime(struct buf *b, int64_t sec, uint32_t nsec)
{
	char text[40];
	bool minus = sec < 0;

	if (minus && nsec) {
		sec++;
		nsec = 1000000000U - nsec;
	}
	snprintf(text, sizeof(text), "%s%llu.%09u", minus ? "-" : "",
		(unsigned long long)(minus ? 0 - (uint64_t)sec : (uint64_t)sec), nsec);
	if (!nsec)
		*strchr(text, '.') = '\0';
	pax_put_str(b, "mtime", text);
}

/* An attribute's name ends at the first '=', so '=' and the sign of the escape are escaped. */
static void pax_put_xattr(struct buf *b, const struct tar_xattr *x)
{
	auto_buf key = { 0 };

	buf_addstr(&key, "SCHILY.xattr.");
	for (const char *p = x->name; *p; p++) {
		if (*p == '=' || *p == '%')
			buf_addf(&key, "%%%02X", (unsigned char)*p);
		else
			buf_add(&key, p, 1);
	}
	pax_put(b, buf_str(&key), x->value, x->len);
}

static void pax_header_put(struct buf *b, const struct tar_entry *e, const struct buf *records)
{
	const char *slash = strrchr(e->name, '/');
	struct header h = { 0 };

	/* for readers that do not know pax and unpack this as a file */
	snprintf(h.name, sizeof(h.name), "PaxHeaders/%.80s", slash ? slash + 1 : e->name);
	octal_put(h.mode, sizeof(h.mode), 0644);
	octal_put(h.uid, sizeof(h.uid), 0);
	octal_put(h.gid, sizeof(h.gid), 0);
	octal_put(h.size, sizeof(h.size), records->len);
	octal_put(h.mtime, sizeof(h.mtime), 0);
	h.type = 'x';
	header_put(b, &h);
	buf_add(b, records->p, records->len);
	tar_put_pad(b, records->len);
}

static int entry_check(const struct tar_entry *e, struct den_err *err)
{
	size_t n = strlen(e->name);

	if (e->type == TAR_CHAR_DEV || e->type == TAR_BLOCK_DEV)
		return den_fail(err, DEN_UNSUPPORTED, 0, "'%s': devices are not archived",
			tar_show(e->name).s);
	if (!n || n >= TAR_NAME_MAX) /* one is for a directory's slash */
		return den_fail(err, DEN_LIMIT, 0,
			"'%s': a name of %zu bytes does not fit in an archive", tar_show(e->name).s,
			n);
	if (e->target && (!*e->target || strlen(e->target) > TAR_NAME_MAX))
		return den_fail(err, DEN_LIMIT, 0, "'%s': its target does not fit in an archive",
			tar_show(e->name).s);
	if (e->size > TAR_SIZE_MAX)
		return den_fail(
			err, DEN_LIMIT, 0, "'%s': too large for an archive", tar_show(e->name).s);
	if (e->n_xattrs > TAR_XATTR_MAX)
		return den_fail(err, DEN_LIMIT, 0, "'%s': has %zu attributes, more than %u",
			tar_show(e->name).s, e->n_xattrs, TAR_XATTR_MAX);
	return 0;
}

static void field_put(char *field, size_t width, uint64_t v, const char *key, struct buf *records)
{
	bool fits = octal_fits(v, width);

	octal_put(field, width, fits ? v : 0);
	if (!fits)
		pax_put_u64(records, key, v);
}

static void text_put(char *field, size_t width, const char *s, const char *key, struct buf *records)
{
	size_t n = strlen(s);

	memcpy(field, s, MIN(n, width));
	if (n > width)
		pax_put(records, key, s, n);
}

int tar_put_entry(struct buf *b, const struct tar_entry *e, struct den_err *err)
{
	auto_buf records = { 0 }, name = { 0 };
	struct header h = { 0 };
	bool mtime_fits = e->mtime_sec >= 0 && octal_fits((uint64_t)e->mtime_sec, sizeof(h.mtime));

	if (entry_check(e, err) < 0)
		return -1;
	buf_addstr(&name, e->name);
	if (e->type == TAR_DIR)
		buf_addstr(&name, "/");
	text_put(h.name, sizeof(h.name), buf_str(&name), "path", &records);
	if (e->target)
		text_put(h.link, sizeof(h.link), e->target, "linkpath", &records);
	octal_put(h.mode, sizeof(h.mode), e->mode & 07777);
	field_put(h.uid, sizeof(h.uid), e->uid, "uid", &records);
	field_put(h.gid, sizeof(h.gid), e->gid, "gid", &records);
	field_put(h.size, sizeof(h.size), e->type == TAR_FILE ? e->size : 0, "size", &records);
	octal_put(h.mtime, sizeof(h.mtime), mtime_fits ? (uint64_t)e->mtime_sec : 0);
	if (!mtime_fits || e->mtime_nsec)
		pax_put_mtime(&records, e->mtime_sec, e->mtime_nsec);
	octal_put(h.major, sizeof(h.major), 0);
	octal_put(h.minor, sizeof(h.minor), 0);
	h.type = type_char[e->type];
	for (size_t i = 0; i < e->n_xattrs && records.len <= TAR_META_MAX; i++)
		pax_put_xattr(&records, &e->xattrs[i]);
	if (records.len > TAR_META_MAX)
		return den_fail(err, DEN_LIMIT, 0, "'%s': its attributes do not fit in an archive",
			tar_show(e->name).s);
	if (records.len)
		pax_header_put(b, e, &records);
	header_put(b, &h);
	return 0;
}

void tar_put_pad(struct buf *b, uint64_t size)
{
	static const char zero[TAR_BLOCK];

	if (size % TAR_BLOCK)
		buf_add(b, zero, TAR_BLOCK - size % TAR_BLOCK);
}

void tar_put_end(struct buf *b)
{
	static const char zero[2 * TAR_BLOCK];

	buf_add(b, zero, sizeof(zero));
}
