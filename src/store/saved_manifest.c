/* The manifest of saved programs: lines of text, the last of them with a hash of all before. */
#include "saved_manifest.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "fd.h"
#include "mem.h"
#include "parse.h"
#include "sha256.h"

#define MAKING ".manifest"
#define MANIFEST_MAX (16U << 20)

void saved_about_free(struct saved_about *a)
{
	free(a->wall);
	free(a->runtime);
	free(a->template);
	free(a->kernel);
	free(a->machine);
	free(a->cpu);
	*a = (struct saved_about){ 0 };
}

/* ---- this host ---- */

char *saved_cpu(void)
{
	auto_fd fd = open("/proc/cpuinfo", O_RDONLY | O_CLOEXEC);
	auto_free char *text = NULL;
	const char *at;
	size_t n;

	/* all processors of a machine are alike in what they can do */
	if (fd < 0 || fd_read_all(fd, 4U << 20, &text, &n, NULL) < 0)
		return mem_strdup("");
	at = strstr(text, "\nflags");
	if (!at)
		at = strstr(text, "\nFeatures");
	at = at ? strchr(at, ':') : NULL;
	return at ? mem_strndup(at + 2, strcspn(at + 2, "\n")) : mem_strdup("");
}

void saved_about_host(struct saved_about *a)
{
	struct utsname u;

	uname(&u);
	if (!a->kernel)
		a->kernel = mem_strdup(u.release);
	if (!a->machine)
		a->machine = mem_strdup(u.machine);
	if (!a->cpu)
		a->cpu = saved_cpu();
}

void saved_boot(char ret[static 37])
{
	if (file_read_at(AT_FDCWD, "/proc/sys/kernel/random/boot_id", ret, 37, NULL) < 0)
		ret[0] = '\0';
	ret[strcspn(ret, "\n")] = '\0';
}

/* ---- does it fit ---- */

static bool has_word(const char *words, const char *word, size_t n)
{
	for (const char *p = words; *p;) {
		size_t len = strcspn(p, " ");

		if (len == n && !memcmp(p, word, n))
			return true;
		p += len + (p[len] == ' ');
	}
	return false;
}

static int cpu_fits(const char *then, const char *now, struct den_err *err)
{
	for (const char *p = then; *p;) {
		size_t len = strcspn(p, " ");

		if (len && !has_word(now, p, len))
			return den_fail(err, DEN_UNSUPPORTED, 0,
				"the programs were saved on a processor with '%.*s', which this "
				"one does not have",
				(int)MIN(len, (size_t)32), p);
		p += len + (p[len] == ' ');
	}
	return 0;
}

/* "criu 4.2", "runsc release-20231218.0": a newer one reads what an older one wrote, and not the other way round. Numbers
 * are compared one after the other, as far as both have some. */
static bool runtime_fits(const char *then, const char *now)
{
	if (!strcmp(then, "unknown"))
		return true;
	for (;;) {
		char *then_end, *now_end;
		unsigned long a, b;

		while (*then && *then == *now && (*then < '0' || *then > '9'))
			then++, now++;
		if (*then < '0' || *then > '9' || *now < '0' || *now > '9')
			return *then == *now || strchr(".+-~ ", *then) || strchr(".+-~ ", *now);
		a = strtoul(then, &then_end, 10);
		b = strtoul(now, &now_end, 10);
		if (a != b)
			return a < b;
		then = then_end;
		now = now_end;
		if (!*then || !*now)
			return true;
	}
}

int saved_fits(const struct saved_about *then, const struct saved_about *asked, struct den_err *err)
{
	struct saved_about now = { .kernel = asked->kernel ? mem_strdup(asked->kernel) : NULL,
		.machine = asked->machine ? mem_strdup(asked->machine) : NULL,
		.cpu = asked->cpu ? mem_strdup(asked->cpu) : NULL };
	int r = 0;

	saved_about_host(&now);
	if (strcmp(then->wall, asked->wall))
		r = den_fail(err, DEN_UNSUPPORTED, 0,
			"the programs were saved behind the wall '%.30s', and this is '%.30s'",
			then->wall, asked->wall);
	else if (asked->runtime && !runtime_fits(then->runtime, asked->runtime))
		r = den_fail(err, DEN_UNSUPPORTED, 0,
			"the programs were saved by '%.60s', and here is '%.60s', which is older", then->runtime,
			asked->runtime);
	else if (strcmp(then->machine, now.machine))
		r = den_fail(err, DEN_UNSUPPORTED, 0,
			"the programs were saved on %.30s, and this is %.30s", then->machine,
			now.machine);
	else if (strtoul(then->kernel, NULL, 10) != strtoul(now.kernel, NULL, 10))
		r = den_fail(err, DEN_UNSUPPORTED, 0,
			"the programs were saved under Linux %.60s, and this is %.60s",
			then->kernel, now.kernel);
	else if (then->ids != asked->ids)
		r = den_fail(err, DEN_UNSUPPORTED, 0,
			"the programs were saved with another layout of user ids");
	else if (asked->template && strcmp(then->template, asked->template))
		r = den_fail(err, DEN_UNSUPPORTED, 0,
			"the programs were saved above another template (%.80s)", then->template);
	else
		r = cpu_fits(then->cpu, now.cpu, err);
	saved_about_free(&now);
	return r < 0 ? den_wrap(err, "load") : 0;
}

/* ---- text ---- */

static const char how_letters[] = { [SAVED_PLAIN] = '-', [SAVED_WHOLE] = 'z', [SAVED_PAGES] = 'p' };

static void put(struct buf *b, const char *key, const char *value)
{
	buf_addf(b, "%s %s\n", key, value ? value : "");
}

/* On disk, if it is to last, and then in place of the other: whatever happens, there is one, and it is whole. */
static int replace(int dirfd, const char *text, size_t n, bool lasting, struct den_err *err)
{
	auto_fd fd = -1;

	unlinkat(dirfd, MAKING, 0);
	fd = openat(dirfd, MAKING, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0)
		return den_fail_sys(err, errno, "make '" MAKING "'");
	if (fd_write_all(fd, text, n, err) < 0)
		return -1;
	if ((lasting && fsync(fd) < 0) || renameat(dirfd, MAKING, dirfd, SAVED_MANIFEST) < 0 ||
		(lasting && fsync(dirfd) < 0))
		return den_fail_sys(err, errno, "write '" SAVED_MANIFEST "'");
	return 0;
}

int saved_manifest_write(int dirfd, const struct saved *v, struct den_err *err)
{
	auto_buf b = { 0 };
	struct sha256 h;
	char hex[65];

	buf_addf(&b, "den-memory %d\n", v->recipe[0] ? SAVED_VERSION : 1);
	put(&b, "den", DEN_VERSION_TEXT);
	put(&b, "wall", v->about.wall);
	put(&b, "runtime", v->about.runtime);
	put(&b, "kernel", v->about.kernel);
	put(&b, "machine", v->about.machine);
	put(&b, "cpu", v->about.cpu);
	put(&b, "template", v->about.template);
	buf_addf(&b, "ids %llu\npolicy %llu\nbytes %llu\n", (unsigned long long)v->about.ids,
		(unsigned long long)v->about.generation, (unsigned long long)v->bytes);
	put(&b, "boot", v->boot);
	if (v->recipe[0])
		put(&b, "pages", v->recipe);
	if (v->about.passing)
		put(&b, "passing", "1");
	for (size_t i = 0; i < v->n_files; i++) {
		const struct saved_file *f = &v->files[i];

		buf_addf(&b, "file %llu %s %c %llu %llu %s\n", (unsigned long long)f->size,
			f->hash[0] ? f->hash : "-", how_letters[f->how],
			(unsigned long long)f->ino, (unsigned long long)f->ctime_ns, f->name);
	}
	sha256_init(&h);
	sha256_add(&h, b.p, b.len);
	sha256_hex(&h, hex);
	put(&b, "end", hex);
	return replace(dirfd, b.p, b.len, !v->about.passing, err);
}

static int damaged(struct den_err *err, const char *what)
{
	return den_fail(
		err, DEN_UNSUPPORTED, 0, "what was saved of the programs is damaged: %s", what);
}

static int file_line(struct saved *v, const char *line, struct den_err *err)
{
	unsigned long long size, ino, ctime;
	char hash[65], how;
	struct saved_file *f;
	const char *kind;
	int at = 0;

	if (sscanf(line, "%llu %64s %c %llu %llu %n", &size, hash, &how, &ino, &ctime, &at) != 5 ||
		!at || !line[at] || strchr(line + at, '/') || line[at] == '.' ||
		v->n_files == SAVED_FILES_MAX || !(kind = memchr(how_letters, how, sizeof(how_letters))))
		return damaged(err, "its list of files");
	v->files = mem_realloc(v->files, (v->n_files + 1) * sizeof(*v->files));
	f = &v->files[v->n_files++];
	*f = (struct saved_file){ .name = mem_strdup(line + at),
		.size = size,
		.how = (enum saved_how)(kind - how_letters),
		.ino = ino,
		.ctime_ns = ctime };
	if (strcmp(hash, "-"))
		memcpy(f->hash, hash, sizeof(f->hash));
	return 0;
}

static int line_get(struct saved *v, const char *key, const char *value, struct den_err *err)
{
	const struct {
		const char *key;
		char **to;
	} texts[] = { { "wall", &v->about.wall }, { "runtime", &v->about.runtime },
		{ "kernel", &v->about.kernel }, { "machine", &v->about.machine },
		{ "cpu", &v->about.cpu }, { "template", &v->about.template } };

	for (size_t i = 0; i < ARRAY_SIZE(texts); i++)
		if (!strcmp(key, texts[i].key)) {
			free(*texts[i].to);
			*texts[i].to = mem_strdup(value);
			return 0;
		}
	if (!strcmp(key, "file"))
		return file_line(v, value, err);
	if (!strcmp(key, "ids"))
		return parse_u64(value, 0, 16, &v->about.ids, err);
	if (!strcmp(key, "policy"))
		return parse_u64(value, 0, INT64_MAX, &v->about.generation, err);
	if (!strcmp(key, "bytes"))
		return parse_u64(value, 0, INT64_MAX, &v->bytes, err);
	if (!strcmp(key, "passing")) {
		v->about.passing = true;
		return strcmp(value, "1") ? damaged(err, "its manifest") : 0;
	}
	if (!strcmp(key, "boot")) {
		snprintf(v->boot, sizeof(v->boot), "%s", value);
		return 0;
	}
	if (!strcmp(key, "pages")) {
		if (strlen(value) != sizeof(v->recipe) - 1)
			return damaged(err, "its manifest");
		memcpy(v->recipe, value, sizeof(v->recipe));
		return 0;
	}
	return strcmp(key, "den") ? damaged(err, "its manifest") : 0;
}

/* Ends the text before its last line, if that says what the text is. */
static int check_end(char *text, struct den_err *err)
{
	char *end = strstr(text, "\nend ");
	struct sha256 h;
	char hex[65];

	if (!end)
		return damaged(err, "its manifest has no end");
	sha256_init(&h);
	sha256_add(&h, text, (size_t)(end + 1 - text));
	sha256_hex(&h, hex);
	if (strncmp(end + 5, hex, 64))
		return damaged(err, "its manifest");
	end[1] = '\0';
	return 0;
}

static int check_pages(const struct saved *v, uint64_t version, struct den_err *err)
{
	bool any = false;

	for (size_t i = 0; i < v->n_files; i++)
		any |= v->files[i].how == SAVED_PAGES;
	return any != !!v->recipe[0] || (any && version < 2) ? damaged(err, "its manifest") : 0;
}

int saved_manifest_parse(char *text, struct saved *v, struct den_err *err)
{
	char *line = text, *next;
	uint64_t version = 0;

	if (check_end(text, err) < 0)
		return -1;
	for (; *line; line = next) {
		char *value = strchr(line, ' ');

		next = line + strcspn(line, "\n");
		if (!*next || !value || value > next)
			return damaged(err, "its manifest");
		*next++ = '\0';
		*value++ = '\0';
		if (line == text) {
			if (strcmp(line, "den-memory") ||
				parse_u64(value, 1, 1000, &version, err) < 0)
				return damaged(err, "its manifest");
			if (version > SAVED_VERSION)
				return den_fail(err, DEN_UNSUPPORTED, 0,
					"the programs were saved by a newer den (format %llu; this "
					"one reads up to %d)",
					(unsigned long long)version, SAVED_VERSION);
		} else if (line_get(v, line, value, err) < 0) {
			return -1;
		}
	}
	if (!v->about.wall || !v->about.runtime || !v->about.kernel || !v->about.machine ||
		!v->about.cpu || !v->about.template || !v->n_files)
		return damaged(err, "its manifest is not whole");
	return check_pages(v, version, err);
}

int saved_manifest_read(int dirfd, struct saved *v, struct den_err *err)
{
	auto_fd fd = openat(dirfd, SAVED_MANIFEST, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	auto_free char *text = NULL;
	size_t n;

	if (fd < 0)
		return damaged(err, "it has no manifest");
	if (fd_read_all(fd, MANIFEST_MAX, &text, &n, err) < 0)
		return -1;
	return strlen(text) == n ? saved_manifest_parse(text, v, err)
				 : damaged(err, "its manifest");
}
