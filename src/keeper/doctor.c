/* What this machine can do, tried rather than guessed, and what a missing thing costs. */
#include <errno.h>
#include <fcntl.h>
#include <linux/landlock.h>
#include <stdio.h>
#include <string.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "fd.h"
#include "gate.h"
#include "keeper.h"
#include "place.h"
#include "program.h"

static void finding(struct buf *out, const char *topic, const char *level, const char *text)
{
	auto_buf rec = { 0 };

	wire_put_str(&rec, F_NAME, topic);
	wire_put_str(&rec, F_STATE, level);
	wire_put_str(&rec, F_DETAIL, text);
	wire_put_bytes(out, F_RECORD, rec.p, rec.len);
}

static void find_kernel(struct buf *out)
{
	struct utsname u;
	char text[256];
	int major = 0, minor = 0;

	uname(&u);
	sscanf(u.release, "%d.%d", &major, &minor);
	if (major > 6 || (major == 6 && minor >= 3)) {
		snprintf(text, sizeof(text), "Linux %s", u.release);
		finding(out, "kernel", "ok", text);
	} else if (major == 6 && minor >= 1) {
		snprintf(text, sizeof(text), "Linux %s: before 6.3 a box sees the host's uptime", u.release);
		finding(out, "kernel", "ok", text);
	} else {
		snprintf(text, sizeof(text), "Linux %s; den is tested from 6.1 on, and needs 5.19 for boxes as root",
			u.release);
		finding(out, "kernel", major < 5 || (major == 5 && minor < 19) ? "missing" : "limited", text);
	}
}

static void find_walls(struct buf *out)
{
	struct den_err err;
	char text[300];

	if (wall_container.probe(&err) == 0) {
		finding(out, "wall container", "ok", "namespaces can be made");
	} else {
		snprintf(text, sizeof(text), "%s", err.msg);
		finding(out, "wall container", "missing", text);
	}
	if (wall_gvisor.probe(&err) == 0) {
		finding(out, "wall gvisor", "ok", "runsc is there; --wall gvisor gives a box a kernel of its own");
	} else {
		snprintf(text, sizeof(text), "%s", err.msg);
		finding(out, "wall gvisor", "limited", text);
	}
	finding(out, "wall microvm", "limited", "not in this version of den");
}

/* Saving running programs: each wall in its own way. */
static void find_memory(struct buf *out)
{
	struct den_err container, gvisor;
	bool one = wall_container.memory(&container) == 0, two = wall_gvisor.memory(&gvisor) == 0;
	char text[600];

	if (one) {
		finding(out, "full checkpoints", "ok",
			two ? "running programs can be saved: with CRIU, and behind gvisor" :
			      "running programs of container boxes can be saved, with CRIU");
		return;
	}
	snprintf(text, sizeof(text), "%s%s", two ? "behind gvisor only; " : "", container.msg);
	finding(out, "full checkpoints", "limited", text);
}

static void find_ids(struct buf *out)
{
	const char *why = NULL;
	char text[400];

	switch (wall_ids(&why)) {
	case IDS_MAPPED:
		finding(out, "user ids", "ok", "as root: each box has 65,536 ids of its own, layers are id-mapped");
		break;
	case IDS_SHIFTED:
		finding(out, "user ids", "ok", "boxes have the 65,536 ids that /etc/subuid gives you");
		break;
	case IDS_SINGLE:
		snprintf(text, sizeof(text),
			"boxes have one id: root inside is you, other users (sudo, useradd, apt-get) do not work. %s. "
			"To have more: apt-get install uidmap, then as root: usermod --add-subuids 100000-165535 "
			"--add-subgids 100000-165535 YOU",
			why ? why : "");
		finding(out, "user ids", "limited", text);
	}
}

static void find_store(struct keeper *k, struct buf *out)
{
	struct statfs fs;
	char text[300];
	const char *name = "another file system";

	if (fstatfs(k->store->fd, &fs) < 0)
		return;
	if (fs.f_type == 0xef53)
		name = "ext4";
	else if (fs.f_type == 0x9123683e)
		name = "btrfs";
	else if (fs.f_type == 0x58465342)
		name = "xfs";
	else if (fs.f_type == 0x01021994)
		name = "tmpfs";
	else if (fs.f_type == 0x794c7630)
		name = "overlay";
	snprintf(text, sizeof(text), "%s, %llu MiB free, state in %s", name,
		(unsigned long long)fs.f_bavail * (unsigned long long)fs.f_bsize >> 20, k->store->path);
	finding(out, "state", fs.f_type == 0x794c7630 ? "limited" : "ok", text);
	if (geteuid() != 0)
		finding(out, "disk limits", "limited",
			"an ordinary user cannot enforce --disk; den refuses it rather than ignore it");
	else if (access("/dev/loop-control", F_OK) < 0)
		finding(out, "disk limits", "limited", "no loop devices: --disk is refused");
	else
		finding(out, "disk limits", access("/sbin/mke2fs", X_OK) == 0 ? "ok" : "limited",
			access("/sbin/mke2fs", X_OK) == 0 ? "--disk gives a box a file system of that size" :
							    "--disk needs mke2fs: apt-get install e2fsprogs");
}

/* Where history is kept, and what it costs there. */
static void find_pool(struct keeper *k, struct buf *out)
{
	auto_fd conf = openat(k->store->fd, "pool.conf", O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	auto_free char *text = NULL;
	bool tool = access("/sbin/mkfs.btrfs", X_OK) == 0 || access("/usr/sbin/mkfs.btrfs", X_OK) == 0;
	struct den_err ignored;

	if (conf >= 0)
		(void)fd_read_all(conf, 4096, &text, NULL, &ignored);
	if (text && strstr(text, "kind=btrfs"))
		finding(out, "pool", "ok", "btrfs: a checkpoint, a fork, a rollback are one snapshot each");
	else if (text)
		finding(out, "pool", "limited",
			"plain: checkpoints copy what changed, so they cost time by the number of files; 'den pool' tells more");
	else if (geteuid() != 0)
		finding(out, "pool", "limited",
			"an ordinary user's is plain: checkpoints copy what changed; as root it is btrfs");
	else if (!tool)
		finding(out, "pool", "limited", "will be plain: mkfs.btrfs is missing (apt-get install btrfs-progs)");
	else
		finding(out, "pool", "ok", "none yet; it will be btrfs if the kernel has it");
}

static void find_landlock(struct buf *out)
{
	long abi = syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);
	char text[128];

	if (geteuid() == 0) {
		finding(out, "landlock", "ok", "not needed as root: ids stand between box and host");
	} else if (abi >= 2) {
		snprintf(text, sizeof(text), "version %ld: a second wall around the files of boxes", abi);
		finding(out, "landlock", "ok", text);
	} else {
		finding(out, "landlock", "limited", "the kernel has none: namespaces alone keep files apart");
	}
}

static void find_gate(struct buf *out)
{
	struct den_err err = { 0 };
	char text[300];

	if (gate_probe(&err) == 0) {
		finding(out, "network", "ok", "boxes reach what their policies allow, by name");
		return;
	}
	snprintf(text, sizeof(text), "boxes with a policy cannot start: %s", err.msg);
	finding(out, "network", "limited", text);
}

static void find_server(struct buf *out)
{
	auto_free char *program = program_find("den-serve", DEN_LIBEXEC);

	finding(out, "server", program ? "ok" : "limited",
		program ? "'den serve' speaks HTTP: an API, E2B's dialect and a page"
			: "there is no 'den serve': it was built without libmicrohttpd and libwslay; install them and build again");
}

int clerk_doctor(struct client *c, const struct wire_frame *f, struct buf *out, struct den_err *err)
{
	(void)f, (void)err;
	find_kernel(out);
	find_walls(out);
	find_memory(out);
	find_ids(out);
	{
		auto_buf text = { 0 };
		const char *level = wall_limits(&text);

		/* boxes run without: what cannot be enforced is refused */
		finding(out, "cgroup", strcmp(level, "ok") ? "limited" : "ok", buf_str(&text));
	}
	find_store(c->k, out);
	find_pool(c->k, out);
	find_landlock(out);
	find_gate(out);
	find_server(out);
	return 0;
}
