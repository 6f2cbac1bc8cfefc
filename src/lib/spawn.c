#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fd.h"
#include "lib.h"
#include "mem.h"
#include "place.h"

#ifndef DEN_EXE_PATH
#define DEN_EXE_PATH "/usr/local/bin/den"
#endif

int den_need_state(struct den *d, bool create, struct den_err *err)
{
	if (d->fd >= 0)
		return 0;
	return place_open(d->state, create, &d->fd, err);
}

/* Without a home or a working directory, too: with dial the path is only what den_state_dir() says. */
static int state_path(const struct den_options *opt, char **ret, struct den_err *err)
{
	if (opt && opt->dial) {
		*ret = mem_strdup(opt->state ? opt->state : "");
		return 0;
	}
	return place_state(opt ? opt->state : NULL, ret, err);
}

int den_open(const struct den_options *opt, struct den **ret, struct den_err *err)
{
	const char *env = getenv("DEN_EXE");
	auto_free char *state = NULL;
	struct den *d;

	if (opt && opt->size != sizeof(*opt))
		return den_fail(err, DEN_INVALID, 0, "den_options.size is not set");
	if (state_path(opt, &state, err) < 0)
		return -1;
	d = mem_new(struct den);
	d->fd = -1;
	d->state = mem_take(&state);
	d->own_keepers = opt && opt->own_keepers;
	d->keeper = opt ? opt->keeper : NULL;
	d->progress = opt ? opt->progress : NULL;
	d->progress_user = opt ? opt->progress_user : NULL;
	d->dial = opt ? opt->dial : NULL;
	d->dial_user = opt ? opt->dial_user : NULL;
	d->exe = mem_strdup(opt && opt->exe ? opt->exe : env && *env ? env : DEN_EXE_PATH);
	*ret = d;
	return 0;
}

void den_close(struct den *d)
{
	if (!d)
		return;
	fd_close(&d->fd);
	free(d->state);
	free(d->exe);
	free(d);
}

const char *den_state_dir(const struct den *d)
{
	return d->state;
}

const char *den_version(void)
{
	return DEN_VERSION;
}

/*
 * A program that embeds the library is not to be surprised by a SIGCHLD or a zombie, so unless it
 * asks for it the keeper is not its child: a first child, which borrows our memory, starts the
 * second and leaves.
 */
struct start {
	const char *path;
	char **argv, **env;
	int fd, sys;
	bool own;
};

static void second(struct start *s)
{
	sigset_t none;

	for (int i = 1; i < 32; i++)
		if (i != SIGKILL && i != SIGSTOP)
			signal(i, SIG_DFL);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	if (s->fd == 3)
		fcntl(3, F_SETFD, 0);
	else if (dup2(s->fd, 3) < 0)
		goto failed;
	execve(s->path, s->argv, s->env);
failed:
	s->sys = errno;
	_exit(127);
}

static int first(void *arg)
{
	struct start *volatile s = arg;
	pid_t pid;

	if (s->own)
		second(s);
	pid = vfork();
	if (pid == 0)
		second(s);
	if (pid < 0)
		s->sys = errno;
	_exit(0);
}

/* A copy of this process becomes the keeper: no second start of the program. */
static pid_t keeper_fork(struct den *d, const struct box_id *id, int fd)
{
	pid_t pid = fork();

	if (pid)
		return pid;
	if (fd == 3)
		fcntl(3, F_SETFD, 0);
	else if (dup2(fd, 3) < 0)
		_exit(127);
	_exit(d->keeper(d->state, id ? id->s : NULL));
}

static pid_t keeper_exec(struct start *s)
{
	auto_free char *stack = mem_alloc(64 << 10);
	sigset_t all, old;
	pid_t pid;

	sigfillset(&all);
	sigprocmask(SIG_BLOCK, &all, &old); /* no handler of ours may run on borrowed memory */
	pid = clone(first, stack + (64 << 10), CLONE_VM | CLONE_VFORK | SIGCHLD, s);
	if (pid > 0 && (!s->own || s->sys))
		while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
			;
	sigprocmask(SIG_SETMASK, &old, NULL);
	return pid;
}

int keeper_spawn(
	struct den *d, const struct box_id *id, int *ret_fd, pid_t *ret_pid, struct den_err *err)
{
	char *argv[] = { (char *)"den", (char *)"__keeper", d->state, id ? (char *)id->s : NULL,
		NULL };
	char *env[] = { (char *)"PATH=/usr/sbin:/usr/bin:/sbin:/bin", NULL, NULL, NULL };
	auto_free char *runtime = NULL, *test = NULL;
	struct start s = { d->exe, argv, env, -1, 0, d->own_keepers };
	int sv[2];
	pid_t pid;

	if (getenv("DEN_TEST") && asprintf(&test, "DEN_TEST=%s", getenv("DEN_TEST")) > 0)
		env[1] = test;
	if (getenv("DEN_RUNTIME") && asprintf(&runtime, "DEN_RUNTIME=%s", getenv("DEN_RUNTIME")) > 0)
		env[env[1] ? 2 : 1] = runtime;
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sv) < 0)
		return den_fail_sys(err, errno, "socketpair");
	s.fd = sv[1];
	pid = d->keeper ? keeper_fork(d, id, sv[1]) : keeper_exec(&s);
	close(sv[1]);
	if (pid < 0 || s.sys) {
		close(sv[0]);
		return den_fail_sys(err, s.sys ? s.sys : errno,
			"start '%s' (set DEN_EXE to the den program)", d->exe);
	}
	*ret_fd = sv[0];
	*ret_pid = s.own ? pid : 0;
	return 0;
}

int dial(struct den *d, const struct box_id *id, int *ret_fd, bool *ret_started, struct den_err *err)
{
	*ret_started = false;
	return d->dial(id ? id->s : NULL, d->dial_user, ret_fd, ret_started, err);
}

int clerk_spawn(struct den *d, int *ret_fd, pid_t *ret_pid, struct den_err *err)
{
	bool started;

	if (!d->dial)
		return keeper_spawn(d, NULL, ret_fd, ret_pid, err);
	*ret_pid = 0;
	return dial(d, NULL, ret_fd, &started, err); /* a clerk says nothing by itself */
}

void keeper_reap(pid_t *pid, bool wait)
{
	if (*pid > 0)
		while (waitpid(*pid, NULL, wait ? 0 : WNOHANG) < 0 && errno == EINTR)
			;
	*pid = 0;
}
