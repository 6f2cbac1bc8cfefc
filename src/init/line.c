/*
 * What is typed at a terminal of the sentry's kernel. Its keys for signals (ctrl-C, ctrl-Z, ctrl-\) are half done:
 *
 *   - the key makes the signal and stays in what is typed: the next line begins with it, and with what stood in
 *     the line before, which Linux throws away;
 *   - it makes the signal even where the program has switched these keys off (ISIG) to get them as bytes.
 *
 * So such a key is written by itself: with as many erases as there may be characters in the line, in one write, so
 * that nobody reads between them; or while the settings know no such key. (A line can be erased only where lines are
 * edited, ICANON; a program that edits by itself gets key and signal.) gVisor mended this in 2026.
 *
 * And ctrl-Z stops a program that nobody is there to continue, as no shell started it: Linux lets it run.
 */
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <termios.h>
#include <unistd.h>

#include "init.h"

#define TYPED_MAX 4096 /* what the kernel holds of a line */

static bool is_signal_key(const struct termios *t, char c)
{
	static const int keys[] = { VINTR, VQUIT, VSUSP };

	for (size_t i = 0; i < ARRAY_SIZE(keys); i++)
		if (c && (cc_t)c == t->c_cc[keys[i]])
			return true;
	return false;
}

/* How many characters a line may have now. */
static void count_typed(struct exec *x, const struct termios *t, const char *p, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		if (p[i] == '\n' || p[i] == '\r' || (cc_t)p[i] == t->c_cc[VEOF])
			x->typed = 0;
		else if (x->typed < TYPED_MAX && !((t->c_iflag & IUTF8) && (p[i] & 0xc0) == 0x80))
			x->typed++;
	}
}

static ssize_t write_signal(struct exec *x, const struct termios *t, char c)
{
	size_t erase = 0;
	char text[1 + TYPED_MAX + 1];
	ssize_t n;

	if ((t->c_lflag & ICANON) && t->c_cc[VERASE])
		erase = 1 + (t->c_lflag & NOFLSH ? 0 : x->typed);
	text[0] = c;
	memset(text + 1, t->c_cc[VERASE], erase);
	n = write(x->in.fd, text, 1 + erase);
	if (n > 0 && !(t->c_lflag & NOFLSH))
		x->typed = 0;
	return MIN(n, 1);
}

static ssize_t write_as_byte(struct exec *x, const struct termios *t, char c)
{
	struct termios deaf = *t, now = { 0 };
	ssize_t n;
	int e;

	deaf.c_cc[VINTR] = deaf.c_cc[VQUIT] = deaf.c_cc[VSUSP] = 0;
	tcsetattr(x->in.fd, TCSANOW, &deaf);
	n = write(x->in.fd, &c, 1);
	e = errno;
	/* not over what the program has set meanwhile */
	if (tcgetattr(x->in.fd, &now) == 0 && now.c_lflag == deaf.c_lflag &&
		now.c_iflag == deaf.c_iflag && !memcmp(now.c_cc, deaf.c_cc, sizeof(now.c_cc)))
		tcsetattr(x->in.fd, TCSANOW, t);
	errno = e;
	return n;
}

ssize_t line_write(struct exec *x, const char *p, size_t len)
{
	struct termios t = { 0 };
	size_t plain = 0;
	ssize_t n;

	if (tcgetattr(x->in.fd, &t) < 0)
		return write(x->in.fd, p, len);
	while (plain < len && !is_signal_key(&t, p[plain]))
		plain++;
	if (!plain)
		return t.c_lflag & ISIG ? write_signal(x, &t, *p) : write_as_byte(x, &t, *p);
	n = write(x->in.fd, p, plain);
	if (n > 0)
		count_typed(x, &t, p, (size_t)n);
	return n;
}

void line_stopped(const struct exec *x, int sig)
{
	if (sig == SIGTSTP)
		kill(-x->pid, SIGCONT);
}
