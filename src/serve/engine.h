/* The engine's own side: what main.c starts, and what dispatching needs. Handlers include http.h alone. */
#pragma once

#include "http.h"
#include "route.h"

struct http_listen {
	int fd; /* a listening socket, TCP or unix, bound by the caller (or by systemd); the engine owns it */
	bool tls; /* with the certificate below */
};

struct http_options {
	const struct http_listen *listen;
	size_t n_listen;
	const char *tls_cert, *tls_key; /* PEM text, not files; copied. NULL: no listener has tls */

	/* Which dialect answers; asked in the thread that must not wait, with method, path, query and headers
	 * there. Never NULL. */
	const struct dialect *(*pick)(struct req *r);
	/* This thread's own libden handle, made when a handler first asks; closed when the thread ends. NULL: it
	 * could not (the cause is logged by the hook). */
	struct den *(*den_make)(void);
	/* Ready for work? For /readyz: NULL, or why not, in words. May be NULL. */
	const char *(*ready)(void);
	/* Adds lines to /metrics, in Prometheus' text (boxes by state). May be NULL. */
	void (*gauges)(struct buf *out);

	unsigned workers; /* most requests at the same time; 0: 2048 */
	unsigned connections; /* most connections of each listener; 0: 8192 */
	unsigned per_peer; /* of them from one address that is not loopback; 0: 1024 */
	unsigned header_ms; /* so long may a client take for its headers; 0: 10,000 */
	unsigned
		body_rate; /* bytes a second that a body must have that is held in memory; 0: 512 */
	unsigned idle_s; /* kept-alive connections are closed after so long; 0: 660 */
};

/* Opens what is needed by name later, while that is still possible: before main() shuts the files. May be left
 * out; then /metrics lacks the resident memory. */
void http_prepare(void);
/* Listens; returns at once. Once in a process. Everything in *o is copied or must stay. */
int http_start(const struct http_options *o, struct den_err *err);
/* Stops accepting, tells req_wait() REQ_STOP, waits up to grace_ms for requests to end, then cuts the rest.
 * Handlers that are still inside libden go on in their threads: leave with _exit(). */
void http_stop(unsigned grace_ms);

/* Binds: "127.0.0.1:2600", "[::1]:0", or a path that begins with '/' (a unix socket, an old one is
 * replaced; mode as said). For http_listen.fd. */
int http_bind(const char *where, mode_t mode, int *ret, struct den_err *err);

/* REQ_KICK for all that watch this box. */
void http_kick_box(const char *id);
