/* WebSocket frames: the input is what a client sends, all at once. Whatever comes of it ends, in bounded memory. */
#include <poll.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "http_int.h"
#include "ws_int.h"

#define MESSAGE_MAX 4096
#define INPUT_MAX 65536 /* what a socket holds without a reader */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

/* Only for a WebSocket that belongs to a request. */
int req_poll(struct req *r, struct pollfd *p, size_t n, int timeout_ms)
{
	abort();
}

static void check(bool ok)
{
	if (!ok)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	struct den_err err = { 0 };
	char waste[4096];
	const char *p;
	int pair[2], got;
	struct ws *w;
	size_t len;

	if (n > INPUT_MAX)
		return 0;
	check(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair) == 0);
	check(write(pair[0], data, n) == (ssize_t)n);
	shutdown(pair[0], SHUT_WR);
	w = ws_attach(NULL, pair[1], MESSAGE_MAX);
	while ((got = ws_next(w, -1, 1000, &p, &len)) > 1) {
		check(len <= MESSAGE_MAX && !p[len]);
		check(got >> 4 == WS_BINARY || (got >> 4 == WS_TEXT && utf8_valid(p, len, NULL)));
		if (ws_send(w, got >> 4, p, len, &err) < 0)
			break;
		while (recv(pair[0], waste, sizeof(waste), MSG_DONTWAIT) > 0)
			;
	}
	check(got != 0 && got != 1);
	close(pair[0]);
	ws_close(w, 1000, "bye");
	return 0;
}
