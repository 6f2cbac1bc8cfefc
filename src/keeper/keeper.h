/*
 * The keeper: the host-side process that owns one box.
 *
 * One thread, one epoll loop. Crash-only: everything it knows that matters is on disk or with init,
 * so a keeper that is killed is replaced by the next one, which adopts the box. It believes nothing
 * that init says beyond what concerns that box's own output.
 *
 * Without a box it is a clerk: it answers one client's questions about the whole state (list, gc,
 * doctor) and leaves. It becomes a keeper when that client asks it to create a box.
 */
#pragma once

#include "conn.h"
#include "loop.h"
#include "spec.h"
#include "history.h"
#include "image.h"
#include "pool.h"
#include "store.h"
#include "template.h"
#include "wall.h"

/* One exec of the box. Ended ones are remembered as long as init remembers their output. */
struct kexec {
	struct list link;
	struct keeper *k;
	struct exec_info info;
	uint64_t oom_before, refused_before;
	bool grouped;		 /* has a cgroup of its own */
	bool ended;
	bool doomed; /* we are ending it: nothing of its tree is to stay */
	enum exec_reason reason; /* decided by us; EXEC_BY_ITSELF: not yet */
	struct loop_timer timeout, cpu, grace, last, orphan;
};

/* A client's channel, and the channel to init that carries it. */
struct chan {
	struct list link; /* in keeper.chans */
	struct client *client; /* NULL: gone before init said that it runs, or does not */
	uint32_t theirs, ours;
	struct kexec *x;
	bool kill_on_close, detach, started;
	bool live; /* enum attach_flags: STARTED may come again */
	uint64_t in_sent; /* stdin bytes passed on that init has not credited back */
	uint64_t credit; /* bytes init may still send: it must keep to it, or the box is ended */
	uint64_t off[2]; /* bytes of each stream that came */
	bool again;	 /* it was opened once more, after init was parked: the client is not told */
};

struct client {
	struct list link;
	struct keeper *k;
	struct conn conn;
	struct loop_deferred free_later;
	bool owner;	/* of a throwaway box: it goes when this client does */
	bool guest;	/* asks on behalf of strangers: guest.c */
	bool merging;	/* it is applying a merge: if it goes, that is undone */
	bool wait_down; /* a STOP, DELETE or WAIT is unanswered */
	bool forks;	/* makes forks of the images of forks_of: they stay until it leaves, or asks for others */
	bool forks_made; /* they were made for that, and go then */
	uint64_t forks_of;
	uint8_t wait_type;
	unsigned n_waiting; /* frames that work.c holds back, with the one it has just come to */
	size_t waiting_bytes;
	bool left; /* freed when the last of them is done */
};

struct keeper {
	struct loop *loop;
	struct store *store;
	struct list clients, chans, execs;
	struct loop_source listen, init_pid;
	struct conn init;
	bool init_up; /* init is a live connection */
	bool init_known; /* init said which execs it has */
	bool fresh;	 /* init was started by us: there is nothing to know */
	unsigned hello_records;
	/* the box; has_box false: a clerk */
	bool has_box;
	struct box_id id;
	struct box_row row;
	struct template tmpl;
	int boxfd, lock;
	struct pool *pool; /* NULL: not needed so far */
	int fsfd;	   /* home_open(): what the box writes to */
	char *fs_path;
	struct image_defaults defaults; /* of the template */
	int image_lock; /* held until the row that names the image is written; -1: not */
	/* history */
	uint64_t print; /* of head, if known */
	uint64_t print_bytes; /* what was looked at last takes on disk; 0: not known */
	bool print_known, turn_open, merging, keep_waiting;
	bool merge_was_down;
	char *merge_from; /* "ID@N" */
	struct buf turn_message;
	struct loop_deferred turn_end;
	struct loop_timer turn_later; /* armed: the turns since share a checkpoint */
	struct loop_timer sweep;
	struct loop_timer passing; /* armed: forks were made, of the images of these */
	uint64_t *passed;
	size_t n_passed;
	struct loop_deferred settle; /* what may be done after an answer, but before anything else */
	bool base_due;		     /* of that: a fork's number 0 is to be made */
	bool print_due;		     /* of that: the present is head, and is to be remembered as such */
	int old_mntns;		     /* of that: of the box before a rollback; -1: none */
	unsigned print_skips;	     /* looks still to be spared: there were too many files the last time */
	struct loop_timer room; /* armed while boxes write to an image: is there room below it? */
	int64_t turn_at, turn_cost;   /* when the last one was made, and how long it took; ns */
	struct list jobs;
	/* work.c */
	struct list waiting;
	struct loop_deferred work;
	bool working, turn_due, sweep_due, merge_lost, delete_due, leave_due;
	struct kgate *gate; /* gate.h; NULL: not looked at so far */
	const struct wall_ops *ops;
	struct wall_box wall;
	struct kready *ready; /* ready.c; NULL: it is somebody's */
	bool row_written;
	uint32_t next_chan, next_exec;
	struct klease {
		struct loop_timer timer;
		int64_t active_ns; /* when it was last seen busy */
		uint64_t cpu_usec; /* what its cgroup had used ... */
		int64_t cpu_ns;	   /* ... then; 0: not looked so far */
	} lease;
	struct loop_timer runtime, late_row, kill, owner_gone, leave, idle, relisten;
	bool stopping;
	struct client *asking; /* whose request is being done; NULL: nobody's */
	bool saving;	/* the wall holds it, and it must not be let go */
	struct buf inside; /* what init said of its processes, inside.c */
	bool inside_known;
	int64_t inside_silent_ns; /* when it last did not answer; 0: it did */
	bool parked;	/* init said that it lets go of everything from outside */
	bool park_late; /* it was asked to, and nobody waits for it any more: when it does, it is woken */
	struct loop_timer late;
	bool announced; /* box_announce() was called for the next start */
	bool in_trash; /* its files are still to be freed */
	bool gone; /* deleted: answer nothing more, leave when all is sent */
};

/* main.c */
/* One field of a request; the others are ignored. */
uint64_t field_u64(const struct wire_frame *f, uint16_t tag, uint64_t otherwise);
int field_str(const struct wire_frame *f, uint16_t tag, size_t max, char **ret, struct den_err *err);
bool client_went(const struct client *c); /* it was interrupted, or its connection broke */
void client_drop(struct client *c);
void client_free(struct client *c);
void client_handle(struct client *c, const struct wire_frame *f);
void client_refuse(struct client *c, const struct wire_frame *f, const struct den_err *why);
void keeper_leave_if_done(struct keeper *k);

/* work.c. Does work on the box's files; while it takes its time others are served, if work_run() is above. */
int work_do(struct keeper *k, int (*fn)(void *arg, struct den_err *err), void *arg, struct den_err *err);
void work_run(struct keeper *k); /* all that is due and in line; not from inside a batch of the loop */
void work_due(struct keeper *k); /* the same, at its end */
bool work_waits(struct client *c, const struct wire_frame *f); /* true: it was put in line, or dropped */

/* up.c */
/* The wall's plan of the box as it is, and what it points to. */
struct kplan {
	struct plan p;
	struct plan_tree *trees;
	char *init_path, *run_path, *volumes;
};
int plan_make(struct keeper *k, struct kplan *ret, struct den_err *err); /* ret is to be freed even then */
void plan_free(struct kplan *kp);
#define auto_plan __attribute__((cleanup(plan_free))) struct kplan
int new_boot_id(struct keeper *k, struct den_err *err);
int box_announce(struct keeper *k, struct den_err *err); /* boot id and times, if they are to be written first */
int box_up(struct keeper *k, struct den_err *err);
void box_arm_runtime(struct keeper *k); /* started_ms and max_runtime_ms have changed */
int watch_init(struct keeper *k, struct den_err *err); /* its end, and how long it may run */
int meet_init(struct keeper *k, struct den_err *err);
void set_detail(struct keeper *k);
void tell_progress(const char *text, void *user);

/* open.c */
int box_open(struct keeper *k, const struct box_id *id, struct den_err *err);
int listen_for_clients(struct keeper *k, struct den_err *err);
void await_init(struct keeper *k); /* until it has said what it has; bounded */

/* box.c */
int box_stop(struct keeper *k, uint64_t grace_ms, struct den_err *err);
int box_pause(struct keeper *k, bool on, struct den_err *err);
int box_delete(struct keeper *k, struct den_err *err);
void box_down(struct keeper *k, const char *reason);
void box_off(struct keeper *k, bool later, bool execs_end); /* nothing of it runs; the row is as it was */
int box_save(struct keeper *k, struct den_err *err);
int box_empty_trash(struct store *s, const struct box_id *mine, struct den_err *err);
void box_put_info(struct keeper *k, struct buf *b);
bool box_is_up(const struct keeper *k);
void answer_waiting(struct keeper *k); /* all who wait for the box's end */

/* create.c */
int box_create(struct keeper *k, const char *spec, size_t len, struct client *owner, struct den_err *err);

/* What was asked for, checked and completed. */
int create_settle(struct keeper *k, struct box_spec *s, struct den_err *err);
void create_defaults(struct keeper *k); /* what the template says and the caller did not */
/* It is there for good, as far as was promised. */
int create_row(struct keeper *k, struct den_err *err);
/* All but the name and the row: the box is built and runs. */
int create_build(struct keeper *k, struct den_err *err);
void create_undo(struct keeper *k);

/* ready.c: boxes that are built before somebody asks for them */
int req_ready(struct client *c, const struct wire_frame *f, struct buf *out, struct den_err *err);
int req_claim(struct client *c, const struct wire_frame *f, struct buf *out, struct den_err *err);
int clerk_ready_list(struct client *c, const struct wire_frame *f, struct buf *out, struct den_err *err);
bool ready_refuses(struct client *c, const struct wire_frame *f); /* true: answered, it is nobody's box */
void ready_client_gone(struct keeper *k);
/* Marks whose box is gone. */
void ready_sweep(struct store *s, void (*removed)(const char *what, void *user), void *user);

int open_template(struct keeper *k, struct den_err *err);

int create_from(struct keeper *k, struct den_err *err); /* spec.from of the row: all that it has from there */

/* home.c. Names are of the pool: home_name() makes "ID/wN" (what it writes to) and "ID/cN". */
void home_name(const struct keeper *k, char what, uint64_t number, char out[static 64]);
int home_pool(struct keeper *k, struct den_err *err);
void home_room(struct keeper *k); /* before something may be written */
int home_make(struct keeper *k, struct den_err *err);
int home_make_empty(struct keeper *k, uint64_t work, struct den_err *err);
int home_open(struct keeper *k, struct den_err *err);
void home_close(struct keeper *k);
void home_remove(struct keeper *k);
int home_sweep(struct keeper *k, struct den_err *err);
int home_snapshot(struct keeper *k, const char *from, const char *like, const char *to, bool readonly,
	struct den_err *err);
/* volumes.c: makes those that its spec names. *ret: their folder, free() it; NULL: it has none */
int volumes_prepare(struct keeper *k, char **ret_path, struct den_err *err);
bool home_begins_bare(struct keeper *k, const char *box); /* what has no number 0 is as its template is */
int home_make_base(struct keeper *k, struct den_err *err); /* a fork's number 0, if it is missing */
int home_discard(struct keeper *k, const char *name, struct den_err *err);
int home_fingerprint(struct keeper *k, unsigned max, uint64_t *ret, struct den_err *err);

/* history.c */
int box_checkpoint(struct keeper *k, enum ckpt_kind kind, const char *message, const char *origin,
	uint64_t *ret, struct den_err *err);
/* 1: made, *ret set; 0: the present is head */
int box_checkpoint_if_changed(struct keeper *k, enum ckpt_kind kind, const char *message, uint64_t *ret,
	struct den_err *err);
/* programs: those of a full checkpoint come back, too */
int box_rollback(struct keeper *k, uint64_t number, bool keep_present, bool programs, uint64_t *ret_before,
	struct den_err *err);
/* The files alone, of a box that is on disk: as they were at the checkpoint that it comes back from. */
int box_restore_files(struct keeper *k, uint64_t number, struct den_err *err);
int box_prune(struct keeper *k, uint64_t keep_ms, bool everything, uint64_t *ret, struct den_err *err);
int box_resolve(struct keeper *k, const char *ref, uint64_t *ret, struct den_err *err);
/* Likewise, but "now" and nothing mean the present, which gets a checkpoint if it has none. */
int box_point(struct keeper *k, const char *ref, uint64_t *ret, struct den_err *err);
/* Parts of it, for those who do more in between. */
int need_history(const struct keeper *k, struct den_err *err);
int box_snapshot(struct keeper *k, uint64_t number, uint64_t *print, bool *known, struct den_err *err);
int box_record(struct keeper *k, uint64_t number, enum ckpt_kind kind, const char *message, const char *origin,
	uint64_t images, struct den_err *err);
void box_print_set(struct keeper *k, uint64_t print, bool known);
void box_print_load(struct keeper *k);
void box_print_now(struct keeper *k);
void box_turn(struct keeper *k, const struct exec_info *x); /* one ended */
void box_turn_end(struct keeper *k);
void box_settle(struct keeper *k); /* what was put off to after an answer: before anything else is done */
void box_sweep_later(struct keeper *k);
void box_settle_later(struct keeper *k);
int req_checkpoint(struct client *c, const struct wire_frame *f, struct buf *out, struct den_err *err);
int req_log(struct client *c, const struct wire_frame *f, struct buf *out, struct den_err *err);
int req_tag(struct client *c, const struct wire_frame *f, struct buf *out, struct den_err *err);
int req_rollback(struct client *c, const struct wire_frame *f, struct buf *out, struct den_err *err);
int req_prune(struct client *c, const struct wire_frame *f, struct buf *out, struct den_err *err);
int req_fork_point(struct client *c, const struct wire_frame *f, struct buf *out, struct den_err *err);

/* memory.c, load.c: programs on disk. Those that save put what wire.h says into out. */
int memory_possible(struct keeper *k, struct den_err *err);
int memory_checkpoint(struct keeper *k, const char *message, struct buf *out, struct den_err *err);
int memory_pause(struct keeper *k, const char *reason, struct buf *out, struct den_err *err);
/* Somebody makes forks of them. */
bool memory_in_use(struct keeper *k, uint64_t number);
void memory_forks_done(struct client *c);
/* A full checkpoint for a fork: ref, or (NULL, "now") the present, for which one is made. */
int memory_point(struct client *c, const char *ref, bool lend, struct buf *out, struct den_err *err);
int req_expect(struct client *c, const struct wire_frame *f, struct buf *out, struct den_err *err);
int req_lent(struct client *c, const struct wire_frame *f, struct buf *out, struct den_err *err);
int memory_load(struct keeper *k, const struct box_id *of, uint64_t number, struct den_err *err);
/* -1: it has none, or they could not be loaded here */
int memory_check(struct keeper *k, const struct box_id *of, uint64_t number, struct den_err *err);
int box_hibernate(struct keeper *k, struct den_err *err);
int box_wake(struct keeper *k, struct den_err *err); /* from disk, or where it is hibernated */
bool wake_needed(const struct keeper *k, const struct wire_frame *f);
bool memory_half(const struct keeper *k); /* programs were being brought back, and the row does not say that they are */
int memory_undo(struct keeper *k, struct den_err *err); /* after a keeper died in the middle of that */
/* memory_after.c: what saving left in the files of a box that goes on */
void memory_unsaved(struct keeper *k);
int memory_settle(struct keeper *k, struct den_err *err); /* nothing runs: the files are the checkpoint's again */
void memory_loaded(struct keeper *k); /* it is as its row says */

/* bake.c: templates with programs */
bool bake_find(struct store *s, const char *name, struct box_id *ret);
bool bake_named(struct store *s, const struct box_id *id); /* is it the seed of one? */
char **bake_names(struct store *s); /* strv_free() it */
int bake_remove(struct keeper *k, const char *name, struct den_err *err);
/* Another name for the same. */
int bake_tag(struct keeper *k, const char *from, const char *name, struct den_err *err);
int req_bake(struct client *c, const struct wire_frame *f, struct buf *out, struct den_err *err);

/* waker.c: published ports of a box on disk, held by a server */
struct waker_ports {
	size_t n;
	uint16_t out[64];
	int fd[64];
};
void waker_hold(struct keeper *k);
void waker_drop(struct keeper *k);
void waker_take(struct keeper *k, struct waker_ports *ret); /* none, where nobody holds any */
int waker_port(struct waker_ports *p, uint16_t out); /* the socket, handed over; -1: none */
void waker_ports_free(struct waker_ports *p);

/* wake.c: init without its keeper */
/* Runs init's connection alone until *done, its end, or the time is up: anything that init says may happen. */
void init_attend(struct keeper *k, const bool *done, int64_t ms);
void init_parked_late(struct keeper *k);
int init_park(struct keeper *k, struct den_err *err);
int wake_listen(struct keeper *k, int *ret, struct den_err *err);
/* Gives init what it needs from outside, says hello, and goes on with every channel at its byte. Closes fd. */
int init_wake(struct keeper *k, int *fd, bool loaded, struct den_err *err);

/* compare.c */
int req_diff(struct client *c, const struct wire_frame *f, struct buf *out, struct den_err *err);
int req_merge(struct client *c, const struct wire_frame *f, struct buf *out, struct den_err *err);
int req_merge_end(struct client *c, const struct wire_frame *f, struct buf *out, struct den_err *err);
void merge_client_gone(struct client *c);
void merge_lost(struct keeper *k); /* nobody goes on with it: it is undone */

/* templates.c */
int req_templates(struct client *c, const struct wire_frame *f, struct buf *out, struct den_err *err);
int req_template_get(struct client *c, const struct wire_frame *f, struct buf *out, struct den_err *err);
int req_template_tag(struct client *c, const struct wire_frame *f, struct buf *out, struct den_err *err);
int req_template_remove(struct client *c, const struct wire_frame *f, struct buf *out, struct den_err *err);
int req_template_verify(struct client *c, const struct wire_frame *f, struct buf *out, struct den_err *err);
int req_template_tar(struct client *c, const struct wire_frame *f, struct buf *out, struct den_err *err);
int req_template_stack(struct client *c, const struct wire_frame *f, struct buf *out, struct den_err *err);
int req_commit(struct client *c, const struct wire_frame *f, struct buf *out, struct den_err *err);
int req_pool(struct client *c, const struct wire_frame *f, struct buf *out, struct den_err *err);

/* exec.c */
void kexec_request(struct client *c, const struct wire_frame *f);
int kexec_begin(struct keeper *k, struct exec_spec *s, struct den_err *err);
void kexec_attach(struct client *c, const struct wire_frame *f);
void kexec_signal(struct client *c, const struct wire_frame *f);
void kexec_relay(struct client *c, const struct wire_frame *f);
void kexec_from_init(struct keeper *k, const struct wire_frame *f);
void kexec_client_gone(struct client *c);

/* limit.c */
void kexec_arm(struct kexec *x);
void kexec_signal_tree(struct kexec *x, int sig, bool limit);
/* Ends the whole tree: sig, and KILL after the grace time; why EXEC_BY_ITSELF: no limit did it. */
void kexec_kill(struct kexec *x, int sig, enum exec_reason why);
void kexec_ended(struct kexec *x, const struct exec_result *r);
void kexec_thin(struct keeper *k); /* keeps the newest ended ones, as init does */
void kexec_free(struct kexec *x);
bool kexec_has_chan(struct keeper *k, const struct kexec *x);
void chan_tell_exit(struct chan *ch);
void chan_free(struct chan *ch);
void kexec_box_down(struct keeper *k);

/* ps.c */
void disk_stats(struct keeper *k, struct box_stats *st);
/* CPU time of a process of the box (by its pid there) and all below it, where there is no cgroup. */
/* Behind a wall with a kernel of its own init is asked, and execs may end meanwhile. */
int tree_cpu(struct keeper *k, uint64_t inner_pid, uint64_t *usec);
void ps_put(struct keeper *k, struct buf *b);
/* inside.c */
void inside_ps(struct keeper *k, struct buf *b);
int inside_cpu(struct keeper *k, uint64_t root, uint64_t *usec);
void inside_stats(struct keeper *k, struct box_stats *st);
void inside_answer(struct keeper *k, const struct wire_frame *f);

/* vault.c: secrets and identity; what else it has is in vault.h */
int req_vault(struct client *c, const struct wire_frame *f, struct buf *out, struct den_err *err);
int req_token(struct client *c, const struct wire_frame *f, struct buf *out, struct den_err *err);
/* A token for this box, if its policy grants the audience; alg NULL: EdDSA. free() it. */
/* gate: it is for the gate itself, which adds tokens to requests; whether the box may have one, it has checked. */
int gate_token(struct keeper *k, const char *audience, const char *alg, bool gate, char **ret,
	struct den_err *err);

/* guest.c */
int guest_check(struct client *c, const struct wire_frame *f, struct den_err *err); /* -1: not for guests */
int guest_spec(const struct box_spec *s, struct den_err *err);

/* lease.c: how long a box may stay */
int lease_settle(struct box_spec *s, struct den_err *err); /* of a box that is about to be made */
int lease_left(const struct keeper *k, struct den_err *err); /* -1: its time is up, it must not go on */
int lease_possible(struct keeper *k, struct den_err *err); /* can be done what it asks for at its end? */
bool lease_forfeit(const struct box_info *i); /* it runs, and should have been deleted */
bool lease_followed(const struct keeper *k);  /* is a channel open to a program? */
void lease_arm(struct keeper *k); /* it runs from now on, or its lease has changed */
void lease_busy(struct keeper *k); /* somebody does something with it */
bool lease_counts(uint8_t type);   /* does such a request? */
int lease_overdue(struct keeper *k, struct den_err *err); /* of one that is taken over; -1: it is gone */
int req_lease(struct client *c, const struct wire_frame *f, struct buf *out, struct den_err *err);
int req_label(struct client *c, const struct wire_frame *f, struct buf *out, struct den_err *err);

/* feed.c: tells a server what happens. Costs next to nothing while none listens. */
bool feed_wanted(struct keeper *k);
void feed_last(void); /* what could not be sent so far, before the process ends */
void feed_text(struct keeper *k, const char *kind, const char *json); /* data: an object, or NULL */
void feed_state(struct keeper *k, const char *kind); /* box.*: with name, template, reason */
void feed_number(struct keeper *k, const char *kind, const char *key, uint64_t number, const char *key2,
	const char *text); /* {key: number, key2: text}; text NULL: without */
void feed_exec(struct keeper *k, const struct exec_info *i); /* started, or (ended_ms) ended */

/* clerk.c */
int clerk_resolve(struct client *c, const struct wire_frame *f, struct buf *out, struct den_err *err);
int clerk_list(struct client *c, const struct wire_frame *f, struct buf *out, struct den_err *err);
int clerk_gc(struct client *c, const struct wire_frame *f, struct buf *out, struct den_err *err);
int clerk_sweep(struct store *s, void (*removed)(const char *what, void *user), void *user, struct den_err *err);
/* doctor.c */
int clerk_doctor(struct client *c, const struct wire_frame *f, struct buf *out, struct den_err *err);

#define ENDED_KEPT 64 /* ended execs that are remembered */
#define EXECS_MAX 1024
#define PIDS_DEFAULT 4096
#define NOFILE_DEFAULT (1U << 20)
#define ROW_LATE_MS 60	  /* a nameless throwaway box gets a row only if it lives that long */
#define OWNER_GONE_MS 10000
#define CLIENT_GONE_MS 2000 /* likewise for what belongs to one client's call */
#define IDLE_MS 300
#define WORKING_MS 50 /* what must not happen while work.c is at it is tried again after */
