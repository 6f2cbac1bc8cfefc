/*
 * The reading half of tar.h: a state machine fed with bytes.
 *
 *   BLOCK -> BLOCK   header_take()   an entry without data
 *   BLOCK -> META    header_take()   a pax header or GNU long name: its bytes are gathered
 *   META  -> SKIP    meta_take()     padding up to the block
 *   BLOCK -> DATA    header_take()   a file's bytes go straight to the user
 *   DATA  -> SKIP    data_end()
 *   SKIP  -> BLOCK   feed
 *   BLOCK -> END     header_take()   a block of zeros
 *   any   -> BROKEN  tar_reader_feed() returned -1
 */
#include "tar.h"

#include <string.h>

#include "mem.h"

enum state { BLOCK, META, DATA, SKIP, END, BROKEN };

/* What extended headers said. */
struct over {
	bool has_size, has_mtime, has_uid, has_gid;
	uint64_t size;
	int64_t mtime_sec;
	uint32_t mtime_nsec, uid, gid;
};

struct tar_reader {
	const struct tar_ops *ops;
	void *user;
	enum state state;
	char block[TAR_BLOCK];
	size_t have;		/* bytes in block */
	uint64_t left;		/* of META, DATA or SKIP */
	uint64_t size;		/* of the data, for its padding */
	bool deliver;		/* the data belongs to an entry the user saw */
	char meta_type;
	struct buf meta;
	struct over global, local;
	char name[TAR_NAME_MAX + 1], target[TAR_NAME_MAX + 1]; /* from headers; empty: not given */
	struct buf xattr_bytes; /* name NUL value, for each */
	struct {
		size_t name, value, len;
	} xattr_at[TAR_XATTR_MAX];
	size_t n_xattrs;
};

enum {	/* where the fields of a header are */
	AT_NAME = 0, AT_MODE = 100, AT_UID = 108, AT_GID = 116, AT_SIZE = 124, AT_MTIME = 136,
	AT_SUM = 148, AT_TYPE = 156, AT_LINK = 157, AT_MAGIC = 257, AT_PREFIX = 345,
};

struct tar_reader *tar_reader_new(const struct tar_ops *ops, void *user)
{
	struct tar_reader *r = mem_new(struct tar_reader);

	r->ops = ops;
	r->user = user;
	return r;
}

void tar_reader_free(struct tar_reader *r)
{
	if (!r)
		return;
	buf_free(&r->meta);
	buf_free(&r->xattr_bytes);
	free(r);
}

bool tar_reader_ended(const struct tar_reader *r)
{
	return r->state == END;
}

/* ---- numbers --------------------------------------------------------------------------------- */

/* Two's complement, big-endian, the top bit of the first byte being the mark. */
static int base256_get(const unsigned char *p, size_t n, int64_t *ret)
{
	bool minus = p[0] & 0x40;
	unsigned char fill = minus ? 0xff : 0;
	uint64_t v = minus ? UINT64_MAX : 0;

	for (size_t i = 0; i < n; i++) {
		unsigned char c = i ? p[i] : (unsigned char)(minus ? p[0] : p[0] & 0x7f);

		if (n - i > 8 && c != fill)
			return -1;
		v = v << 8 | c;
	}
	if (minus != (v >> 63 == 1))
		return -1;
	*ret = (int64_t)v;
	return 0;
}

static int number_get(const char *field, size_t n, const char *what, int64_t *ret,
	struct den_err *err)
{
	size_t i = 0;
	int64_t v = 0;

	if (field[0] & 0x80) {
		if (base256_get((const unsigned char *)field, n, ret) < 0)
			return den_fail(err, DEN_INVALID, 0, "archive: %s is out of range", what);
		return 0;
	}
	while (i < n && field[i] == ' ')
		i++;
	for (; i < n && field[i] >= '0' && field[i] <= '7'; i++)
		v = v << 3 | (field[i] - '0'); /* 12 digits at most: cannot overflow */
	for (; i < n; i++)
		if (field[i] != ' ' && field[i] != '\0')
			return den_fail(err, DEN_INVALID, 0, "archive: %s is not a number", what);
	*ret = v;
	return 0;
}

static int number_get_max(const char *field, size_t n, const char *what, uint64_t max,
	uint64_t *ret, struct den_err *err)
{
	int64_t v;

	if (number_get(field, n, what, &v, err) < 0)
		return -1;
	if (v < 0 || (uint64_t)v > max)
		return den_fail(err, DEN_INVALID, 0, "archive: %s is out of range", what);
	*ret = (uint64_t)v;
	return 0;
}

static int decimal_get(const char *p, size_t n, uint64_t max, uint64_t *ret)
{
	uint64_t v = 0;

	if (!n)
		return -1;
	for (size_t i = 0; i < n; i++) {
		uint64_t digit = (uint64_t)(p[i] - '0');

		if (p[i] < '0' || p[i] > '9' || digit > max || v > (max - digit) / 10)
			return -1;
		v = v * 10 + digit;
	}
	*ret = v;
	return 0;
}

/* "[-]SECONDS[.FRACTION]" */
static int mtime_get(const char *p, size_t n, int64_t *sec, uint32_t *nsec)
{
	bool minus = n && p[0] == '-';
	uint32_t frac = 0, unit = 100000000;
	const char *dot;
	uint64_t v;

	p += minus;
	n -= minus;
	dot = memchr(p, '.', n);
	if (decimal_get(p, dot ? (size_t)(dot - p) : n, INT64_MAX / 2, &v) < 0)
		return -1;
	for (const char *d = dot ? dot + 1 : p + n; d < p + n; d++) {
		if (*d < '0' || *d > '9')
			return -1;
		frac += (uint32_t)(*d - '0') * unit;
		unit /= 10;
	}
	*sec = minus ? -(int64_t)v : (int64_t)v;
	*nsec = frac;
	if (minus && frac) {
		*sec -= 1;
		*nsec = 1000000000U - frac;
	}
	return 0;
}

/* ---- extended headers ------------------------------------------------------------------------ */

static int name_set(char *dest, const char *p, size_t n, const char *what, struct den_err *err)
{
	if (n > TAR_NAME_MAX)
		return den_fail(err, DEN_LIMIT, 0, "archive: %s of %zu bytes is longer than %u",
			what, n, TAR_NAME_MAX);
	if (memchr(p, '\0', n))
		return den_fail(err, DEN_INVALID, 0, "archive: %s has a NUL byte inside", what);
	memcpy(dest, p, n);
	dest[n] = '\0';
	return 0;
}

static int hex(char c)
{
	return c >= '0' && c <= '9' ? c - '0' : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

static int xattr_add(struct tar_reader *r, const char *name, size_t n, const char *value,
	size_t len, struct den_err *err)
{
	struct buf *b = &r->xattr_bytes;
	size_t at = b->len;

	if (r->n_xattrs == TAR_XATTR_MAX || b->len + n + len + 1 > TAR_META_MAX)
		return den_fail(err, DEN_LIMIT, 0, "archive: too many attributes");
	if (!n || n > 255 * 3 || memchr(name, '\0', n))
		return den_fail(err, DEN_INVALID, 0, "archive: bad name of an attribute");
	for (size_t i = 0; i < n; i++) {
		char c = name[i];

		if (c == '%' && i + 2 < n && hex(name[i + 1]) >= 0 && hex(name[i + 2]) >= 0) {
			c = (char)(hex(name[i + 1]) << 4 | hex(name[i + 2]));
			i += 2;
		}
		if (!c)
			return den_fail(err, DEN_INVALID, 0, "archive: bad name of an attribute");
		buf_add(b, &c, 1);
	}
	buf_add(b, "", 1);
	r->xattr_at[r->n_xattrs].name = at;
	r->xattr_at[r->n_xattrs].value = b->len;
	r->xattr_at[r->n_xattrs++].len = len;
	buf_add(b, value, len);
	return 0;
}

static int pax_bad(const char *key, struct den_err *err)
{
	return den_fail(err, DEN_INVALID, 0, "archive: bad value of %s in a pax header", key);
}

static int id_get(const char *p, size_t n, uint32_t *ret)
{
	uint64_t v;

	if (decimal_get(p, n, UINT32_MAX - 1, &v) < 0) /* the last one means "none" to the kernel */
		return -1;
	*ret = (uint32_t)v;
	return 0;
}

/* The keys that may stand for all entries to come as well as for one. */
static int pax_common(struct over *o, const char *key, const char *p, size_t n, struct den_err *err)
{
	bool set = n > 0; /* an empty value takes back what a header before said */

	if (!strcmp(key, "mtime")) {
		o->has_mtime = set;
		return set && mtime_get(p, n, &o->mtime_sec, &o->mtime_nsec) < 0 ? pax_bad(key, err)
										 : 0;
	}
	if (!strcmp(key, "uid")) {
		o->has_uid = set;
		return set && id_get(p, n, &o->uid) < 0 ? pax_bad(key, err) : 0;
	}
	if (!strcmp(key, "gid")) {
		o->has_gid = set;
		return set && id_get(p, n, &o->gid) < 0 ? pax_bad(key, err) : 0;
	}
	if (!strncmp(key, "GNU.sparse.", 11) || !strcmp(key, "SCHILY.realsize"))
		return den_fail(err, DEN_UNSUPPORTED, 0,
			"archive: sparse files are not supported; write it without --sparse");
	return 0; /* names of owners, other times, comments: not needed */
}

static int pax_record(struct tar_reader *r, const char *key, size_t key_len, const char *p,
	size_t n, struct den_err *err)
{
	static const char xattr[] = "SCHILY.xattr.";
	bool global = r->meta_type == 'g';

	if (!strcmp(key, "path") || !strcmp(key, "linkpath") || !strcmp(key, "size")) {
		if (global)
			return den_fail(
				err, DEN_INVALID, 0, "archive: one %s for all entries", key);
		if (!strcmp(key, "path"))
			return name_set(r->name, p, n, "name", err);
		if (!strcmp(key, "linkpath"))
			return name_set(r->target, p, n, "link target", err);
		r->local.has_size = n > 0;
		return n && decimal_get(p, n, TAR_SIZE_MAX, &r->local.size) < 0 ? pax_bad(key, err)
										: 0;
	}
	if (!strncmp(key, xattr, sizeof(xattr) - 1))
		return global ? 0
			      : xattr_add(r, key + sizeof(xattr) - 1, key_len - (sizeof(xattr) - 1),
					p, n, err);
	return pax_common(global ? &r->global : &r->local, key, p, n, err);
}

static int pax_take(struct tar_reader *r, struct den_err *err)
{
	/* an empty one has no bytes at all */
	char *p = r->meta.p, *end = r->meta.len ? p + r->meta.len : p;

	while (p < end) {
		char *space = memchr(p, ' ', (size_t)MIN(end - p, 10)), *eq;
		uint64_t len;

		if (*p == '\0') /* some writers fill up with zeros */
			return 0;
		if (!space || decimal_get(p, (size_t)(space - p), (uint64_t)(end - p), &len) < 0 ||
			len < (uint64_t)(space - p) + 4 || p[len - 1] != '\n')
			return den_fail(err, DEN_INVALID, 0, "archive: malformed pax header");
		eq = memchr(space + 1, '=', (size_t)(p + len - 1 - (space + 1)));
		if (!eq || eq == space + 1 || memchr(space + 1, '\0', (size_t)(eq - space - 1)))
			return den_fail(err, DEN_INVALID, 0, "archive: malformed pax header");
		*eq = '\0';
		if (pax_record(r, space + 1, (size_t)(eq - space - 1), eq + 1,
			    (size_t)(p + len - 1 - (eq + 1)), err) < 0)
			return -1;
		p += len;
	}
	return 0;
}

static int meta_take(struct tar_reader *r, struct den_err *err)
{
	size_t n = r->meta.len;
	int ret;

	if (r->meta_type == 'L' || r->meta_type == 'K') {
		while (n && r->meta.p[n - 1] == '\0')
			n--;
		ret = name_set(r->meta_type == 'L' ? r->name : r->target, n ? r->meta.p : "", n,
			r->meta_type == 'L' ? "name" : "link target", err);
	} else {
		ret = pax_take(r, err);
	}
	r->left = (TAR_BLOCK - r->meta.len % TAR_BLOCK) % TAR_BLOCK;
	r->state = SKIP;
	r->deliver = false;
	buf_free(&r->meta);
	return ret;
}

static int meta_begin(struct tar_reader *r, char type, struct den_err *err)
{
	bool name = type == 'L' || type == 'K';
	uint64_t size = 0;

	if (number_get_max(r->block + AT_SIZE, 12, "size", TAR_SIZE_MAX, &size, err) < 0)
		return -1;
	if (size > (name ? TAR_NAME_MAX + 1 : TAR_META_MAX))
		return den_fail(err, DEN_LIMIT, 0, "archive: %s of %llu bytes is too long",
			name ? "name" : "pax header", (unsigned long long)size);
	r->meta_type = type == 'X' ? 'x' : type;
	r->left = size;
	r->state = META;
	return size ? 0 : meta_take(r, err);
}

/* ---- headers --------------------------------------------------------------------------------- */

static int header_check_sum(const char *b, struct den_err *err)
{
	int64_t want, sum = 0, with_sign = 0;

	if (number_get(b + AT_SUM, 8, "checksum", &want, err) < 0)
		return -1;
	for (int i = 0; i < (int)TAR_BLOCK; i++) {
		char c = i >= AT_SUM && i < AT_SUM + 8 ? ' ' : b[i];

		sum += (unsigned char)c;
		with_sign += (signed char)c; /* some old systems summed like this */
	}
	if (want != sum && want != with_sign)
		return den_fail(err, DEN_INVALID, 0,
			"archive: wrong checksum; this is not a tar archive, or it is damaged");
	return 0;
}

/* The names in the header itself count only where no extended header gave one. */
static void header_names(struct tar_reader *r)
{
	const char *b = r->block;
	size_t prefix = memcmp(b + AT_MAGIC, "ustar", 6) ? 0 : strnlen(b + AT_PREFIX, 155);
	size_t n = strnlen(b + AT_NAME, 100);

	if (!r->name[0]) {
		memcpy(r->name, b + AT_PREFIX, prefix);
		if (prefix)
			r->name[prefix++] = '/';
		memcpy(r->name + prefix, b + AT_NAME, n);
		r->name[prefix + n] = '\0';
	}
	if (!r->target[0]) {
		n = strnlen(b + AT_LINK, 100);
		memcpy(r->target, b + AT_LINK, n);
		r->target[n] = '\0';
	}
}

/* An owner's number: what an extended header says, else the field, which may then hold anything. */
static int header_id(const char *field, const char *what, const uint32_t *said, uint32_t *ret,
	struct den_err *err)
{
	uint64_t v = 0;

	if (!said && number_get_max(field, 8, what, UINT32_MAX - 1, &v, err) < 0)
		return -1;
	*ret = said ? *said : (uint32_t)v;
	return 0;
}

static int header_numbers(struct tar_reader *r, struct tar_entry *e, struct den_err *err)
{
	const struct over *l = &r->local, *g = &r->global;
	const char *b = r->block;
	uint64_t mode = 0;

	if (number_get_max(b + AT_MODE, 8, "mode", UINT32_MAX, &mode, err) < 0 ||
		number_get(b + AT_MTIME, 12, "time", &e->mtime_sec, err) < 0 ||
		header_id(b + AT_UID, "uid",
			l->has_uid   ? &l->uid
			: g->has_uid ? &g->uid
				     : NULL,
			&e->uid, err) < 0 ||
		header_id(b + AT_GID, "gid",
			l->has_gid   ? &l->gid
			: g->has_gid ? &g->gid
				     : NULL,
			&e->gid, err) < 0)
		return -1;
	if (l->has_size)
		e->size = l->size;
	else if (number_get_max(b + AT_SIZE, 12, "size", TAR_SIZE_MAX, &e->size, err) < 0)
		return -1;
	e->mode = (uint32_t)mode & 07777;
	if (l->has_mtime || g->has_mtime) {
		e->mtime_sec = l->has_mtime ? l->mtime_sec : g->mtime_sec;
		e->mtime_nsec = l->has_mtime ? l->mtime_nsec : g->mtime_nsec;
	}
	return 0;
}

/* A regular file's data follows; of the others the size says nothing. */
static int header_type(char type, const char *name, enum tar_type *ret, struct den_err *err)
{
	size_t n = strlen(name);

	switch (type) {
	case '\0':
	case '0':
	case '7':
		/* v7 had no type for directories */
		*ret = n && name[n - 1] == '/' ? TAR_DIR : TAR_FILE;
		return 0;
	case '1':
		*ret = TAR_HARDLINK;
		return 0;
	case '2':
		*ret = TAR_SYMLINK;
		return 0;
	case '3':
		*ret = TAR_CHAR_DEV;
		return 0;
	case '4':
		*ret = TAR_BLOCK_DEV;
		return 0;
	case '5':
		*ret = TAR_DIR;
		return 0;
	case '6':
		*ret = TAR_FIFO;
		return 0;
	case 'S':
		return den_fail(err, DEN_UNSUPPORTED, 0,
			"archive: sparse files are not supported; write it without --sparse");
	default:
		return den_fail(err, DEN_UNSUPPORTED, 0, "archive: entry of unknown type 0x%02x",
			(unsigned char)type);
	}
}

static int data_end(struct tar_reader *r, struct den_err *err)
{
	r->left = (TAR_BLOCK - r->size % TAR_BLOCK) % TAR_BLOCK;
	r->state = SKIP;
	return r->deliver ? r->ops->end(r->user, err) : 0;
}

static int entry_tell(struct tar_reader *r, struct tar_entry *e, struct den_err *err)
{
	struct tar_xattr x[TAR_XATTR_MAX];
	size_t n = strlen(r->name);

	while (n > 1 && r->name[n - 1] == '/')
		r->name[--n] = '\0';
	if (!n)
		return den_fail(err, DEN_INVALID, 0, "archive: entry without a name");
	for (size_t i = 0; i < r->n_xattrs; i++) {
		x[i].name = r->xattr_bytes.p + r->xattr_at[i].name;
		x[i].value = r->xattr_bytes.p + r->xattr_at[i].value;
		x[i].len = r->xattr_at[i].len;
	}
	e->name = r->name;
	e->xattrs = x;
	e->n_xattrs = r->n_xattrs;
	if (e->type == TAR_SYMLINK || e->type == TAR_HARDLINK) {
		if (!r->target[0])
			return den_fail(err, DEN_INVALID, 0, "archive: link '%s' has no target",
				tar_show(r->name).s);
		e->target = r->target;
	}
	return r->ops->entry(e, r->user, err);
}

static int header_take(struct tar_reader *r, struct den_err *err)
{
	static const char zero[TAR_BLOCK];
	char type = r->block[AT_TYPE];
	struct tar_entry e = { 0 };
	int ret;

	if (!memcmp(r->block, zero, TAR_BLOCK)) {
		r->state = END;
		return 0;
	}
	if (header_check_sum(r->block, err) < 0)
		return -1;
	if (type == 'x' || type == 'X' || type == 'g' || type == 'L' || type == 'K')
		return meta_begin(r, type, err);
	if (type == 'V') /* the archive's label: no entry */
		return 0;
	header_names(r);
	if (header_type(type, r->name, &e.type, err) < 0 || header_numbers(r, &e, err) < 0)
		return -1;
	r->size = type == '0' || type == '\0' || type == '7' ? e.size : 0;
	e.size = e.type == TAR_FILE ? e.size : 0;
	r->left = r->size;
	r->deliver = e.type == TAR_FILE;
	r->state = DATA;
	ret = entry_tell(r, &e, err);
	r->name[0] = r->target[0] = '\0';
	r->local = (struct over){ 0 };
	r->n_xattrs = 0;
	buf_free(&r->xattr_bytes);
	if (ret < 0)
		return -1;
	if (!r->deliver && r->ops->end(r->user, err) < 0)
		return -1;
	return r->left ? 0 : data_end(r, err);
}

/* ---- the stream ------------------------------------------------------------------------------ */

/* Takes some of the bytes, at least one; *used says how many. */
static int step(struct tar_reader *r, const char *p, size_t n, size_t *used, struct den_err *err)
{
	size_t k;

	switch (r->state) {
	case BLOCK:
		k = MIN(n, TAR_BLOCK - r->have);
		memcpy(r->block + r->have, p, k);
		r->have += k;
		*used = k;
		if (r->have < TAR_BLOCK)
			return 0;
		r->have = 0;
		return header_take(r, err);
	case META:
	case DATA:
	case SKIP:
		k = (size_t)MIN((uint64_t)n, r->left);
		r->left -= k;
		*used = k;
		if (r->state == META) {
			buf_add(&r->meta, p, k); /* at most TAR_META_MAX: meta_begin() */
			return r->left ? 0 : meta_take(r, err);
		}
		if (r->state == DATA) {
			if (r->deliver && r->ops->data(p, k, r->user, err) < 0)
				return -1;
			return r->left ? 0 : data_end(r, err);
		}
		if (!r->left)
			r->state = BLOCK;
		return 0;
	case END:
		*used = n;
		return 0;
	case BROKEN:
		break;
	}
	return den_fail(err, DEN_INVALID, 0, "archive: broken before");
}

int tar_reader_feed(struct tar_reader *r, const void *data, size_t n, struct den_err *err)
{
	const char *p = data;

	while (n) {
		size_t used = 0;

		if (step(r, p, n, &used, err) < 0) {
			r->state = BROKEN;
			return -1;
		}
		if (r->state == SKIP && !r->left)
			r->state = BLOCK;
		p += used;
		n -= used;
	}
	return 0;
}

int tar_reader_finish(struct tar_reader *r, struct den_err *err)
{
	if (r->state != END)
		return den_fail(
			err, DEN_INVALID, 0, "archive: ends before its end; it was cut short");
	return 0;
}
