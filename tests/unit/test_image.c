/* Images: names, parts, opening, sweeping, and everything at once. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "buf.h"
#include "image.h"
#include "kit_image.h"
#include "mem.h"
#include "sha256.h"
#include "strv.h"
#include "test.h"

/* ---- names ---- */

TEST(image_names_are_those_of_repositories)
{
	static const char *const good[] = { "a", "debian", "debian:12", "debian:Bookworm-Slim_1.0", "a.b-c_d",
		"library/debian", "localhost:5000/a/b:1", "registry.example/team/app", "a:5000", "a:5000/b", "0",
		"hosts", "my/host", "host/a", "emptyy", "abcdef123456:x", "abcdef12345" };
	static const char *const bad[] = { "", ":", "a:", ":a", "/a", "a/", "a//b", "A", "a/B", "../a", "a/../b",
		"a..b", "a:b:c", "a:b/c", "a/b:5000/c", "a:/b", "a:123456/b", "a b", "a\n", "a\tb", "a\033[0m", "-a",
		".a", "_a", "a/-b", "a:-b", "a:.b", "a:x/y", "a@sha256", "a\\b", "\303\244", "host", "empty",
		"host:1", "empty:latest", "abcdef123456", "a:5000/b:c:d", "a:5000x/b",
		"0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef" };
	char longest[IMAGE_NAME_MAX + 2];
	struct den_err err;

	for (size_t i = 0; i < ARRAY_SIZE(good); i++)
		well(image_name_check(good[i], &err), &err);
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		err.code = DEN_OK;
		if (image_name_check(bad[i], &err) == 0)
			fprintf(stderr, "accepted '%s'\n", bad[i]);
		CHECK(err.code == DEN_INVALID);
	}
	memset(longest, 'z', sizeof(longest) - 1);
	longest[IMAGE_NAME_MAX + 1] = '\0';
	CHECK(image_name_check(longest, &err) < 0);
	longest[IMAGE_NAME_MAX] = '\0';
	CHECK(image_name_check(longest, &err) == 0);
}

/* ---- images ---- */

TEST(image_comes_back_as_it_was_put)
{
	struct image img, back = { 0 };
	char hex[65], id[65];
	struct den_err err;

	state_open();
	layer_make("one", hex);
	image_fill(&img, hex);
	CHECK(image_put(store, &img, "team/app:1", &err) == 0);
	CHECK(strlen(img.id) == 64 && image_find(store, "team/app:1", id, &err) == 0 && !strcmp(id, img.id));
	CHECK(image_get(store, id, &back, &err) == 0);
	CHECK(!strcmp(back.id, id) && !back.parent && back.n_layers == 1 && !back.damage);
	CHECK(!strcmp(back.layers[0].hex, hex) && !strcmp(back.layers[0].sub, "u0"));
	CHECK(!strcmp(back.layers[0].at, "/") && !strcmp(back.layers[0].diff_id, DIFF));
	CHECK(!strcmp(back.config, img.config) && !strcmp(back.detail, img.detail));
	CHECK(back.size == 12345 && back.created_ms == 1700000000123);
	CHECK(!strcmp(back.defaults.user, "1000:1000") && !strcmp(back.defaults.workdir, "/srv"));
	CHECK(strv_len(back.defaults.env) == 2 && !strcmp(back.defaults.env[1], "EMPTY="));
	CHECK(strv_len(back.defaults.entrypoint) == 1 && !strcmp(back.defaults.entrypoint[0], "/bin/sh"));
	CHECK(strv_len(back.defaults.cmd) == 2 && !strcmp(back.defaults.cmd[1], ""));
	image_free(&back);
	image_free(&img);
	state_close();
}

TEST(image_id_is_that_of_its_parts_and_of_nothing_else)
{
	struct image img, other;
	char hex[65], hex2[65], id[65];

	state_open();
	layer_make("one", hex);
	layer_make("two", hex2);
	image_fill(&img, hex);
	CHECK(image_put(store, &img, NULL, NULL) == 0);
	memcpy(id, img.id, 65);
#define SAME_WITH(change, same)                                            \
	do {                                                               \
		image_fill(&other, hex);                                   \
		change;                                                    \
		CHECK(image_put(store, &other, NULL, NULL) == 0);          \
		CHECK((strcmp(other.id, id) == 0) == (same));              \
		image_free(&other);                                        \
	} while (0)
	SAME_WITH(other.size = 1, true);
	SAME_WITH(other.created_ms = 0, true);
	SAME_WITH(other.detail[0] = 'F', true);
	SAME_WITH(other.config[5] = '2', false);
	SAME_WITH(free(mem_take(&other.config)), false);
	SAME_WITH(other.defaults.user[0] = '2', false);
	SAME_WITH(strv_add(&other.defaults.cmd, "x"), false);
	SAME_WITH(other.parent = mem_strdup("host-0123456789abcdef"), false);
	SAME_WITH(layer_add(&other, hex2, "/", NULL), false);
	SAME_WITH(other.layers[0].diff_id[7] = 'f', false);
	/* The same words, as command and as entry point. */
	SAME_WITH(strv_add(&other.defaults.entrypoint, "-c"), false);
	image_free(&img);
	state_close();
}

TEST(image_put_refuses_what_it_could_not_read_back)
{
	struct image img;
	struct den_err err;
	char hex[65];

	state_open();
	layer_make("one", hex);
#define REFUSED(change)                                                          \
	do {                                                                     \
		image_fill(&img, hex);                                           \
		change;                                                          \
		memset(&err, 0, sizeof(err));                                    \
		CHECK(image_put(store, &img, NULL, &err) < 0);                   \
		CHECK(err.code == DEN_INVALID || err.code == DEN_LIMIT);         \
		CHECK(img.id[0] == '\0');                                        \
		image_free(&img);                                                \
	} while (0)
	REFUSED(img.layers[0].hex[0] = 'X');
	REFUSED(img.layers[0].hex[63] = '\0');
	REFUSED(img.layers[0].sub[0] = '/');
	REFUSED((free(img.layers[0].sub), img.layers[0].sub = mem_strdup("u0/../..")));
	REFUSED((free(img.layers[0].sub), img.layers[0].sub = mem_strdup("u0\tx")));
	REFUSED((free(img.layers[0].at), img.layers[0].at = mem_strdup("/usr"))); /* stands on nothing */
	REFUSED((free(img.layers[0].at), img.layers[0].at = mem_strdup("usr")));
	REFUSED(img.layers[0].diff_id[0] = 'S');
	REFUSED(img.parent = mem_strdup("host-../../x"));
	REFUSED(strv_add(&img.defaults.env, "NOVALUE"));
	REFUSED(strv_add(&img.defaults.env, "=x"));
	REFUSED(for (int i = 0; i < IMAGE_LAYERS_MAX; i++) layer_add(&img, hex, "/", NULL));
	REFUSED(image_layer_free(&img.layers[--img.n_layers]));
	CHECK(entries(templates, "i-") == 0 && entries(templates, ".tmp") == 0);
	state_close();
}

TEST(image_is_found_by_name_id_and_prefix)
{
	char a[65], b[65], id[65], hex[65], prefix[65];
	struct den_err err;

	state_open();
	image_make("one", "a", a, hex);
	image_make("two", "b:1", b, hex);
	CHECK(image_find(store, a, id, &err) == 0 && !strcmp(id, a));
	snprintf(prefix, sizeof(prefix), "%.12s", b);
	CHECK(image_find(store, prefix, id, &err) == 0 && !strcmp(id, b));
	prefix[11] = '\0'; /* too short to be meant */
	CHECK(image_find(store, prefix, id, &err) < 0 && err.code == DEN_NOT_FOUND);
	CHECK(image_find(store, "b", id, &err) < 0 && err.code == DEN_NOT_FOUND);
	CHECK(image_find(store, "000000000000", id, &err) < 0 && err.code == DEN_NOT_FOUND);
	CHECK(image_find(store, "../../etc\n", id, &err) < 0 && err.code == DEN_NOT_FOUND);
	CHECK(!strchr(err.msg, '\n'));
	/* Two that begin alike. */
	snprintf(prefix, sizeof(prefix), "%s", b);
	prefix[63] = b[63] == '0' ? '1' : '0';
	{
		char name[80];

		snprintf(name, sizeof(name), "i-%s", prefix);
		CHECK(mkdirat(templates, name, 0700) == 0);
	}
	prefix[20] = '\0';
	CHECK(image_find(store, prefix, id, &err) < 0 && err.code == DEN_INVALID);
	CHECK(image_find(store, b, id, &err) == 0);
	CHECK(image_get(store, "nonsense", NULL, &err) < 0 && err.code == DEN_INVALID);
	state_close();
}

static int stop_at_once(const char *name, const struct image *img, void *user, struct den_err *err)
{
	(void)name, (void)img;
	++*(int *)user;
	return den_fail(err, DEN_TIMEOUT, 0, "enough");
}

TEST(image_names_are_given_moved_taken_away_and_listed)
{
	char a[65], b[65], id[65], hex[65], want[256];
	auto_buf got = { 0 };
	struct den_err err;
	int calls = 0;

	state_open();
	CHECK(image_each(store, collect, &got, &err) == 0 && got.len == 0);
	image_make("one", "z", a, hex);
	image_make("two", "m:1", b, hex);
	CHECK(image_tag(store, a, "a", false, &err) == 0);
	CHECK(image_tag(store, a, "host", false, &err) < 0 && err.code == DEN_INVALID);
	CHECK(image_tag(store, "0000000000000000000000000000000000000000000000000000000000000000", "q", false, &err) < 0);
	CHECK(err.code == DEN_NOT_FOUND);
	CHECK(image_each(store, collect, &got, &err) == 0);
	snprintf(want, sizeof(want), "a=%.6s;m:1=%.6s;z=%.6s;", a, b, a);
	CHECK(!strcmp(buf_str(&got), want));
	CHECK(image_each(store, stop_at_once, &calls, &err) < 0 && calls == 1 && err.code == DEN_TIMEOUT);
	CHECK(image_tag(store, b, "z", false, &err) == 0 && image_find(store, "z", id, &err) == 0 && !strcmp(id, b));
	CHECK(image_untag(store, "z", false, &err) == 0);
	CHECK(image_find(store, "z", id, &err) < 0 && err.code == DEN_NOT_FOUND);
	CHECK(image_untag(store, "z", false, &err) < 0 && err.code == DEN_NOT_FOUND);
	CHECK(image_find(store, "m:1", id, &err) == 0 && !strcmp(id, b));
	state_close();
}

TEST(image_keeps_its_last_name_while_a_box_stands_on_it)
{
	char a[65], hex[65];
	struct den_err err;

	state_open();
	image_make("one", "a", a, hex);
	CHECK(image_tag(store, a, "b", false, &err) == 0);
	box_put("b-0123456789abcdef", a);
	CHECK(image_untag(store, "a", false, &err) == 0);
	CHECK(image_untag(store, "b", false, &err) < 0 && err.code == DEN_CONFLICT);
	CHECK(strstr(err.msg, "b-0123456789abcdef"));
	CHECK(image_find(store, "b", a, &err) == 0);
	CHECK(image_untag(store, "b", true, &err) == 0);
	CHECK(image_sweep(store, pool, NULL, NULL, &err) == 0); /* the box still needs it */
	CHECK(image_find(store, a, a, &err) == 0 && layer_there(hex));
	state_close();
}

/* As if it was put long ago. */
static void age(int dirfd, const char *prefix, const char *id)
{
	struct timespec old[2] = { { 1000, 0 }, { 1000, 0 } };
	char name[96];

	snprintf(name, sizeof(name), "%s%s", prefix, id);
	CHECK(utimensat(dirfd, name, old, 0) == 0);
}

TEST(image_sweep_takes_what_nobody_needs_and_nothing_else)
{
	char a[65], b[65], c[65], n[65], hex_a[65], hex_b[65], hex_c[65], hex_n[65], loose[65], id[65];
	struct den_err err;
	struct image img;
	int removed = 0;

	state_open();
	image_make("named", "named", a, hex_a);
	image_make("box", "box", b, hex_b);
	image_make("gone", "gone", c, hex_c);
	image_make("new", NULL, n, hex_n);
	layer_make("loose", loose);
	image_fill(&img, hex_a); /* shares a layer with one that stays */
	layer_add(&img, hex_c, "/", NULL);
	CHECK(image_put(store, &img, "shares", &err) == 0);
	box_put("b-0123456789abcdef", b);
	CHECK(image_untag(store, "box", true, &err) == 0 && image_untag(store, "shares", false, &err) == 0);
	CHECK(image_sweep(store, pool, count, &removed, &err) == 0);
	CHECK(removed == 1 && !layer_there("x")); /* the image "shares" alone: its layers are others' too */
	CHECK(image_find(store, img.id, id, &err) < 0 && layer_there(hex_a) && layer_there(hex_c));
	CHECK(image_untag(store, "gone", false, &err) == 0);
	CHECK(image_sweep(store, pool, count, &removed, &err) == 0 && removed == 3);
	CHECK(image_find(store, c, id, &err) < 0 && !layer_there(hex_c));
	CHECK(image_find(store, a, id, &err) == 0 && layer_there(hex_a));
	CHECK(image_find(store, b, id, &err) == 0 && layer_there(hex_b));
	CHECK(image_find(store, n, id, &err) == 0 && layer_there(hex_n)); /* no name, but young */
	CHECK(layer_there(loose));
	age(templates, "i-", n);
	CHECK(image_sweep(store, pool, count, &removed, &err) == 0 && removed == 5);
	CHECK(image_find(store, n, id, &err) < 0 && !layer_there(hex_n));
	CHECK(image_sweep(store, NULL, count, &removed, &err) == 0 && removed == 5);
	{
		struct box_id box = { "b-0123456789abcdef" };

		CHECK(store_delete(store, &box, &err) == 0);
	}
	CHECK(image_sweep(store, pool, count, &removed, &err) == 0 && removed == 7 && !layer_there(hex_b));
	CHECK(entries(templates, ".tmp") == 0 && entries(templates, "i-") == 1);
	image_free(&img);
	state_close();
}

TEST(image_put_again_makes_it_young_again)
{
	char a[65], id[65], hex[65];
	struct den_err err;
	struct image img;

	state_open();
	image_make("one", "a", a, hex);
	CHECK(image_untag(store, "a", false, &err) == 0);
	image_fill(&img, hex);
	CHECK(image_put(store, &img, NULL, &err) == 0 && !strcmp(img.id, a));
	CHECK(image_sweep(store, pool, NULL, NULL, &err) == 0 && image_find(store, a, id, &err) == 0);
	image_free(&img);
	state_close();
}

TEST(image_whose_name_moved_away_is_swept)
{
	char a[65], b[65], id[65], hex_a[65], hex_b[65];
	struct den_err err;

	state_open();
	image_make("one", "latest", a, hex_a);
	image_make("two", "latest", b, hex_b);
	CHECK(image_find(store, "latest", id, &err) == 0 && !strcmp(id, b));
	CHECK(image_sweep(store, pool, NULL, NULL, &err) == 0);
	CHECK(image_find(store, a, id, &err) < 0 && !layer_there(hex_a) && layer_there(hex_b));
	state_close();
}

/* ---- opening ---- */

TEST(image_opens_as_a_template_with_its_topmost_layer_first)
{
	struct image_defaults d = { 0 };
	struct template t = { 0 };
	struct image img;
	char low[65], mid[65], top[65], want[PATH_MAX];
	struct den_err err;

	state_open();
	layer_make("low", low);
	layer_make("mid", mid);
	layer_make("top", top);
	image_fill(&img, low);
	layer_add(&img, mid, "/", NULL);
	layer_add(&img, top, "/", NULL);
	CHECK(image_put(store, &img, NULL, &err) == 0);
	CHECK(image_open(store, pool, img.id, &t, &d, &err) == 0);
	CHECK(t.n_trees == 1 && !strcmp(t.trees[0].at, "/") && strv_len(t.trees[0].lowers) == 3);
	snprintf(want, sizeof(want), "%s/layers/%s/u0", pool->path, top);
	CHECK(!strcmp(t.trees[0].lowers[0], want) && access(want, F_OK) == 0);
	CHECK(strstr(t.trees[0].lowers[1], mid) && strstr(t.trees[0].lowers[2], low));
	CHECK(!strcmp(t.version, img.id) && !strcmp(t.detail, "for people\n") && !t.owners_path);
	CHECK(!strcmp(d.workdir, "/srv") && strv_len(d.cmd) == 2);
	image_defaults_free(&d);
	template_free(&t);
	/* A root that is opaque hides what is below: overlayfs would not see to it. */
	snprintf(want, sizeof(want), "layers/%s/u0", mid);
	mark(pool->fd, want, OPAQUE, "y");
	CHECK(image_open(store, pool, img.id, &t, NULL, &err) == 0);
	CHECK(strv_len(t.trees[0].lowers) == 2 && strstr(t.trees[0].lowers[1], mid));
	template_free(&t);
	/* A layer that is not there, or not what it was. */
	snprintf(want, sizeof(want), "layers/%s/u0/file", low);
	CHECK(unlinkat(pool->fd, want, 0) == 0);
	snprintf(want, sizeof(want), "layers/%s/u0", low);
	CHECK(unlinkat(pool->fd, want, AT_REMOVEDIR) == 0);
	CHECK(image_open(store, pool, img.id, &t, NULL, &err) < 0 && err.code == DEN_INTERNAL);
	CHECK(strstr(err.msg, "layer "));
	CHECK(symlinkat("/", pool->fd, want) == 0);
	CHECK(image_open(store, pool, img.id, &t, NULL, &err) < 0);
	image_free(&img);
	state_close();
}

TEST(image_on_the_host_s_system_puts_layers_above_its_trees)
{
	struct template t = { 0 };
	struct image img;
	char usr[65], root[65], want[PATH_MAX];
	struct den_err err;
	int fd;

	state_open();
	CHECK(mkdirat(templates, "host-0123456789abcdef", 0700) == 0);
	fd = openat(templates, "host-0123456789abcdef", O_RDONLY | O_DIRECTORY);
	put(fd, "trees", "/\troot\n/usr\tskel/usr\t/usr\n");
	put(fd, "detail", "host\n");
	put(fd, "owners", "0 0 0755 etc\n");
	layer_make("usr", usr);
	layer_make("root", root);
	image_fill(&img, root);
	layer_add(&img, usr, "/usr", NULL);
	img.parent = mem_strdup("host-0123456789abcdef");
	CHECK(image_put(store, &img, "dev", &err) == 0);
	CHECK(image_open(store, pool, img.id, &t, NULL, &err) == 0 && t.n_trees == 2);
	CHECK(strv_len(t.trees[0].lowers) == 2 && strstr(t.trees[0].lowers[0], root));
	snprintf(want, sizeof(want), "%s/templates/host-0123456789abcdef/root", store->path);
	CHECK(!strcmp(t.trees[0].lowers[1], want));
	CHECK(strv_len(t.trees[1].lowers) == 3 && strstr(t.trees[1].lowers[0], usr));
	CHECK(!strcmp(t.trees[1].lowers[2], "/usr") && !t.owners_path);
	template_free(&t);
	CHECK(image_needs_host(store, "0123456789abcdef") && !image_needs_host(store, "0123456789abcdee"));
	put(fd, "trees", "/\troot\n");
	CHECK(image_open(store, pool, img.id, &t, NULL, &err) < 0 && strstr(err.msg, "'/usr'"));
	CHECK(unlinkat(fd, "trees", 0) == 0);
	CHECK(image_open(store, pool, img.id, &t, NULL, &err) < 0 && strstr(err.msg, "stands on"));
	close(fd);
	image_free(&img);
	state_close();
}

TEST(image_layers_are_found_by_the_tar_they_came_from)
{
	struct image_layer l = { 0 };
	char id[65], hex[65];

	state_open();
	CHECK(image_layer_by_diff(store, DIFF, &l) == 0);
	image_make("one", NULL, id, hex);
	CHECK(image_layer_by_diff(store, DIFF, &l) == 1);
	CHECK(!strcmp(l.hex, hex) && !strcmp(l.sub, "u0") && !strcmp(l.diff_id, DIFF));
	image_layer_free(&l);
	CHECK(image_layer_by_diff(store, "sha256:" HEX64, &l) == 0 && image_layer_by_diff(store, "-", &l) == 0);
	part(id, "config", "x", 1); /* what a damaged image says is not believed */
	CHECK(image_layer_by_diff(store, DIFF, &l) == 0);
	state_close();
}

/* ---- at once ---- */

static void wait_well(pid_t pid)
{
	int status;

	CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

TEST(images_put_by_several_at_once_are_one)
{
	char hex[65], id[65], name[32];
	struct den_err err = { 0 };
	pid_t pids[4];
	int go[2];

	state_open();
	layer_make("one", hex);
	CHECK(pipe(go) == 0);
	for (int i = 0; i < 4; i++) {
		pids[i] = fork();
		if (pids[i] == 0) {
			struct image img;
			char c;

			close(go[1]);
			(void)!read(go[0], &c, 1); /* all begin when the pipe is closed */
			for (int n = 0; n < 10; n++) {
				image_fill(&img, hex);
				img.config[5] = (char)('0' + n); /* ten images, each by all */
				snprintf(name, sizeof(name), "n%d:%d", n, i);
				if (image_put(store, &img, name, &err) < 0) {
					fprintf(stderr, "%s\n", err.msg);
					_exit(1);
				}
				image_free(&img);
			}
			_exit(0);
		}
	}
	close(go[0]);
	close(go[1]);
	for (int i = 0; i < 4; i++)
		wait_well(pids[i]);
	CHECK(entries(templates, "i-") == 10 && entries(templates, ".tmp") == 0);
	for (int n = 0; n < 10; n++) {
		char first[65];

		snprintf(name, sizeof(name), "n%d:0", n);
		CHECK(image_find(store, name, first, &err) == 0);
		snprintf(name, sizeof(name), "n%d:3", n);
		CHECK(image_find(store, name, id, &err) == 0 && !strcmp(first, id));
	}
	state_close();
}

/* One makes boxes by the rules, one takes the image's name away and sweeps: a box never stands on
 * nothing. */
TEST(image_is_not_swept_under_a_box_that_is_being_made)
{
	char id[65], hex[65], found[65];
	struct den_err err = { 0 };
	unsigned made = 0, missed = 0;
	pid_t pid;

	state_open();
	layer_make("one", hex);
	pid = fork();
	if (pid == 0) {
		for (int n = 0; n < 40; n++) {
			if (image_untag(store, "a", true, &err) < 0 && err.code != DEN_NOT_FOUND)
				_exit(1);
			if (image_sweep(store, NULL, NULL, NULL, &err) < 0)
				_exit(2);
		}
		_exit(0);
	}
	for (int n = 0; n < 40; n++) {
		struct template t = { 0 };
		struct box_id box;
		struct image img;
		int lock;

		image_fill(&img, hex);
		CHECK(image_put(store, &img, "a", &err) == 0);
		memcpy(id, img.id, 65);
		image_free(&img);
		sched_yield();
		CHECK(image_lock(store, false, &lock, &err) == 0);
		if (image_open(store, pool, id, &t, NULL, &err) == 0) {
			snprintf(box.s, sizeof(box.s), "b-%016d", n);
			box_put(box.s, id);
			close(lock);
			template_free(&t);
			sched_yield();
			CHECK(image_find(store, id, found, &err) == 0);
			CHECK(store_delete(store, &box, &err) == 0);
			made++;
		} else {
			CHECK(err.code == DEN_NOT_FOUND);
			close(lock);
			missed++;
		}
	}
	wait_well(pid);
	CHECK(made > 0 && made + missed == 40);
	state_close();
}

TEST(image_lock_is_shared_by_makers_and_stops_who_sweeps)
{
	int a, b, fd;

	state_open();
	CHECK(image_lock(store, false, &a, NULL) == 0 && image_lock(store, false, &b, NULL) == 0);
	fd = openat(templates, ".lock", O_RDWR);
	CHECK(fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) < 0 && errno == EWOULDBLOCK);
	close(a);
	close(b);
	CHECK(flock(fd, LOCK_EX | LOCK_NB) == 0 && flock(fd, LOCK_UN) == 0);
	CHECK(image_lock(store, true, &a, NULL) == 0);
	CHECK(flock(fd, LOCK_SH | LOCK_NB) < 0);
	close(a);
	close(fd);
	state_close();
}
