/*
 * What a keeper asks the porter of a gvisor box for (wall/gvisor/save.c), and where: both are of one build, and the
 * socket is between the two alone. What is answered is hostile: the porter's neighbours are.
 */
#pragma once

#include <stdint.h>

/* The porter's descriptors. */
enum porter_fds { PORTER_LISTEN = 3, PORTER_DOOR, PORTER_REPORT, PORTER_CTL, PORTER_CTL_OTHER };

struct porter_ask {
	uint32_t number;
	uint32_t limit_ms; /* for what it does about it: then that is ended */
	char what; /* P pause, R resume, S save (with a mount), D a new door (with a socket) */
};
struct porter_answer {
	uint32_t number; /* of what was asked */
	int status;
	char words[200];
};
