/*
 * E2B's dialect: what its two halves (the control plane, and the agent in the box) and the ports of boxes
 * share. Facts of the protocol that the code relies on stand where they are used.
 *
 * Labels of a box that was made here:
 *   e2b.m.KEY=VALUE   metadata
 *   e2b.template=ID   as it was asked for
 *   e2b.timeout=N     seconds that it was given, for the next time that it is woken
 *   e2b.resume=1      who comes to it while it is paused wakes it
 *   e2b.network=JSON  network settings as they were asked for
 *   e2b.iam=JSON      tokens of its identity that rules of its network may name
 *   e2b.volumes=JSON  volumes that it was made with, as they were asked for
 *   e2b.internet=0|1  allow_internet_access, if it was said
 *   den.traffic=public|private  ports: for everybody, or with a token
 */
#pragma once

#include <stdbool.h>

#include "http.h"

#define E2B_ENVD_VERSION "0.6.13" /* what clients may expect of the agent in the box */
#define E2B_CLIENT_ID "den" /* of the machine, in E2B's answers; one is all there is */

#define E2B_ID_SIZE 21 /* room for either spelling of an id */

/* "i" + 18 characters, as hosts' names need it, from "b-" + 18, and back. false: it is no id */
bool e2b_id_box(const char *sandbox, char ret[static E2B_ID_SIZE]);
void e2b_id_sandbox(const char *box, char ret[static E2B_ID_SIZE]);

/* What every program of such a box finds besides the box's own environment: E2B_SANDBOX_ID. A fork has its
 * own, so it is not in the box's environment. */
void e2b_env(const char *box_id, char ***env);

/* A paused box that says so itself is resumed because somebody came; 0: it runs. DEN_CONFLICT: it is paused,
 * and is to stay so; DEN_NOT_FOUND: there is none. Quick when it runs. */
int e2b_wake(struct req *r, const char *box_id, struct den_err *err);

/* The value of a label; NULL: it has none */
const char *e2b_label(const struct den_box_info *info, const char *name);

/* {"code":STATUS,"message":...}; always 0 */
int e2b_error(struct req *r, int status, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
