/* A process of den's that goes on with no more rights than root of a box. */
#pragma once

/* In a child that was forked for it. box: pidfd of a process in the box; also: CLONE_NEW* of what else is entered. Nobody
 * in the box can look into it: it has the keeper's memory and descriptors. If it dies with its
 * parent (PR_SET_PDEATHSIG), it still does. Returns 0, or -1 and errno. */
int enter_as_root(int box, unsigned also);
