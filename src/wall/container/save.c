/*
 * The keeper's side of saving. CRIU runs in every namespace of the box but the user namespace: it has to be the
 * host's root to read what it reads. See criu_shim.c for how it is kept from trusting the box.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "clock.h"
#include "criu.h"
#include "criu_fds.h"
#include "fd.h"
#include "groups.h"
#include "idmap.h"
#include "images.h"
#include "mem.h"
#include "memory.h"
#include "pages.h"
#include "pages_fds.h"
#include "pb.h"
#include "sockets.h"
#include "strv.h"
#include "tmpfs.h"
#include "watches.h"

#define PROCESSES_MAX 800
#define GHOST_MAX (256U << 20) /* bytes of a file that is open and has no name */

struct save {
	struct wall_box *box;
	struct wall_saving *s;
	struct image_notes *notes;
	struct image_fds semaphores;
	const struct plan *plan;
	struct sockets sockets;
	int hold;     /* see sockets_hold(); -1: nothing is held */
	pid_t packer; /* see tmpfs_pack(); 0: none runs */
	int hide;     /* see pages_begin() */
	struct pages *pages;
	bool held;    /* by its cgroup: it does not run when CRIU lets go */
	bool lent;    /* see pages_lent() */
};

int container_memory(struct den_err *err)
{
	char version[24];

	if (geteuid() != 0)
		return den_fail(err, DEN_UNSUPPORTED, 0,
			"running programs of a container box can be saved by root only (CRIU has to read what the kernel "
			"shows to root alone); use --wall gvisor, or run den as root");
	return criu_version(version, err);
}

char *container_runtime(void)
{
	char version[24], *text;

	if (criu_version(version, NULL) < 0)
		return NULL;
	text = mem_alloc(40);
	snprintf(text, 40, "criu %s", version);
	return text;
}

/* The box may have been started by an older den: which of those beside today's init it runs. */
static int init_name(const struct plan *p, const struct stat *st, struct image_notes *ret, struct den_err *err)
{
	const char *slash = strrchr(p->init_path, '/');
	char path[4096];
	struct dirent *de;
	struct stat other;
	DIR *d;

	snprintf(path, sizeof(path), "%.*s", slash ? (int)(slash - p->init_path) : 0, p->init_path);
	d = opendir(path);
	while (d && (de = readdir(d))) {
		if (fstatat(dirfd(d), de->d_name, &other, AT_SYMLINK_NOFOLLOW) < 0 || other.st_ino != st->st_ino ||
			other.st_dev != st->st_dev)
			continue;
		snprintf(ret->init_file, sizeof(ret->init_file), "%s", de->d_name);
		closedir(d);
		return 0;
	}
	if (d)
		closedir(d);
	return den_fail(err, DEN_NOT_FOUND, 0, "the program of process 1 is no longer in '%.150s'", path);
}

/* "file[MOUNT:INODE]" of process 1's program: it is on a mount of its own, which the box does not have. */
static int init_program(pid_t pid, const struct plan *plan, struct image_notes *ret, struct den_err *err)
{
	char path[64], text[4096];
	const char *p;
	struct stat st;
	auto_fd fd = -1;

	snprintf(path, sizeof(path), "/proc/%d/exe", (int)pid);
	fd = open(path, O_PATH | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &st) < 0)
		return den_fail_sys(err, errno, "process 1");
	snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", fd);
	if (file_read_at(AT_FDCWD, path, text, sizeof(text), err) < 0)
		return -1;
	p = strstr(text, "mnt_id:");
	if (!p)
		return den_fail(err, DEN_UNSUPPORTED, 0, "this kernel does not tell on which mount a file is");
	snprintf(ret->init_key, sizeof(ret->init_key), "file[%x:%llx]", (unsigned)strtoul(p + 7, NULL, 10),
		(unsigned long long)st.st_ino);
	return init_name(plan, &st, ret, err);
}

static pid_t pid_take(pid_t *p)
{
	pid_t pid = *p;

	*p = 0;
	return pid;
}

/* Nothing of the box runs, and CRIU has not looked at its files yet. */
static int on_frozen(struct save *v, struct den_err *err)
{
	if (sockets_look(v->box->pid, v->plan->id_base, ID_RANGE, &v->sockets, err) < 0 ||
		(v->sockets.connected && sockets_hold(v->box->pidfd, &v->hold, err) < 0))
		return -1;
	v->notes->routes = v->sockets.routes;
	if (walls_own_filters(v->box->cg, v->box->pid, err) < 0 || groups_note(v->box->cg, &v->notes->groups, err) < 0 ||
		groups_semaphores(v->box->cg, &v->semaphores, err) < 0)
		return -1;
	if (pages_begin(v->box->cg, v->s->dirfd, v->hide, v->s->lend && v->s->stay, &v->pages, err) < 0)
		return -1;
	return tmpfs_pack(v->box->pidfd, v->s->dirfd, &v->packer, err);
}

/* All is in the images; it runs again when this returns. */
static int on_dumped(struct save *v, struct den_err *err)
{
	if (v->pages && pages_copied(v->pages, v->s->gone, v->s->user, err) < 0)
		return -1;
	if (tmpfs_packed(pid_take(&v->packer), err) < 0 || (v->s->frozen && v->s->frozen(v->s->user, err) < 0))
		return -1;
	v->lent = v->pages && pages_lent(v->pages);
	if (!v->s->stay || v->lent) {
		v->s->held_ns = clock_mono_ns();
		if (cgroup_hold(v->box->cg, err) < 0)
			return -1;
		v->held = true;
	}
	return 0;
}

static int save_step(const char *step, pid_t pid, void *user, struct den_err *err)
{
	struct save *v = user;
	int r = 0;

	(void)pid;
	if (!strcmp(step, "query-ext-files"))
		return on_frozen(v, err);
	if (strcmp(step, "post-dump"))
		return 0;
	r = on_dumped(v, err);
	if (v->hold >= 0 && sockets_go(v->hold, r == 0 ? err : NULL) < 0)
		return -1;
	return r;
}

static void tell_lost(struct save *v)
{
	char text[160], path[64];
	struct dirent *de;
	unsigned queues = 0;
	DIR *d;

	if (v->sockets.outside) {
		snprintf(text, sizeof(text), "%u connection%s to outside the box: closed when it is loaded",
			v->sockets.outside, v->sockets.outside == 1 ? "" : "s");
		strv_add(&v->s->lost, text);
	}
	snprintf(path, sizeof(path), "/proc/%d/root/dev/mqueue", (int)v->box->pid);
	d = opendir(path);
	while (d && (de = readdir(d)))
		queues += de->d_name[0] != '.';
	if (d)
		closedir(d);
	if (queues)
		strv_add(&v->s->lost, "POSIX message queues");
}

/* Is there System V memory, a queue or a semaphore? /proc tells of the namespace that the reader is in. */
static int has_ipc(const struct wall_box *b, bool *ret, int *ret_ns, struct den_err *err)
{
	static const char *const lists[] = { "shm", "msg", "sem" };
	auto_fd own = open("/proc/self/ns/ipc", O_RDONLY | O_CLOEXEC);
	char name[32];

	snprintf(name, sizeof(name), "/proc/%d/ns/ipc", (int)b->pid);
	*ret_ns = open(name, O_RDONLY | O_CLOEXEC);
	if (own < 0 || *ret_ns < 0 || setns(*ret_ns, CLONE_NEWIPC) < 0)
		return den_fail_sys(err, errno, "the box's ipc namespace");
	*ret = false;
	for (size_t i = 0; i < ARRAY_SIZE(lists); i++) {
		char path[32], text[512];
		const char *line;

		snprintf(path, sizeof(path), "/proc/sysvipc/%s", lists[i]);
		if (file_read_at(AT_FDCWD, path, text, sizeof(text), NULL) < 0)
			continue;
		line = strchr(text, '\n'); /* after the line of titles */
		*ret |= line && line[1];
	}
	if (setns(own, CLONE_NEWIPC) < 0)
		abort(); /* its own one is always allowed */
	return 0;
}

static void save_options(struct buf *b, const char *init)
{
	criu_options(b);
	pb_put_u64(b, CRIU_OPT_PID, 1);
	pb_put_u64(b, CRIU_OPT_LEAVE_RUNNING, 1);
	pb_put_u64(b, CRIU_OPT_LINK_REMAP, 1);
	pb_put_u64(b, CRIU_OPT_FORCE_IRMAP, 1);
	pb_put_u64(b, CRIU_OPT_GHOST_LIMIT, GHOST_MAX);
	pb_put_str(b, CRIU_OPT_EXTERNAL, init);
}

/* Where CRIU is to look for what is watched. */
static void watch_options(struct buf *b, const char *lines)
{
	for (const char *end, *path; (end = strchr(lines, '\n')); lines = end + 1) {
		auto_buf p = { 0 };

		path = strchr(lines, '/');
		if (!path || path > end)
			continue;
		buf_addstr(&p, "/" WATCH_MARK);
		buf_add(&p, path + 1, (size_t)(end - path - 1));
		pb_put_bytes(b, CRIU_OPT_IRMAP_PATH, p.p, p.len);
	}
}

static int check(struct wall_box *b, const struct plan *p, struct den_err *err)
{
	auto_free pid_t *pids = NULL;
	size_t n;

	if (container_memory(err) < 0)
		return -1;
	if (!b->cg)
		return den_fail(err, DEN_UNSUPPORTED, 0, "saving programs needs a cgroup: %s", b->note ? b->note : "none here");
	if (p->host_net)
		return den_fail(err, DEN_UNSUPPORTED, 0, "a box in the host's network cannot be saved with its programs");
	if (cgroup_pids(b->cg, &pids, &n, err) < 0)
		return -1;
	if (n > PROCESSES_MAX)
		return den_fail(err, DEN_LIMIT, 0, "the box has %zu processes; up to %d can be saved", n, PROCESSES_MAX);
	return vfork_none(b->cg, err);
}

static int hide_make(struct den_err *err)
{
	auto_fd fd = memfd_create("den-hide", MFD_CLOEXEC);

	if (fd < 0 || ftruncate(fd, sizeof(struct hide)) < 0)
		return den_fail_sys(err, errno, "memory");
	return fd_take(&fd);
}

int container_save(struct wall_box *b, const struct plan *p, struct wall_saving *s, struct den_err *err)
{
		struct criu_start how = { .box = b->pidfd, .pids = true, .group = -1, .init = -1, .watches = -1, .hide = -1, .mounts = -1, .images = s->dirfd, .keep = !s->stay,
		.enter = CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWCGROUP | CLONE_NEWTIME };
	auto_fd kdat = -1, ipc = -1, watches = -1, hide = hide_make(err);
	auto_buf opts = { 0 }, answer = { 0 }, found = { 0 };
	struct image_notes notes = { 0 };
	struct save v = { .box = b, .s = s, .notes = &notes, .plan = p, .hold = -1, .hide = hide };
	char version[24];
	struct criu c = { 0 };
	int r;

	how.hide = hide;
	if (hide < 0 || check(b, p, err) < 0 || criu_version(version, err) < 0 || init_program(b->pid, p, &notes, err) < 0 ||
		cgroup_freeze(b->cg, false, err) < 0)
		return -1;
	how.kdat = kdat = criu_kdat(p, false, err);
	if (kdat < 0)
		return den_wrap(err, "save");
	save_options(&opts, notes.init_key);
	if (has_ipc(b, &notes.ipc, &ipc, err) < 0)
		return den_wrap(err, "save");
	if (notes.ipc) { /* a namespace that is not its own CRIU keeps, with what is in it */
		how.enter &= ~(unsigned)CLONE_NEWIPC;
		how.init = ipc;
	}
	if (watches_find(b->cg, b->pidfd, &found, err) < 0)
		return den_wrap(err, "save");
	if (found.len) {
		how.watches = watches = memfd_create("watches", MFD_CLOEXEC);
		if (fd_write_all(watches, found.p, found.len, err) < 0)
			return -1;
		watch_options(&opts, buf_str(&found));
	}
	if (criu_start(&how, &c, err) < 0)
		return -1;
	r = criu_call(&c, CRIU_DUMP, &opts, save_step, &v, &answer, err);
	criu_end(&c);
	if (r < 0 && v.hold >= 0)
		(void)sockets_go(v.hold, NULL); /* it may be done already */
	fd_close(&v.hold);
	if (v.packer)
		(void)tmpfs_packed(v.packer, NULL);
	if (r == 0 && v.pages)
		r = pages_end(v.pages, err);
	pages_free(v.pages);
	if (r == 0)
		r = images_adopt(s->dirfd, notes.ipc, err);
	if (r == 0)
		r = images_mend(s->dirfd, &v.semaphores, err);
	notes.pages = faccessat(s->dirfd, PAGES_FILE, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
	if (r == 0)
		r = images_notes_write(s->dirfd, &notes, err);
	buf_free(&notes.groups);
	free(v.semaphores.v);
	if (r < 0) {
		if (v.held)
			(void)cgroup_freeze(b->cg, false, NULL);
		return den_wrap(err, "save");
	}
	s->lent = v.lent && notes.pages; /* else nothing of it is wanted, and nobody would come for it */
	tell_lost(&v);
	s->frozen_ns = images_frozen_ns(s->dirfd);
	s->runtime = mem_alloc(40);
	snprintf(s->runtime, 40, "criu %s", version);
	return 0;
}
