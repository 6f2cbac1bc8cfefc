#include "systemd.h"

#include <fcntl.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "fd.h"
#include "parse.h"

#define SOCKETS_MAX 16

int systemd_count(void)
{
	const char *pid = getenv("LISTEN_PID"), *fds = getenv("LISTEN_FDS");
	uint64_t p = 0, n = 0;

	if (!pid || !fds || parse_u64(pid, 1, INT32_MAX, &p, NULL) < 0 || (pid_t)p != getpid() ||
		parse_u64(fds, 0, SOCKETS_MAX, &n, NULL) < 0)
		return 0;
	return (int)n;
}

int systemd_sockets(void)
{
	int n = systemd_count();

	for (int i = 0; i < n; i++)
		fcntl(3 + i, F_SETFD, FD_CLOEXEC);
	unsetenv("LISTEN_PID");
	unsetenv("LISTEN_FDS");
	unsetenv("LISTEN_FDNAMES");
	return n;
}

void systemd_notify(const char *text)
{
	const char *path = getenv("NOTIFY_SOCKET");
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	size_t n = path ? strlen(path) : 0;
	auto_fd fd = -1;

	if (!n || (path[0] != '/' && path[0] != '@') || n >= sizeof(a.sun_path))
		return;
	fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	memcpy(a.sun_path, path, n);
	if (path[0] == '@')
		a.sun_path[0] = '\0';
	if (fd >= 0)
		(void)!sendto(fd, text, strlen(text), MSG_NOSIGNAL, (struct sockaddr *)&a,
			(socklen_t)(offsetof(struct sockaddr_un, sun_path) + n));
}
