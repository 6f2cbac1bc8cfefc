/*
 * den.h - libden: a computer of its own for every agent.
 *
 * Link with `pkg-config --cflags --libs den`. The library needs nothing running: a call that needs
 * a box's keeper and finds none starts it. It starts no thread, installs no signal handler and
 * writes to no descriptor but its own.
 *
 *   struct den *d;
 *   struct den_box *box;
 *   struct den_err err;
 *
 *   den_open(NULL, &d, &err);
 *   den_box_create(d, &(struct den_box_spec){ .size = sizeof(struct den_box_spec) }, &box, &err);
 *   ... den_exec_start(), den_exec_wait(), den_file_read() ...
 *   den_box_delete(box, 0, &err);
 *   den_box_close(box);
 *   den_close(d);
 *
 * Conventions
 * - A function returns 0, or -1 with *err filled in. Results are written only on success.
 * - A struct that you fill in starts with `size`: set it to sizeof(that struct). It lets the struct
 *   grow without breaking programs that were built earlier. A zero or NULL member means the default.
 * - A struct that you are given may have more members at its end in a later version, and arrays of them are of its size:
 *   until version 1.0 each such change has another soversion, so a program that was built with an older den.h is not
 *   loaded with a newer library, and is built again. From 1.0 on no struct that is given grows.
 * - What you pass in is copied before the call returns; you keep it.
 * - What a function gives you in `ret` is yours, and the comment says which function ends it.
 * - One struct den and all that came from it belong to one thread at a time.
 * - Whatever a box produced (output, file names, link targets, tags) is hostile: any bytes.
 */
#ifndef DEN_H
#define DEN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

#define DEN_VERSION "0.1.0"

/* ---- errors ---------------------------------------------------------------------------------- */

#ifndef DEN_ERR_TYPES
#define DEN_ERR_TYPES
enum den_code {
	DEN_OK,
	DEN_INVALID,	 /* the request makes no sense: fix it */
	DEN_NOT_FOUND,	 /* no such box, exec, file, template */
	DEN_CONFLICT,	 /* not in the state it is in: name taken, box stopped, directory not empty */
	DEN_DENIED,	 /* not permitted */
	DEN_LIMIT,	 /* a limit was reached: disk, memory, number of things */
	DEN_TIMEOUT,	 /* took too long */
	DEN_UNSUPPORTED, /* this host cannot; the message says what is missing */
	DEN_INTERNAL,	 /* a defect, or the machine failed */
};
struct den_err {
	enum den_code code; /* stable: maps one to one to an exit status and an HTTP status */
	int sys;	    /* errno that caused it, 0 if none */
	char msg[244];	    /* "outer: inner: reason", for people */
};
#endif

/** den_code_str() - "not_found" and so on: stable names, for JSON */
const char *den_code_str(enum den_code code);
/** den_version() - version of the library that is loaded */
const char *den_version(void);

/* ---- opening --------------------------------------------------------------------------------- */

struct den;
struct den_box;
struct den_exec;

struct den_options {
	size_t size;
	const char *state; /* state directory; NULL: $DEN_STATE, else /var/lib/den as root, else
			      $XDG_STATE_HOME/den, else ~/.local/state/den */
	const char *exe;   /* the den executable; NULL: $DEN_EXE, else the installed one */
	bool own_keepers;  /* keepers that this program starts are its children, for a program that ends
			      soon. false: they are nobody's children, and the program never sees a
			      SIGCHLD or a zombie of theirs */
	/* For a program that carries the keeper inside itself, as den does: called in a forked child, with
	 * the socket as descriptor 3, instead of executing `exe`. NULL for all others. */
	int (*keeper)(const char *state, const char *id);
	/* told in words for people what takes so long, when something does (a second or more); may be
	 * NULL */
	void (*progress)(const char *text, void *user);
	void *progress_user;
	/*
	 * For a program that may touch neither the state directory nor start processes: whoever may hands it
	 * connections. Gives a connected stream socket to the keeper of the box @id, or to a clerk of its own
	 * (NULL). *ret_started: the keeper was started for it just now, so it says first whether it has the box.
	 * A box that is not there is DEN_NOT_FOUND. "ready:SHAPE" instead of an id asks for a ready box of that
	 * shape, taken from all others; DEN_NOT_FOUND: none, and one is made. With it the library opens no file and starts nothing. NULL:
	 * the library does both itself.
	 */
	int (*dial)(const char *id, void *user, int *ret_fd, bool *ret_started, struct den_err *err);
	void *dial_user;
};

/**
 * den_open() - choose a state directory; nothing is started or created yet
 * @opt: may be NULL
 * @ret: end it with den_close(), after everything that came from it
 */
int den_open(const struct den_options *opt, struct den **ret, struct den_err *err);
void den_close(struct den *d); /* NULL is allowed */
/** den_state_dir() - where the state is; valid until den_close() */
const char *den_state_dir(const struct den *d);

/* ---- boxes ----------------------------------------------------------------------------------- */

struct den_mount {
	const char *host; /* directory or file on the host, absolute; or "volume:NAME" (a-z 0-9 -): a directory that
			     boxes share and that outlives them, made when the first box has it */
	const char *box;  /* where it appears, absolute; made when missing */
	bool ro;
};

/** struct den_box_spec - what a box is to be; 0 is "no limit" except where said */
struct den_box_spec {
	size_t size;
	const char *name;	   /* a-z 0-9 . _ -; NULL: known by its id alone */
	const char *template_name; /* NULL: "host" */
	const char *wall;	   /* "container", "gvisor"; NULL: what DEN_WALL says, else "container" */
	const char *net;	   /* NULL: "none" */
	const char *hostname;	   /* NULL: the name, else the id */
	const char *user;	   /* who execs run as when they do not say; NULL: "root" */
	const char *workdir;	   /* NULL: home of the user */
	const char *const *env;	   /* "K=V" for every exec, NULL-terminated; NULL: none */
	const struct den_mount *mounts;
	size_t n_mounts;
	uint64_t cpu_milli;	 /* thousandths of a processor */
	uint64_t memory;	 /* bytes */
	uint64_t pids;		 /* processes and threads; 0: 4096 */
	uint64_t disk;		 /* bytes of changes */
	uint64_t nofile;	 /* open files of one process; 0: 1048576 or what the host allows */
	uint64_t max_runtime_ms; /* stopped that long after its start */
	bool ephemeral;		 /* deleted when this box handle is closed, or its program dies */
	const char *history;	 /* "on": a checkpoint by itself after each turn that changed something;
				    "manual": only when asked; "off": none at all. NULL: "on", of an ephemeral
				    box "off" */
	const char *policy;	 /* what it may reach, JSON; NULL: nothing, or what policy_name says */
	const char *policy_name; /* of a stored one, which the box follows */
	const char *const *publish; /* ports, "PORT" or "PORT=OUTSIDE" on the host's loopback; NULL: none */
	const char *owner;	    /* whose it is, for who runs a server: any text of at most 64 bytes; NULL */
	const char *const *labels;  /* "K=V", any text, at most 64 of 4 KiB each; NULL: none */
	int64_t expires_ms;	    /* Unix time at which on_expire happens; 0: never */
	const char *on_expire;	    /* "delete" (NULL), "pause", "pause-disk", "stop" */
	uint64_t idle_ms; /* on_idle happens when for so long no exec was followed, nothing was asked of the
			     box, no byte went through its gate, and it used less than 1 % of a processor (where that can be measured); 0: never */
	const char *on_idle;	    /* "pause" (NULL), "pause-disk", "stop", "delete" */
	uint64_t quota; /* bytes of disk that all of the owner's may take together, as den_disk_use() counts: what would
			   put more on disk is DEN_LIMIT (EDQUOT), before it begins; 0: any */
	bool reseed; /* its programs get an environment that restarts known generators of random numbers when they are
			restored or forked: LD_PRELOAD and PYTHONPATH are added to */
};

/**
 * den_box_create() - make a box and start it
 * @ret: connected and running; end the handle with den_box_close(), the box with den_box_delete()
 *
 * When it returns 0 the box is on disk: it survives a crash of anything. When it fails nothing stays.
 */
int den_box_create(struct den *d, const struct den_box_spec *spec, struct den_box **ret,
	struct den_err *err);
/**
 * den_box_open() - connect to a box by name or id; a stopped one stays stopped
 * @ref: name, id, or a prefix of an id (8 characters or more) that fits just one
 */
int den_box_open(struct den *d, const char *ref, struct den_box **ret, struct den_err *err);
void den_box_close(struct den_box *box); /* its execs are detached; NULL is allowed */
const char *den_box_id(const struct den_box *box);

int den_box_start(struct den_box *box, struct den_err *err);
/** den_box_stop() - end all processes (TERM, after grace_ms KILL); the file system stays */
int den_box_stop(struct den_box *box, uint64_t grace_ms, struct den_err *err);
/** den_box_pause() - hold all processes where they are; they stay in memory. See den_box_pause_disk() */
int den_box_pause(struct den_box *box, struct den_err *err);
/** den_box_resume() - let a paused box go on, wherever it is: in memory, on disk, or hibernated */
int den_box_resume(struct den_box *box, struct den_err *err);
/** den_box_delete() - remove it; a running one is DEN_CONFLICT unless @force. The handle stays open. */
int den_box_delete(struct den_box *box, bool force, struct den_err *err);
/** den_box_wait() - return when the box is no longer running or paused */
int den_box_wait(struct den_box *box, struct den_err *err);

/** struct den_lease - how long a box may stay. It counts while the box runs: what is paused or stopped is left
 *  alone, and a deadline that passed meanwhile is due when it runs again. */
struct den_lease {
	size_t size;
	int64_t expires_ms;    /* Unix time; 0: never; DEN_LEASE_KEEP: as it is */
	const char *on_expire; /* NULL: as it is */
	uint64_t idle_ms;      /* 0: never; DEN_IDLE_KEEP: as it is */
	const char *on_idle;   /* NULL: as it is */
	bool extend;	       /* never earlier than it was */
};
#define DEN_LEASE_KEEP INT64_MIN
#define DEN_IDLE_KEEP UINT64_MAX
/** den_box_lease() - change it; on disk and in force when it returns */
int den_box_lease(struct den_box *box, const struct den_lease *lease, struct den_err *err);
/** den_box_label() - give the box these labels ("K=V", NULL-terminated) instead of those it has; NULL: none */
int den_box_label(struct den_box *box, const char *const *labels, struct den_err *err);

struct den_box_info {
	const char *id, *name, *template_name, *wall, *net, *hostname, *user, *workdir; /* some NULL */
	const char *state;	/* "creating" "running" "paused" "stopped" "deleting" */
	const char *reason;	/* why it stopped, NULL when asked to */
	const char *detail;	/* what it is made of, for people */
	const char *boot_id;
	const char *const *env;
	const struct den_mount *mounts;
	size_t n_mounts;
	uint64_t cpu_milli, memory, pids, disk, nofile, max_runtime_ms;
	bool ephemeral, reseed;
	int64_t created_ms, started_ms, stopped_ms; /* Unix time; 0: never */
	pid_t init_pid, keeper_pid;		    /* on the host; 0: none */
	const char *history;			    /* "on" "manual" "off" */
	const char *policy, *policy_name; /* own, as JSON, or stored; NULL */
	uint64_t generation;		  /* of the policy */
	const char *const *publish;	  /* "PORT=OUTSIDE" each; NULL: none */
	const char *owner;		  /* NULL: none */
	const char *const *labels;	  /* NULL: none */
	int64_t expires_ms;		  /* 0: never */
	const char *on_expire;		  /* "delete" "pause" "pause-disk" "stop" */
	uint64_t idle_ms;		  /* 0: never */
	const char *on_idle;		  /* "pause" "pause-disk" "stop" "delete" */
	int64_t active_ms; /* Unix time at which it was last seen busy; from den_list(): when that was last written */
	uint64_t turn;	   /* how many turns it has had */
	bool on_disk;	   /* paused, and nothing of it runs or is in memory: any use of it brings it back */
	bool hibernated;   /* of that: its files alone; programs are started anew, see den_box_hibernate() */
	uint64_t restores; /* how often its programs were brought back from disk: /run/den/generation in the box */
	uint64_t images; /* bytes that its programs, saved by full checkpoints and pauses, take on disk */
};
/** den_box_info() - what there is to tell of a box. While its keeper is busy with its programs (saving, loading) for more
 * than a moment: what is written of it, as den_list() tells it */
int den_box_info(struct den_box *box, struct den_box_info **ret, struct den_err *err);
/** den_list() - all boxes, oldest first; starts no keeper. @ret: array of @n, den_box_infos_free() */
int den_list(struct den *d, struct den_box_info **ret, size_t *n, struct den_err *err);
void den_box_infos_free(struct den_box_info *infos, size_t n); /* also for den_box_info(), n = 1 */

/** struct den_disk_use - what counts against an owner's quota of disk (den_box_spec.quota) */
struct den_disk_use {
	uint64_t boxes;	    /* the limits of its boxes, together; one without counts as nothing here */
	uint64_t images;    /* programs of its boxes and templates, as they lie on disk; what is shared counts once */
	uint64_t templates; /* files of its templates with programs */
};
int den_disk_use(struct den *d, const char *owner, struct den_disk_use *ret, struct den_err *err);

/** struct den_stats - measured from the host's side; `has` tells what this host can measure */
struct den_stats {
	uint64_t has; /* DEN_STAT_* */
	uint64_t cpu_usec, throttled_usec, memory, memory_peak, memory_limit, pids, pids_max;
	uint64_t disk, disk_limit, io_read, io_write, oom_kills;
};
enum den_stat_bits {
	DEN_STAT_CPU = 1 << 0,
	DEN_STAT_THROTTLED = 1 << 1,
	DEN_STAT_MEMORY = 1 << 2,
	DEN_STAT_MEMORY_PEAK = 1 << 3,
	DEN_STAT_MEMORY_LIMIT = 1 << 4,
	DEN_STAT_PIDS = 1 << 5,
	DEN_STAT_PIDS_MAX = 1 << 6,
	DEN_STAT_DISK = 1 << 7,
	DEN_STAT_DISK_LIMIT = 1 << 8,
	DEN_STAT_IO_READ = 1 << 9,
	DEN_STAT_IO_WRITE = 1 << 10,
	DEN_STAT_OOM_KILLS = 1 << 11,
};
int den_box_stats(struct den_box *box, struct den_stats *ret, struct den_err *err);

/* ---- execs ----------------------------------------------------------------------------------- */

enum den_exec_flags {
	DEN_EXEC_TTY = 1 << 0,	  /* a terminal: output comes as stream 1 only */
	DEN_EXEC_STDIN = 1 << 1,  /* den_exec_write() feeds it; else it reads end of file */
	DEN_EXEC_DETACH = 1 << 2, /* the handle only tells the pid; output is kept in the box */
	DEN_EXEC_KILL_ON_CLOSE = 1 << 5, /* the whole tree is killed when the handle's program goes */
};

struct den_exec_opt {
	size_t size;
	const char *const *argv; /* NULL-terminated; looked up in the box's PATH */
	const char *const *env;	 /* "K=V", over the box's own; NULL: none */
	const char *cwd;	 /* NULL: the box's workdir */
	const char *user;	 /* name or uid[:gid]; NULL: the box's user */
	const char *tag;	 /* to find it again; unique among running execs */
	unsigned flags;
	uint16_t rows, cols;	 /* DEN_EXEC_TTY */
	uint64_t timeout_ms;	 /* wall clock; then TERM to the whole tree, KILL after grace_ms */
	uint64_t cpu_ms;	 /* CPU time of the whole tree, likewise */
	uint64_t grace_ms;	 /* 0: 5000 */
	uint64_t max_output;	 /* bytes of both streams, then killed */
	uint64_t keep;		 /* bytes kept of each stream for den_exec_attach(); 0: 1 MiB */
};

struct den_exec_result {
	bool exited;	    /* false: ended by signal */
	int status;	    /* exit code, or the signal's number */
	const char *reason; /* static: "" by itself, or the limit that did it: "timeout" "cpu" "memory"
			       "pids" "disk" "output", or "stop" */
	uint64_t oom_kills; /* processes of the box that the kernel killed for memory meanwhile */
	uint64_t out_bytes, err_bytes; /* produced in all */
	uint64_t lost_bytes;	       /* produced, but no longer kept when we came (attach) */
};

/** struct den_exec_ops - called from inside any call that waits for the box (den_dispatch(),
 *  den_exec_wait(), and those that ask it something), never before den_exec_start() returns. Any may
 *  be NULL. A callback may use the exec it was called for, but not wait for anything. */
struct den_exec_ops {
	/* the program runs; pid as seen in the box */
	void (*started)(struct den_exec *e, pid_t pid, void *user);
	/* stream 1 or 2. Taking long here slows the program down, nothing else. */
	void (*output)(struct den_exec *e, int stream, const void *data, size_t n, void *user);
	/* den_exec_write() was short before and has room again */
	void (*writable)(struct den_exec *e, void *user);
	/* the last call: it ended (result), or could not be started or was lost (err) */
	void (*ended)(struct den_exec *e, const struct den_exec_result *result,
		const struct den_err *err, void *user);
};

/**
 * den_exec_start() - run a program in a running box
 * @box:  must be running, else DEN_CONFLICT (told through ops->ended)
 * @opt:  what to run; copied
 * @ops:  must stay valid as long as the handle
 * @ret:  the caller ends it with den_exec_unref()
 *
 * Returns as soon as the request is sent. A program that is not there is err DEN_NOT_FOUND, one that
 * cannot be executed DEN_DENIED, both with sys set.
 * If the box's keeper dies meanwhile, the library starts another and goes on where the stream was.
 */
int den_exec_start(struct den_box *box, const struct den_exec_opt *opt,
	const struct den_exec_ops *ops, void *user, struct den_exec **ret, struct den_err *err);
/**
 * den_exec_attach() - follow a running or ended exec
 * @ref: pid in the box, or tag
 *
 * What was kept of its output is replayed first.
 */
int den_exec_attach(struct den_box *box, const char *ref, const struct den_exec_ops *ops,
	void *user, struct den_exec **ret, struct den_err *err);
/**
 * den_exec_attach_live() - watch a running exec from now on, beside others who do
 *
 * Nothing is replayed: output starts with the next byte. Any number may be attached to the same exec; each gets
 * all output, and each may write to it, close its stdin, resize and signal it. Such a follower never slows the
 * program down: one that is too slow loses what is in between and goes on with what is still kept;
 * den_exec_lost() tells how much, and so does the result's lost_bytes.
 */
int den_exec_attach_live(struct den_box *box, const char *ref, const struct den_exec_ops *ops, void *user,
	struct den_exec **ret, struct den_err *err);
/** den_exec_lost() - bytes of output that this handle has missed so far */
uint64_t den_exec_lost(const struct den_exec *e);
/** den_exec_takes_input() - has it started with a stdin that can be written to? Known from ops->started on */
bool den_exec_takes_input(const struct den_exec *e);
/** den_exec_write() - feed stdin; takes what there is room for and returns how much (0: wait for
 *  ops->writable), or -1 */
ssize_t den_exec_write(struct den_exec *e, const void *data, size_t n, struct den_err *err);
int den_exec_close_stdin(struct den_exec *e, struct den_err *err);
int den_exec_resize(struct den_exec *e, uint16_t rows, uint16_t cols, struct den_err *err);

enum den_scope {
	DEN_SCOPE_PROCESS, /* the program itself */
	DEN_SCOPE_GROUP,   /* its process group */
	DEN_SCOPE_TREE,	   /* everything it started, daemons too */
};
int den_exec_signal(struct den_exec *e, int sig, enum den_scope scope, struct den_err *err);
/** den_kill() - the same for any exec of the box, by pid or tag */
int den_kill(struct den_box *box, const char *ref, int sig, enum den_scope scope,
	struct den_err *err);
/** den_exec_wait() - dispatch until it ended; @ret may be NULL. An exec that failed is -1. */
int den_exec_wait(struct den_exec *e, struct den_exec_result *ret, struct den_err *err);
/** den_exec_unref() - forget it; a program that still runs goes on. NULL is allowed. */
void den_exec_unref(struct den_exec *e);

/**
 * den_dispatch() - wait for news of a box and run the callbacks
 * @timeout_ms: -1: until something happens; 0: only what is there already
 */
int den_dispatch(struct den_box *box, int timeout_ms, struct den_err *err);
/** den_poll_fd() - readable when den_dispatch(box, 0) has something to do; may change after a call */
int den_poll_fd(const struct den_box *box);

struct den_exec_info {
	pid_t pid;
	uint32_t number;
	const char *const *argv;
	const char *tag, *user, *cwd;
	bool running, tty;
	int64_t started_ms, ended_ms;
	struct den_exec_result result;
};
struct den_process {
	pid_t pid, ppid; /* in the box */
	uint32_t uid;
	char state;
	const char *command; /* made by the box */
	uint64_t cpu_usec, memory;
};
struct den_ps {
	struct den_exec_info *execs;
	size_t n_execs;
	struct den_process *processes;
	size_t n_processes;
};
/** den_box_ps() - execs, running and ended ones that are kept, and all processes */
int den_box_ps(struct den_box *box, struct den_ps **ret, struct den_err *err);
void den_ps_free(struct den_ps *ps);

/* ---- files ----------------------------------------------------------------------------------- */

struct den_file_opt {
	size_t size;
	const char *user; /* whose rights, and who owns what is made; NULL: root */
	const char *mode; /* octal text, "" or NULL: 0644 for files, 0755 for directories */
	bool atomic;	  /* write: nobody sees a part; the old file stays until the end */
	bool parents;	  /* make missing directories above */
	bool recursive;	  /* remove, chmod, chown, watch: everything below, too */
	bool missing_ok;  /* remove */
	bool no_follow;	  /* stat, chown: a link itself, not what it points to */
	bool no_replace;  /* move: an existing target is DEN_CONFLICT */
	bool contents;	  /* tar out: entries start below the directory, without its name */
	uint64_t offset;  /* read: start there */
	uint64_t length;  /* read: at most so many bytes; 0: to the end */
	/* stat, list: which extended attributes to tell; write: which to replace. "user." at least. NULL: none */
	const char *xattr_prefix;
	const char *const *xattrs; /* write: "K=V", names with the prefix, which the file has then and no others with
				      it; NULL: none of them. Ignored without xattr_prefix */
	bool follow_entries; /* list: a link is told as what it leads to, if that is there; see den_entry */
	uint32_t tick_ms; /* watch: event "tick", with an empty path, when nothing happened for so long; 0: never */
};

struct den_entry {
	const char *path;   /* stat: as asked; list and watch: relative */
	const char *type;   /* "file" "directory" "symlink" "fifo" "socket" "char" "block" "unknown" */
	const char *target; /* of a link that is told as one, else NULL */
	const char *user, *group; /* names in the box; NULL: the number has none */
	uint32_t mode, uid, gid;  /* mode: permission bits */
	uint64_t size, ino, nlink;
	int64_t mtime_ns;
	const char *event;  /* watch: "create" "write" "remove" "rename" "chmod" "lost", and see tick_ms */
	const char *real;   /* stat, list: of a link, where it leads in the end, absolute; NULL: no link, or nowhere */
	bool link;	    /* stat, list: it is a link, though type, mode, size and owner are those of what it leads to */
	uint32_t link_mode; /* then: its own permission bits */
	const char *const *xattrs; /* stat, list: "K=V" of those with xattr_prefix, sorted; values are any bytes but NUL (one
				      with NUL is left out). NULL: none, or none were asked for */
};

/* Takes bytes; returns 0, or -1 with *err set to stop the transfer. */
typedef int (*den_sink)(const void *data, size_t n, void *user, struct den_err *err);
/* Fills buf with up to cap bytes; returns how many (0: the end), or -1 with *err set. */
typedef ssize_t (*den_source)(void *buf, size_t cap, void *user, struct den_err *err);
/* Sees one entry, valid during the call; returns 0, or -1 with *err set to stop. */
typedef int (*den_entry_fn)(const struct den_entry *e, void *user, struct den_err *err);

/* Paths are absolute, or relative to the user's home. All stream with constant memory. @opt NULL:
 * defaults. When a call that changes something returns 0, the change is on disk. */
int den_file_read(struct den_box *box, const char *path, const struct den_file_opt *opt,
	den_sink sink, void *user, struct den_err *err);
int den_file_write(struct den_box *box, const char *path, const struct den_file_opt *opt,
	den_source source, void *user, struct den_err *err);
int den_file_stat(struct den_box *box, const char *path, const struct den_file_opt *opt,
	den_entry_fn fn, void *user, struct den_err *err); /* fn is called once */
/** den_file_list() - entries below a directory, sorted, down to @depth (1: its own), links not followed */
int den_file_list(struct den_box *box, const char *path, unsigned depth,
	const struct den_file_opt *opt, den_entry_fn fn, void *user, struct den_err *err);
int den_file_mkdir(struct den_box *box, const char *path, const struct den_file_opt *opt,
	struct den_err *err);
int den_file_move(struct den_box *box, const char *from, const char *to,
	const struct den_file_opt *opt, struct den_err *err);
int den_file_remove(struct den_box *box, const char *path, const struct den_file_opt *opt,
	struct den_err *err);
int den_file_chmod(struct den_box *box, const char *path, const char *mode,
	const struct den_file_opt *opt, struct den_err *err);
int den_file_chown(struct den_box *box, const char *path, const char *owner,
	const struct den_file_opt *opt, struct den_err *err);
/**
 * den_file_watch() - call fn for each change below a directory until fn returns -1
 *
 * The first call has an empty path and event: from then on nothing is missed ("lost" says when the
 * kernel's queue overflowed).
 */
int den_file_watch(struct den_box *box, const char *path, const struct den_file_opt *opt,
	den_entry_fn fn, void *user, struct den_err *err);
/** den_tar_out() - a file or tree as a tar stream (pax) */
int den_tar_out(struct den_box *box, const char *path, const struct den_file_opt *opt,
	den_sink sink, void *user, struct den_err *err);
/** den_tar_in() - unpack a tar stream below a directory of the box */
int den_tar_in(struct den_box *box, const char *path, const struct den_file_opt *opt,
	den_source source, void *user, struct den_err *err);

/* ---- history --------------------------------------------------------------------------------- */

/*
 * A checkpoint is a point in a box's history: its whole file system as it was. They form a tree, and are
 * numbered from 0 (the box as it was made). Every turn (an exec, a file operation) that changed
 * something leaves one by itself, unless the box was made with another `history`.
 *
 * A reference (`ref`) is a number, a tag, "head" (the newest on the way to the present), "~N" (N before
 * head) or NULL for head; "now" is the present state, where a call can use it.
 */
struct den_checkpoint {
	uint64_t number;
	int64_t parent;	    /* number; -1: none */
	int64_t created_ms;
	uint64_t turn;	    /* how many turns the box had had */
	const char *kind;   /* "base" "turn" "manual" "rollback" "merge" "fork" "pause" */
	const char *message; /* what the turn was, or what the user said; any bytes */
	const char *tags;   /* separated by spaces; "" */
	const char *origin; /* "ID@N" that a fork came from, or that was merged; NULL */
	bool head;	    /* the present descends from it */
	uint64_t size;	    /* bytes that the box's changes took then; 0: not known */
	bool full;	    /* with the programs that ran then */
	uint64_t memory;    /* of a full one: bytes of programs, before they are compressed */
	uint64_t memory_disk; /* bytes on disk that they take, and that are free when it goes */
	uint64_t memory_shared; /* bytes on disk that other checkpoints need, too */
};

/**
 * den_checkpoint() - make one now, while programs run
 * @message: may be NULL
 * @ret_number: may be NULL
 *
 * Atomic: all of the file system at one instant. On disk when it returns.
 */
int den_checkpoint(struct den_box *box, const char *message, uint64_t *ret_number, struct den_err *err);
/** den_log() - all checkpoints, oldest first. @ret: array of @n, den_checkpoints_free() */
int den_log(struct den_box *box, struct den_checkpoint **ret, size_t *n, struct den_err *err);
void den_checkpoints_free(struct den_checkpoint *c, size_t n);
/** den_tag() - give a checkpoint a name, which keeps it from thinning; @ref NULL with @remove: by tag */
int den_tag(struct den_box *box, const char *ref, const char *tag, bool remove, struct den_err *err);

/**
 * den_rollback() - bring the file system back to a checkpoint
 *
 * Programs are stopped first. Those of a full checkpoint come back with it; else the box is started again if it
 * ran. What was present before becomes a checkpoint itself (its number in *ret_before, which may be NULL), so
 * its files can be had back.
 */
int den_rollback(struct den_box *box, const char *ref, uint64_t *ret_before, struct den_err *err);
/** den_rollback_disk() - the same for files alone, also of a full checkpoint */
int den_rollback_disk(struct den_box *box, const char *ref, uint64_t *ret_before, struct den_err *err);
/** den_undo() - roll back the last @turns turns that changed something (1 is the newest) */
int den_undo(struct den_box *box, unsigned turns, uint64_t *ret_before, struct den_err *err);

/**
 * den_box_fork() - a new box that begins as this one was at a checkpoint
 * @ref:  "now" or NULL: a checkpoint is made first if something changed
 * @name: of the new box; NULL: none
 * @ret:  running; den_box_close()
 */
int den_box_fork(struct den_box *box, const char *ref, const char *name, struct den_box **ret,
	struct den_err *err);
/**
 * den_box_fork_as() - the same with more of its own
 * @over: what the fork has instead of what the box has: name, owner, labels, expires_ms with on_expire, idle_ms with
 *        on_idle, policy or policy_name, ephemeral. Name, owner and deadlines are those given here alone; labels
 *        and policy NULL: as the box has them. All else must be unset. May be NULL
 */
int den_box_fork_as(struct den_box *box, const char *ref, const struct den_box_spec *over, struct den_box **ret,
	struct den_err *err);
/** den_box_try() - such a fork, nameless and ephemeral: deleted when its handle is closed, or its program dies */
int den_box_try(struct den_box *box, const char *ref, struct den_box **ret, struct den_err *err);

enum den_change_flags {
	DEN_CHANGED_CONTENT = 1, DEN_CHANGED_MODE = 2, DEN_CHANGED_OWNER = 4, DEN_CHANGED_TYPE = 8,
	DEN_CHANGED_TARGET = 16, DEN_CHANGED_XATTR = 32,
};
struct den_change {
	const char *path; /* absolute in the box; any bytes */
	const char *kind; /* "added" "removed" "modified" "meta" */
	char type;	  /* now (or before, if removed): f d l p s c b */
	unsigned what;	  /* DEN_CHANGED_* */
	uint32_t mode;	  /* now, or before if removed */
	uint64_t size;
};
typedef int (*den_change_fn)(const struct den_change *c, void *user, struct den_err *err);
/** den_diff() - what changed from @a to @b; @a NULL: base, @b NULL: "now". In order of the path. */
int den_diff(struct den_box *box, const char *a, const char *b, den_change_fn fn, void *user,
	struct den_err *err);
/** den_diff_text() - the same as a unified diff; den_diff_tar() - as a layer (".wh." marks removals) */
int den_diff_text(struct den_box *box, const char *a, const char *b, den_sink sink, void *user,
	struct den_err *err);
int den_diff_tar(struct den_box *box, const char *a, const char *b, den_sink sink, void *user,
	struct den_err *err);

struct den_merge_rule {
	const char *path; /* it and what is below; NULL: everything */
	bool theirs;	  /* else ours */
};
struct den_merge_result {
	uint64_t taken, agreed, merged, kept, conflicts;
	int64_t checkpoint; /* -1: nothing changed */
	uint64_t lost; /* attributes of files that could not be set in @box */
};
/**
 * den_merge() - bring what @fork changed since their common ancestor into @box, as one turn
 * @conflict: told each path that both changed in ways that cannot be combined and no rule decides; then
 *            nothing is applied and the call is DEN_CONFLICT
 */
int den_merge(struct den_box *box, const char *fork, const struct den_merge_rule *rules, size_t n_rules,
	int (*conflict)(const char *path, const char *why, void *user, struct den_err *err), void *user,
	struct den_merge_result *ret, struct den_err *err);
/**
 * den_prune() - remove checkpoints that the thinning policy does not keep
 * @keep_ms: keep all that are younger; 0: the policy (all of the last hour, then one an hour for a day,
 *           then one a day). Tagged ones, head and base stay.
 * @all: all but those
 */
int den_prune(struct den_box *box, uint64_t keep_ms, bool all, uint64_t *ret_removed, struct den_err *err);

/* ---- programs on disk ------------------------------------------------------------------------ */

/*
 * A full checkpoint has the programs of the box in it besides its files, of the same instant: memory, threads,
 * open files, pipes, terminals, timers, connections inside the box. What they were connected to outside is not:
 * it is closed, and told in `lost`. Needs a wall that can do it here, else DEN_UNSUPPORTED says what is missing.
 * docs/memory.md has what is kept and what is not.
 */
struct den_saved {
	uint64_t number;	 /* of the checkpoint */
	uint64_t memory;	 /* bytes of programs, before they are compressed */
	uint64_t frozen_us;	 /* how long nothing of the box ran */
	const char *const *lost; /* what is not in it, in words for people, NULL-terminated; NULL: nothing */
};
void den_saved_free(struct den_saved *s); /* NULL is allowed */

/** den_checkpoint_full() - make one now; programs are held for a moment and go on. @ret may be NULL */
int den_checkpoint_full(struct den_box *box, const char *message, struct den_saved **ret, struct den_err *err);
/**
 * den_box_pause_disk() - a full checkpoint, and then nothing of the box runs or is in memory any more
 *
 * Whatever is asked of it next (an exec, a file, a connection to one of its ports) brings it back first; so does
 * den_box_resume(). Execs that are followed stay so: their handles get no more output until then. @ret may be NULL.
 */
int den_box_pause_disk(struct den_box *box, struct den_saved **ret, struct den_err *err);
/**
 * den_box_hibernate() - programs end, the files stay; any use of it starts the box again
 *
 * With the template's start command, where it has one, and a new boot_id. Works where programs cannot be saved.
 */
int den_box_hibernate(struct den_box *box, struct den_err *err);
/**
 * den_box_fork_full() - a new box with the programs of this one running, too
 * @ref:   a full checkpoint, or what den_box_fork_point() made; "now" or NULL: the present. This box goes on after a moment
 * @over:  as of den_box_fork_as(); may be NULL
 * @saved: what became of the programs on the way. May be NULL
 */
int den_box_fork_full(struct den_box *box, const char *ref, const struct den_box_spec *over, struct den_box **ret,
	struct den_saved **saved, struct den_err *err);
/**
 * den_box_fork_point() - the present, with programs, for several forks of the same instant
 * @ret: its number is their @ref, for as long as @box is open
 */
int den_box_fork_point(struct den_box *box, struct den_saved **ret, struct den_err *err);
/**
 * den_template_bake() - a template whose boxes begin with programs running
 * @ref:  a full checkpoint; "now" or NULL: the present
 * @name: of the template: den_box_spec.template_name
 *
 * den_template_remove() removes what it keeps, too.
 */
int den_template_bake(struct den_box *box, const char *ref, const char *name, struct den_err *err);
enum den_bake_flags {
	DEN_BAKE_REPLACE = 1 << 0, /* instead of a template of that name: in one step, when the new one is there */
	DEN_BAKE_BESIDE = 1 << 1,  /* an image of that name stays: the same without programs, den_template.files */
};
int den_template_bake_as(struct den_box *box, const char *ref, const char *name, unsigned flags, struct den_err *err);
/** den_template_unbake() - an image of that name stays; the programs go. DEN_NOT_FOUND: it had none */
int den_template_unbake(struct den *d, const char *name, struct den_err *err);

struct den_pool_info {
	size_t size;
	const char *kind;	/* "btrfs" "plain" */
	const char *text;	/* what it is and what it costs, for people; valid until den_close() */
	bool exists, image, reflink;
	uint64_t bytes, used, avail, image_bytes, host_avail;
};
/** den_pool() - the pool where changes are kept; @kind, @bytes: make it so if there is none yet (NULL, 0:
 *  just tell); a larger @bytes grows it */
int den_pool(struct den *d, const char *kind, uint64_t bytes, struct den_pool_info *ret,
	struct den_err *err);

/* ---- ready boxes ----------------------------------------------------------------------------- */

/**
 * den_ready_make() - build a box in advance, for whoever asks for one of its shape
 *
 * It runs, with nothing in it but its process 1, and is nobody's: no list of boxes has it. den_box_create() takes it
 * when what it is asked for has the same shape: all of the spec but name (unless that is the host name), owner,
 * labels, times, environment, user, workdir, nofile, max_runtime_ms and what the policy says. Then it is the box
 * that was asked for, made at that moment. One that no longer is what would be made (the template is another) goes
 * by itself. DEN_UNSUPPORTED: none can be made for that.
 */
int den_ready_make(struct den *d, const struct den_box_spec *spec, struct den_err *err);
/** den_ready_list() - those that nobody has taken. @like: those of its shape; NULL: all. den_box_infos_free() */
int den_ready_list(struct den *d, const struct den_box_spec *like, struct den_box_info **ret, size_t *n,
	struct den_err *err);
/** den_ready_drop() - throw one away, by its id */
int den_ready_drop(struct den *d, const char *id, struct den_err *err);

/* ---- templates ------------------------------------------------------------------------------- */

struct den_template {
	const char *name, *id; /* id: 64 hexadecimal digits ("host": 16) */
	const char *parent;    /* "host-VERSION" when it stands on the host's own system; of "host" itself
				  another text whenever that changed; NULL */
	const char *detail;    /* for people */
	const char *config;    /* OCI image config (JSON), or NULL */
	const char *user, *workdir; /* defaults; NULL: none */
	const char *const *env, *const *entrypoint, *const *cmd; /* NULL: none */
	const char *const *layers; /* tree digests, lowest first */
	const char *const *diff_ids; /* of the tars they came from, "-" where there was none */
	uint64_t bytes;
	int64_t created_ms;
	/* One with programs (den_template_bake()): boxes of it have these limits, 0: none; files: id of an image of the
	 * same name, which has the files alone and all that is above but id; NULL */
	bool baked;
	uint64_t cpu_milli, memory, disk;
	const char *files;
};
/** den_templates() - all names, sorted. @ret: array of @n, den_templates_free() */
int den_templates(struct den *d, struct den_template **ret, size_t *n, struct den_err *err);
/** den_template_get() - by name, id or prefix of an id (12 or more) */
int den_template_get(struct den *d, const char *ref, struct den_template **ret, struct den_err *err);
void den_templates_free(struct den_template *t, size_t n);
int den_template_tag(struct den *d, const char *ref, const char *name, struct den_err *err);
int den_template_remove(struct den *d, const char *name, bool force, struct den_err *err);
/** den_template_verify() - read all of it and compare with its digests; DEN_CONFLICT: it was tampered with */
int den_template_verify(struct den *d, const char *ref, struct den_err *err);
/** den_template_tar() - its whole tree as a tar stream; @layer: only the N-th (from 0), as a layer; -1: all */
int den_template_tar(struct den *d, const char *ref, int layer, den_sink sink, void *user,
	struct den_err *err);

struct den_template_opt {
	size_t size;
	const char *name;	/* NULL: known by its id alone */
	const char *config;	/* OCI image config (JSON); NULL: none */
	const char *detail;	/* for people; NULL: made up */
	const char *user, *workdir;
	const char *const *env, *const *entrypoint, *const *cmd;
	/* Unpacking an image: the layer is what is in /layer of a box made from the template "empty"
	 * (".wh." files become whiteouts), and it goes above those of @base. */
	bool unpacked;
	const char *base;	/* with unpacked: template below; NULL: none */
	const char *diff_id;	/* with unpacked: "sha256:HEX" of the tar */
	bool beside; /* a template with programs may have the name: it stays what that means until den_template_unbake() */
};
/**
 * den_template_commit() - make a template from a box at a checkpoint
 * @ref: NULL: now
 * @ret_id: the new template's id, free() it; may be NULL
 */
int den_template_commit(struct den_box *box, const char *ref, const struct den_template_opt *opt,
	char **ret_id, struct den_err *err);
/** den_template_stack() - a template of layers that are there already (by diff_id), above @base.
 *  DEN_NOT_FOUND: one is missing; it has to be unpacked first */
int den_template_stack(struct den *d, const char *const *diff_ids, const struct den_template_opt *opt,
	char **ret_id, struct den_err *err);

/* ---- network policy ---------------------------------------------------------------------------- */

/*
 * A box has no network card. What its policy allows it reaches through its gate, by name; all else is refused
 * at once. A policy is JSON: `den policy schema` prints its schema. It can be kept under a name in the state
 * directory; a box that was given a name follows it.
 */
struct den_policy {
	const char *json; /* canonical */
	const char *name; /* of the stored one that the box follows; NULL: its own */
	uint64_t generation; /* counts changes */
};
/** den_policy_get() - what a box may reach. @ret: den_policy_free() */
int den_policy_get(struct den_box *box, struct den_policy **ret, struct den_err *err);
void den_policy_free(struct den_policy *p); /* NULL is allowed */
/**
 * den_policy_set() - change what a box may reach, also while it runs
 * @json: the box's own policy; or @name: a stored one that it follows from now on. Both NULL: what it has is
 *        read anew
 * @expect: the generation that it must have now, else DEN_CONFLICT and nothing changes: for who changes what
 *          den_policy_get() gave. DEN_ANY_GENERATION: whatever it has
 * @ret_generation, @ret_ended: the new generation, connections that were ended; may be NULL
 *
 * When it returns, the new policy is in force and on disk, and no connection is left that it forbids.
 */
#define DEN_ANY_GENERATION UINT64_MAX
int den_policy_set(struct den_box *box, const char *json, const char *name, uint64_t expect,
	uint64_t *ret_generation, uint64_t *ret_ended, struct den_err *err);
/** den_policy_save() - keep a policy by name; boxes that follow the name have it when this returns */
int den_policy_save(struct den *d, const char *name, const char *json, struct den_err *err);
int den_policy_load(struct den *d, const char *name, char **ret, struct den_err *err); /* free() it */
int den_policy_remove(struct den *d, const char *name, struct den_err *err); /* DEN_CONFLICT: in use */
/** den_policy_list() - names. @ret: NULL-terminated, den_strings_free() */
int den_policy_list(struct den *d, char ***ret, struct den_err *err);

/* ---- what went over the network, and into the box --------------------------------------------- */

void den_strings_free(char **list);

/**
 * den_journal() - what was written down about a box, as lines of JSON without line ends, oldest first
 * @kind:  "connection", "denial", "incident", "secret", "policy", "gate"; NULL: all
 * @count: the last so many; 0: all
 */
int den_journal(struct den_box *box, const char *kind, uint64_t count, den_sink sink, void *user,
	struct den_err *err);

/**
 * den_port() - make a port of the box reachable on the host's loopback, for as long as the box lives
 * @port:     in the box; 0: just list
 * @outside:  on 127.0.0.1; 0: any
 * @close_it: take it back instead
 * @ret:      all that are published, "PORT=OUTSIDE" each; den_strings_free(). May be NULL
 */
int den_port(struct den_box *box, uint16_t port, uint16_t outside, bool close_it, char ***ret, struct den_err *err);
/** den_box_connect() - a TCP connection to a port of the box, whatever its policy. @ret: non-blocking */
int den_box_connect(struct den_box *box, uint16_t port, int *ret, struct den_err *err);

/* ---- secrets and identity --------------------------------------------------------------------- */

/*
 * A secret is kept sealed on the host and never enters a box: what a box holds is a placeholder, and only
 * its policy says where the gate puts the value in its place. No call gives a value back.
 */
struct den_secret {
	const char *name;
	int64_t created_ms, changed_ms;
	const char *damaged; /* why it cannot be used, in words; NULL: it can */
};
/**
 * den_secret_set() - keep a secret, or give it another value; boxes that have a grant of it use the new one
 * @name:  A-Z a-z 0-9 _ . -, at most 64, not beginning with a digit, dot or dash
 * @value: 1 byte to 64 KiB, without NUL and line breaks. Wipe yours after
 */
int den_secret_set(struct den *d, const char *name, const void *value, size_t len, struct den_err *err);
/** den_secret_rotate() - the same for one that is there already, else DEN_NOT_FOUND */
int den_secret_rotate(struct den *d, const char *name, const void *value, size_t len, struct den_err *err);
/** den_secret_list() - all, sorted by name. @ret: array of @n, den_secrets_free() */
int den_secret_list(struct den *d, struct den_secret **ret, size_t *n, struct den_err *err);
void den_secrets_free(struct den_secret *s, size_t n);
int den_secret_remove(struct den *d, const char *name, struct den_err *err);

/**
 * den_token() - a token (JWT) that says who a box is
 * @audience: for whom; the box's policy must grant it, else DEN_DENIED
 * @alg:      "EdDSA", "ES256"; NULL: EdDSA
 * @ret:      free() it
 */
int den_token(struct den_box *box, const char *audience, const char *alg, char **ret, struct den_err *err);
/** den_ident_jwks() - the public keys that verify tokens, as a JWK set (JSON). @ret: free() it */
int den_ident_jwks(struct den *d, char **ret, struct den_err *err);
/** den_ident_openid() - the OIDC discovery document (JSON) of @issuer; NULL: the one that is set */
int den_ident_openid(struct den *d, const char *issuer, char **ret, struct den_err *err);
/** den_ident_issuer() - who tokens say they are from; @issuer NULL: just tell. @ret may be NULL; free() it */
int den_ident_issuer(struct den *d, const char *issuer, char **ret, struct den_err *err);
/**
 * den_ident_rotate() - sign with new keys from now on; old public keys stay until their tokens have ended
 * @alg: NULL: of both algorithms
 * @ret: {"made": [{"alg","kid"}], "retired": [...]}; may be NULL; free() it
 */
int den_ident_rotate(struct den *d, const char *alg, char **ret, struct den_err *err);

/* ---- the machine ----------------------------------------------------------------------------- */

struct den_finding {
	const char *topic;  /* "user namespaces", "cgroup", ... */
	const char *level;  /* "ok", "limited" (works, at a cost), "missing" */
	const char *text;   /* what is so, what it costs and what to do */
};
/** den_doctor() - what this machine can do. @ret: array of @n, den_findings_free() */
int den_doctor(struct den *d, struct den_finding **ret, size_t *n, struct den_err *err);
/** den_gc() - remove what crashes left behind; @ret: what was removed ("level" is empty) */
int den_gc(struct den *d, struct den_finding **ret, size_t *n, struct den_err *err);
void den_findings_free(struct den_finding *f, size_t n);

#ifdef __cplusplus
}
#endif

#endif
