/*
 * The launcher: the parent of the server. It keeps the rights that starting keepers needs, has one thread, and
 * reads nothing that a stranger sent: what the server asks of it are structs of one size, with a number and two
 * bounded texts, checked here before they are used.
 *
 * All that it does for the server, and why each is safe even if the server has been taken over:
 *
 *   LAUNCH_BOX      a connection to the keeper of a box (started if there is none).
 *                   The id goes through box_id_parse(), so it names a directory below boxes/ and nothing else.
 *                   The launcher itself says WM_GUEST first: that keeper refuses on this connection, for good,
 *                   whatever would touch the host (binding directories, growing the pool). What is left is what
 *                   the server is there for: using boxes.
 *   LAUNCH_CLERK    a connection to a clerk, which makes and lists boxes. WM_GUEST likewise.
 *   LAUNCH_TAKE     a connection to a ready box, taken from all others by removing its mark. The shape is 64
 *                   hexadecimal digits or refused, so it names a folder below ready/. WM_GUEST likewise; what the
 *                   box may become its keeper checks as of a create. A server that takes them and does nothing
 *                   with them wastes them: each goes when its connection ends.
 *   LAUNCH_PULL     den template pull IMAGE. The name is checked by letters and never begins with a dash; it is
 *                   one argument of a program, never of a shell. What is fetched is unpacked by workers without
 *                   rights, as for anybody who calls the command. At most LAUNCH_JOBS at once.
 *   LAUNCH_BUILTIN  den template builtin NAME, for the names in launch_builtins[] alone.
 *   LAUNCH_READY    the server listens: tells systemd, and tells the person or first-key the first key, once,
 *                   if the text is a key. A server that lies here tells a key that does not work.
 *
 * When either ends, the other does: the server has the launcher as its parent (PR_SET_PDEATHSIG), the launcher
 * waits for its child. Boxes do not notice.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "err.h"

#define LAUNCH_JOBS 4

enum launch_op { LAUNCH_BOX = 1, LAUNCH_CLERK, LAUNCH_PULL, LAUNCH_BUILTIN, LAUNCH_READY, LAUNCH_TAKE, LAUNCH_OPS };

struct launch_ask {
	uint32_t number; /* comes back with the answer: they may come in another order */
	uint32_t op;
	char a[256], b[128]; /* box id; shape; image and name; name of a builtin; key */
};

struct launch_answer {
	uint32_t number;
	uint32_t started; /* LAUNCH_BOX: the keeper was started for it */
	struct den_err err; /* code DEN_OK: done, and for the first two a descriptor came along */
};

/* The parent's side (launcher.c): until the server ends. Gives the status to leave with. */
struct launcher_options {
	int fd;		    /* our end of the pair */
	pid_t server;
	const char *state;  /* state directory */
	const char *den;    /* the den program */
	const char *url, *page;
};
int launcher_run(const struct launcher_options *o);

/* The server's side (launch.c). Starts the thread that reads answers. */
int launch_start(int fd, struct den_err *err);
/* For den_options.dial */
int launch_dial(const char *id, void *user, int *ret_fd, bool *ret_started, struct den_err *err);
int launch_ready(const char *first_key, struct den_err *err); /* "": there were keys already */
