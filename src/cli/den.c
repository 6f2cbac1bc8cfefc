/* One executable: the command line, and the keeper that it starts. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli.h"
#include "keeper_main.h"

static char *words;	    /* where the kernel keeps our command line ... */
static size_t words_len;    /* ... and how long it is */

/* A keeper that was forked says in ps what it is. */
static int forked_keeper(const char *state, const char *id)
{
	memset(words, 0, words_len);
	snprintf(words, words_len, "den __keeper %s", id ? id : "");
	return keeper_main(state, id);
}

int main(int argc, char **argv)
{
	if (argc >= 3 && argc <= 4 && !strcmp(argv[1], "__keeper"))
		return keeper_main(argv[2], argc == 4 ? argv[3] : NULL);
	words = argv[0];
	words_len = argc ? (size_t)(argv[argc - 1] + strlen(argv[argc - 1]) + 1 - argv[0]) : 0;
	cli_keeper = forked_keeper;
	/* For the library, should it have to execute one: this very program. */
	setenv("DEN_EXE", "/proc/self/exe", 0);
	return cli_main(argc, argv);
}
