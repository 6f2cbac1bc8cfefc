#include "test.h"

#include <fcntl.h>
#include <time.h>

#include "keeper.h"
#include "strv.h"

static enum den_code asked(uint8_t type, const struct buf *b)
{
	struct keeper k = { 0 };
	struct client c = { .k = &k, .guest = true };
	struct den_err err = { 0 };
	struct wire_frame f = { .type = type, .p = b ? b->p : NULL, .len = b ? (uint32_t)b->len : 0 };

	return guest_check(&c, &f, &err) < 0 ? err.code : DEN_OK;
}

/* A request that nobody thought about here is refused: the list is of what is allowed. */
TEST(guest_is_refused_what_is_not_listed)
{
	static const uint8_t not_requests[] = { WM_OK, WM_FAIL, WM_STARTED, WM_OUT, WM_ERR, WM_IN_CREDIT, WM_EXIT,
		WM_PROGRESS, WM_FORGET, WM_RECORD, WM_GATE_SETUP, WM_GATE_RECORD, WM_GATE_TOKEN, WM_GATE_SOCKETS,
		WM_GATE_PORT, WM_TYPES, WM_TYPES + 1, 0, 255 };

	for (size_t i = 0; i < ARRAY_SIZE(not_requests); i++)
		CHECK(asked(not_requests[i], NULL) == DEN_DENIED);
	CHECK(asked(WM_GC, NULL) == DEN_DENIED);
	CHECK(asked(WM_INFO, NULL) == DEN_OK && asked(WM_EXEC, NULL) == DEN_OK && asked(WM_LIST, NULL) == DEN_OK);
}

TEST(guest_makes_no_box_that_is_open_to_the_host)
{
	struct box_mount m = { (char *)"/etc", (char *)"/mnt", true };
	char *ports[] = { (char *)"80", NULL };
	struct {
		struct box_spec s;
		enum den_code want;
	} t[] = {
		{ { .name = (char *)"plain" }, DEN_OK },
		{ { .mounts = &m, .n_mounts = 1 }, DEN_DENIED },
		{ { .publish = ports }, DEN_DENIED },
		{ { .net = (char *)"host-test" }, DEN_DENIED },
		{ { .policy = (char *)"{\"version\":1,\"allow\":[\"example.com:443\"]}" }, DEN_OK },
		{ { .policy = (char *)"{\"version\":1,\"allow\":[\"0.0.0.0/0:443\"]}" }, DEN_OK },
		{ { .policy = (char *)"{\"version\":1,\"deny\":[\"10.0.0.0/8\"]}" }, DEN_OK },
		{ { .policy = (char *)"{\"version\":1,\"allow\":[\"host:22\"]}" }, DEN_DENIED },
		{ { .policy = (char *)"{\"version\":1,\"allow\":[\"10.0.0.0/8:22\"]}" }, DEN_DENIED },
		{ { .policy = (char *)"{\"version\":1,\"allow\":[\"169.254.169.254/32:80\"]}" }, DEN_DENIED },
		{ { .policy = (char *)"{\"version\":1,\"allow\":[\"[::1]/128:80\"]}" }, DEN_DENIED },
		{ { .policy = (char *)"{\"version\":1,\"allow\":[\"[fd00::]/8:80\"]}" }, DEN_DENIED },
		{ { .policy = (char *)"not a policy" }, DEN_INVALID },
	};

	for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
		auto_buf b = { 0 };
		enum den_code got;

		box_spec_put(&b, &t[i].s);
		got = asked(WM_CREATE, &b);
		if (got != t[i].want)
			fprintf(stderr, "case %zu: %d, not %d\n", i, (int)got, (int)t[i].want);
		CHECK(got == t[i].want);
	}
}

TEST(guest_changes_nothing_of_the_hosts)
{
	auto_buf b = { 0 };

	CHECK(asked(WM_PORT, NULL) == DEN_OK && asked(WM_POOL, NULL) == DEN_OK);
	wire_put_u64(&b, F_PORT, 80);
	CHECK(asked(WM_PORT, &b) == DEN_DENIED);
	b.len = 0;
	wire_put_u64(&b, F_SIZE, 1 << 30);
	CHECK(asked(WM_POOL, &b) == DEN_DENIED);
	b.len = 0;
	wire_put_str(&b, F_KIND, "plain");
	CHECK(asked(WM_POOL, &b) == DEN_DENIED);
	b.len = 0;
	wire_put_str(&b, F_POLICY, "{\"version\":1,\"allow\":[\"host:22\"]}");
	CHECK(asked(WM_POLICY_SET, &b) == DEN_DENIED && asked(WM_POLICY_STORED, &b) == DEN_DENIED);
}

static enum den_code vault(const char *request)
{
	auto_buf b = { 0 };

	wire_put_str(&b, F_CONFIG, request);
	return asked(WM_VAULT, &b);
}

TEST(guest_keeps_secrets_but_does_not_touch_who_tokens_are_from)
{
	CHECK(vault("{\"op\":\"secret.set\",\"name\":\"A\",\"value\":\"x\"}") == DEN_OK);
	CHECK(vault("{\"op\":\"secret.list\"}") == DEN_OK && vault("{\"op\":\"ident.jwks\"}") == DEN_OK);
	CHECK(vault("{\"op\":\"ident.issuer\",\"issuer\":\"https://x\"}") == DEN_DENIED);
	CHECK(vault("{\"op\":\"ident.rotate\"}") == DEN_DENIED && vault("{\"op\":\"secret.get\"}") == DEN_DENIED);
	/* said twice, the two could be read differently by the two who read it */
	CHECK(vault("{\"op\":\"secret.list\",\"op\":\"ident.rotate\"}") == DEN_INVALID);
	CHECK(vault("{\"op\":1}") == DEN_INVALID && vault("") == DEN_INVALID);
}

/* ---- leases ---- */

TEST(lease_of_a_new_box_has_defaults_and_ends_in_the_future)
{
	struct box_spec s = { 0 };
	struct den_err err;

	CHECK(lease_settle(&s, &err) == 0 && s.on_expire == LEASE_DELETE && s.on_idle == LEASE_PAUSE);
	s.expires_ms = 1000;
	CHECK(lease_settle(&s, &err) < 0 && err.code == DEN_INVALID);
}

TEST(lease_that_ended_is_forfeit_only_of_a_box_that_runs)
{
	struct box_info i = { .state = BOX_RUNNING };

	CHECK(!lease_forfeit(&i)); /* never */
	i.spec.expires_ms = 1000;
	CHECK(lease_forfeit(&i));
	i.spec.expires_ms = INT64_MAX;
	CHECK(!lease_forfeit(&i));
	i.spec.expires_ms = 1000;
	i.state = BOX_PAUSED;
	CHECK(!lease_forfeit(&i));
	i.state = BOX_STOPPED;
	CHECK(!lease_forfeit(&i));
	i.state = BOX_RUNNING;
	i.spec.on_expire = LEASE_PAUSE;
	CHECK(!lease_forfeit(&i));
}

TEST(lease_counts_what_is_done_and_not_what_is_looked_at)
{
	static const uint8_t looks[] = { WM_HELLO, WM_GUEST, WM_INFO, WM_STATS, WM_PS, WM_WAIT, WM_LOG, WM_JOURNAL,
		WM_POLICY_GET };
	static const uint8_t does[] = { WM_EXEC, WM_ATTACH, WM_IN, WM_SIGNAL, WM_DIAL, WM_CHECKPOINT, WM_LEASE };

	for (size_t i = 0; i < ARRAY_SIZE(looks); i++)
		CHECK(!lease_counts(looks[i]));
	for (size_t i = 0; i < ARRAY_SIZE(does); i++)
		CHECK(lease_counts(does[i]));
}

/* ---- the feed ---- */

TEST(feed_costs_next_to_nothing_while_nobody_listens)
{
	char *argv[] = { (char *)"sh", (char *)"-c", (char *)"true", NULL };
	struct store s = { .fd = open(test_dir(), O_RDONLY | O_DIRECTORY | O_CLOEXEC) };
	struct keeper k = { .store = &s };
	struct exec_info i = { .argv = argv, .pid = 7 };
	struct timespec a, b;
	enum { TIMES = 100000 };

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &a);
	for (int n = 0; n < TIMES; n++)
		feed_exec(&k, &i);
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &b);
	CHECK(s.fd >= 0 && !feed_wanted(&k));
	CHECK((b.tv_sec - a.tv_sec) * 1000000000LL + b.tv_nsec - a.tv_nsec < TIMES * 10000LL); /* 10 us each */
	close(s.fd);
}
