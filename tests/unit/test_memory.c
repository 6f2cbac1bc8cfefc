/* Saving and loading a box's programs on the container wall, without a keeper: the wall's own promises. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

#include "criu.h"
#include "fd.h"
#include "mem.h"
#include "strv.h"
#include "test.h"
#include "wall.h"

struct count {
	unsigned long n;
	long mono;
	char host[24];
};

struct place {
	struct count held; /* while it was frozen */
	char dir[256], lower[300], fs[300], run[300], init[4096];
	const char *lowers[2];
	struct plan_tree tree;
	struct box_id id;
	struct box_spec spec;
	struct plan plan;
	struct wall_box box;
	int frozen_calls;
	bool refuse; /* what is called while it is frozen says no */
};

static int cloned(pid_t pid, void *user, struct den_err *err)
{
	(void)err;
	*(pid_t *)user = pid;
	return 0;
}

static pid_t told_pid;

static void put_dir(char *out, size_t cap, const char *base, const char *name)
{
	snprintf(out, cap, "%s/%s", base, name);
	CHECK(mkdir(out, 0755) == 0 || errno == EEXIST);
}

/* The n-th of a test. */
static void place_make(struct place *w, const char *name, unsigned n_th)
{
	uint32_t base = 1879048192U + n_th * 65536U;
	char id[32];
	static char self[4096];
	struct den_err err;
	ssize_t n;
	char path[600];

	memset(w, 0, sizeof(*w));
	if (geteuid() != 0)
		SKIP("saving programs of a container box needs root");
	if (wall_container.memory(&err) < 0)
		test_skip(mem_strdup(err.msg));
	put_dir(w->dir, sizeof(w->dir), test_dir(), name);
	put_dir(w->lower, sizeof(w->lower), w->dir, "lower");
	put_dir(w->fs, sizeof(w->fs), w->dir, "fs");
	put_dir(w->run, sizeof(w->run), w->dir, "run");
	put_dir(path, sizeof(path), w->fs, "u0");
	put_dir(path, sizeof(path), w->fs, "w0");
	n = readlink("/proc/self/exe", self, sizeof(self) - 1);
	CHECK(n > 0);
	self[n] = '\0';
	*strrchr(self, '/') = '\0';
	snprintf(w->init, sizeof(w->init), "%s/wall_init", self);
	/* one of a test that failed must not be in the way of the next */
	snprintf(id, sizeof(id), "b-%c%c%c%c%c%caaaaaaaaaaa%c", 'a' + getpid() % 26, 'a' + getpid() / 26 % 26,
		'a' + getpid() / 676 % 26, 'a' + getpid() / 17576 % 26, 'a' + getpid() / 456976 % 26, 'a', (char)('a' + n_th));
	CHECK(box_id_parse(id, &w->id, &err) == 0);
	w->lowers[0] = w->lower;
	w->tree = (struct plan_tree){ "/", w->lowers };
	w->spec = (struct box_spec){ .hostname = (char *)name, .net = (char *)"none" };
	w->plan = (struct plan){ .id = &w->id, .tag = "0badcafe", .spec = &w->spec, .trees = &w->tree, .n_trees = 1,
		.fs_path = w->fs, .init_path = w->init, .listen_fd = -1, .ids = wall_ids(NULL), .id_base = base,
		.run_path = w->run, .cloned = cloned, .user = &told_pid };
	w->plan.fsfd = open(w->fs, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	snprintf(w->plan.boot_id, sizeof(w->plan.boot_id), "00000000-0000-4000-8000-000000000000");
	snprintf(w->plan.machine_id, sizeof(w->plan.machine_id), "%032d", 7);
	CHECK(chown(w->fs, base, base) == 0 || 1);
}

static struct count count_read(const struct place *w)
{
	struct count c = { 0 };
	char path[700], text[128] = "";

	snprintf(path, sizeof(path), "%s/u0/count", w->fs);
	if (file_read_at(AT_FDCWD, path, text, sizeof(text), NULL) == 0)
		sscanf(text, "%lu %ld %23s", &c.n, &c.mono, c.host);
	return c;
}

/* Until it has counted beyond n. */
static struct count count_wait(const struct place *w, unsigned long n)
{
	struct timespec nap = { 0, 2000000 };
	struct count c;

	for (int i = 0; i < 2500; i++) {
		c = count_read(w);
		if (c.n > n)
			return c;
		nanosleep(&nap, NULL);
	}
	return (struct count){ 0 };
}

/* Until it has written as the box of that name. */
static struct count host_wait(const struct place *w, const char *host)
{
	struct timespec nap = { 0, 2000000 };
	struct count c = { 0 };

	for (int i = 0; i < 2500 && strcmp(c.host, host); i++) {
		c = count_read(w);
		nanosleep(&nap, NULL);
	}
	CHECK(!strcmp(c.host, host));
	return c;
}

static void place_end(struct place *w)
{
	wall_container.stop(&w->box, false);
	wall_container.clean(&w->box);
}

static void place_start(struct place *w)
{
	struct den_err err = { 0 };

	if (wall_container.start(&w->plan, &w->box, &err) < 0)
		fprintf(stderr, "# %s\n", err.msg);
	CHECK(w->box.pid > 0);
	CHECK(count_wait(w, 20).n > 20);
}

static int frozen(void *user, struct den_err *err)
{
	struct place *w = user;
	struct timespec nap = { 0, 30000000 };
	struct count a = count_read(w), b;

	nanosleep(&nap, NULL);
	b = count_read(w);
	w->frozen_calls += a.n == b.n;
	w->held = b;
	return w->refuse ? den_fail(err, DEN_LIMIT, 0, "no") : 0;
}

static int save_to(struct place *w, const char *name, bool stay, struct den_err *err)
{
	struct wall_saving s = { .stay = stay, .frozen = frozen, .user = w };
	char path[600];
	int r;

	put_dir(path, sizeof(path), w->dir, name);
	s.dirfd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	CHECK(s.dirfd >= 0);
	r = wall_container.save(&w->box, &w->plan, &s, err);
	if (r == 0) {
		CHECK(s.runtime && !strncmp(s.runtime, "criu 4.", 7));
		CHECK(s.frozen_ns > 0);
		fprintf(stderr, "# frozen %.1f ms\n", (double)s.frozen_ns / 1e6);
	}
	free(s.runtime);
	strv_free(s.lost);
	close(s.dirfd);
	return r;
}

/* what the box has written so far is what the other begins with */
static void files_copy(const struct place *from, const struct place *to)
{
	char cmd[1400];

	snprintf(cmd, sizeof(cmd), "cp -a %s/u0/. %s/u0/", from->fs, to->fs);
	CHECK(system(cmd) == 0);
}

static void load_from(struct place *to, const struct place *from, const char *name)
{
	struct den_err err = { 0 };
	char path[600];
	int fd, r;

	snprintf(path, sizeof(path), "%s/%s", from->dir, name);
	fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	CHECK(fd >= 0);
	told_pid = 0;
	r = wall_container.load(&to->plan, fd, &to->box, &err);
	if (r < 0)
		fprintf(stderr, "# %s\n", err.msg);
	CHECK(r == 0);
	CHECK(told_pid == to->box.pid);
	close(fd);
}

TEST(memory_a_saved_box_goes_on_and_its_copy_begins_where_it_was)
{
	static struct place a, b;
	struct den_err err = { 0 };
	struct count at, then;

	place_make(&a, "one", 0);
	place_make(&b, "two", 1);
	place_start(&a);
	if (save_to(&a, "images", true, &err) < 0)
		fprintf(stderr, "# %s\n", err.msg);
	CHECK(err.code == DEN_OK);
	CHECK(a.frozen_calls == 1);
	at = count_read(&a);
	CHECK(count_wait(&a, at.n + 5).n > at.n); /* the original goes on */
	files_copy(&a, &b);
	load_from(&b, &a, "images");
	then = count_wait(&b, 0);
	CHECK(then.n > 0);
	then = host_wait(&b, "two"); /* its own host name */
	/* it and its clock go on from where they were */
	CHECK(then.n >= a.held.n && then.n < a.held.n + 5000);
	CHECK(then.mono >= a.held.mono && then.mono <= a.held.mono + 10);
	CHECK(count_wait(&b, then.n + 5).n > then.n);
	CHECK(count_wait(&a, count_read(&a).n + 5).n > 0);
	place_end(&a);
	place_end(&b);
}

TEST(memory_a_box_that_is_put_away_does_not_run_again_unless_it_is_let_go)
{
	struct timespec nap = { 0, 50000000 };
	static struct place a;
	struct den_err err = { 0 };
	struct count at;

	place_make(&a, "one", 0);
	place_start(&a);
	CHECK(save_to(&a, "images", false, &err) == 0);
	at = count_read(&a);
	nanosleep(&nap, NULL);
	CHECK(count_read(&a).n == at.n);
	CHECK(wall_container.freeze(&a.box, false, &err) == 0);
	CHECK(count_wait(&a, at.n + 5).n > at.n);
	place_end(&a);
}

TEST(memory_a_box_that_could_not_be_saved_goes_on)
{
	static struct place a;
	struct den_err err = { 0 };

	place_make(&a, "one", 0);
	place_start(&a);
	a.refuse = true;
	CHECK(save_to(&a, "images", false, &err) < 0 && err.code == DEN_LIMIT);
	CHECK(count_wait(&a, count_read(&a).n + 5).n > 0);
	a.refuse = false;
	CHECK(save_to(&a, "again", true, &err) == 0);
	CHECK(count_wait(&a, count_read(&a).n + 5).n > 0);
	place_end(&a);
}

TEST(memory_images_are_loaded_by_two_at_once_and_again)
{
	static struct place a, b, c, d;
	struct den_err err = { 0 };
	int status;
	pid_t pid;

	place_make(&a, "one", 0);
	place_make(&b, "two", 1);
	place_make(&c, "three", 2);
	place_make(&d, "four", 3);
	place_start(&a);
	CHECK(save_to(&a, "images", true, &err) == 0);
	files_copy(&a, &b);
	files_copy(&a, &c);
	pid = fork();
	if (pid == 0) {
		load_from(&b, &a, "images");
		host_wait(&b, "two");
		place_end(&b);
		_exit(0);
	}
	load_from(&c, &a, "images");
	host_wait(&c, "three");
	CHECK(waitpid(pid, &status, 0) == pid && status == 0);
	/* a copy of a copy */
	CHECK(save_to(&c, "images", true, &err) == 0);
	files_copy(&c, &d);
	load_from(&d, &c, "images");
	host_wait(&d, "four");
	CHECK(count_wait(&a, count_read(&a).n + 5).n > 0);
	place_end(&a);
	place_end(&c);
	place_end(&d);
}

TEST(memory_damaged_images_are_refused_and_leave_nothing)
{
	static struct place a, b;
	struct den_err err = { 0 };
	char path[700];
	int dir;

	place_make(&a, "one", 0);
	place_make(&b, "two", 1);
	place_start(&a);
	CHECK(save_to(&a, "images", true, &err) == 0);
	files_copy(&a, &b);
	snprintf(path, sizeof(path), "%s/images/pstree.img", a.dir);
	CHECK(truncate(path, 9) == 0);
	snprintf(path, sizeof(path), "%s/images", a.dir);
	dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	CHECK(wall_container.load(&b.plan, dir, &b.box, &err) < 0 && b.box.pidfd < 0);
	CHECK(waitpid(-1, NULL, WNOHANG) <= 0);
	close(dir);
	place_start(&b); /* nothing of the other is in its way */
	place_end(&a);
	place_end(&b);
}
