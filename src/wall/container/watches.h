/*
 * inotify. The kernel tells what a watch is on by a handle, from which a path is found in no other way, on an overlay, than
 * by looking at every file. That is done before anything is held.
 */
#pragma once

#include "buf.h"
#include "cgroup.h"

#define WATCH_MARK "./././" /* before a path: criu_shim.c is asked about it, and says what the handle was of */

/* Lines "DEVICE INODE PATH", in hexadecimal digits and as the box has it, of all watches whose file was found. */
int watches_find(struct cgroup *cg, int box, struct buf *ret, struct den_err *err);
