/* Something else than HTTP on the same connection. */
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <unistd.h>

#include "fd.h"
#include "http_int.h"

static void on_upgrade(void *cls, struct MHD_Connection *c, void *con_cls, const char *extra,
	size_t extra_n, MHD_socket sock, struct MHD_UpgradeResponseHandle *urh)
{
	struct req *r = con_cls;
	int fd = -1, one = 1;

	/* Whoever talks before our 101 breaks the rules of every such protocol; the bytes could not be put back. */
	if (!extra_n)
		fd = fcntl(sock, F_DUPFD_CLOEXEC, 3);
	if (fd >= 0) {
		fd_set_nonblock(fd, false);
		setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one,
			sizeof(one)); /* MHD has just taken it off */
	}
	pthread_mutex_lock(&r->lock);
	r->urh = urh;
	r->upgraded = fd;
	if (fd < 0)
		r->cut = true;
	req_wake(r);
	pthread_mutex_unlock(&r->lock);
}

enum MHD_Result upgrade_respond(struct req *r, struct MHD_Response **ret)
{
	struct MHD_Response *m = MHD_create_response_for_upgrade(on_upgrade, r);

	if (!m)
		return MHD_NO;
	MHD_add_response_header(m, "Upgrade", r->body);
	*ret = m;
	return MHD_YES;
}

int req_upgrade(struct req *r, const char *protocol, int *ret_fd, struct den_err *err)
{
	int result = 0;

	pthread_mutex_lock(&r->lock);
	if (r->answer != ANSWER_NONE || r->old || r->at != AT_END) {
		result = den_fail(err, DEN_INVALID, 0, "this request cannot be upgraded");
	} else {
		r->answer = ANSWER_UPGRADE;
		r->status = 101;
		r->body = mem_strdup(protocol);
		metrics_stream(1);
		req_resume(r);
		while (!r->gone && !r->cut && r->upgraded < 0)
			pthread_cond_wait(&r->cond, &r->lock);
		if (r->upgraded < 0)
			result = den_fail(err, DEN_CONFLICT, 0, "the client hung up");
		else
			*ret_fd = r->upgraded;
	}
	pthread_mutex_unlock(&r->lock);
	return result;
}

void upgrade_end(struct req *r)
{
	struct MHD_UpgradeResponseHandle *urh;

	if (r->answer != ANSWER_UPGRADE)
		return;
	metrics_stream(-1);
	pthread_mutex_lock(&r->lock);
	urh = r->urh;
	r->urh = NULL;
	pthread_mutex_unlock(&r->lock);
	if (urh)
		MHD_upgrade_action(urh, MHD_UPGRADE_ACTION_CLOSE);
}
