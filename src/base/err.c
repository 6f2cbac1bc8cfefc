#include "err.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "compat.h"
#include "mem.h"

static const char *const code_str[] = {
	[DEN_OK] = "ok",
	[DEN_INVALID] = "invalid",
	[DEN_NOT_FOUND] = "not_found",
	[DEN_CONFLICT] = "conflict",
	[DEN_DENIED] = "denied",
	[DEN_LIMIT] = "limit",
	[DEN_TIMEOUT] = "timeout",
	[DEN_UNSUPPORTED] = "unsupported",
	[DEN_INTERNAL] = "internal",
};
static_assert(ARRAY_SIZE(code_str) == ERR_CODES, "a code has no name");

const char *den_code_str(enum den_code code)
{
	return (unsigned)code < ERR_CODES ? code_str[code] : "internal";
}

enum den_code den_code_of_errno(int sys)
{
	switch (sys) {
	case ENOENT:
	case ENOTDIR:
	case ESRCH:
		return DEN_NOT_FOUND;
	case EACCES:
	case EPERM:
	case EROFS:
		return DEN_DENIED;
	case EEXIST:
	case ENOTEMPTY:
	case EBUSY:
	case EISDIR:
		return DEN_CONFLICT;
	case ENOSPC:
	case EDQUOT:
	case ENOMEM:
	case EMFILE:
	case ENFILE:
	case EFBIG:
		return DEN_LIMIT;
	case ENAMETOOLONG:
	case EINVAL:
	case ELOOP:
	case EILSEQ:
		return DEN_INVALID;
	case ENOSYS:
	case EOPNOTSUPP:
		return DEN_UNSUPPORTED;
	case ETIMEDOUT:
		return DEN_TIMEOUT;
	default:
		return DEN_INTERNAL;
	}
}

static void err_set(struct den_err *e, enum den_code code, int sys, const char *fmt, va_list ap)
{
	size_t n;

	if (!e)
		return;
	e->code = code;
	e->sys = sys;
	vsnprintf(e->msg, sizeof(e->msg), fmt, ap);
	n = strlen(e->msg);
	if (sys && n + 3 < sizeof(e->msg))
		snprintf(e->msg + n, sizeof(e->msg) - n, ": %s",
			strerrordesc_np(sys) ?: "unknown error");
}

int den_fail(struct den_err *e, enum den_code code, int sys, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	err_set(e, code, sys, fmt, ap);
	va_end(ap);
	return -1;
}

int den_fail_sys(struct den_err *e, int sys, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	err_set(e, den_code_of_errno(sys), sys, fmt, ap);
	va_end(ap);
	return -1;
}

int den_wrap(struct den_err *e, const char *fmt, ...)
{
	char inner[sizeof(e->msg)];
	va_list ap;
	int n;

	if (!e)
		return -1;
	memcpy(inner, e->msg, sizeof(inner));
	inner[sizeof(inner) - 1] = '\0';
	va_start(ap, fmt);
	n = vsnprintf(e->msg, sizeof(e->msg), fmt, ap);
	va_end(ap);
	if (n >= 0 && (size_t)n < sizeof(e->msg))
		snprintf(e->msg + n, sizeof(e->msg) - (size_t)n, ": %s", inner);
	return -1;
}

/* Stable, and in den(1): scripts rely on it. */
static const int exit_code[] = {
	[DEN_OK] = 0,
	[DEN_INVALID] = 2,
	[DEN_NOT_FOUND] = 3,
	[DEN_CONFLICT] = 4,
	[DEN_DENIED] = 5,
	[DEN_LIMIT] = 6,
	[DEN_TIMEOUT] = 7,
	[DEN_UNSUPPORTED] = 8,
	[DEN_INTERNAL] = 1,
};
static_assert(ARRAY_SIZE(exit_code) == ERR_CODES, "a code has no exit status");

int err_exit_status(enum den_code code)
{
	return (unsigned)code < ERR_CODES ? exit_code[code] : 1;
}
