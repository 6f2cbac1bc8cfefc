#include "tty.h"

#include <errno.h>
#include <sys/ioctl.h>
#include <unistd.h>

/* TCSANOW, not TCSADRAIN: a terminal that was stopped with Ctrl-S would hang us here. */
static void set_mode(const struct termios *mode)
{
	while (tcsetattr(STDIN_FILENO, TCSANOW, mode) < 0 && errno == EINTR)
		;
}

void tty_raw(struct tty *t)
{
	struct termios mode;

	if (t->raw || tcgetattr(STDIN_FILENO, &t->saved) < 0)
		return;
	mode = t->saved;
	cfmakeraw(&mode);
	set_mode(&mode);
	t->raw = true;
}

void tty_restore(struct tty *t)
{
	if (!t->raw)
		return;
	set_mode(&t->saved);
	t->raw = false;
}

void tty_size(uint16_t *rows, uint16_t *cols)
{
	struct winsize w;

	*rows = 24;
	*cols = 80;
	for (int fd = STDOUT_FILENO; fd >= STDIN_FILENO; fd--) {
		if (ioctl(fd, TIOCGWINSZ, &w) == 0 && w.ws_row && w.ws_col) {
			*rows = w.ws_row;
			*cols = w.ws_col;
			return;
		}
	}
}
