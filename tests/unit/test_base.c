#include "test.h"

#include <sys/epoll.h>
#include <fcntl.h>
#include <sys/stat.h>

#include "fd.h"
#include "json.h"
#include "loop.h"
#include "clock.h"
#include "mem.h"
#include "parse.h"

TEST(sizes_are_read_whole_or_refused)
{
	static const char *const bad[] = { "", "x", "-1", "1x", "1 M", "0", "99999999999999999999", "1e3",
		"9999999P", ".", "1..2", "M" };
	struct den_err err;
	uint64_t v = 7;

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		CHECK(parse_size(bad[i], &v, &err) < 0 && v == 7);
	CHECK(parse_size("512M", &v, &err) == 0 && v == 512ULL << 20);
	CHECK(parse_size("1.5GiB", &v, &err) == 0 && v == 1536ULL << 20);
	CHECK(parse_size("64kb", &v, &err) == 0 && v == 64 << 10);
	CHECK(parse_size("17", &v, &err) == 0 && v == 17);
}

TEST(durations_are_read_whole_or_refused)
{
	static const char *const bad[] = { "", "s", "-1s", "1y", "1s ", "0", "0.0001ms", "9999999999999999999d" };
	struct den_err err;
	uint64_t v = 7;

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		CHECK(parse_duration(bad[i], &v, &err) < 0 && v == 7);
	CHECK(parse_duration("1.5", &v, &err) == 0 && v == 1500);
	CHECK(parse_duration("500ms", &v, &err) == 0 && v == 500);
	CHECK(parse_duration("2h", &v, &err) == 0 && v == 7200000);
}

TEST(signals_have_names_and_numbers)
{
	struct den_err err;
	int s;

	CHECK(parse_signal("KILL", &s, &err) == 0 && s == 9);
	CHECK(parse_signal("sigterm", &s, &err) == 0 && s == 15);
	CHECK(parse_signal("2", &s, &err) == 0 && s == 2);
	CHECK(parse_signal("0", &s, &err) < 0);
	CHECK(parse_signal("KILLL", &s, &err) < 0);
	CHECK(!strcmp(signal_name(9), "KILL"));
}

TEST(json_stays_valid_whatever_a_box_says)
{
	struct json j = { 0 };

	json_open(&j, NULL, '{');
	json_bytes(&j, "k", "a\"\\\n\x01\xff\xc3\xa9\xed\xa0\x80", 11);
	json_close(&j, '}');
	CHECK(!strcmp(buf_str(&j.b),
		"{\"k\":\"a\\\"\\\\\\n\\u0001\\ufffd\xc3\xa9\\ufffd\\ufffd\\ufffd\"}"));
	buf_free(&j.b);
}

TEST(a_listing_cannot_steer_the_terminal)
{
	auto_buf b = { 0 };

	text_printable(&b, "a\033[2J\n\xc2\x9b", 8);
	CHECK(!strcmp(buf_str(&b), "a\\x1b[2J\\x0a\\xc2\\x9b"));
}

TEST(an_error_keeps_its_context_and_never_overflows)
{
	struct den_err e;
	char big[1000];

	CHECK(den_fail(&e, DEN_INVALID, 2, "open '%s'", "x") == -1 && e.code == DEN_INVALID && e.sys == 2);
	CHECK(!strcmp(e.msg, "open 'x': No such file or directory"));
	CHECK(den_wrap(&e, "outer") == -1 && !strcmp(e.msg, "outer: open 'x': No such file or directory"));
	memset(big, 'a', sizeof(big) - 1);
	big[999] = 0;
	den_fail(&e, DEN_INTERNAL, 5, "%s", big);
	den_wrap(&e, "%s", big);
	CHECK(strlen(e.msg) == sizeof(e.msg) - 1);
	CHECK(den_fail(NULL, DEN_INTERNAL, 0, "nobody listens") == -1);
}

TEST(a_tree_is_removed_without_following_links)
{
	struct den_err err;
	char path[200];
	int dir = open(test_dir(), O_RDONLY | O_DIRECTORY);
	int fd;

	mkdirat(dir, "keep", 0755);
	fd = openat(dir, "keep/file", O_CREAT | O_WRONLY, 0644);
	close(fd);
	mkdirat(dir, "gone", 0755);
	mkdirat(dir, "gone/sub", 0000);
	snprintf(path, sizeof(path), "%s/keep", test_dir());
	CHECK(symlinkat(path, dir, "gone/link") == 0);
	CHECK(tree_remove_at(dir, "gone", &err) == 0);
	CHECK(faccessat(dir, "gone", F_OK, AT_SYMLINK_NOFOLLOW) < 0);
	CHECK(faccessat(dir, "keep/file", F_OK, 0) == 0);
}

TEST(a_tree_three_thousand_deep_is_removed)
{
	struct den_err err;
	int top = open(test_dir(), O_RDONLY | O_DIRECTORY), at;

	CHECK(mkdirat(top, "deep", 0755) == 0);
	at = openat(top, "deep", O_RDONLY | O_DIRECTORY);
	for (int i = 0; i < 3000; i++) {
		int next;

		CHECK(mkdirat(at, "d", 0755) == 0);
		next = openat(at, "d", O_RDONLY | O_DIRECTORY);
		close(at);
		at = next;
	}
	close(at);
	CHECK(tree_remove_at(top, "deep", &err) == 0);
	CHECK(faccessat(top, "deep", F_OK, 0) < 0);
}

struct two {
	struct loop *l;
	struct loop_source a, b;
	int ran;
};

static void two_cb_a(struct loop_source *s, uint32_t ev)
{
	struct two *t = CONTAINER_OF(s, struct two, a);

	(void)ev;
	t->ran++;
	loop_remove(t->l, &t->b);
	loop_remove(t->l, &t->a);
}

static void two_cb_b(struct loop_source *s, uint32_t ev)
{
	struct two *t = CONTAINER_OF(s, struct two, b);

	(void)ev;
	t->ran++;
	loop_remove(t->l, &t->b);
	loop_remove(t->l, &t->a);
}

TEST(a_source_removed_in_a_batch_is_not_called_in_it)
{
	struct two t = { .a = { .events = EPOLLIN, .cb = two_cb_a }, .b = { .events = EPOLLIN, .cb = two_cb_b } };
	struct den_err err;
	int p[2], q[2];

	CHECK(pipe(p) == 0 && pipe(q) == 0 && loop_new(&t.l, &err) == 0);
	t.a.fd = p[0];
	t.b.fd = q[0];
	CHECK(loop_add(t.l, &t.a, &err) == 0 && loop_add(t.l, &t.b, &err) == 0);
	CHECK(write(p[1], "x", 1) == 1 && write(q[1], "x", 1) == 1);
	CHECK(loop_step(t.l, 1000, &err) == 0 && t.ran == 1);
	loop_free(t.l);
}

static int order[3], n_order;
static struct loop_timer timers[3];

static void timer_cb(struct loop_timer *t)
{
	order[n_order++] = (int)(t - timers);
}

TEST(timers_run_in_order_and_can_be_taken_back)
{
	struct loop *l;
	struct den_err err;
	int64_t now = clock_mono_ns();

	CHECK(loop_new(&l, &err) == 0);
	for (int i = 0; i < 3; i++)
		timers[i].cb = timer_cb;
	loop_timer_set(l, &timers[0], now + 2 * NS_PER_MS);
	loop_timer_set(l, &timers[1], now + 1 * NS_PER_MS);
	loop_timer_set(l, &timers[2], now + 1 * NS_PER_MS);
	loop_timer_clear(&timers[2]);
	while (n_order < 2)
		CHECK(loop_step(l, 100, &err) == 0);
	CHECK(order[0] == 1 && order[1] == 0 && loop_step(l, 5, &err) == 0 && n_order == 2);
	loop_free(l);
}

static void wary_cb(struct loop_source *s, uint32_t events)
{
	char c;

	(void)events;
	if (read(s->fd, &c, 1) == 1)
		s->events = 0x5eed; /* it was called */
}

/* A kernel that reports what was removed is not believed, and what is known goes on after a change of epoll. */
TEST(loop_that_is_wary_believes_known_sources_alone)
{
	struct epoll_event ghost = { .events = EPOLLIN };
	struct loop_source known = { .events = EPOLLIN, .cb = wary_cb }, gone = { .cb = NULL };
	struct den_err err;
	struct loop *l;
	int a[2], b[2];

	CHECK(pipe(a) == 0 && pipe(b) == 0 && loop_new(&l, &err) == 0);
	loop_wary(l);
	known.fd = a[0];
	CHECK(loop_add(l, &known, &err) == 0);
	ghost.data.ptr = &gone; /* behind the loop's back */
	CHECK(epoll_ctl(loop_fd(l), EPOLL_CTL_ADD, b[0], &ghost) == 0);
	CHECK(write(b[1], "x", 1) == 1);
	CHECK(loop_step(l, 100, &err) == 0); /* would call NULL */
	CHECK(write(a[1], "x", 1) == 1);
	CHECK(loop_step(l, 100, &err) == 0 && known.events == 0x5eed);
	known.events = EPOLLIN;
	loop_renew(l);
	CHECK(write(a[1], "x", 1) == 1);
	CHECK(loop_step(l, 100, &err) == 0 && known.events == 0x5eed);
	loop_remove(l, &known);
	loop_free(l);
	for (int i = 0; i < 2; i++) {
		close(a[i]);
		close(b[i]);
	}
}
