/* A long answer: frames on a socket of its own. */
#include <errno.h>
#include <unistd.h>

#include "fd.h"
#include "lib.h"

int stream_next(struct stream *s, struct wire_frame *ret, struct den_err *err)
{
	struct den_err unheard;

	err = err ? err : &unheard;
	buf_consume(&s->rx, s->used);
	s->used = 0;
	for (;;) {
		char part[65536];
		ssize_t n;
		int r = wire_frame_get(s->rx.p, s->rx.len, ret, &s->used, err);

		if (r < 0)
			return -1;
		if (r > 0 && ret->type == WM_OK)
			return 0;
		if (r > 0 && ret->type == WM_FAIL)
			return wire_get_err(ret->p, ret->len, err);
		if (r > 0 && (ret->type == WM_OUT || ret->type == WM_RECORD))
			return 1;
		if (r > 0)
			return den_fail(err, DEN_INTERNAL, 0, "message %u in an answer", ret->type);
		n = read(s->fd, part, sizeof(part));
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return den_fail_sys(err, errno, "read the answer");
		if (n == 0)
			return den_fail(err, DEN_INTERNAL, EPIPE,
				"the answer broke off: its process was killed");
		buf_add(&s->rx, part, (size_t)n);
	}
}

void stream_close(struct stream *s)
{
	fd_close(&s->fd);
	buf_free(&s->rx);
}

int stream_to_sink(struct stream *s, den_sink sink, void *user, struct den_err *err)
{
	struct wire_frame f;
	int r;

	while ((r = stream_next(s, &f, err)) > 0)
		if (f.type == WM_OUT && sink(f.p, f.len, user, err) < 0)
			return -1;
	return r;
}
