/*
 * Where things are in the state directory, and how to meet a keeper: the part of the layout that
 * both sides of the wire must agree on.
 *
 *   den.db              what is (SQLite)
 *   names/NAME          -> ID   symbolic link: the claim on a name; making it is the lock
 *   ids/N               -> ID   likewise the claim on the N-th range of 65,536 user ids
 *   lib/den-init-HASH   process 1 for boxes, execute-only
 *   templates/...
 *   boxes/ID/           flock()ed by the keeper as long as it lives
 *   boxes/ID/keeper.sock   the keeper listens here
 *   boxes/ID/init.sock     init listens here (the socket reaches the box as a descriptor)
 *   boxes/ID/...           the file system: store's
 *   ready/SHAPE/ID      a ready box of that shape that nobody has: who removes it may claim the box
 *   trash/ID            a deleted box whose blocks are being freed
 */
#pragma once

#include "err.h"
#include "id.h"

#define PLACE_DB "den.db"
#define PLACE_NAMES "names"
#define PLACE_IDS "ids"
#define PLACE_LIB "lib"
#define PLACE_TEMPLATES "templates"
#define PLACE_BOXES "boxes"
#define PLACE_TRASH "trash"
#define PLACE_READY "ready"
#define PLACE_KEEPER_SOCK "keeper.sock"
#define PLACE_INIT_SOCK "init.sock"

/* The state directory by the rules of den_options.state. Does not touch the disk. */
int place_state(const char *asked, char **ret, struct den_err *err);
/* Opens the state directory; with create it and its folders are made (0700). */
int place_open(const char *state, bool create, int *ret_fd, struct den_err *err);
/* Name, id or prefix of an id (8 characters or more) to an id. */
int place_resolve(int statefd, const char *ref, struct box_id *ret, struct den_err *err);
/* boxes/ID as a descriptor. DEN_NOT_FOUND when there is none. */
int place_box(int statefd, const struct box_id *id, int *ret_fd, struct den_err *err);
/* Connects to, or listens at, a socket in a directory; paths of any length work. */
int place_connect(int dirfd, const char *name, int *ret_fd, struct den_err *err);
int place_listen(int dirfd, const char *name, int *ret_fd, struct den_err *err);
