/* Extended attributes of files. Only those that any user may have ("user."); what the file system or the kernel
 * keeps in the others is nobody's text. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "fs_ops.h"
#include "mem.h"
#include "strv.h"

#define NAMES_MAX (64U << 10) /* the kernel's own bounds */
#define VALUE_MAX (64U << 10)

static bool has_prefix(const char *name, const char *prefix)
{
	return !strncmp(name, prefix, strlen(prefix));
}

int fs_xattr_check(const char *prefix, char *const *pairs, struct den_err *err)
{
	if (!has_prefix(prefix, FSOP_XATTR_PREFIX))
		return den_fail(err, DEN_INVALID, 0, "a prefix of extended attributes begins with '%s', not '%.60s'",
			FSOP_XATTR_PREFIX, prefix);
	for (size_t i = 0; pairs && pairs[i]; i++) {
		size_t key = strcspn(pairs[i], "=");

		if (!has_prefix(pairs[i], prefix) || !pairs[i][key])
			return den_fail(err, DEN_INVALID, 0, "extended attribute '%.60s' is not %sNAME=VALUE", pairs[i],
				prefix);
		if (key > 255 || key <= strlen(FSOP_XATTR_PREFIX))
			return den_fail(err, DEN_INVALID, 0, "extended attribute '%.60s': bad name", pairs[i]);
	}
	return 0;
}

/* All names, each ended by NUL, one after the other. -1: none can be had. */
static ssize_t names_read(int fd, char *names)
{
	char self[32];
	ssize_t n = flistxattr(fd, names, NAMES_MAX);

	if (n < 0 && errno == EBADF) { /* O_PATH: only through its name */
		snprintf(self, sizeof(self), "/proc/self/fd/%d", fd);
		n = listxattr(self, names, NAMES_MAX);
	}
	return n;
}

static ssize_t value_read(int fd, const char *name, char *value)
{
	char self[32];
	ssize_t n = fgetxattr(fd, name, value, VALUE_MAX);

	if (n < 0 && errno == EBADF) {
		snprintf(self, sizeof(self), "/proc/self/fd/%d", fd);
		n = getxattr(self, name, value, VALUE_MAX);
	}
	return n;
}

static int by_name(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

char **fs_xattr_read(int fd, const char *prefix)
{
	auto_free char *names = mem_alloc(NAMES_MAX), *value = mem_alloc(VALUE_MAX);
	ssize_t n = names_read(fd, names);
	size_t total = 0;
	char **out = NULL;

	for (const char *p = names; n > 0 && p < names + n; p += strlen(p) + 1) {
		auto_buf b = { 0 };
		ssize_t len = has_prefix(p, prefix) ? value_read(fd, p, value) : -1;

		if (len < 0 || memchr(value, '\0', (size_t)len))
			continue;
		total += strlen(p) + 1 + (size_t)len + 8;
		if (total > FSOP_XATTRS_MAX)
			break;
		buf_addf(&b, "%s=", p);
		buf_add(&b, value, (size_t)len);
		strv_addn(&out, b.p, b.len);
	}
	if (out)
		qsort(out, strv_len(out), sizeof(*out), by_name);
	return out;
}

static bool is_given(const char *name, char *const *pairs)
{
	size_t n = strlen(name);

	for (size_t i = 0; pairs[i]; i++)
		if (!strncmp(pairs[i], name, n) && pairs[i][n] == '=')
			return true;
	return false;
}

int fs_xattr_replace(int fd, const char *prefix, char *const *pairs, struct den_err *err)
{
	auto_free char *names = mem_alloc(NAMES_MAX);
	ssize_t n = names_read(fd, names);

	for (const char *p = names; n > 0 && p < names + n; p += strlen(p) + 1)
		if (has_prefix(p, prefix) && !is_given(p, pairs) && fremovexattr(fd, p) < 0 && errno != ENODATA)
			return den_fail_sys(err, errno, "remove extended attribute '%.100s'", p);
	for (size_t i = 0; pairs[i]; i++) {
		size_t key = strcspn(pairs[i], "=");
		auto_free char *name = strndup(pairs[i], key);
		const char *value = pairs[i] + key + 1;

		if (!name)
			return den_fail(err, DEN_LIMIT, ENOMEM, "extended attribute");
		if (fsetxattr(fd, name, value, strlen(value), 0) < 0)
			return den_fail_sys(err, errno, "set extended attribute '%.100s'", name);
	}
	return 0;
}
