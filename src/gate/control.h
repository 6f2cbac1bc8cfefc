/* What keeper and gate say to each other: frames of wire.h on a socket at which the gate listens. The
 * keeper takes what the gate says as it takes what a box says. */
#pragma once

/* Descriptors with WM_GATE_SETUP, in this order. */
enum gate_fds {
	GATE_FD_PLUMB = 1 << 0,	   /* a socket with what the plumber made; without it the old ones stay */
	GATE_FD_BUNDLE = 1 << 1,   /* certificates that are trusted outside */
	GATE_FD_IDENTITY = 1 << 2, /* listens at the box's identity.sock */
};

/*
 * F_CONFIG is JSON:
 *   generation, policy (object), ask (how to ask for more, in words), resolv and hosts (the host's files),
 *   secrets: [{name, placeholder, value64}], ca_key, ca_cert (PEM), used (bytes of the limit so far)
 *
 * WM_GATE_RECORD has F_KIND (enum gate_record), F_HOST or F_ADDR or both, F_PORT, F_RULE, F_GENERATION,
 * F_REASON, and of connections F_BYTES_IN, F_BYTES_OUT, F_DURATION_MS, of denials and
 * incidents that came again F_COUNT, of secrets and incidents F_NAME: the secret, F_WHAT: where.
 */
enum gate_record {
	RECORD_CONNECTION = 1, /* one that was let through has ended */
	RECORD_DENIAL,
	RECORD_INCIDENT,
	RECORD_SECRET, /* used */
	RECORD_LOST,   /* F_COUNT records were dropped: nobody took them */
	RECORD_USED,   /* F_BYTES_OUT of the limit so far; not for the journal, for the next gate */
	RECORD_BUSY,   /* bytes went through since the last one; likewise, for who waits until the box is idle */
	RECORD_KINDS,
};

#define GATE_LISTEN_FD 3
#define GATE_INIT_FD 4
