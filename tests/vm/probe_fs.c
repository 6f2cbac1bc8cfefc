/* Namespaces, overlayfs and id-mapped mounts. */
#include "probe.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/mount.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/xattr.h>
#include <unistd.h>

void ask_namespaces(void)
{
	int go;
	pid_t pid = enter(ALL_NS | CLONE_NEWCGROUP, -1, &go);

	if (pid == 0)
		answer(getpid() == 1 && getuid() == 0, "user mount pid net ipc uts cgroup at once");
	map_ids(pid);
	follow(pid, go);
}

void ask_overlay_userns(void)
{
	int go;
	pid_t pid;
	char opt[2048];

	mkdir(at("low"), 0755);
	close(TRY(open(at("low/file"), O_CREAT | O_WRONLY, 0644)));
	pid = enter(CLONE_NEWUSER | CLONE_NEWNS, -1, &go);
	if (pid == 0) {
		TRY(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL));
		mkdir(at("root"), 0755);
		snprintf(opt, sizeof(opt), "lowerdir=%s,upperdir=%s,workdir=%s,userxattr", at("low"),
			 at("up"), at("work"));
		TRY(mount("o", at("root"), "overlay", 0, opt));
		TRY(unlink(at("root/file")));
		close(TRY(open(at("root/new"), O_CREAT | O_WRONLY, 0644)));
		answer(access(at("root/file"), F_OK) < 0, "upper on the disk, whiteout made");
	}
	map_ids(pid);
	/* As root the box's ids must own its upper; as a user they are our own. */
	mkdir(at("up"), 0755);
	mkdir(at("work"), 0755);
	if (geteuid() == 0) {
		TRY(chown(at("up"), BASE, BASE));
		TRY(chown(at("work"), BASE, BASE));
		TRY(chown(scratch, BASE, BASE));
	}
	follow(pid, go);
}

static int tree_of(const char *path)
{
	return TRY(syscall(SYS_open_tree, AT_FDCWD, path, OPEN_TREE_CLONE | O_CLOEXEC));
}

static void idmap(int tree, pid_t pid)
{
	struct mount_attr attr = { .attr_set = MOUNT_ATTR_IDMAP };
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/ns/user", pid);
	attr.userns_fd = TRY(open(path, O_RDONLY | O_CLOEXEC));
	TRY(syscall(SYS_mount_setattr, tree, "", AT_EMPTY_PATH, &attr, sizeof(attr)));
}

static void overlay_idmapped(const char *dir)
{
	char opt[2048], stage[600];
	struct stat st;
	int go, low, up;
	pid_t pid;

	snprintf(stage, sizeof(stage), "%s/stage", dir);
	mkdir(stage, 0755);
	snprintf(opt, sizeof(opt), "%s/box", dir);
	mkdir(opt, 0755);
	snprintf(opt, sizeof(opt), "%s/box/u", dir);
	mkdir(opt, 0755);
	snprintf(opt, sizeof(opt), "%s/box/w", dir);
	mkdir(opt, 0755);
	low = tree_of("/usr");
	snprintf(opt, sizeof(opt), "%s/box", dir);
	up = tree_of(opt);
	pid = enter(CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID, -1, &go);
	if (pid == 0) {
		TRY(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL));
		TRY(mount("t", stage, "tmpfs", 0, "mode=755"));
		TRY(chdir(stage));
		TRY(mkdir("l", 0755) | mkdir("u", 0755) | mkdir("r", 0755));
		TRY(syscall(SYS_move_mount, low, "", AT_FDCWD, "l", MOVE_MOUNT_F_EMPTY_PATH));
		TRY(syscall(SYS_move_mount, up, "", AT_FDCWD, "u", MOVE_MOUNT_F_EMPTY_PATH));
		snprintf(opt, sizeof(opt), "lowerdir=l,upperdir=u/u,workdir=u/w,userxattr");
		TRY(mount("o", "r", "overlay", 0, opt));
		TRY(stat("r/bin/su", &st));
		if (st.st_uid != 0 || !(st.st_mode & S_ISUID))
			answer(false, "su of the lower is uid %u mode %o", st.st_uid, st.st_mode);
		TRY(unlink("r/bin/chfn"));
		close(TRY(open("r/bin/passwd", O_WRONLY | O_APPEND)));	/* copies up */
		close(TRY(open("r/new", O_CREAT | O_WRONLY, 0644)));
		TRY(chown("r/new", 1000, 1000));
		/* A directory of the lower: EXDEV without redirect_dir, which mv(1) answers by copying. */
		errno = 0;
		bool renamed = rename("r/share/zoneinfo", "r/share/zz") == 0;
		int why = renamed ? 0 : errno;
		TRY(lstat("u/u/new", &st));
		if (st.st_uid != 1000)
			answer(false, "uid in the box is %u", st.st_uid);
		errno = 0;
		answer(true, "copy-up, whiteout, chown; renaming a lower directory: %s",
		       why ? strerrorname_np(why) : "done");
	}
	map_ids(pid);
	idmap(low, pid);
	idmap(up, pid);
	follow(pid, go);
}

void ask_overlay_idmap_disk(void)
{
	overlay_idmapped(scratch);
}

void ask_overlay_idmap_tmpfs(void)
{
	TRY(unshare(CLONE_NEWNS));
	TRY(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL));
	TRY(mount("t", scratch, "tmpfs", 0, NULL));
	overlay_idmapped(scratch);
}

void ask_overlay_idmap_btrfs(void)
{
	char cmd[1024];

	TRY(unshare(CLONE_NEWNS));
	TRY(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL));
	mkdir(at("pool"), 0755);
	snprintf(cmd, sizeof(cmd), "cd %s && truncate -s 256M img && "
		 "mkfs.btrfs -q img >/dev/null 2>&1 && mount -o loop img pool", scratch);
	errno = 0;
	if (system(cmd) != 0)
		answer(false, "mkfs.btrfs and loop mount");
	overlay_idmapped(at("pool"));
}

void ask_tmpfs_xattr(void)
{
	TRY(unshare(geteuid() ? CLONE_NEWNS | CLONE_NEWUSER : CLONE_NEWNS));
	TRY(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL));
	TRY(mount("t", scratch, "tmpfs", 0, NULL));
	TRY(setxattr(scratch, "user.x", "y", 1, 0));
	answer(true, "user.* on tmpfs");
}
