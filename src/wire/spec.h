/* The things that travel: what a box is, what an exec is, how it ended. Encoded with wire.h. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "buf.h"
#include "err.h"
#include "wire.h"

#define SPEC_MAX_ARGS 65536
#define SPEC_MAX_MOUNTS 64
#define SPEC_MAX_POLICY (256U << 10)
#define SPEC_MAX_OWNER 64
#define SPEC_MAX_LABELS 64
#define SPEC_MAX_LABEL 4096 /* bytes of "K=V" */

enum box_flags {
	BOX_EPHEMERAL = 1 << 0, /* deleted when the connection that created it ends */
	/* nobody asked for the pids limit: do without where there is none */
	BOX_PIDS_DEFAULT = 1 << 1,
	BOX_FULL = 1 << 2, /* with `from`: its programs, too */
	BOX_SEED = 1 << 3, /* of a template: nobody uses it, boxes are made of it */
	BOX_RESEED = 1 << 4, /* its programs load what restarts generators of random numbers: keeper/reseed.h */
	BOX_KEEP_FLAGS = BOX_EPHEMERAL | BOX_PIDS_DEFAULT | BOX_FULL | BOX_SEED | BOX_RESEED,
};

struct box_mount {
	char *host; /* absolute */
	char *box;  /* absolute */
	bool ro;
};

/* What was asked for. 0 means no limit (pids: the default of PIDS_DEFAULT, chosen by the
 * keeper). */
struct box_spec {
	char *id, *name, *template_name, *wall, *net, *hostname, *user, *cwd;
	char *from; /* "ID@N": begins as that box was; NULL: as the template is */
	char *policy;	   /* JSON, what it may reach; NULL: nothing, or what policy_name says */
	char *policy_name; /* of a stored one, which it follows; NULL: its own */
	/* "PORT" or "PORT=OUTSIDE": ports of the box that can be reached from outside */
	char **publish;
	char **env;
	struct box_mount *mounts;
	size_t n_mounts;
	uint64_t cpu_milli, memory, pids, disk, nofile, max_runtime_ms;
	uint64_t history; /* enum box_history */
	uint64_t flags;
	/* for servers */
	char *owner;
	uint64_t quota; /* bytes of disk that all of its owner's may take together (keeper/quota.h); 0: any */
	char **labels; /* "K=V" */
	uint64_t expires_ms, idle_ms;	/* Unix time; how long. 0: never */
	uint64_t on_expire, on_idle;	/* enum lease_action */
};
/* What happens at the end of a lease. */
enum lease_action { LEASE_DEFAULT, LEASE_DELETE, LEASE_PAUSE, LEASE_STOP, LEASE_PAUSE_DISK, LEASE_ACTIONS };
extern const char *const lease_action_str[LEASE_ACTIONS];
/* NULL: LEASE_DEFAULT */
int lease_action_parse(const char *text, uint64_t *ret, struct den_err *err);
/* Labels as they may be: "K=V" each, no key twice, not too many. */
int labels_check(char *const *labels, struct den_err *err);
enum box_history {
	HISTORY_DEFAULT, /* on; of a throwaway box off */
	HISTORY_ON,	 /* a checkpoint after each turn that changed something */
	HISTORY_MANUAL,	 /* when asked */
	HISTORY_OFF,	 /* none: its changes are not even in the pool */
};
void box_spec_put(struct buf *b, const struct box_spec *s);
int box_spec_get(const char *p, size_t n, struct box_spec *ret, struct den_err *err);
void box_spec_free(struct box_spec *s);

/*
 * States, with the function in keeper/ that makes each move.
 *   (none)   -> CREATING  box_create()      directory and claims made, nothing acknowledged
 *   CREATING -> RUNNING   box_up()          init said hello; limits are in force
 *   RUNNING  -> PAUSED    box_pause()       cgroup frozen
 *   PAUSED   -> RUNNING   box_resume()
 *   RUNNING  -> PAUSED, on disk  memory_pause(), box_hibernate()  no process left; any use brings it back
 *   PAUSED, on disk -> RUNNING  box_wake()
 *   RUNNING, PAUSED -> STOPPED  box_down()  no process left; the file system stays
 *   STOPPED  -> RUNNING   box_up()
 *   STOPPED  -> DELETING  box_delete()      written first, so that a crash here is finished by gc
 *   DELETING, RUNNING, PAUSED -> (none)  box_delete()  its directory goes, then its row
 */
enum box_state {
	BOX_CREATING,
	BOX_RUNNING,
	BOX_PAUSED,
	BOX_STOPPED,
	BOX_DELETING,
	BOX_STATES,
};
extern const char *const box_state_str[BOX_STATES];

struct box_info {
	struct box_spec spec;
	enum box_state state;
	int64_t created_ms, started_ms, stopped_ms;
	uint64_t init_pid, keeper_pid; /* on the host; 0: none */
	char *reason;		       /* why it stopped or was paused, in words; NULL: asked to */
	/* what the template is made of, and how the wall was built */
	char *detail;
	char *boot_id;
	uint64_t generation;	       /* of its policy */
	int64_t active_ms;	       /* when it was last seen busy */
	uint64_t turn;
	uint64_t on_disk;  /* enum on_disk: PAUSED, and nothing of it is there but files */
	uint64_t images;   /* ON_DISK_FULL: the checkpoint that it comes back from */
	uint64_t restores; /* how often its programs were brought back */
	uint64_t image_bytes; /* what images of its programs take on disk: told, never written into a row */
	uint64_t file_bytes; /* of a seed: what its files take on disk */
	char **marks; /* "ID CREATED_MS" each: boxes that its programs come from, the first first; NULL: none */
};
enum on_disk { ON_DISK_NOT, ON_DISK_FULL, ON_DISK_FILES };
void box_info_put(struct buf *b, const struct box_info *i);
int box_info_get(const char *p, size_t n, struct box_info *ret, struct den_err *err);
void box_info_free(struct box_info *i);

enum exec_flags {
	EXEC_TTY = 1 << 0,
	EXEC_STDIN = 1 << 1, /* stdin is a stream; else /dev/null */
	EXEC_DETACH = 1 << 2, /* no channel stays open after STARTED */
	EXEC_BUILTIN = 1 << 3, /* argv names a function of init (fsop.h), not a program */
	EXEC_FORGET = 1 << 4, /* keep nothing once the channel is closed */
	EXEC_KILL_ON_CLOSE = 1 << 5, /* the whole tree ends when the channel's connection does */
	/* keeper to init only */
	/* one descriptor travels with it: cgroup.procs of the exec's group */
	EXEC_CGROUP = 1 << 8,
	/* no cgroup: the program reaps its orphans, so its tree stays whole */
	EXEC_SUBREAPER = 1 << 9,
	EXEC_CLIENT_FLAGS = 0xff,
};

struct exec_spec {
	char **argv, **env;
	char *cwd, *user, *tag;
	uint64_t flags, rows, cols;
	uint64_t timeout_ms, cpu_ms, grace_ms, max_output;
	uint64_t keep;	 /* bytes kept of each stream; 0: EXEC_KEEP_DEFAULT */
	uint64_t credit; /* bytes of output that may be sent before the first CREDIT */
	uint64_t exec;	 /* number in the box; the keeper's choice */
	uint64_t nofile; /* RLIMIT_NOFILE; 0: leave */
	/* chosen by the client: asked for twice (a keeper died), it runs once; 0: none */
	uint64_t nonce;
};
#define EXEC_KEEP_DEFAULT (1U << 20)
#define EXEC_KEEP_MAX (64U << 20)
#define EXEC_GRACE_MS 5000
void exec_spec_put(struct buf *b, const struct exec_spec *s);
int exec_spec_get(const char *p, size_t n, struct exec_spec *ret, struct den_err *err);
void exec_spec_free(struct exec_spec *s);

/* Why an exec ended, when it was not its own doing. */
enum exec_reason {
	EXEC_BY_ITSELF,
	EXEC_BY_TIMEOUT,
	EXEC_BY_CPU,
	EXEC_BY_MEMORY,
	EXEC_BY_PIDS,
	EXEC_BY_DISK,
	EXEC_BY_OUTPUT,
	EXEC_BY_STOP, /* the box was stopped */
	EXEC_REASONS,
};
extern const char *const exec_reason_str[EXEC_REASONS];

struct exec_result {
	bool exited;	 /* else ended by signal `status` */
	uint64_t status; /* exit code or signal */
	enum exec_reason reason;
	uint64_t oom_kills; /* in the whole box while it ran */
	uint64_t off_out, off_err; /* bytes produced in all */
};
void exec_result_put(struct buf *b, const struct exec_result *r);
int exec_result_get(const char *p, size_t n, struct exec_result *ret, struct den_err *err);

struct exec_info {
	uint64_t exec, pid; /* pid as seen in the box */
	char **argv;
	char *tag, *user, *cwd;
	uint64_t flags;
	int64_t started_ms, ended_ms; /* ended 0: running */
	uint64_t timeout_ms, cpu_ms, grace_ms; /* a keeper that takes over goes on enforcing them */
	uint64_t nonce;
	struct exec_result result;
};
void exec_info_put(struct buf *b, const struct exec_info *i);
int exec_info_get(const char *p, size_t n, struct exec_info *ret, struct den_err *err);
void exec_info_free(struct exec_info *i);

struct box_stats {
	uint64_t cpu_usec, throttled_usec, mem, mem_peak, mem_limit, pids, pids_max;
	uint64_t disk, disk_limit, io_read, io_write, oom_kills;
	uint64_t has; /* bit per field above, in order: what this host can measure */
};
void box_stats_put(struct buf *b, const struct box_stats *s);
int box_stats_get(const char *p, size_t n, struct box_stats *ret, struct den_err *err);
