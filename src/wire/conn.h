/*
 * One connected stream socket on a loop, carrying frames both ways.
 *
 * Sending never blocks and never fails at the call: what the socket does not take is queued, and a
 * broken connection is told once, through on_close, from the loop. Who sends on behalf of a
 * stranger bounds the queue by credit (wire.h), so it cannot grow without end; a peer that stops
 * reading control answers is cut off at CONN_TX_MAX. Buffers are given back when empty: an idle
 * connection costs its descriptor.
 */
#pragma once

#include "loop.h"
#include "wire.h"

#define CONN_MAX_FDS 12
#define CONN_TX_MAX (64U << 20)

struct conn {
	struct loop *loop;
	struct loop_source src;
	struct buf rx, tx;
	size_t tx_done;
	int tx_fds[CONN_MAX_FDS], n_tx_fds; /* travel with the first byte of the next send */
	int rx_fds[CONN_MAX_FDS], n_rx_fds; /* arrived, not yet taken */
	/* the peer may send descriptors; else they are closed */
	bool take_fds;
	bool dead;			    /* on_close was called or conn_close() */
	bool reading;			    /* conn_read() is up the stack and owns rx */
	/* f and its payload are valid during the call only. The callee may conn_close(). */
	void (*on_frame)(struct conn *c, const struct wire_frame *f);
	void (*on_close)(struct conn *c, const struct den_err *why); /* why NULL: peer closed */
};

/* Takes fd over. The owner sets on_frame and on_close before. */
int conn_open(struct conn *c, struct loop *l, int fd, struct den_err *err);
void conn_close(struct conn *c); /* idempotent; no callback comes after */
void conn_send(struct conn *c, uint8_t type, uint32_t chan, const void *p, size_t n);
/* The descriptors are duplicated; the caller keeps its own. They go with this frame. */
void conn_send_fds(struct conn *c, uint8_t type, uint32_t chan, const void *p, size_t n,
	const int *fds, int n_fds);
void conn_send_buf(struct conn *c, uint8_t type, uint32_t chan, const struct buf *b);
void conn_ok(struct conn *c, uint32_t chan);
void conn_fail(struct conn *c, uint32_t chan, const struct den_err *e);
/* Moves the next `want` received descriptors to the caller, in the order they were sent; -1 (and
 * nothing moved) when fewer have come. */
int conn_take_fds(struct conn *c, int *fds, int want);
bool conn_tx_empty(const struct conn *c);
