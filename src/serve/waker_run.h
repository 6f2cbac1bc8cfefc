/*
 * The waker: a child of the launcher, with its rights, that holds the ports which boxes on disk have published on the
 * host's loopback (wire/waker.h). It reads nothing from those who connect: the first one makes it start `den resume`,
 * and the box's keeper takes the socket over, with the connection in its queue.
 *
 * One a state: the others wait for its lock. When it ends, with its server, the ports are closed; the next one looks
 * which boxes are on disk.
 */
#pragma once

int waker_run(const char *state, const char *den); /* the status to leave with */
