#include "points.h"

#include <stdio.h>
#include <string.h>

#include "mem.h"
#include "parse.h"

int spot_parse(const char *text, struct spot *ret, struct den_err *err)
{
	const char *at = strrchr(text, '@');

	if (!at) {
		*ret = (struct spot){ mem_strdup(text), NULL };
		return 0;
	}
	if (at == text || !at[1])
		return den_fail(err, DEN_INVALID, 0,
			"'%.80s' is not BOX@CHECKPOINT; write it like web@12 or web@head", text);
	*ret = (struct spot){ mem_strndup(text, (size_t)(at - text)), mem_strdup(at + 1) };
	return 0;
}

void spot_free(struct spot *s)
{
	free(s->box);
	free(s->ref);
}

int spot_open(const struct args *a, const char *word, struct spot *ret, struct session *s)
{
	struct den_err err = { 0 };

	if (spot_parse(word, ret, &err) < 0)
		return cli_fail(a, &err, NULL);
	return session_open(s, a, ret->box);
}

/* ---- finding ---- */

int points_read(struct den_box *box, struct points *ret, struct den_err *err)
{
	return den_log(box, &ret->v, &ret->n, err);
}

void points_free(struct points *p)
{
	den_checkpoints_free(p->v, p->n);
	*p = (struct points){ 0 };
}

const struct den_checkpoint *points_number(const struct points *p, int64_t number)
{
	for (size_t i = 0; i < p->n; i++)
		if ((int64_t)p->v[i].number == number)
			return &p->v[i];
	return NULL;
}

const struct den_checkpoint *points_head(const struct points *p)
{
	for (size_t i = 0; i < p->n; i++)
		if (p->v[i].head)
			return &p->v[i];
	return NULL;
}

static const struct den_checkpoint *find_tag(const struct points *p, const char *tag)
{
	size_t n = strlen(tag);

	for (size_t i = 0; i < p->n; i++) {
		for (const char *t = p->v[i].tags ? p->v[i].tags : ""; *t;) {
			size_t len = strcspn(t, " ");

			if (len == n && !strncmp(t, tag, n))
				return &p->v[i];
			t += len + (t[len] == ' ');
		}
	}
	return NULL;
}

const struct den_checkpoint *points_find(
	const struct points *p, const char *ref, struct den_err *err)
{
	const struct den_checkpoint *c = NULL;
	struct den_err bad;
	uint64_t n;

	if (!ref || !strcmp(ref, "head")) {
		c = points_head(p);
	} else if (!strcmp(ref, "base")) {
		c = points_number(p, 0);
	} else if (ref[0] == '~') {
		if (parse_u64(ref[1] ? ref + 1 : "1", 0, 1000000, &n, &bad) == 0)
			for (c = points_head(p); c && n; n--)
				c = points_number(p, c->parent);
	} else {
		c = find_tag(p, ref);
		if (!c && parse_u64(ref, 0, INT64_MAX, &n, &bad) == 0)
			c = points_number(p, (int64_t)n);
	}
	if (!c && ref && !strcmp(ref, "now"))
		den_fail(err, DEN_INVALID, 0,
			"'now' is no checkpoint yet; 'den checkpoint' makes one of it");
	else if (!c)
		den_fail(err, DEN_NOT_FOUND, 0,
			"this box has no checkpoint '%.60s'; 'den log' shows them",
			ref ? ref : "head");
	return c;
}

const char *points_origin(const struct points *p)
{
	const struct den_checkpoint *c = points_number(p, 0);

	return c && c->origin && c->origin[0] ? c->origin : NULL;
}

/* ---- showing ---- */

/* As much of text as fits, cut between characters. */
static void add_cut(struct buf *out, const char *text, size_t wide)
{
	size_t n = 0, end = 0;

	for (size_t i = 0; text[i]; i++) {
		if (((unsigned char)text[i] & 0xc0) == 0x80)
			continue;
		if (++n + 3 <= wide)
			end = i;
		if (n > wide) {
			buf_add(out, text, end);
			buf_addstr(out, "...");
			return;
		}
	}
	buf_addstr(out, text);
}

void point_text(struct buf *out, const struct den_checkpoint *c, size_t wide)
{
	const char *message = c->message ? c->message : "";

	if (wide)
		add_cut(out, message, wide);
	else
		buf_addstr(out, message);
	/* most messages of forks and merges name it already */
	if (c->origin && c->origin[0] && !strstr(message, c->origin))
		buf_addf(out, "%s(%s)", message[0] ? " " : "", c->origin);
}

void point_brief(struct buf *out, const struct den_checkpoint *c)
{
	auto_buf text = { 0 };

	point_text(&text, c, 60);
	buf_addf(out, "%llu", (unsigned long long)c->number);
	if (!c->turn && !text.len)
		return;
	buf_addf(out, " (turn %llu%s", (unsigned long long)c->turn, text.len ? ": " : "");
	text_printable(out, text.p, text.len);
	buf_addstr(out, ")");
}

static void tags_json(struct json *j, const char *tags)
{
	json_open(j, "tags", '[');
	while (tags && *tags) {
		size_t n = strcspn(tags, " ");

		json_bytes(j, NULL, tags, n);
		tags += n + (tags[n] == ' ');
	}
	json_close(j, ']');
}

void point_json(struct json *j, const char *key, const struct den_checkpoint *c)
{
	json_open(j, key, '{');
	json_u64(j, "number", c->number);
	if (c->parent < 0)
		json_nothing(j, "parent");
	else
		json_i64(j, "parent", c->parent);
	json_u64(j, "turn", c->turn);
	json_bool(j, "full", c->full);
	json_u64(j, "memory", c->memory);
	json_u64(j, "memory_disk", c->memory_disk);
	json_u64(j, "memory_shared", c->memory_shared);
	json_str(j, "kind", c->kind);
	json_bool(j, "head", c->head);
	json_time(j, "created", c->created_ms);
	json_str(j, "message", c->message);
	tags_json(j, c->tags);
	json_str(j, "origin", c->origin && c->origin[0] ? c->origin : NULL);
	if (c->size)
		json_u64(j, "size", c->size);
	else
		json_nothing(j, "size");
	json_close(j, '}');
}

static const struct {
	unsigned bit;
	const char *word;
} change_words[] = {
	{ DEN_CHANGED_TYPE, "type" },
	{ DEN_CHANGED_CONTENT, "content" },
	{ DEN_CHANGED_TARGET, "target" },
	{ DEN_CHANGED_MODE, "mode" },
	{ DEN_CHANGED_OWNER, "owner" },
	{ DEN_CHANGED_XATTR, "xattr" },
};

static char change_letter(const struct den_change *c)
{
	if (!strcmp(c->kind, "added"))
		return 'A';
	if (!strcmp(c->kind, "removed"))
		return 'D';
	return !strcmp(c->kind, "meta") ? 'm' : 'M';
}

void change_line(struct buf *out, const struct den_change *c)
{
	char letter = change_letter(c);
	const char *before = " (";

	buf_addf(out, "%c ", letter);
	text_printable(out, c->path, strlen(c->path));
	if (c->type == 'd' && strcmp(c->path, "/"))
		buf_addstr(out, "/");
	/* that an 'M' changed the content needs no words */
	if (letter == 'm' || (letter == 'M' && c->what != DEN_CHANGED_CONTENT)) {
		for (size_t i = 0; i < ARRAY_SIZE(change_words); i++) {
			if (!(c->what & change_words[i].bit))
				continue;
			buf_addf(out, "%s%s", before, change_words[i].word);
			before = ", ";
		}
		buf_addstr(out, before[0] == ',' ? ")" : "");
	}
	buf_addstr(out, "\n");
}

void change_json(struct json *j, const char *key, const struct den_change *c)
{
	static const struct {
		char letter;
		const char *name;
	} types[] = { { 'f', "file" }, { 'd', "directory" }, { 'l', "symlink" }, { 'p', "fifo" },
		{ 's', "socket" }, { 'c', "char" }, { 'b', "block" } };
	const char *type = "unknown";
	char mode[8];

	for (size_t i = 0; i < ARRAY_SIZE(types); i++)
		type = types[i].letter == c->type ? types[i].name : type;
	snprintf(mode, sizeof(mode), "%04o", c->mode & 07777);
	json_open(j, key, '{');
	json_str(j, "path", c->path);
	json_str(j, "kind", c->kind);
	json_str(j, "type", type);
	json_open(j, "changed", '[');
	for (size_t i = 0; i < ARRAY_SIZE(change_words); i++)
		if (c->what & change_words[i].bit)
			json_str(j, NULL, change_words[i].word);
	json_close(j, ']');
	json_str(j, "mode", mode);
	json_u64(j, "size", c->size);
	json_close(j, '}');
}

/* ---- telling ---- */

int history_fail(const struct args *a, const struct den_err *err)
{
	return cli_fail(a, err,
		err->code == DEN_UNSUPPORTED && strstr(err->msg, "has no history")
			? "a box keeps one when it is made with 'den create', or with "
			  "'den run --rm=false'"
			: NULL);
}

int rollback_tell(const struct args *a, struct den_box *box, uint64_t before)
{
	auto_points p = { 0 };
	auto_buf out = { 0 };
	const struct den_checkpoint *head;
	struct den_err err = { 0 };
	struct json j = { 0 };
	auto_spot s = { 0 };

	if (spot_parse(a->words[0], &s, &err) < 0 || points_read(box, &p, &err) < 0)
		return cli_fail(a, &err, NULL);
	head = points_head(&p);
	if (a->json) {
		json_open(&j, NULL, '{');
		if (head)
			point_json(&j, "head", head);
		json_u64(&j, "before", before);
		json_close(&j, '}');
		return cli_print_json(a, &j);
	}
	if (a->quiet) {
		buf_addf(&out, "%llu\n", (unsigned long long)before);
		return cli_print(a, &out);
	}
	buf_addf(&out, "%s is as it was at checkpoint ", s.box);
	if (head)
		point_brief(&out, head);
	buf_addf(&out, "\nto undo this: den rollback %s %llu\n", s.box, (unsigned long long)before);
	return cli_print(a, &out);
}
