/* A box comes up: template, plan, wall, init, gate. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "blob.h"
#include "clock.h"
#include "fd.h"
#include "gate.h"
#include "keeper.h"
#include "place.h"
#include "proc.h"
#include "reseed.h"

static int random_hex(char *out, size_t bytes, struct den_err *err)
{
	uint8_t r[16];

	if (getrandom(r, bytes, 0) != (ssize_t)bytes)
		return den_fail_sys(err, errno, "getrandom");
	for (size_t i = 0; i < bytes; i++)
		snprintf(out + 2 * i, 3, "%02x", r[i]);
	return 0;
}

int new_boot_id(struct keeper *k, struct den_err *err)
{
	char h[33], id[37];

	if (random_hex(h, 16, err) < 0)
		return -1;
	snprintf(id, sizeof(id), "%.8s-%.4s-4%.3s-a%.3s-%.12s", h, h + 8, h + 13, h + 17, h + 20);
	free(k->row.info.boot_id);
	k->row.info.boot_id = mem_strdup(id);
	return 0;
}

/* ---- the template ---- */

/* Whoever is connected waits for it, or will want to know. */
void tell_progress(const char *text, void *user)
{
	struct keeper *k = user;
	auto_buf b = { 0 };

	wire_put_str(&b, F_MSG, text);
	list_for_each(l, &k->clients)
		conn_send_buf(&CONTAINER_OF(l, struct client, link)->conn, WM_PROGRESS, 0, &b);
}

/* Nothing at all, to unpack an image into. */
static int open_empty(struct keeper *k)
{
	k->tmpl = (struct template){ .name = mem_strdup("empty"), .version = mem_strdup("empty"),
		.detail = mem_strdup("/: empty\n"), .trees = mem_alloc(sizeof(*k->tmpl.trees)), .n_trees = 1 };
	k->tmpl.trees[0] = (struct template_tree){ .at = mem_strdup("/"), .lowers = mem_new(char *) };
	return 0;
}

static int open_image(struct keeper *k, struct den_err *err)
{
	char id[65];

	if (home_pool(k, err) < 0)
		return den_wrap(err, "pool");
	if (k->row.version && k->row.version[0])
		snprintf(id, sizeof(id), "%s", k->row.version);
	else if (image_lock(k->store, false, &k->image_lock, err) < 0 ||
		image_find(k->store, k->row.info.spec.template_name, id, err) < 0)
		return -1;
	return image_open(k->store, k->pool, id, &k->tmpl, &k->defaults, err);
}

int open_template(struct keeper *k, struct den_err *err)
{
	enum plan_ids ids = wall_ids(NULL);

	if (k->tmpl.trees)
		return 0;
	if (!strcmp(k->row.info.spec.template_name, "empty"))
		return open_empty(k);
	if (strcmp(k->row.info.spec.template_name, "host"))
		return open_image(k, err);
	if (k->row.version && k->row.version[0])
		return template_open_version(k->store->fd, k->store->path, k->row.info.spec.template_name,
			k->row.version, &k->tmpl, err);
	return template_open(k->store->fd, k->store->path, k->row.info.spec.template_name, ids == IDS_MAPPED,
		ids != IDS_SINGLE, tell_progress, k, &k->tmpl, err);
}

static int on_cloned(pid_t pid, void *user, struct den_err *err)
{
	struct keeper *k = user;
	struct box_proc p = { .pid = pid };

	if (proc_start_time(pid, &p.start) < 0)
		return den_fail(err, DEN_INTERNAL, 0, "the box died at birth");
	return store_proc_put(k->boxfd, &p, err);
}

/* Of the box, for its life: from its id, whose 90 bits are random. */
static void machine_id(const struct box_id *id, char out[static 33])
{
	uint64_t h[2] = { 0xcbf29ce484222325ULL, 0x84222325cbf29ce4ULL };

	for (const char *p = id->s; *p; p++)
		for (int i = 0; i < 2; i++)
			h[i] = (h[i] ^ (uint64_t)(unsigned char)*p) * (0x100000001b3ULL + 2 * (uint64_t)i);
	snprintf(out, 33, "%016llx%016llx", (unsigned long long)h[0], (unsigned long long)h[1]);
}

void plan_free(struct kplan *kp)
{
	free(kp->trees);
	free(kp->init_path);
	free(kp->run_path);
	free(kp->volumes);
}

int plan_make(struct keeper *k, struct kplan *ret, struct den_err *err)
{
	uint32_t base = STORE_ID_BASE + (uint32_t)k->row.slot * 65536U;
	struct plan *p = &ret->p;

	*ret = (struct kplan){ .trees = mem_alloc(sizeof(*ret->trees) * (k->tmpl.n_trees + 1)) };
	if (store_init_path(k->store, den_init_blob, (size_t)(den_init_blob_end - den_init_blob), den_init_hash,
		    &ret->init_path, err) < 0 || home_open(k, err) < 0 || gate_prepare(k, err) < 0 ||
		reseed_prepare(k, err) < 0 || volumes_prepare(k, &ret->volumes, err) < 0)
		return -1;
	if (asprintf(&ret->run_path, "%s/" PLACE_BOXES "/%s/" GATE_RUN, k->store->path, k->id.s) < 0)
		return den_fail(err, DEN_INTERNAL, ENOMEM, "path");
	for (size_t i = 0; i < k->tmpl.n_trees; i++)
		ret->trees[i] = (struct plan_tree){ k->tmpl.trees[i].at,
			(const char *const *)k->tmpl.trees[i].lowers };
	*p = (struct plan){
		.id = &k->id, .tag = k->store->tag, .spec = &k->row.info.spec, .trees = ret->trees,
		.n_trees = k->tmpl.n_trees, .fsfd = k->fsfd, .fs_path = k->fs_path,
		.init_path = ret->init_path, .listen_fd = -1,
		.ids = wall_ids(NULL), .id_base = base, .owners = k->tmpl.owners_path,
		.run_path = ret->run_path, .volumes = ret->volumes, .trust = k->gate->trusts,
		.host_net = !strcmp(k->row.info.spec.net, "host-test"), .cloned = on_cloned, .user = k,
	};
	snprintf(p->boot_id, sizeof(p->boot_id), "%s", k->row.info.boot_id);
	machine_id(&k->id, p->machine_id);
	return 0;
}

static void init_frame(struct conn *c, const struct wire_frame *f)
{
	kexec_from_init(CONTAINER_OF(c, struct keeper, init), f);
}

static void init_closed(struct conn *c, const struct den_err *why)
{
	struct keeper *k = CONTAINER_OF(c, struct keeper, init);

	(void)why;
	k->init_up = false;
	if (k->park_late && k->parked) {
		init_parked_late(k);
		return;
	}
	/* Its process ends in a moment and is what counts (init_pid_cb); if it does not, it broke the
	 * protocol, and a box without a voice is no box. */
	if (k->wall.pidfd >= 0)
		loop_timer_set(k->loop, &k->kill, clock_mono_ns() + 2 * NS_PER_SEC);
}

int meet_init(struct keeper *k, struct den_err *err)
{
	auto_buf b = { 0 };
	int fd;

	if (place_connect(k->boxfd, PLACE_INIT_SOCK, &fd, err) < 0)
		return den_wrap(err, "reach init");
	k->init = (struct conn){ .on_frame = init_frame, .on_close = init_closed };
	if (conn_open(&k->init, k->loop, fd, err) < 0)
		return -1;
	k->init_up = true;
	k->inside_silent_ns = 0;
	wire_put_u64(&b, F_PROTO, WIRE_VERSION);
	conn_send_buf(&k->init, WM_HELLO, 0, &b);
	return 0;
}

static void init_pid_cb(struct loop_source *s, uint32_t events)
{
	struct keeper *k = CONTAINER_OF(s, struct keeper, init_pid);

	(void)events;
	box_down(k, k->stopping ? NULL : "its init process was killed");
}

static void runtime_cb(struct loop_timer *t)
{
	struct keeper *k = CONTAINER_OF(t, struct keeper, runtime);
	struct den_err err;

	if (k->working) { /* what holds its files must not lose them */
		loop_timer_set(k->loop, t, clock_mono_ns() + WORKING_MS * NS_PER_MS);
		return;
	}
	free(k->row.info.reason);
	k->row.info.reason = mem_strdup("max-runtime reached");
	if (box_stop(k, EXEC_GRACE_MS, &err) < 0)
		box_down(k, NULL);
}

static void kill_cb(struct loop_timer *t)
{
	struct keeper *k = CONTAINER_OF(t, struct keeper, kill);

	if (k->working)
		loop_timer_set(k->loop, t, clock_mono_ns() + WORKING_MS * NS_PER_MS);
	else
		box_down(k, k->stopping ? NULL : "its init process stopped answering");
}

void box_arm_runtime(struct keeper *k)
{
	int64_t left = k->row.info.started_ms + (int64_t)MIN(k->row.info.spec.max_runtime_ms, 1ULL << 43) -
		       clock_wall_ms();

	k->runtime.cb = runtime_cb;
	if (k->row.info.spec.max_runtime_ms)
		loop_timer_set(k->loop, &k->runtime, clock_mono_ns() + MAX(left, 1) * NS_PER_MS);
}

/* Watches a live init: timers and what tells of its end. */
int watch_init(struct keeper *k, struct den_err *err)
{
	k->init_pid = (struct loop_source){ .fd = k->wall.pidfd, .events = EPOLLIN, .cb = init_pid_cb };
	if (loop_add(k->loop, &k->init_pid, err) < 0)
		return -1;
	k->kill.cb = kill_cb;
	box_arm_runtime(k);
	return 0;
}

void set_detail(struct keeper *k)
{
	static const char *const ids[] = { "65,536 ids of its own, layers id-mapped",
		"65,536 ids from /etc/subuid", "one id: root in the box is you, and nobody else is there" };
	auto_buf b = { 0 };

	buf_addf(&b, "%s", k->tmpl.detail ? k->tmpl.detail : "");
	if (b.len && b.p[b.len - 1] != '\n')
		buf_addstr(&b, "\n");
	buf_addf(&b, "ids: %s\n", ids[wall_ids(NULL)]);
	if (k->wall.note)
		buf_addf(&b, "no cgroup: %s\n", k->wall.note);
	if (b.len > 4000)
		b.len = 4000;
	free(k->row.info.detail);
	k->row.info.detail = mem_strdup(buf_str(&b));
}

/* What its row says of a start, before it: so that it is written once. */
int box_announce(struct keeper *k, struct den_err *err)
{
	if (new_boot_id(k, err) < 0)
		return -1;
	k->row.info.started_ms = clock_wall_ms();
	k->row.info.stopped_ms = 0;
	free(k->row.info.reason);
	k->row.info.reason = NULL;
	k->announced = true;
	return 0;
}

int box_up(struct keeper *k, struct den_err *err)
{
	auto_plan kp = { 0 };
	int r;

	if (box_is_up(k))
		return den_fail(err, DEN_CONFLICT, 0, "the box is running already");
	if (open_template(k, err) < 0 || (!k->announced && box_announce(k, err) < 0))
		return -1;
	k->announced = false;
	if (plan_make(k, &kp, err) < 0)
		return -1;
	if (place_listen(k->boxfd, PLACE_INIT_SOCK, &kp.p.listen_fd, err) < 0)
		return -1;
	r = k->ops->start(&kp.p, &k->wall, err);
	fd_close(&kp.p.listen_fd);
	if (r < 0) {
		store_proc_clear(k->boxfd);
		return -1;
	}
	k->stopping = false;
	k->fresh = true;
	k->init_known = false;
	k->hello_records = 0;
	k->row.info.state = BOX_RUNNING;
	set_detail(k);
	/* before anybody can ask it to run something: a program never sees a network that is half there */
	if (watch_init(k, err) < 0 || meet_init(k, err) < 0 || gate_up(k, err) < 0) {
		struct den_err why = *err;

		box_down(k, why.msg);
		return -1;
	}
	lease_busy(k);
	lease_arm(k);
	return 0;
}
