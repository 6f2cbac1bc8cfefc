/* Memory is written into processes of the box, and into no other that a number may stand for. */
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "enter.h"
#include "fd.h"
#include "kit_cgroup.h"
#include "pages.h"
#include "pages_fds.h"

#define IDS "0 1900000 65536\n"
#define OLD 0x11
#define NEW 0x5a

static char *page; /* at the same place in all of them */

static void put_file(const char *path, const char *text)
{
	auto_fd fd = open(path, O_WRONLY | O_CLOEXEC);

	CHECK(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
}

/* Process 1 of a pid namespace, in the group or not, root of a user namespace of its own or the host's. Writes what it has
 * in its page to `say`, each time it is asked. */
static pid_t start(struct cgroup *cg, bool own, int *ask)
{
	struct clone_args ca = { .exit_signal = SIGCHLD,
		.flags = CLONE_NEWPID | (own ? CLONE_NEWUSER : 0) };
	char path[64];
	int pair[2];
	pid_t pid;

	CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair) == 0);
	if (cg) {
		ca.flags |= CLONE_INTO_CGROUP;
		ca.cgroup = (uint64_t)cgroup_into_fd(cg);
	}
	pid = (pid_t)syscall(SYS_clone3, &ca, sizeof(ca));
	CHECK(pid >= 0);
	if (pid == 0) {
		char c;

		close(pair[0]);
		while (read(pair[1], &c, 1) == 1)
			(void)!write(pair[1], page, 1);
		_exit(0);
	}
	close(pair[1]);
	*ask = pair[0];
	if (own) {
		snprintf(path, sizeof(path), "/proc/%d/uid_map", (int)pid);
		put_file(path, IDS);
		snprintf(path, sizeof(path), "/proc/%d/gid_map", (int)pid);
		put_file(path, IDS);
	}
	return pid;
}

static char has(int ask)
{
	char c = 0;

	CHECK(write(ask, "?", 1) == 1 && read(ask, &c, 1) == 1);
	return c;
}

static void end(pid_t pid, int ask)
{
	close(ask); /* others may have it, too */
	kill(pid, SIGKILL);
	CHECK(waitpid(pid, NULL, 0) == pid);
}

TEST(pages_are_loaded_into_the_box_and_nobody_else)
{
	auto_fd dir = open(test_dir(), O_RDONLY | O_DIRECTORY | O_CLOEXEC), file = -1, box = -1;
	struct piece piece = { .pid = 1, .pages = 1 };
	struct cgroup *cg;
	struct den_err err;
	char bytes[PAGE];
	pid_t in, out;
	int ask_in, ask_out;

	if (geteuid() != 0)
		SKIP("programs are loaded by root alone");
	cg = box_make(CGROUP_HYBRID, &(struct box_spec){ 0 })
		     ?: box_make(CGROUP_V2, &(struct box_spec){ 0 });
	if (!cg)
		SKIP("no cgroup v2 here");
	page = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(page != MAP_FAILED);
	memset(page, OLD, PAGE);
	memset(bytes, NEW, PAGE);
	piece.start = (uintptr_t)page;
	file = openat(dir, PAGES_FILE "-0", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	CHECK(file >= 0 && write(file, bytes, PAGE) == (ssize_t)PAGE &&
		pages_table_write(dir, &piece, 1, &err) == 0);

	in = start(cg, true, &ask_in);
	box = (int)syscall(SYS_pidfd_open, in, 0);
	CHECK(box >= 0 && has(ask_in) == OLD);
	CHECK(pages_load(cg, box, dir, true, &err) == 0 && has(ask_in) == NEW);

	/* now process 1 in that group is one of the host's, as if the number had been used again */
	end(in, ask_in);
	in = start(NULL, true, &ask_in);
	close(box);
	box = (int)syscall(SYS_pidfd_open, in, 0);
	out = start(cg, false, &ask_out);
	CHECK(pages_load(cg, box, dir, true, &err) < 0 && err.sys == EPERM);
	CHECK(has(ask_out) == OLD && has(ask_in) == OLD && page[0] == OLD);
	end(in, ask_in);
	end(out, ask_out);
	box_end(cg);
}

TEST(who_enters_as_root_dies_with_its_parent_and_is_not_looked_into)
{
	auto_fd box = -1;
	pid_t in, kid;
	int ask, status;

	if (geteuid() != 0)
		SKIP("programs are loaded by root alone");
	in = start(NULL, true, &ask);
	box = (int)syscall(SYS_pidfd_open, in, 0);
	CHECK(box >= 0);
	kid = fork();
	if (kid == 0) {
		int dies = 0;

		if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0 || enter_as_root(box, 0) < 0)
			_exit(1);
		_exit(prctl(PR_GET_PDEATHSIG, &dies, 0, 0, 0) < 0 || dies != SIGKILL ? 2 :
			prctl(PR_GET_DUMPABLE, 0, 0, 0, 0) != 0			     ? 3 :
			getuid() != 0						     ? 4 :
										       0);
	}
	CHECK(waitpid(kid, &status, 0) == kid && status == 0);
	end(in, ask);
}
