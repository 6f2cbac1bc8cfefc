/* What glibc has and a smaller libc does not: den-init is linked with musl where that is
 * installed. */
#pragma once

#ifndef __GLIBC__
#include <stddef.h>
#include <string.h>

#define strerrordesc_np(e) strerror(e)

static inline const char *sigabbrev_np(int s)
{
	static const char *const names[] = { NULL, "HUP", "INT", "QUIT", "ILL", "TRAP", "ABRT",
		"BUS", "FPE", "KILL", "USR1", "SEGV", "USR2", "PIPE", "ALRM", "TERM", "STKFLT",
		"CHLD", "CONT", "STOP", "TSTP", "TTIN", "TTOU", "URG", "XCPU", "XFSZ", "VTALRM",
		"PROF", "WINCH", "POLL", "PWR", "SYS" };

	return s > 0 && s < 32 ? names[s] : NULL;
}

#define malloc_trim(pad) ((void)(pad)) /* musl gives back by itself */

#ifndef RENAME_NOREPLACE
#include <sys/syscall.h>
#include <unistd.h>
#define RENAME_NOREPLACE 1
#define renameat2(a, b, c, d, f) ((int)syscall(SYS_renameat2, a, b, c, d, f))
#endif
#endif
