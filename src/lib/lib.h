/* Inside of libden. */
#pragma once

#include "conn.h"
#include "den.h"
#include "id.h"
#include "loop.h"
#include "spec.h"

struct den {
	char *state, *exe;
	int fd; /* state directory; -1: not there yet */
	bool own_keepers;
	int (*keeper)(const char *state, const char *id);
	void (*progress)(const char *text, void *user);
	void *progress_user;
	/* not NULL: the only way to keepers; no file is opened, nothing is started */
	int (*dial)(const char *id, void *user, int *ret_fd, bool *ret_started, struct den_err *err);
	void *dial_user;
};

/* A request on channel 0 that waits for its answer. */
struct reply {
	bool done;
	int result; /* 0 or -1 */
	struct den_err err;
	struct buf data; /* fields of OK, and of the frames before it */
	uint8_t more;	 /* type of frames that carry a part of the answer; 0: none */
	int64_t until;	 /* of the monotonic clock: not waited for longer, and the connection ends; 0: for ever */
	void (*then)(const struct buf *part, void *user); /* not NULL: gets the first of them */
	void *user;
};

struct den_box {
	struct den *d;
	struct box_id id;
	struct loop *loop;
	struct conn conn;
	bool connected, lost;
	bool owner; /* made it as a throwaway: must say so again to a new keeper */
	bool deleted;
	bool forks; /* the keeper keeps images for forks as long as we are connected */
	pid_t keeper; /* our child; 0: none of ours */
	struct list execs, done; /* den_exec, running and ended, until the caller lets go */
	uint32_t next_chan;
	struct reply *reply; /* the request under way */
	int depth;	     /* calls up the stack that run the loop */
};

struct den_exec {
	struct list link;
	struct den_box *box;
	uint32_t chan;
	const struct den_exec_ops *ops;
	void *user;
	bool started, ended, told, unref, attached, detach, live, input;
	uint64_t number; /* of the exec in its box, for finding it again */
	pid_t pid;
	uint64_t pos[2], lost;
	uint64_t eaten;	   /* output handed over and not yet credited */
	uint64_t in_room;  /* stdin bytes that may be sent */
	uint64_t in_sent;  /* stdin bytes sent in all ... */
	unsigned tries;	   /* so often it was sent again */
	struct buf spec;   /* until it has started: to be sent again to a new keeper */
	struct buf in_kept; /* ... and the last of them, which may have to be sent again */
	bool rejoining;	   /* attached again to a new keeper; STARTED has not come yet */
	bool in_wanted;	   /* a write was short */
	bool in_eof;
	struct den_exec_result result;
	struct den_err err;
	struct loop_deferred free_later;
};

/* spawn.c: starts a keeper; *ret_fd is our end. id NULL: a clerk. *ret_pid: our child, or 0. */
int keeper_spawn(struct den *d, const struct box_id *id, int *ret_fd, pid_t *ret_pid, struct den_err *err);
/* A clerk, started or dialled. */
int clerk_spawn(struct den *d, int *ret_fd, pid_t *ret_pid, struct den_err *err);
int dial(struct den *d, const struct box_id *id, int *ret_fd, bool *ret_started, struct den_err *err);
/* Reaps a keeper of ours; with wait, after it has ended (which it is about to). */
void keeper_reap(pid_t *pid, bool wait);
int den_need_state(struct den *d, bool create, struct den_err *err);

/* ask.c, box.c */
int box_connect(struct den_box *box, struct den_err *err);
/* With a keeper that waits to be told what box to make. */
int box_expect(struct den *d, struct den_box **ret, struct den_err *err);
int box_fork_in(struct den_box *box, const char *from, bool full, const struct den_box_spec *over, struct den_err *err);
/* A fork: from is "ID@N"; over may be NULL; full: with its programs. */
int box_create_from(struct den *d, const char *from, bool full, const struct den_box_spec *over, struct den_box **ret,
	struct den_err *err);
int box_fork_check(const struct den_box_spec *over, struct den_err *err); /* nothing but what a fork may have */
struct den_box *box_new(struct den *d, struct den_err *err);
int box_take_conn(struct den_box *box, int fd, struct den_err *err);
/* A spec as it is sent. from NULL: no fork */
int spec_from(const struct den_box_spec *in, const char *from, bool full, struct buf *out, struct den_err *err);
int read_id(const struct buf *b, struct box_id *ret, struct den_err *err); /* F_ID of an answer */
/* Sends a request and waits; *out (may be NULL) gets the answer's fields. */
/* Without an answer within that time DEN_TIMEOUT, and the connection is closed: of a handle that needs it no longer. */
int box_ask_soon(struct den_box *box, uint8_t type, int ms, struct buf *out, struct den_err *err);
int box_ask(struct den_box *box, uint8_t type, const struct buf *req, uint8_t more, struct buf *out,
	struct den_err *err);
/* Likewise; then() is called once, between the request and its answer, when a frame of type `more` has come, with what it
 * says. What that returns is not looked at. Asked once, of a keeper that stays. */
int box_ask_between(struct den_box *box, uint8_t type, const struct buf *req, uint8_t more,
	void (*then)(const struct buf *part, void *user), void *user, struct buf *out, struct den_err *err);
/* Likewise with a socket for a long answer, of which *ret is our end. */
int box_ask_stream(struct den_box *box, uint8_t type, const struct buf *req, struct buf *out, int *ret,
	struct den_err *err);
/* Asks a clerk; one is started for it and leaves after. *ret_stream NULL: no stream; else read it before
 * den_box_close(*ret_clerk). */
int clerk_ask(struct den *d, uint8_t type, const struct buf *req, uint8_t more, struct buf *out, struct den_err *err);
int clerk_ask_stream(struct den *d, uint8_t type, const struct buf *req, struct den_box **ret_clerk, int *ret_stream,
	struct den_err *err);
int box_step(struct den_box *box, int timeout_ms, struct den_err *err);

/* stream.c: frames from the socket of a long answer */
struct stream {
	int fd;
	struct buf rx;
	size_t used; /* of rx, by the frame that was given last */
};
/* 1: *ret is WM_OUT or WM_RECORD, valid until the next call; 0: the end, all went well; -1 */
int stream_next(struct stream *s, struct wire_frame *ret, struct den_err *err);
void stream_close(struct stream *s);
#define auto_stream __attribute__((cleanup(stream_close))) struct stream
/* All of it: data to the sink. Records are ignored. */
int stream_to_sink(struct stream *s, den_sink sink, void *user, struct den_err *err);

/* files.c: unpacks a layer (with ".wh." marks) over the box's file system */
/* *ret_lost: attributes that could not be set. */
int files_apply_layer(struct den_box *box, den_source source, void *user, uint64_t *ret_lost, struct den_err *err);

/* ready.c: true: a box that was ready became what req asks for; false: one is to be made */
bool ready_claim(struct den *d, const struct buf *req, struct den_box **ret);
/* Takes a ready box of this shape (64 hexadecimal digits) from all others, and connects to its keeper. *ret_id may be
 * NULL. DEN_NOT_FOUND: there is none. For programs that are asked to dial, too. */
int ready_take(struct den *d, const char *shape, int *ret_fd, struct box_id *ret_id, struct den_err *err);
#define READY_DIAL "ready:" /* and the shape: instead of an id, in den_options.dial */

/* info.c: boxes from F_RECORD fields */
int infos_read(const struct buf *b, struct den_box_info **ret, size_t *ret_n, struct den_err *err);

/* net.c: gates of the boxes that the clerk named take over what changed */
int net_reload(struct den *d, const struct buf *answer, struct den_err *err);

/* exec.c */
void exec_frame(struct den_box *box, const struct wire_frame *f);
/* The keeper went: what had started is taken up again, what had not is lost. */
void exec_reconnect(struct den_box *box, bool ok, const struct den_err *why);
int exec_start_raw(struct den_box *box, const struct exec_spec *s, const struct den_exec_ops *ops,
	void *user, struct den_exec **ret, struct den_err *err);
const char *exec_reason_name(enum exec_reason r);
