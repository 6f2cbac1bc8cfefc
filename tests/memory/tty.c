/* A terminal of the program's own, with a shell on it. */
#include "memory.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <termios.h>

static int master, watch_slave;
static pid_t shell;

/* "pty=sh": one that has /dev/tty itself open, which not every wall can carry. */
static void on_terminal(const char *path, bool sh)
{
	int fd;

	setsid();
	fd = open(path, O_RDWR);
	if (fd < 0 || ioctl(fd, TIOCSCTTY, 0) < 0)
		_exit(126);
	dup2(fd, 0);
	dup2(fd, 1);
	dup2(fd, 2);
	for (int i = 3; i < 100; i++)
		close(i);
	setenv("PS1", "", 1);
	unsetenv("ENV");
	if (!sh)
		execl("/bin/bash", "bash", "--norc", "--noprofile", "--noediting", "-i", (char *)NULL);
	execl("/bin/sh", "sh", "-i", (char *)NULL);
	_exit(127);
}

/* Says it to the shell and waits for a line of the shell's that begins with that. */
static bool hears(const char *say, const char *want)
{
	char text[4000];
	size_t n = 0;

	if (write(master, say, strlen(say)) != (ssize_t)strlen(say))
		return false;
	while (n < sizeof(text) - 1) {
		ssize_t got;

		if (!readable(master, 5000))
			break;
		got = read(master, text + n, sizeof(text) - 1 - n);
		if (got <= 0)
			break;
		n += (size_t)got;
		text[n] = '\0';
		if (strstr(text, want))
			return true;
	}
	text[n] = '\0';
	wrong("the shell said '%.200s' instead of '%s'", text, want);
	return false;
}

static void pty_setup(const char *argument)
{
	struct winsize w = { .ws_row = 33, .ws_col = 101 };
	struct termios t;
	char path[100];

	master = posix_openpt(O_RDWR | O_NOCTTY);
	MUST(master >= 0 && grantpt(master) == 0 && unlockpt(master) == 0);
	MUST(ptsname_r(master, path, sizeof(path)) == 0);
	/* Through the other end; or, "pty=held", through one that stays open outside of the terminal's session. */
	watch_slave = open(path, O_RDWR | O_NOCTTY);
	MUST(watch_slave >= 0 && tcgetattr(watch_slave, &t) == 0);
	t.c_lflag &= ~(tcflag_t)ECHO;
	t.c_oflag &= ~(tcflag_t)ONLCR;
	t.c_cc[VINTR] = 7;
	MUST(tcsetattr(watch_slave, TCSANOW, &t) == 0 && ioctl(master, TIOCSWINSZ, &w) == 0);
	shell = fork();
	MUST(shell >= 0);
	if (shell == 0)
		on_terminal(path, argument && strcmp(argument, "sh") == 0);
	if (!argument || strcmp(argument, "held") != 0) {
		nap_ms(100); /* the shell has it open */
		close(watch_slave);
		watch_slave = master;
	}
	MUST(hears("x=0; echo sta''rted\n", "started"));
}

static void pty_check(void)
{
	struct winsize w = { 0 };
	struct termios t;
	char say[100], want[40];

	snprintf(say, sizeof(say), "echo va''lue $x $$\n");
	snprintf(want, sizeof(want), "value %u %d\n", steps, (int)shell);
	hears(say, want);
	CHECK(ioctl(master, TIOCGWINSZ, &w) == 0);
	IS(w.ws_row, 33);
	IS(w.ws_col, 101);
	if (tcgetattr(watch_slave, &t) == 0) {
		IS(t.c_lflag & ECHO, 0);
		IS(t.c_oflag & ONLCR, 0);
		IS(t.c_cc[VINTR], 7);
	} else {
		CHECK(errno == ENOTTY); /* a kernel whose other end cannot be asked */
	}
	if (tcgetpgrp(master) < 0 && errno == ENOTTY)
		return; /* a kernel whose other end cannot be asked */
	IS(tcgetpgrp(master), shell);
	/* The terminal's own signal reaches what runs in the foreground: the shell comes back. */
	CHECK(write(master, "sleep 100\n", 10) == 10);
	for (int i = 0; i < 500 && tcgetpgrp(master) == shell; i++)
		nap_ms(2);
	CHECK(tcgetpgrp(master) != shell);
	/* Again and again: one that comes before it is a program of its own is the shell's to ignore. */
	for (int i = 0; i < 200 && tcgetpgrp(master) != shell; i++) {
		CHECK(write(master, "\7", 1) == 1);
		nap_ms(25);
	}
	hears("echo ba''ck\n", "back");
}

static void pty_step(void)
{
	char want[20];

	snprintf(want, sizeof(want), "now %u\n", steps);
	hears("x=$((x + 1)); echo no''w $x\n", want);
}

const struct subject subject_pty = { "pty", pty_setup, pty_check, pty_step, NULL };
