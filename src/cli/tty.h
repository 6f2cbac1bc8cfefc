/* den's own terminal while a program in a box uses it. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <termios.h>

struct tty {
	struct termios saved;
	bool raw;
};
/* Every key goes to the box untouched: its own terminal makes signals and echo of them. Nothing
 * happens when stdin is no terminal. */
void tty_raw(struct tty *t);
void tty_restore(struct tty *t);
/* The size of the terminal that den has; 24x80 when it has none. */
void tty_size(uint16_t *rows, uint16_t *cols);
