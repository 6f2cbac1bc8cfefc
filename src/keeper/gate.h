/* The keeper's side of the gate: what the box's policy is, who enforces it, what that one tells. */
#pragma once

#include <jansson.h>

#include "journal.h"
#include "keeper.h"
#include "policy.h"

#define GATE_SOCK "gate.sock"
#define GATE_RUN "run" /* what the box sees at /run/den */
#define GATE_JOURNAL "journal"
#define GATE_USED "net-used" /* bytes of the limit, so far */
#define DENIALS_SHOWN 100

/*
 * States:
 *   no gate   nothing is allowed and no port is published; nothing listens in the box's namespace
 *   up        ctl is connected; the gate has the policy of the row's generation
 *   down      it died: nothing listens, so nothing gets out; retry is armed
 * A gate outlives its keeper: the next one connects to gate.sock and sets it up again.
 */
/* A token that was signed a moment ago: signing costs the host a process, and a box may ask for ever. */
struct kept_token {
	char *audience, *alg, *token;
	int64_t until; /* ns */
};

/* Lines of one kind in the journal: bytes of an hour's share, and what came when it was used up. */
struct share {
	uint64_t used;
	int64_t at; /* ns */
	uint64_t over, in, out;
};
#define SHARES 8

struct kgate {
	struct keeper *k;
	struct policy *policy; /* what holds; never NULL */
	char **env;	       /* for programs in the box: placeholders, certificates, proxy */
	bool terminates;       /* TLS ends at the gate for some host */
	bool trusts;	       /* the box has a bundle of its own: the gate's authority, the policy's */
	bool strict;	       /* of the next load: a secret that is not there is an error, else it is refused
				* when it is used */
	bool unused;	       /* what the row says has not been looked at yet */
	/* of a change under way: */
	char *ca_key, *ca_cert;
	json_t *secrets;
	pid_t pid; /* our child; 0: somebody else's, or none */
	int pidfd; /* of somebody else's; -1 */
	struct conn ctl;
	bool up;
	struct loop_timer retry, show, over;
	unsigned failures;
	int64_t since; /* ns: the gate that is there, or was last, came */
	/* the answer that is waited for */
	bool answered;
	int result;
	struct den_err answer;
	uint64_t ended; /* connections, by the last change */
	uint64_t used;	/* as in GATE_USED */
	struct kept_token tokens[8];
	unsigned next_token;
	struct journal journal;
	struct share shares[SHARES]; /* by enum gate_record; 0: what the keeper says */
	char *denials[DENIALS_SHOWN]; /* lines for the box, the newest last */
	unsigned n_denials;
};

/* gate.c */
/* The policy of the row as it is now, and all that its box must find at its start. */
int gate_prepare(struct keeper *k, struct den_err *err);
/* The box's namespace is there: the gate, if one is needed, serves when this returns. */
int gate_up(struct keeper *k, struct den_err *err);
/* A box that another keeper had started. */
void gate_adopt(struct keeper *k);
void gate_down(struct keeper *k); /* of a box that is down */
void gate_free(struct keeper *k);
/* The policy changed (gate_load() took it over, the row is written): *ret is how many connections that ended. */
int gate_change(struct keeper *k, uint64_t *ret, struct den_err *err);
/* n unconnected TCP sockets of the box's namespace, of each family, are sent on sock; wire/sock_msg.h. With a port,
 * one of each family, which connects to it. */
int gate_dial(struct keeper *k, unsigned n, uint16_t port, int sock, struct den_err *err);
bool gate_needed(const struct keeper *k);
/* Can boxes have a network here? err says what is missing. */
int gate_probe(struct den_err *err);
/* Frames and an answer, while others wait. */
int gate_ask(struct kgate *g, uint8_t type, const struct buf *b, const int *fds, int n, struct den_err *err);

/* gate_token.c */
int token_kept(struct kgate *g, const char *audience, const char *alg, char **ret, struct den_err *err);
void tokens_drop(struct kgate *g);

/* gate_config.c */
int gate_load(struct kgate *g, struct den_err *err);
int gate_config(struct kgate *g, struct buf *out, struct den_err *err);
int gate_files(struct kgate *g, struct den_err *err); /* in GATE_RUN */

/* gate_record.c */
void gate_record(struct kgate *g, const struct wire_frame *f);
void gate_note(struct kgate *g, const char *kind, const char *text); /* what the keeper itself has to say */
void gate_record_end(struct kgate *g); /* the box is down: what was only counted is told now */
int req_journal(struct client *c, const struct wire_frame *f, struct buf *out, struct den_err *err);

/* policies.c */
int req_policy_get(struct client *c, const struct wire_frame *f, struct buf *out, struct den_err *err);
int req_policy_set(struct client *c, const struct wire_frame *f, struct buf *out, struct den_err *err);
int req_policy_stored(struct client *c, const struct wire_frame *f, struct buf *out, struct den_err *err);
int policy_stored_get(struct store *s, const char *name, char **ret, struct den_err *err);
/* Before a box is made: the policy is right, and written as we write it. */
int policy_settle(struct store *s, struct box_spec *spec, struct den_err *err);
/* F_ID of boxes (with alive, of those that run) whose policy grants the secret, or follows the stored one (the other NULL). */
int policy_users(struct store *s, const char *secret, const char *stored, bool alive, struct buf *out,
	struct den_err *err);

/* ports.c */
int req_dial(struct client *c, const struct wire_frame *f, struct buf *out, struct den_err *err);
int req_port(struct client *c, const struct wire_frame *f, struct buf *out, struct den_err *err);
int ports_publish(struct kgate *g, struct den_err *err); /* all of the row, to a new gate */
