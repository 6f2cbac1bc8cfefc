/* Where the server listens: what was asked for, or what systemd passed. */
#pragma once

#include "engine.h"
#include "settings.h"

#define SOCKETS_MAX 16

struct sockets {
	struct http_listen listen[SOCKETS_MAX];
	size_t n;
	char *where;  /* "127.0.0.1:2600": the first */
	char *domain; /* of boxes: what was asked for, or "localhost:PORT" */
	char *name;   /* without port, for certificates */
	char *url;    /* how clients reach it */
};
int sockets_open(const struct settings *s, struct sockets *ret, struct den_err *err);
void sockets_close(struct sockets *k); /* the descriptors alone */
