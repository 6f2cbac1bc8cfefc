#include "test.h"

#include <fcntl.h>
#include <sys/stat.h>

#include "fd.h"
#include "journal.h"
#include "mem.h"
#include "sha256.h"

static const char *const kinds[] = { "incident", NULL };
static const struct journal_limits limits = { .file = 4000, .kept = 1500, .kinds = kinds };

static int dir(void)
{
	int fd = open(test_dir(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	CHECK(fd >= 0);
	return fd;
}

static void say(struct journal *j, const char *kind, uint64_t number)
{
	struct den_err err;
	struct json line;

	journal_begin(j, &line, kind);
	json_u64(&line, "number", number);
	CHECK(journal_end(j, &line, &err) == 0);
}

struct seen {
	uint64_t lines, first, last, gaps, broken, number, gone;
	char hash[65];
};

static uint64_t number_in(const char *line, const char *key)
{
	const char *p = strstr(line, key);

	return p ? strtoull(p + strlen(key), NULL, 10) : 0;
}

static int see(const char *line, size_t len, void *user, struct den_err *err)
{
	struct seen *s = user;
	auto_free char *text = mem_strndup(line, len);
	uint64_t n = number_in(text, "\"n\":");
	struct sha256 h;

	(void)err;
	if (!s->lines++)
		s->first = n;
	else if (n != s->last + 1)
		s->gaps++;
	else if (!strstr(text, s->hash))
		s->broken++;
	s->last = n;
	s->number = number_in(text, "\"number\":");
	if (strstr(text, "\"kind\":\"rotated\""))
		s->gone += number_in(text, "\"count\":");
	sha256_init(&h);
	sha256_add(&h, line, len);
	sha256_hex(&h, s->hash);
	return 0;
}

static struct seen tail(int fd, const char *kind, uint64_t count)
{
	struct seen s = { 0 };
	struct den_err err;

	CHECK(journal_tail(fd, "journal", kind, count, see, &s, &err) == 0);
	return s;
}

static uint64_t size_of(int fd, const char *name)
{
	struct stat st;

	return fstatat(fd, name, &st, 0) < 0 ? 0 : (uint64_t)st.st_size;
}

TEST(journal_chain_goes_on_over_files)
{
	auto_fd fd = dir();
	struct journal j;
	struct den_err err;
	struct seen s;

	CHECK(journal_open(&j, fd, "journal", &limits, &err) == 0);
	for (uint64_t i = 1; i <= 30; i++)
		say(&j, "connection", i);
	CHECK(size_of(fd, "journal.1") >= limits.file); /* two files, nothing gone yet */
	s = tail(fd, NULL, 1000);
	CHECK(s.first == 1 && s.last == j.n && s.lines == j.n && s.number == 30);
	CHECK(s.gaps == 0 && s.broken == 0 && s.gone == 0);
	for (uint64_t i = 31; i <= 500; i++)
		say(&j, "connection", i);
	s = tail(fd, NULL, 1000);
	CHECK(s.first > 400 && s.last == j.n && s.number == 500 && s.gaps == 0 && s.broken == 0);
	CHECK(size_of(fd, "journal") < limits.file + 300 && size_of(fd, "journal.1") < limits.file + 300);
	CHECK(size_of(fd, "journal.kept") == 0);
	/* what a reader wants is what it gets, from both */
	s = tail(fd, NULL, 25);
	CHECK(s.lines == 25 && s.last == j.n && s.gaps == 0 && s.broken == 0);
	journal_close(&j);
}

TEST(journal_says_how_many_lines_went)
{
	auto_fd fd = dir();
	struct journal j;
	struct den_err err;
	uint64_t gone = 0, first = 1;

	CHECK(journal_open(&j, fd, "journal", &limits, &err) == 0);
	for (uint64_t i = 1; i <= 300; i++) {
		struct seen s;

		say(&j, "connection", i);
		s = tail(fd, NULL, 1000);
		if (s.first != first) { /* just now: the last "rotated" line is about these */
			CHECK(tail(fd, "rotated", 1).gone == s.first - first);
			gone += s.first - first;
			first = s.first;
		}
		CHECK(s.first + s.lines - 1 == j.n);
	}
	CHECK(gone == first - 1 && gone > 100);
	journal_close(&j);
}

TEST(journal_keeps_what_matters_when_the_rest_goes)
{
	auto_fd fd = dir();
	struct journal j;
	struct den_err err;

	CHECK(journal_open(&j, fd, "journal", &limits, &err) == 0);
	say(&j, "incident", 7);
	for (uint64_t i = 1; i <= 500; i++)
		say(&j, "connection", i);
	CHECK(tail(fd, "incident", 10).lines == 1 && tail(fd, "incident", 10).number == 7);
	CHECK(tail(fd, NULL, 1000).first == 1);
	/* and even of these the newest, in bounds */
	for (uint64_t i = 1; i <= 500; i++)
		say(&j, "incident", i);
	CHECK(size_of(fd, "journal.kept") <= limits.kept && size_of(fd, "journal.kept") > 1000);
	CHECK(tail(fd, "incident", 1000).number == 500 && tail(fd, "incident", 1000).first > 400);
	journal_close(&j);
}

TEST(journal_goes_on_where_it_was_left)
{
	auto_fd fd = dir();
	struct journal j;
	struct den_err err;
	auto_fd torn = -1;
	struct seen s;

	for (uint64_t i = 1; i <= 100; i++) { /* another writer for each line */
		CHECK(journal_open(&j, fd, "journal", &limits, &err) == 0);
		say(&j, "connection", i);
		journal_close(&j);
	}
	s = tail(fd, NULL, 1000);
	CHECK(s.number == 100 && s.gaps == 0 && s.broken == 0);
	/* it died in the middle of a line */
	torn = openat(fd, "journal", O_WRONLY | O_APPEND | O_CLOEXEC);
	CHECK(torn >= 0 && write(torn, "{\"n\":9", 6) == 6);
	CHECK(journal_open(&j, fd, "journal", &limits, &err) == 0);
	say(&j, "connection", 101);
	journal_close(&j);
	/* it died when the full file was aside and the new one had no line */
	CHECK(renameat(fd, "journal", fd, "journal.1") == 0);
	CHECK(journal_open(&j, fd, "journal", &limits, &err) == 0);
	say(&j, "connection", 102);
	journal_close(&j);
	s = tail(fd, NULL, 1000);
	CHECK(s.number == 102 && s.lines > 2 && s.gaps == 0 && s.broken == 0);
}
