#include "enter.h"

#include <errno.h>
#include <grp.h>
#include <sched.h>
#include <sys/prctl.h>
#include <unistd.h>

int enter_as_root(int box, unsigned also)
{
	pid_t parent = getppid();
	int dies = 0;

	/* first: from the moment it is in the user namespace, root there could trace it. Undumpable, only who could trace the
	 * keeper can */
	if (prctl(PR_GET_PDEATHSIG, &dies, 0, 0, 0) < 0 || prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0 ||
		setns(box, (int)(CLONE_NEWUSER | also)) < 0)
		return -1;
	if (setresgid(0, 0, 0) < 0 || setgroups(0, NULL) < 0 || setresuid(0, 0, 0) < 0)
		return -1;
	/* who changes ids has what fs.suid_dumpable says instead, and outlives its parent */
	if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0 || prctl(PR_SET_PDEATHSIG, dies, 0, 0, 0) < 0)
		return -1;
	if (dies && getppid() != parent) {
		errno = EINTR;
		return -1;
	}
	return 0;
}
