#include "filter.h"

#include <errno.h>
#include <linux/audit.h>
#include <linux/seccomp.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "mem.h"

#define X32_BIT 0x40000000U

void filter_emit(struct filter *p, struct sock_filter f)
{
	if (p->n < ARRAY_SIZE(p->f))
		p->f[p->n++] = f;
}

void filter_begin(struct filter *p)
{
	p->n = 0;
	FILTER(p, FILTER_LOAD(arch));
	FILTER(p, BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AUDIT_ARCH_X86_64, 1, 0));
	FILTER(p, FILTER_RET(SECCOMP_RET_KILL_PROCESS));
	FILTER(p, FILTER_LOAD(nr));
	FILTER(p, BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, X32_BIT, 0, 1));
	FILTER(p, FILTER_RET(SECCOMP_RET_KILL_PROCESS));
}

void filter_rule(struct filter *p, int call, uint32_t action)
{
	FILTER(p, FILTER_SKIP_UNLESS((uint32_t)call, 1));
	FILTER(p, FILTER_RET(action));
}

void filter_rules(struct filter *p, const int *calls, size_t n, uint32_t action)
{
	for (size_t i = 0; i < n; i++)
		filter_rule(p, calls[i], action);
}

static void no_exec(struct filter *p, int call)
{
	FILTER(p, FILTER_SKIP_UNLESS((uint32_t)call, 4));
	FILTER(p, FILTER_LOAD(args[2])); /* the low half has the bits */
	FILTER(p, FILTER_SKIP_UNLESS_ANY(PROT_EXEC, 1));
	FILTER(p, FILTER_RET(SECCOMP_RET_KILL_PROCESS));
	FILTER(p, FILTER_RET(SECCOMP_RET_ALLOW));
}

void filter_no_exec(struct filter *p)
{
	no_exec(p, SYS_mmap);
	no_exec(p, SYS_mprotect);
}

void filter_first_arg(struct filter *p, int call, uint32_t a, uint32_t b, uint32_t otherwise)
{
	FILTER(p, FILTER_SKIP_UNLESS((uint32_t)call, 5));
	FILTER(p, FILTER_LOAD(args[0]));
	FILTER(p, BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, a, 1, 0));
	FILTER(p, FILTER_SKIP_UNLESS(b, 1));
	FILTER(p, FILTER_RET(SECCOMP_RET_ALLOW));
	FILTER(p, FILTER_RET(otherwise));
}

int filter_load(struct filter *p, uint32_t otherwise, struct den_err *err)
{
	struct sock_fprog prog = { .filter = p->f };

	FILTER(p, FILTER_RET(otherwise));
	if (p->n == ARRAY_SIZE(p->f))
		return den_fail(err, DEN_INTERNAL, 0, "the filter is too long");
	prog.len = p->n;
	if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &prog) < 0)
		return den_fail_sys(err, errno, "seccomp");
	return 0;
}
