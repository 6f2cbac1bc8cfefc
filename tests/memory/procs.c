/* Processes: children that live, that are dead and not buried, that stand still; groups and sessions. */
#include "memory.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>

static pid_t self, parent, plain, group, session, grand_session, zombie, killed, stopped;
static int c_plain, c_group, c_session, c_stopped;

static pid_t dead_child(int status)
{
	pid_t pid = fork();

	MUST(pid >= 0);
	if (pid == 0) {
		if (status < 0) {
			raise(-status);
			pause();
		}
		_exit(status);
	}
	/* It is dead when this returns, and stays a zombie. */
	waitid(P_PID, (id_t)pid, &(siginfo_t){ 0 }, WEXITED | WNOWAIT);
	return pid;
}

/* A child in a session of its own which has a child in a group of its own. */
static pid_t session_child(int *fd, pid_t *grand)
{
	int pair[2];
	pid_t pid;
	char byte;

	MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
	pid = fork();
	MUST(pid >= 0);
	if (pid == 0) {
		pid_t g;

		prctl(PR_SET_PDEATHSIG, SIGKILL);
		close(pair[0]);
		setsid();
		g = fork();
		if (g == 0) {
			setpgid(0, 0);
			while (getppid() != 1)
				nap_ms(50);
			_exit(0);
		}
		if (write(pair[1], &g, sizeof(g)) != sizeof(g))
			_exit(1);
		while (read(pair[1], &byte, 1) == 1) {
			byte++;
			if (write(pair[1], &byte, 1) != 1)
				break;
		}
		_exit(0);
	}
	close(pair[1]);
	*fd = pair[0];
	MUST(read(*fd, grand, sizeof(*grand)) == sizeof(*grand));
	return pid;
}

static void stop_it(void)
{
	int status = 0;

	CHECK(kill(stopped, SIGSTOP) == 0);
	IS(waitpid(stopped, &status, WUNTRACED), stopped);
	IS(WIFSTOPPED(status), 1);
}

static void children_setup(const char *argument)
{
	(void)argument;
	self = getpid();
	parent = getppid();
	plain = echoing_child(&c_plain);
	group = echoing_child(&c_group);
	MUST(setpgid(group, group) == 0);
	session = session_child(&c_session, &grand_session);
	zombie = dead_child(7);
	killed = dead_child(-SIGKILL);
	stopped = echoing_child(&c_stopped);
	/* In a group of its own: no kernel may think that our group is left alone with a stopped one in it. */
	MUST(setpgid(stopped, stopped) == 0);
	stop_it();
	nap_ms(50); /* the grandchild has made its group */
}

static char state_of(pid_t pid)
{
	char path[40], text[300] = "", *p;
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	fd = open(path, O_RDONLY);
	if (fd < 0)
		return '?';
	p = read(fd, text, sizeof(text) - 1) > 0 ? strrchr(text, ')') : NULL;
	close(fd);
	return p && p[1] ? p[2] : '?';
}

static void zombie_is(pid_t pid, int code, int status)
{
	siginfo_t i = { 0 };

	CHECK(waitid(P_PID, (id_t)pid, &i, WEXITED | WNOWAIT | WNOHANG) == 0);
	IS(i.si_pid, pid);
	IS(i.si_code, code);
	IS(i.si_status, status);
}

static void children_check(void)
{
	IS(getpid(), self);
	IS(getppid(), parent);
	CHECK(answers(c_plain, c_plain, 'p'));
	CHECK(answers(c_group, c_group, 'g'));
	CHECK(answers(c_session, c_session, 's'));
	IS(getpgid(plain), getpgrp());
	IS(getpgid(group), group);
	IS(getsid(group), getsid(0));
	IS(getsid(session), session);
	IS(getsid(grand_session), session);
	IS(getpgid(grand_session), grand_session);
	zombie_is(zombie, CLD_EXITED, 7);
	zombie_is(killed, CLD_KILLED, SIGKILL);
	/* One stands still, and goes on when told. */
	IS(state_of(stopped), 'T');
	IS(write(c_stopped, "a", 1), 1);
	CHECK(!readable(c_stopped, 20));
	CHECK(kill(stopped, SIGCONT) == 0);
	CHECK(readable(c_stopped, 5000));
	IS(read(c_stopped, &(char){ 0 }, 1), 1);
	stop_it();
}

static void children_step(void)
{
	/* The dead one is buried, and there is another. */
	int status = 0;

	IS(waitpid(zombie, &status, 0), zombie);
	IS(WEXITSTATUS(status), 7);
	zombie = dead_child(7);
}

const struct subject subject_children = { "children", children_setup, children_check, children_step,
	NULL };

/* ---- orphan: its parent is gone and somebody else has it; its session's leader is gone, too ---- */

static pid_t orphan, orphan_session;
static int o_fd;
static char o_parent; /* process 1, or the one that den started */

static void orphan_setup(const char *argument)
{
	int pair[2];
	pid_t middle;

	(void)argument;
	MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
	middle = fork();
	MUST(middle >= 0);
	if (middle == 0) {
		setsid();
		if (fork() == 0) {
			pid_t me = getpid();
			char byte;

			close(pair[0]);
			if (write(pair[1], &me, sizeof(me)) != sizeof(me))
				_exit(1);
			while (read(pair[1], &byte, 1) == 1) {
				byte = byte == 'P' ? (char)(getppid() & 0x7f) : (char)(byte + 1);
				if (write(pair[1], &byte, 1) != 1)
					break;
			}
			_exit(0);
		}
		_exit(0);
	}
	close(pair[1]);
	o_fd = pair[0];
	MUST(waitpid(middle, NULL, 0) == middle);
	MUST(read(o_fd, &orphan, sizeof(orphan)) == sizeof(orphan));
	orphan_session = middle;
	o_parent = 'P';
	MUST(write(o_fd, &o_parent, 1) == 1 && read(o_fd, &o_parent, 1) == 1);
}

static void orphan_check(void)
{
	char byte = 'P';

	CHECK(answers(o_fd, o_fd, 'o'));
	CHECK(write(o_fd, &byte, 1) == 1 && readable(o_fd, 5000) && read(o_fd, &byte, 1) == 1);
	IS(byte, o_parent);
	IS(getsid(orphan), orphan_session);
}

const struct subject subject_orphan = { "orphan", orphan_setup, orphan_check, NULL, NULL };
