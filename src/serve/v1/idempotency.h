/*
 * Idempotency-Key: who asks for a box twice with the same key and the same body gets the same box.
 *
 * Order on disk: (1) a row with the key and a hash of the body; (2) the box, which carries a label made of the
 * key; (3) the box's id in the row; then the answer. A crash after (1) leaves a row that names no box: who asks
 * again finds the box by its label, or there is none and it is made. Rows last a day.
 */
#pragma once

#include "v1.h"

struct idem {
	bool active, done;
	char key[65], body[65]; /* SHA-256 */
	const char *org;
};
void v1_idem_end(struct idem *i); /* lets go of the key; without v1_idem_done() the row goes too */
#define auto_idem __attribute__((cleanup(v1_idem_end))) struct idem

/* 1: it was made before, *box is it. 0: make it (also when there is no such header). DEN_CONFLICT: the key was used
 * with another body. Who comes while another works on the same key waits for it. */
int v1_idem_begin(struct req *r, const json_t *body, struct idem *i, struct den_box **box,
	struct den_err *err);
void v1_idem_label(const struct idem *i, char ***labels);
int v1_idem_done(struct idem *i, const char *box_id, struct den_err *err);
int v1_idem_start(struct den_err *err); /* makes the table */
void v1_idem_sweep(void); /* old rows go */
