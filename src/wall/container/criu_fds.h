/* What the process that becomes CRIU is given: shared by the keeper and criu_shim.c. */
#pragma once

#define CRIU_FD_RPC 3	  /* the keeper speaks with it here */
#define CRIU_FD_RUNTIME 4 /* directory of its program and libraries */
#define CRIU_FD_IMAGES 5  /* directory of the images */
#define CRIU_FD_KDAT 6	  /* file in memory: what it knows of the kernel */
#define CRIU_FD_BOX 7	  /* what it enters: pidfd of a process, or a mount namespace */
#define CRIU_FD_SHIM 8	  /* criu_shim.c */
#define CRIU_FD_INIT 9	  /* load: the program of process 1; save: the ipc namespace, if CRIU keeps it */
#define CRIU_FD_WATCHES 10 /* save: file in memory, see watches.h */
#define CRIU_FD_HIDE 11	   /* save: file in memory, see pages_fds.h */
#define CRIU_FDS_END 12

#define CRIU_ENV_ENTER "DEN_CRIU_ENTER" /* CLONE_NEW* of what it enters */
#define CRIU_ENV_KEEP "DEN_CRIU_KEEP"	/* set: what it linked for files without a name stays */
#define CRIU_ENV_DIES "DEN_CRIU_DIES"	/* set: it dies with the keeper */
#define CRIU_ENV_HIDE "DEN_CRIU_HIDE"	/* set: there is CRIU_FD_HIDE */
#define CRIU_EXIT_ENTER 73

/* In the images: names that CRIU gave to files of the box, as "INODE PATH", each with a NUL behind it. See links.c. */
#define CRIU_LINKS "den-links"
#define CRIU_LINK "link_remap."
