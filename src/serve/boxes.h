/*
 * Boxes of an organisation. Owner, labels, deadline and idle time are the box's own, kept by its keeper
 * (den.h); here is only what makes looking them up quick, and quotas. A box of another organisation is
 * DEN_NOT_FOUND, never DEN_DENIED: who may not see it is not told that it is there.
 */
#pragma once

#include "auth.h"
#include "http.h"

struct den_box_spec;
struct den_saved;

/* ref: id, or (who's own) name. Opens it after checking that it is who's. Ownership comes from the index. */
int boxes_open(struct req *r, const char *ref, struct den_box **ret, struct den_err *err);
/* The same for who has shown a token of the box and no key. id is exact. */
int boxes_open_any(struct req *r, const char *id, struct den_box **ret, struct den_err *err);
/* Checks quotas, sets owner ("ORG/KEY"), creates, puts it into the index. */
int boxes_create(struct req *r, const struct den_box_spec *spec, struct den_box **ret, struct den_err *err);
/* Forks, with more of its own (den_box_fork_as()); owner and quotas are seen to here. ref NULL: now */
int boxes_fork_as(struct req *r, struct den_box *box, const char *ref, const struct den_box_spec *over,
	struct den_box **ret, struct den_err *err);
/* With its programs (den_box_fork_full()). den_saved_free() *saved */
int boxes_fork_full(struct req *r, struct den_box *box, const char *ref, const struct den_box_spec *over,
	struct den_box **ret, struct den_saved **saved, struct den_err *err);
/* For several of them (den_box_fork_point()): not if there is no room for one. */
int boxes_fork_point(struct req *r, struct den_box *box, struct den_saved **ret, struct den_err *err);
/* Deletes with force, ends streams of it (REQ_KICK). */
int boxes_delete(struct req *r, struct den_box *box, struct den_err *err);
/* who's boxes, fresh. den_box_infos_free() */
int boxes_list(struct req *r, struct den_box_info **ret, size_t *n, struct den_err *err);
/* By a function of the id (signed URLs): the first for which fn is true. 0, or DEN_NOT_FOUND */
int boxes_find(bool (*fn)(const char *id, void *user), void *user, char ret_id[static 32], struct den_err *err);
/* Known to exist? From the index alone, quick: "running" "paused" "stopped", or NULL */
const char *boxes_state(const char *id);
/* Says that a box changed by our doing (pause, stop): streams of it get REQ_KICK, events follow. */
void boxes_kick(const char *id);
/* What we just did to it ("running" "paused" "stopped"), so that boxes_state() is right at once. */
void boxes_set_state(const char *id, const char *state);

/* "b-..." for an id in either spelling ("b-" and 18 characters, or "i" and the same 18); false: it is none. */
bool boxes_id(const char *text, char ret[static 21]);
/* Who may use its ports, from its labels; false: no such box. */
struct box_traffic {
	bool open; /* label den.traffic=public: for everybody, unless a port was set otherwise */
	bool running;
};
bool boxes_traffic(const char *id, struct box_traffic *ret);
/* Whose it is, from the index; false: no such box, or nobody's. */
bool boxes_org(const char *id, char ret[static 33]);

/* main.c: the index and the thread that keeps it fresh. */
int boxes_start(struct den_err *err);
void boxes_stop(void);
void boxes_count(size_t ret[static 3]); /* running, paused, stopped: for /metrics */
bool boxes_ready(void); /* the index has been read once */
