/* den's other programs. */
#pragma once

/* The program of this name beside the one that runs, as in a build directory, or in libexec (a
 * directory); NULL: in neither. free() it. */
char *program_find(const char *name, const char *libexec);
