#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "clock.h"
#include "copy.h"
#include "mem.h"
#include "parse.h"

#define SHOW_AFTER_NS NS_PER_SEC
#define SHOW_EVERY_NS (200 * NS_PER_MS)

void place_parse(const char *text, struct place *ret)
{
	const char *colon = strchr(text, ':'), *slash = strchr(text, '/');
	const char *path = text;
	size_t n;

	*ret = (struct place){ .stream = !strcmp(text, "-") };
	/* "./a:b" is a file with a colon in its name, "a:b" is in box a */
	if (colon && colon != text && (!slash || colon < slash)) {
		ret->box = mem_strndup(text, (size_t)(colon - text));
		path = colon + 1;
	}
	n = strlen(path);
	for (;;) {
		if (n > 1 && path[n - 1] == '/') {
			ret->slash = true;
			n--;
		} else if (n > 1 && path[n - 1] == '.' && path[n - 2] == '/') {
			ret->contents = ret->slash = true;
			n--;
		} else {
			break;
		}
	}
	ret->path = n ? mem_strndup(path, n) : mem_strdup(".");
	if (!strcmp(ret->path, "/") || !strcmp(ret->path, "."))
		ret->contents = true;
}

void place_free(struct place *p)
{
	free(p->box);
	free(p->path);
}

int path_split(const char *path, char **dir, char **name, struct den_err *err)
{
	const char *slash = strrchr(path, '/');
	const char *last = slash ? slash + 1 : path;

	if (!last[0] || !strcmp(last, ".") || !strcmp(last, ".."))
		return den_fail(err, DEN_INVALID, 0,
			"'%.80s' has no name at its end; write the directory's own path", path);
	if (slash == path)
		*dir = mem_strdup("/");
	else
		*dir = slash ? mem_strndup(path, (size_t)(slash - path)) : mem_strdup(".");
	*name = mem_strdup(last);
	return 0;
}

void copy_progress(struct copy *c, size_t n)
{
	int64_t now;
	char size[16], line[48];

	c->bytes += n;
	if (!c->tty)
		return;
	now = clock_mono_ns();
	if (now - c->start_ns < SHOW_AFTER_NS || now - c->shown_ns < SHOW_EVERY_NS)
		return;
	c->shown_ns = now;
	c->shown = true;
	format_size(c->bytes, size);
	snprintf(line, sizeof(line), "\r%s copied \033[K", size);
	(void)!write(STDERR_FILENO, line, strlen(line));
}

void copy_progress_end(struct copy *c)
{
	if (c->shown)
		(void)!write(STDERR_FILENO, "\r\033[K", 4);
	c->shown = false;
}

static int keep_entry(const struct den_entry *e, void *user, struct den_err *err)
{
	struct box_file *f = user;

	(void)err;
	snprintf(f->type, sizeof(f->type), "%s", e->type ? e->type : "unknown");
	f->mode = e->mode;
	f->mtime_ns = e->mtime_ns;
	return 0;
}

int box_file_stat(struct copy *c, const char *path, struct box_file *ret, struct den_err *err)
{
	*ret = (struct box_file){ 0 };
	if (den_file_stat(c->box, path, &c->opt, keep_entry, ret, err) == 0 ||
		err->code == DEN_NOT_FOUND)
		return 0;
	return -1;
}
