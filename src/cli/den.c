/* One executable: the command line, and the keeper that it starts (libden runs `den __keeper`). */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli.h"
#include "keeper_main.h"

int main(int argc, char **argv)
{
	if (argc >= 3 && argc <= 4 && !strcmp(argv[1], "__keeper"))
		return keeper_main(argv[2], argc == 4 ? argv[3] : NULL);
	/* The keeper is this very program, wherever it was started from. */
	setenv("DEN_EXE", "/proc/self/exe", 0);
	return cli_main(argc, argv);
}
