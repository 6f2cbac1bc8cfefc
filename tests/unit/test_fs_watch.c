/* Watching files and directories. */
#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>

#include "buf.h"
#include "fsop.h"
#include "kit_fs.h"
#include "test.h"

struct watcher {
	pid_t pid;
	int stdin_fd, out, report;
	struct buf got, text; /* text: "event:path " of all so far */
};

/* Reads records until the text holds what is wanted, at most five seconds. */
static bool watcher_sees(struct watcher *w, const char *want)
{
	for (;;) {
		struct pollfd p = { .fd = w->out, .events = POLLIN };
		struct fs_entry e;
		struct den_err err;
		char chunk[4096];
		size_t used;
		ssize_t n;

		while (fs_entry_get(w->got.p, w->got.len, &e, &used, &err) == 1) {
			buf_addf(&w->text, "%s:%s ", fs_event_str[e.event], e.path);
			fs_entry_free(&e);
			buf_consume(&w->got, used);
		}
		if (strstr(buf_str(&w->text), want))
			return true;
		if (poll(&p, 1, 5000) != 1)
			break;
		n = read(w->out, chunk, sizeof(chunk));
		if (n <= 0)
			break;
		buf_add(&w->got, chunk, (size_t)n);
	}
	fprintf(stderr, "  wanted '%s', saw '%s'\n", want, buf_str(&w->text));
	return false;
}

static int times_seen(struct watcher *w, const char *what)
{
	int n = 0;

	for (const char *p = buf_str(&w->text); (p = strstr(p, what)); p++)
		n++;
	return n;
}

static void watcher_start(struct watcher *w, char *path, char *flags)
{
	int i[2], o[2];

	*w = (struct watcher){ 0 };
	CHECK(pipe2(i, O_CLOEXEC) == 0 && pipe2(o, O_CLOEXEC) == 0);
	w->pid = fs_start(i[0], o[1], &w->report, ARGV("watch", path, flags));
	close(i[0]), close(o[1]);
	w->stdin_fd = i[1];
	w->out = o[0];
	CHECK(watcher_sees(w, ": ")); /* the empty record: from now on nothing is missed */
	CHECK(w->text.len == 2);
}

static void watcher_end(struct watcher *w)
{
	struct den_err err;

	close(w->stdin_fd);
	CHECK(fs_end(w->pid, w->report, &err) == 0);
	close(w->out);
	buf_free(&w->got);
	buf_free(&w->text);
}

TEST(a_watch_tells_each_kind_of_change)
{
	struct watcher w;

	mkdir(in("d"), 0755);
	file_make(in("d/old"), "", 0644);
	watcher_start(&w, in("d"), "");
	file_make(in("d/f"), "x", 0600);
	CHECK(watcher_sees(&w, "create:f "));
	CHECK(watcher_sees(&w, "write:f "));
	chmod(in("d/f"), 0640);
	CHECK(watcher_sees(&w, "chmod:f "));
	rename(in("d/f"), in("d/g"));
	CHECK(watcher_sees(&w, "rename:f create:g "));
	unlink(in("d/g"));
	CHECK(watcher_sees(&w, "remove:g "));
	mkdir(in("d/sub"), 0755);
	CHECK(watcher_sees(&w, "create:sub "));
	file_make(in("d/sub/x"), "", 0644); /* not recursive: not told */
	unlink(in("d/old"));
	CHECK(watcher_sees(&w, "remove:old "));
	CHECK(!strstr(buf_str(&w.text), "sub/x"));
	watcher_end(&w);
}

TEST(a_recursive_watch_misses_nothing_in_new_directories)
{
	struct watcher w;

	mkdir(in("d"), 0755), mkdir(in("d/a"), 0755), mkdir(in("d/a/b"), 0755);
	mkdir(in("away"), 0755), mkdir(in("away/x"), 0755);
	file_make(in("away/x/f"), "", 0644);
	watcher_start(&w, in("d"), "r");
	file_make(in("d/a/b/f"), "x", 0644);
	CHECK(watcher_sees(&w, "create:a/b/f "));
	for (int i = 0; i < 50; i++) { /* faster than watches can be added */
		char name[64];

		snprintf(name, sizeof(name), "d/n%d", i);
		mkdir(in(name), 0755);
		snprintf(name, sizeof(name), "d/n%d/m", i);
		mkdir(in(name), 0755);
		snprintf(name, sizeof(name), "d/n%d/m/f", i);
		file_make(in(name), "", 0644);
	}
	for (int i = 0; i < 50; i++) {
		char want[64];

		snprintf(want, sizeof(want), "create:n%d/m/f ", i);
		CHECK(watcher_sees(&w, want));
		CHECK(times_seen(&w, want) == 1);
	}
	CHECK(rename(in("away/x"), in("d/x")) == 0); /* comes with what is in it */
	CHECK(watcher_sees(&w, "create:x create:x/f "));
	CHECK(rename(in("d/x"), in("d/a/y")) == 0); /* and is known by its new name */
	CHECK(watcher_sees(&w, "rename:x create:a/y create:a/y/f "));
	unlink(in("d/a/y/f"));
	CHECK(watcher_sees(&w, "remove:a/y/f "));
	CHECK(rename(in("d/a/y"), in("away/y")) == 0);
	CHECK(watcher_sees(&w, "rename:a/y "));
	file_make(in("away/y/g"), "", 0644); /* no longer of interest */
	file_make(in("d/end"), "", 0644);
	CHECK(watcher_sees(&w, "create:end "));
	CHECK(!strstr(buf_str(&w.text), "y/g"));
	watcher_end(&w);
}

TEST(a_watch_ends_when_what_it_watches_is_gone)
{
	struct watcher w;
	struct den_err err;

	mkdir(in("d"), 0755);
	watcher_start(&w, in("d"), "r");
	CHECK(rmdir(in("d")) == 0);
	CHECK(watcher_sees(&w, "remove: "));
	CHECK(fs_end(w.pid, w.report, &err) == 0); /* stdin is still open */
	close(w.stdin_fd), close(w.out);
	buf_free(&w.got);
	buf_free(&w.text);
	CHECK(failed_with(FS("watch", in("none"), "r"), DEN_NOT_FOUND));
}

TEST(a_single_file_can_be_watched)
{
	struct watcher w;

	file_make(in("f"), "", 0644);
	watcher_start(&w, in("f"), "");
	file_make(in("f"), "x", 0644);
	CHECK(watcher_sees(&w, "write: "));
	unlink(in("f"));
	CHECK(watcher_sees(&w, "remove: "));
	watcher_end(&w);
}
