/*
 * Images: reading them from archives, writing them, and building them, all through den.h.
 *
 * Reading order: oci.h (what an image is and where it comes from), import.h (into templates),
 * export.h (out of them), dockerfile.h and build.h (made step by step), debian.h and fetch.h (made
 * or brought by other programs).
 *
 * What comes in is hostile, and three walls stand around it: decompressing happens in a child that
 * can only read and write (decompress.h), unpacking happens inside a box, and JSON is bounded
 * before it is parsed (json_in.h).
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "den.h"
#include "err.h"

#define auto_den_box __attribute__((cleanup(work_box_end))) struct den_box *
#define auto_template __attribute__((cleanup(work_template_end))) struct den_template *

/* What long work shares: where it happens and who is told. */
struct work {
	struct den *den;
	void (*note)(const char *text, void *user); /* one line, for people */
	void (*progress)(const char *what, uint64_t bytes, void *user); /* called often */
	void (*output)(const void *data, size_t n, void *user); /* what a program printed */
	void *user;
	bool quiet;
};
void work_note(const struct work *w, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void work_progress(const struct work *w, const char *what, uint64_t bytes);
/* RFC 3339. Here because json.h and jansson.h cannot be seen by the same file. */
void work_time(int64_t wall_ms, char out[static 32]);

/* A box for one step, without a network. It keeps history only so far as a template is made from
 * it. What is in it is gone with it. */
int work_box(
	const struct work *w, const char *template_ref, struct den_box **ret, struct den_err *err);
/* Deletes the box and closes the handle: for auto_den_box, so no step leaves one behind. */
void work_box_end(struct den_box **box);
void work_template_end(struct den_template **t);

/* ---- signals ---------------------------------------------------------------------------------
 * INT, TERM and HUP wait in a signalfd while boxes are being worked with, so that each box is
 * deleted on the way out. Between two chunks, or with the descriptor in poll(), it is asked for. */
int interrupt_begin(struct den_err *err);
void interrupt_end(void);
int interrupt_fd(void); /* -1: not begun */
int interrupt_signal(void); /* the signal that came, 0: none */
/* -1 with *err set when one came. */
int interrupt_check(struct den_err *err);
/* For a forked child: signals as they were before. */
void interrupt_forget(void);
/* Reads, unless a signal comes first. */
ssize_t interrupt_read(int fd, void *buf, size_t cap, struct den_err *err);
