/*
 * den's standard streams, terminal and signals, joined to an exec until it ends.
 *
 *   stdin -> den_exec_write()   read only when what was read before has been taken
 *   output -> stdout, stderr    written whole before more is asked for: that is the back-pressure
 *   signals                     through a signalfd, so nothing happens inside a handler
 *
 * With a terminal on both sides, den's own is raw: Ctrl-C, Ctrl-Z and the rest are keys for the
 * terminal in the box. Without, what den is sent it sends on, to the program's process group, and a
 * stop (Ctrl-Z) stops both.
 *
 * A stream that only watches (attach) leaves instead, and the program goes on.
 */
#pragma once

#include "den.h"
#include "options.h"
#include "tty.h"

enum stream_flags {
	STREAM_TTY = 1 << 0, /* the exec has a terminal */
	STREAM_STDIN = 1 << 1, /* pass stdin on */
	STREAM_OWN = 1 << 2, /* we started it: signals are for it, and it ends with us */
	STREAM_KEYS = 1 << 3, /* Ctrl-P Ctrl-Q leaves */
};

struct stream {
	struct den_box *box;
	struct den_exec *exec;
	unsigned flags;
	/* how it went */
	bool started, ended, lost; /* lost: err tells why there is no result */
	bool detached; /* left by the keys */
	struct den_exec_result result;
	struct den_err err;
	int leave; /* not 0: leave at once with this status, whatever the program does */
	int broken; /* not 0: nobody takes the output any more, so this will be the status */
	/* at work */
	struct tty tty;
	int sigfd;
	int asked_to_end; /* the last signal that was sent on and usually ends a program */
	int64_t leave_at; /* monotonic ns; 0: none */
	struct stream_out {
		int fd; /* our own opening of stdout or stderr, non-blocking; -1: not (yet) */
		bool looked; /* tried to open it */
		bool file; /* a regular file: never blocks for long */
	} out[2];
	bool room; /* den_exec_write() takes bytes */
	bool stdin_open;
	bool prefix; /* Ctrl-P was seen, and held back */
	size_t in_at, in_len;
	char in[65536];
};

extern const struct den_exec_ops stream_ops; /* user: the stream */

void stream_init(struct stream *s, struct den_box *box, unsigned flags);
/* Until the exec ended, or we leave. The terminal and signals are as before when it returns. */
void stream_run(struct stream *s, struct den_exec *exec);
/* Tells on stderr what the user should know about the end; gives den's exit status. */
int stream_status(struct stream *s, const struct args *a);
