#include "seccomp.h"

#include <assert.h>
#include <errno.h>
#include <linux/seccomp.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "mem.h"
#include "seccomp_filter.h" /* made by seccomp_gen */

static_assert(ARRAY_SIZE(box_filter) <= BPF_MAXINSNS, "the kernel takes no filter as long as this");

int seccomp_load(struct den_err *err)
{
	/* The kernel only reads it; its struct has no const. */
	const struct sock_fprog filter = { ARRAY_SIZE(box_filter),
		(struct sock_filter *)box_filter };

	if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &filter) == 0)
		return 0;
	if (errno == EINVAL || errno == ENOSYS)
		return den_fail(err, DEN_UNSUPPORTED, errno,
			"this kernel takes no seccomp filter; it needs CONFIG_SECCOMP_FILTER");
	if (errno == EACCES)
		return den_fail(err, DEN_DENIED, errno,
			"seccomp filter: CAP_SYS_ADMIN in the user namespace is needed to load it");
	return den_fail_sys(err, errno, "load the seccomp filter");
}
