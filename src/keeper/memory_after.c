/*
 * What becomes of images when whoever asked for them has been told: they are hashed and compressed, and go when nobody
 * needs them any more.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "clock.h"
#include "fd.h"
#include "keeper.h"
#include "memory.h"
#include "place.h"
#include "saved.h"

/* Of images that a keeper which died had made for forks, and of those of pauses. */
#define PASSING_MS 60000
#define PASSED_MS 50
#define SEAL_FD 3

/* Others first: the box may be wanted again at once. Where the scheduler divides by sessions, a nice value counts within
 * one alone, and this is how to say it for all of it. */
static void step_back(void)
{
	setpriority(PRIO_PROCESS, 0, 19);
	setsid();
	(void)file_write_at(AT_FDCWD, "/proc/self/autogroup", "10", NULL); /* not 19: it has to be done some day */
}

/* Hashes and compresses what was saved, when whoever waits has been told. Nobody waits for it. */
void memory_seal_later(struct keeper *k, uint64_t number, bool pack)
{
	struct den_err ignored;
	pid_t pid = fork();

	if (pid == 0) {
		if (fork() != 0) /* it is nobody's child: nobody has to reap it */
			_exit(0);
		prctl(PR_SET_NAME, "den-job", 0, 0, 0);
		step_back();
		/* what it inherits would keep locks and connections from ending */
		if (dup2(k->store->fd, SEAL_FD) < 0)
			_exit(1);
		k->store->fd = SEAL_FD;
		fd_close_from(SEAL_FD + 1);
		(void)saved_seal(k->store, &k->id, number, pack, &ignored);
		/* who deleted the box meanwhile could not remove what we were writing */
		if (place_box(k->store->fd, &k->id, &pid, &ignored) < 0 &&
			ignored.code == DEN_NOT_FOUND)
			saved_remove_but(k->store, &k->id, NULL, NULL);
		_exit(0);
	}
	while (pid > 0 && waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		;
}

/* The box goes on that a keeper before us was saving: it had no row, or had not ended what it says. */
void memory_unsaved(struct keeper *k)
{
	uint64_t next = k->row.next, images = k->row.info.images;
	char path[3][96];

	if (!k->ops->unsaved)
		return;
	snprintf(path[0], sizeof(path[0]), SAVED_DIR "/%s/.%llu", k->id.s, (unsigned long long)next);
	snprintf(path[1], sizeof(path[1]), SAVED_DIR "/%s/%llu", k->id.s, (unsigned long long)next);
	snprintf(path[2], sizeof(path[2]), SAVED_DIR "/%s/%llu", k->id.s, (unsigned long long)images);
	for (size_t i = 0; i < ARRAY_SIZE(path); i++) {
		auto_fd dir = openat(k->store->fd, path[i], O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

		if (dir >= 0)
			k->ops->unsaved(&k->wall, dir);
	}
}

bool memory_in_use(struct keeper *k, uint64_t number)
{
	list_for_each (l, &k->clients) {
		const struct client *c = CONTAINER_OF(l, struct client, link);

		if (c->forks && c->forks_of == number)
			return true;
	}
	return false;
}

/* What nobody asked to keep: of those that were made by pausing or for a fork the newest are enough. The checkpoint
 * itself stays, with its files. */
static bool is_passing(struct keeper *k, const struct ckpt *c)
{
	if (!c->images || c->tags[0] || (k->row.info.on_disk && c->number == k->row.info.images) ||
		clock_wall_ms() - c->created_ms < PASSING_MS || memory_in_use(k, c->number))
		return false;
	return c->kind == CKPT_PAUSE ||
	       (c->kind == CKPT_MANUAL && c->message && !strcmp(c->message, FOR_FORK));
}

void memory_drop_passing(struct keeper *k)
{
	struct ckpt *all = NULL;
	struct den_err ignored;
	size_t n = 0;

	if (history_list(k->store, &k->id, &all, &n, &ignored) < 0)
		return;
	for (size_t i = 0; i < n; i++)
		if (is_passing(k, &all[i]) &&
			history_forget_images(k->store, &k->id, all[i].number, &ignored) == 0)
			saved_remove(k->store, &k->id, all[i].number);
	ckpts_free(all, n);
}

/* ---- images for forks ---- */

static void passing_cb(struct loop_timer *t)
{
	struct keeper *k = CONTAINER_OF(t, struct keeper, passing);
	struct ckpt *all = NULL;
	struct den_err ignored;
	size_t n = 0;

	if (k->gone || history_list(k->store, &k->id, &all, &n, &ignored) < 0)
		return;
	for (size_t i = 0; i < k->n_passed; i++) {
		const struct ckpt *c = history_find(all, n, k->passed[i]);

		if (c && c->images && !c->tags[0] && !memory_in_use(k, c->number) &&
			(!k->row.info.on_disk || c->number != k->row.info.images) &&
			history_forget_images(k->store, &k->id, c->number, &ignored) == 0)
			saved_remove(k->store, &k->id, c->number);
	}
	k->n_passed = 0;
	ckpts_free(all, n);
}

/* All forks that were asked for are there: what was made for them goes, when whoever waits has been told. */
void memory_forks_done(struct client *c)
{
	struct keeper *k = c->k;

	if (c->forks && c->forks_made && k->has_box && !k->gone) {
		k->passed = mem_realloc(k->passed, (k->n_passed + 1) * sizeof(*k->passed));
		k->passed[k->n_passed++] = c->forks_of;
		k->passing.cb = passing_cb;
		loop_timer_set(k->loop, &k->passing, clock_mono_ns() + PASSED_MS * NS_PER_MS);
	}
	c->forks = c->forks_made = false;
}

void memory_forks_of(struct client *c, uint64_t number, bool made)
{
	if (c->forks && c->forks_of == number)
		return;
	memory_forks_done(c);
	c->forks = true;
	c->forks_made = made;
	c->forks_of = number;
}
