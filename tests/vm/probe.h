/* What the files of the probe share: how a question is asked and answered. */
#pragma once

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <sched.h>
#include <stdbool.h>
#include <sys/types.h>

#ifndef CLONE_NEWTIME
#define CLONE_NEWTIME 0x80
#endif
#define BASE 1073741824u	/* first host id of the box that the root half makes */
#define ALL_NS (CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC | \
		CLONE_NEWUTS)

extern char scratch[256], self_cgroup[4096];

/* probe.c */
void __attribute__((noreturn, format(printf, 2, 3))) answer(bool ok, const char *fmt, ...);
void put(const char *path, const char *text);
void put_proc(pid_t pid, const char *file, const char *fmt, ...);
const char *at(const char *name);
pid_t enter(unsigned long long flags, int cgroup, int *go);
void map_ids(pid_t pid);
void __attribute__((noreturn)) follow(pid_t pid, int go);
#define TRY(call) ({						\
	errno = 0;						\
	long r_ = (long)(call);					\
	if (r_ < 0)						\
		answer(false, "%s", #call);			\
	r_;							\
})

/* probe_fs.c */
void ask_namespaces(void);
void ask_overlay_userns(void);
void ask_overlay_idmap_disk(void);
void ask_overlay_idmap_tmpfs(void);
void ask_overlay_idmap_btrfs(void);
void ask_tmpfs_xattr(void);

/* probe_cgroup.c */
void ask_cgroup_zero(void);
void ask_cgroup_clone(void);
void ask_cgroup_kill(void);
void ask_cgroup_freeze(void);
void ask_cgroup_files(void);
void ask_cgroup_oom(void);

/* probe_kernel.c */
void ask_timens_exec(void);
void ask_timens_vfork(void);
void ask_timens_fork(void);
void ask_timens_clone3(void);
void ask_seccomp(void);
void ask_seccomp_notify(void);
void ask_landlock(void);
void ask_proc_mount(void);
void ask_cgroup2_mount(void);
void ask_fsopen_overlay(void);
void ask_detached_exec(void);
void ask_openat2(void);
void ask_pidfd(void);
void ask_peerpidfd(void);
void ask_fchmodat2(void);
void ask_statmount(void);
void ask_close_range(void);
void ask_mknod_userns(void);
int timens_after_exec(const char *old); /* the second half of a question, in a program of its own */
