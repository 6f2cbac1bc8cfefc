/*
 * E2B's dialect inside a box, "envd" as its clients know it: processes and files over the Connect protocol,
 * and plain HTTP for file contents. Each handler translates one call into calls of libden, nothing more.
 *
 *   envd.c        routes; which box, and may he: envd_enter()
 *   rpc.c         calls and streams of the Connect protocol, over a request
 *   people.c      users of a box and the paths they mean
 *   process.c     process.Process       input.c, follow.c  what goes to a program and comes from it
 *   filesystem.c  filesystem.Filesystem entry.c   what it says of a file
 *   watch.c       its watchers
 *   files.c       GET /files            files_put.c  POST /files     write_as.c  for a user who may not
 *   connect.c, multipart.c, signed.c: formats, without I/O
 */
#pragma once

#include "connect.h"
#include "e2b.h"
#include "http.h"
#include "json.h"

#define ENVD_XATTR "user.e2b."

/* ---- envd.c ---- */

struct envd {
	char id[E2B_ID_SIZE]; /* den's */
	struct den_box *box;
};
void envd_leave(struct envd *e);
#define auto_envd __attribute__((cleanup(envd_leave))) struct envd

/*
 * Finds the box that a request is for, checks its token (or, where op is "read" or "write", a signature) and
 * connects to it. From then on req_wait() tells when the box goes.
 * 0; 1: it was refused, and that is answered; -1.
 */
int envd_enter(struct req *r, const char *op, struct envd *ret, struct den_err *err);
/* Did the call fail because the box is no longer there, or paused? Then that is the answer, whatever went wrong:
 * true, and it was given. */
bool envd_gone(struct req *r, const struct envd *e);

/* ---- rpc.c ---- */

/* A unary call: enters the box and reads the arguments. Results as envd_enter(). The caller json_decref()s *args. */
int rpc_enter(struct req *r, struct envd *e, json_t **args, struct den_err *err);
int rpc_reply(struct req *r, struct json *take);			       /* always 0 */
int rpc_reply_empty(struct req *r);				       /* {}; always 0 */
int rpc_refuse(struct req *r, enum connect_code c, const char *fmt, ...) /* always 0 */
	__attribute__((format(printf, 3, 4)));
/* Answers what a call of libden said: 502 if the box is gone. always 0 */
int rpc_failed(struct req *r, const struct envd *e, const struct den_err *why);

/* A call that streams its answer. */
struct rpc {
	struct req *r;
	struct envd *e;
	struct buf out;	    /* envelopes not yet sent */
	uint64_t timeout;   /* of the call, ms; 0: none */
	int64_t deadline;   /* monotonic ns; INT64_MAX: none */
	int64_t keepalive;  /* ns of silence after which one is sent */
	int64_t last;	    /* when something was sent */
	bool gone;	    /* nobody listens any more */
	bool over;	    /* it was ended */
	bool kicked;	    /* the box is going */
};
int rpc_stream_enter(struct req *r, struct envd *e, struct rpc *s, json_t **args, struct den_err *err);
void rpc_stream_free(struct rpc *s);
#define auto_rpc __attribute__((cleanup(rpc_stream_free))) struct rpc
/* Sends what is in out; on failure s->gone. */
void rpc_flush(struct rpc *s);
/* Ends it well, or as said; always 0. */
int rpc_finish(struct rpc *s);
int rpc_stream_refuse(struct rpc *s, enum connect_code c, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
int rpc_stream_failed(struct rpc *s, const struct den_err *why);
/* The box is going: breaks the connection, so that the client asks what became of it; not before that can be told. */
void rpc_break(struct rpc *s);
/* Waits for fd, at most max_ms, and sends keepalives (JSON text) meanwhile. 1: fd is ready; 0: ask again; -1: the
 * stream is over, and the client was told as far as that can be. */
#define RPC_WAIT_MAX (3600 * 1000)
int rpc_wait(struct rpc *s, int fd, int max_ms, const char *keepalive);

/* What clients write as a number or as text; false: it is neither, or out of range. */
bool rpc_u64(const json_t *j, uint64_t max, uint64_t *ret);
/* One member of a map, whose key may be any bytes. */
void json_member(struct json *j, const char *key, size_t n, const char *value);

/* ---- people.c ---- */

struct person {
	char name[64], home[256];
	uint32_t uid, gid;
};
/* Who the caller wants to be ("Authorization: Basic user:"); "" : he does not say. Valid as long as r. */
int envd_username(struct req *r, char ret[static 64], struct den_err *err);
/* A user of the box; "" : the box's own. DEN_NOT_FOUND: there is none, said in envd's words. */
int person_get(struct envd *e, const char *name, struct person *ret, struct den_err *err);
/* Absolute and without ".", "..", "//". "~" and what does not begin with "/" is in his home. free() *ret */
int person_path(const struct person *p, const char *path, char **ret, struct den_err *err);

/* ---- process.c, input.c ---- */

/* {"process":{"pid":N}} or {"process":{"tag":"..."}} as libden takes it. free() *ret */
int process_ref(const json_t *args, char **ret, struct den_err *err);
int process_size(const json_t *pty, uint16_t *rows, uint16_t *cols, struct den_err *err);
int process_list(struct req *r, struct den_err *err);
int process_start(struct req *r, struct den_err *err);
int process_connect(struct req *r, struct den_err *err);
int process_input(struct req *r, struct den_err *err);
int process_close_stdin(struct req *r, struct den_err *err);
int process_signal(struct req *r, struct den_err *err);
int process_update(struct req *r, struct den_err *err);
int process_stream_input(struct req *r, struct den_err *err);

/* ---- follow.c ---- */

/* An exec as a stream: start, data, end. */
struct follow {
	struct rpc *s;
	struct den_exec *x;
	bool pty, started, ended;
	bool ours; /* started by this call: its deadline ends the program */
	bool failed; /* with err: it never ran, or was lost; the caller says so */
	bool stopped, late; /* ended with its box, by its deadline */
	struct den_err err;
};
extern const struct den_exec_ops follow_ops;
/* Until it ends or the client goes. Always 0; what failed is not answered yet. The caller set x. */
int follow_run(struct follow *f);
/* "exit status 3", "signal: killed" */
void follow_status(const struct den_exec_result *res, char out[static 64]);

/* ---- filesystem.c, entry.c ---- */

int filesystem_stat(struct req *r, struct den_err *err);
int filesystem_mkdir(struct req *r, struct den_err *err);
int filesystem_move(struct req *r, struct den_err *err);
int filesystem_list(struct req *r, struct den_err *err);
int filesystem_remove(struct req *r, struct den_err *err);

/* An entry as EntryInfo. path: absolute, in the box. */
void entry_put(struct json *j, const char *key, const char *path, const struct den_entry *e);
/* "-rw-r--r--", as Go writes them */
void entry_permissions(char type, uint32_t mode, char out[static 16]);
/* Looks at path and writes it as member `key`. Links that lead nowhere are there as well. */
int entry_look(struct envd *e, const struct person *p, const char *path, const char *key, struct json *j,
	struct den_err *err);
/*
 * What a client may reach of files is what root may: E2B's agent is root and gives what it makes to the user. So
 * what the user may not is done again as root, and what was made is his afterwards.
 */
int as_person_mkdir(struct envd *e, const struct person *p, const char *path, bool parents, struct den_err *err);
int as_person_chown(struct envd *e, const struct person *p, const char *path, struct den_err *err);
/* how->user is not looked at. One that is replaced (atomic) keeps its owner. */
int as_person_write(struct envd *e, const struct person *p, const char *path, const struct den_file_opt *how,
	den_source source, void *user, struct den_err *err);
/* Makes missing directories above path, his. */
int as_person_parents(struct envd *e, const struct person *p, const char *path, struct den_err *err);

/* ---- watch.c ---- */

int watch_dir(struct req *r, struct den_err *err);
int watcher_create(struct req *r, struct den_err *err);
int watcher_events(struct req *r, struct den_err *err);
int watcher_remove(struct req *r, struct den_err *err);

/* ---- files.c, files_put.c ---- */

int files_get(struct req *r, struct den_err *err);
int files_post(struct req *r, struct den_err *err);
int files_compose(struct req *r, struct den_err *err);
/* Who asks (?username=) for what; as envd_enter(). free() *ret_path */
int files_who(struct req *r, struct envd *e, const char *username, struct person *ret, struct den_err *err);
/* Answers a failure of a file call; always 0. */
int files_failed(struct req *r, const struct envd *e, const char *path, const struct den_err *why);
