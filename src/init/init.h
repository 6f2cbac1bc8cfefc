/*
 * den-init: process 1 of a box.
 *
 * It starts programs, holds their streams, reaps, and says how they ended. It lives on hostile
 * ground: root of the box is its neighbour, so it holds nothing worth taking, and the keeper checks
 * whatever comes from here. It outlives the keeper: output and exit statuses are kept until the
 * next keeper connects and asks.
 *
 *   descriptors   3  the socket on which keepers connect; or, in a box with a kernel of its own, the
 *                    one through which their connections come (porter.c)
 *                 4  the file seen as /proc/meminfo, or closed
 *                 5  the box's memory use, told by the host, or closed
 *   argv          1  seconds it may live without a keeper; 0: for ever
 *                 2  memory limit in bytes; 0: none
 *                 3  "guest": the kernel is not the host's, see guest.c; then
 *                 4  how many processes and threads there may be
 *                 5  boot_id
 *                 6  "one": of the host's ids it has one alone
 */
#pragma once

#include "conn.h"
#include "loop.h"
#include "ring.h"
#include "spec.h"

enum init_fds { INIT_FD_LISTEN = 3, INIT_FD_MEMINFO = 4, INIT_FD_MEMUSE = 5 };

struct init {
	struct loop *loop;
	struct loop_source listen, sigchld;
	struct conn *keeper; /* NULL: nobody is connected */
	struct list execs;   /* struct exec, oldest first */
	uint64_t highest;    /* exec number ever asked for */
	struct loop_timer orphan, meminfo, idle;
	struct loop_deferred leave;
	uint64_t orphan_ms, memory_limit;
	bool guest; /* the kernel is not the host's */
	bool one_id; /* guest, and the host gave the box no more than one */
	bool stopping;
	bool parked; /* nothing is held that comes from outside: park.c */
	struct {
		struct loop_timer timer, patience;
		struct conn conn; /* to the one who wakes it */
		bool dialled;
		int64_t since_ns, since_ms; /* of both clocks */
	} park;
};

/* One stream of an exec, from a pipe or the pty's master. */
struct stream {
	struct loop_source src; /* fd -1: ended */
	struct ring ring;
	struct exec *exec;
};

/* A channel that follows an exec. */
struct sub {
	struct list link;
	uint32_t chan;
	bool told; /* STARTED was sent: output may follow */
	uint64_t pos[2], credit;
	uint64_t window;  /* the most credit it had at once: what is missing of it is under way */
	uint64_t in_owed; /* stdin bytes taken from it and not yet credited back */
	bool live;	  /* nobody waits for it: what leaves the ring before its turn is lost to it */
};

/* A process that will not be mistaken for a later one with its number. */
struct mark {
	pid_t pid;
	uint64_t start; /* clock ticks since boot */
};

/*
 *   (none)   -> STARTING  exec_begin()    forked; not yet known whether it became the program
 *   STARTING -> RUNNING   exec_started()  its report pipe was closed by execve(): STARTED is sent
 *   STARTING -> (none)    exec_failed()   it reported why not, and was reaped: FAIL is sent
 *   RUNNING  -> ENDED     exec_reaped()   its process ended; streams may still have bytes
 *   ENDED    -> CLOSED    exec_settle()   streams ended, or HELD_OPEN_MS passed: EXIT may be sent
 */
struct exec {
	struct list link;
	struct init *init;
	struct exec_spec spec; /* argv and env: until it has started */
	char **shown;	       /* the beginning of argv */
	pid_t pid;
	bool started, ended, closed;
	struct loop_source report; /* read side of the report pipe; fd -1: nothing to come */
	struct den_err *failure;   /* what was reported; NULL: nothing */
	uint32_t request;	   /* the channel that asked for it; 0: it went */
	struct exec_result result;
	int64_t started_ms, ended_ms;
	struct stream out[2]; /* [1] unused with a pty */
	int n_out;
	struct loop_source in; /* write side of stdin, or the pty's master; fd -1: none */
	struct buf in_buf;
	uint64_t in_taken; /* bytes of stdin accepted in all */
	bool in_eof;
	size_t typed; /* line.c: characters of the line that is being typed, at most */
	struct list subs;
	struct loop_timer held;
	struct loop_timer hold; /* armed: hold_pos stands for the followers of a keeper that died */
	uint64_t hold_pos[2];
	bool limited;	    /* a limit began to end it: nothing of its tree may stay */
	struct mark *marks; /* that tree, where there is no cgroup */
	size_t n_marks;
	struct loop_deferred free_later;
	bool over_output;
};

#define IDLE_MS 500	  /* without anything to do; then its memory is given back */
#define ENDED_MAX 64	  /* ended execs that are kept */
#define HELD_OPEN_MS 300  /* how long an ended exec waits for streams that a child holds open */
#define HOLD_MS 5000	  /* how long output waits for the followers of a keeper that died */
#define PARKED_MS (1LL << 40) /* the same, while parked: as long as it takes */

/* main.c */
void keeper_gone(struct init *in, struct conn *c);
void init_reserve(void);

/* park.c */
void init_park(struct init *in);
void init_unpark(struct init *in);

/* exec.c */
void exec_request(struct init *in, uint32_t chan, const struct wire_frame *f);
void exec_attach(struct init *in, uint32_t chan, const struct wire_frame *f);
void exec_reaped(struct exec *x, bool exited, int status);
struct exec *exec_by_pid(struct init *in, pid_t pid);
struct exec *exec_by_number(struct init *in, uint64_t number);
struct exec *exec_by_chan(struct init *in, uint32_t chan, struct sub **ret_sub);
void exec_pump(struct exec *x);
void exec_drop_subs(struct init *in); /* the keeper went */
void exec_park(struct init *in);      /* likewise, and nobody knows for how long */
void exec_unpark(struct init *in, int64_t stopped_ms); /* it did not exist for so long */
void exec_disown(struct exec *x);
void exec_unsubscribe(struct exec *x, struct sub *s);
void exec_input(struct exec *x, struct sub *s, const struct wire_frame *f);
void exec_input_eof(struct exec *x);
void exec_put_info(struct buf *b, const struct exec *x);
void exec_free(struct exec *x);
bool exec_any_running(struct init *in);
void exec_thin_ended(struct init *in);
void exec_forget(struct exec *x);

uint64_t sub_safe(const struct exec *x, const struct sub *s, int i); /* up to where it surely has stream i */

/* input.c */
void input_cb(struct loop_source *src, uint32_t events);
void input_flush(struct exec *x);
void input_close(struct exec *x);
size_t input_credit_to(struct exec *x, struct sub *s, size_t n);
/* line.c: write() to a terminal of the sentry's kernel */
ssize_t line_write(struct exec *x, const char *p, size_t len);
void line_stopped(const struct exec *x, int sig);

/*
 * spawn.c: forks a child for spec; cgroup_fd -1: none. Streams and x->report are set up in x. The
 * report pipe ends with no byte when the child has become the program (or died before); else it
 * brings one struct den_err. A built-in needs no report.
 */
int exec_spawn(struct exec *x, int cgroup_fd, struct den_err *err);

/* signal_tree.c */
void tree_signal(pid_t root, int sig);
/* Adds what is below root to *marks, which stay sorted and are the caller's to free. */
void tree_remember(pid_t root, struct mark **marks, size_t *n);
/* After the root ended: kills what is left of marks and of its session (0: not that), and below. */
void tree_kill_left(pid_t session, const struct mark *marks, size_t n);

/* main.c: the descriptor that came with a message of at most cap bytes; -1: none came. */
int receive_fd(int door, void *ret, size_t cap);
/* porter.c: den-init as another program; does not return while the box lives. */
int porter_main(int argc, char **argv);
/* look.c: F_RECORD2 per process */
void look_put(struct buf *out);
/* inward.c: lets connections in from the other end of the box's link. */
void inward_start(struct init *in);
/* guest.c */
void guest_prepare(const char *pids, const char *boot_id);
/* Programs were loaded, maybe as another box's: it has its name and another start. */
void guest_wake(const char *hostname, const char *boot_id);
void guest_times(const struct wire_frame *f);
