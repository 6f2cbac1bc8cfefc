#include "helper.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fd.h"
#include "mem.h"
#include "strv.h"
#include "work.h"

#define PATH_DEFAULT "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
#define END_MS 5000

static char **env_clean(void)
{
	static const char *const pass[] = { "HOME", "TMPDIR", "http_proxy", "https_proxy",
		"no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "SSL_CERT_FILE",
		"SSL_CERT_DIR", "XDG_RUNTIME_DIR", "DOCKER_CONFIG", "REGISTRY_AUTH_FILE",
		"SOURCE_DATE_EPOCH" };
	char **env = NULL;

	strv_add(&env, "PATH=" PATH_DEFAULT);
	strv_add(&env, "LC_ALL=C.UTF-8");
	for (size_t i = 0; i < ARRAY_SIZE(pass); i++) {
		const char *v = getenv(pass[i]);
		auto_free char *pair = NULL;

		if (v && asprintf(&pair, "%s=%s", pass[i], v) >= 0)
			strv_add(&env, pair);
	}
	return env;
}

/* Signals as a program expects them, though we hold ours back. */
static int signals_default(posix_spawnattr_t *attr)
{
	sigset_t none, all;

	sigemptyset(&none);
	sigemptyset(&all);
	sigaddset(&all, SIGPIPE);
	if (posix_spawnattr_setsigmask(attr, &none) || posix_spawnattr_setsigdefault(attr, &all))
		return -1;
	return posix_spawnattr_setflags(attr, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF) ? -1
											      : 0;
}

int helper_start(
	struct helper *h, char *const *argv, bool pipe_out, bool pass_in, struct den_err *err)
{
	auto_strv env = env_clean();
	posix_spawn_file_actions_t acts;
	posix_spawnattr_t attr;
	int p[2] = { -1, -1 }, r;

	*h = (struct helper){ .out = -1 };
	if (pipe_out && pipe2(p, O_CLOEXEC) < 0)
		return den_fail_sys(err, errno, "pipe");
	posix_spawn_file_actions_init(&acts);
	posix_spawnattr_init(&attr);
	r = signals_default(&attr) < 0 ? EINVAL : 0;
	if (!r && !pass_in)
		r = posix_spawn_file_actions_addopen(&acts, 0, "/dev/null", O_RDONLY, 0);
	/* what it prints where data is not awaited is talk */
	if (!r)
		r = posix_spawn_file_actions_adddup2(&acts, pipe_out ? p[1] : 2, 1);
	if (!r)
		r = posix_spawn(&h->pid, argv[0], &acts, &attr, argv, env);
	posix_spawn_file_actions_destroy(&acts);
	posix_spawnattr_destroy(&attr);
	fd_close(&p[1]);
	if (r) {
		h->pid = 0;
		fd_close(&p[0]);
		return den_fail_sys(err, r, "run '%.100s'", argv[0]);
	}
	h->out = p[0];
	return 0;
}

ssize_t helper_read(void *buf, size_t cap, void *user, struct den_err *err)
{
	struct helper *h = user;

	return interrupt_read(h->out, buf, cap, err);
}

/* Until it ended, a signal came, or time is up. True: it ended. */
static bool wait_ended(const struct helper *h, int timeout_ms, bool heed)
{
	auto_fd fd = (int)syscall(SYS_pidfd_open, h->pid, 0);
	struct pollfd p[2] = { { fd, POLLIN, 0 }, { heed ? interrupt_fd() : -1, POLLIN, 0 } };

	if (fd < 0)
		return true; /* an old kernel: wait deafly */
	while (poll(p, 2, timeout_ms) < 0 && errno == EINTR)
		;
	return p[0].revents;
}

int helper_wait(struct helper *h, const char *name, struct den_err *err)
{
	int status;

	if (!wait_ended(h, -1, true))
		return interrupt_check(err) < 0 ? -1 : helper_wait(h, name, err);
	while (waitpid(h->pid, &status, 0) < 0)
		if (errno != EINTR)
			return den_fail_sys(err, errno, "wait for %s", name);
	h->pid = 0;
	h->status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
	if (h->status == 0)
		return 0;
	if (interrupt_check(err) < 0) /* Ctrl-C reached it as well */
		return -1;
	return den_fail(err, DEN_INTERNAL, 0, "%s failed (%s %d); what it said is above", name,
		WIFEXITED(status) ? "status" : "signal",
		WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status));
}

void helper_end(struct helper *h)
{
	fd_close(&h->out);
	if (h->pid <= 0)
		return;
	kill(h->pid, SIGTERM);
	if (!wait_ended(h, END_MS, false))
		kill(h->pid, SIGKILL);
	while (waitpid(h->pid, NULL, 0) < 0 && errno == EINTR)
		;
	h->pid = 0;
}

char *helper_find(const char *name)
{
	const char *p = PATH_DEFAULT;

	while (*p) {
		size_t n = strcspn(p, ":");
		char *path = NULL;

		if (asprintf(&path, "%.*s/%s", (int)n, p, name) < 0)
			return NULL;
		if (access(path, X_OK) == 0)
			return path;
		free(path);
		p += n;
		p += *p == ':';
	}
	return NULL;
}
