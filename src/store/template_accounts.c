/*
 * The accounts of a box: root, user, and the host's system accounts, because files, package scripts
 * and dpkg's statoverride name them. People's accounts do not come along, and no password does:
 * each one is locked with '*', which keeps everybody from logging in with a password, and nobody
 * from becoming that account as root (su, sudo).
 */
#include "template_make.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "fd.h"
#include "mem.h"
#include "parse.h"

#define ACCOUNTS_FILE_MAX (4 << 20)
#define FIRST_PERSON 1000 /* ids below are the system's (Debian policy 9.2.2, login.defs) */
#define SUDO_GID 27 /* Debian's */

unsigned account_id(const struct account *list, size_t n, const char *name, unsigned fallback)
{
	for (size_t i = 0; i < n; i++)
		if (strcmp(list[i].name, name) == 0)
			return list[i].id;
	return fallback;
}

static bool account_has(const struct account *list, size_t n, const char *name)
{
	return account_id(list, n, name, ~0u) != ~0u;
}

static void account_add(struct account **list, size_t *n, const char *name, unsigned id)
{
	*list = mem_realloc(*list, (*n + 1) * sizeof(**list));
	snprintf((*list)[*n].name, sizeof((*list)[*n].name), "%s", name);
	(*list)[(*n)++].id = id;
}

static bool name_is_sane(const char *s)
{
	size_t n = strspn(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.");

	return n > 0 && n <= 32 && s[n] == '\0' && s[0] != '-' && s[0] != '.';
}

/* Cuts line at each ':' in place. False unless there are exactly n fields of printable text. */
static bool fields_split(char *line, char **field, size_t n)
{
	for (const char *p = line; *p; p++)
		if ((unsigned char)*p < ' ' || *p == 127)
			return false;
	for (size_t i = 0; i < n; i++) {
		field[i] = strsep(&line, ":");
		if (!field[i])
			return false;
	}
	return line == NULL;
}

static bool id_is_systems(const char *text, unsigned *ret)
{
	uint64_t v;

	if (parse_u64(text, 0, UINT32_MAX - 1, &v, NULL) < 0)
		return false;
	*ret = (unsigned)v;
	return (v > 0 && v < FIRST_PERSON) || v == NOBODY_ID;
}

static char *accounts_read(struct make *m, const char *path)
{
	auto_fd fd = openat(m->src, path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	char *text = NULL;
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || st.st_uid != m->src_owner ||
		fd_read_all(fd, ACCOUNTS_FILE_MAX, &text, NULL, NULL) < 0)
		return mem_strdup(""); /* a host without has no accounts to keep */
	return text;
}

static const char *shell_of(struct make *m)
{
	return faccessat(m->src, "bin/bash", X_OK, 0) == 0 ||
			       faccessat(m->src, "usr/bin/bash", X_OK, AT_SYMLINK_NOFOLLOW) == 0
		       ? "/bin/bash"
		       : "/bin/sh";
}

static void passwd_compose(struct make *m, struct buf *out)
{
	auto_free char *text = accounts_read(m, "etc/passwd");
	char *rest = text, *line, *f[7];
	unsigned uid;
	uint64_t gid;

	account_add(&m->users, &m->n_users, "root", 0);
	buf_addf(out, "root:x:0:0:root:/root:%s\n", shell_of(m));
	while ((line = strsep(&rest, "\n"))) {
		if (!fields_split(line, f, 7) || !name_is_sane(f[0]) ||
			!id_is_systems(f[2], &uid) ||
			parse_u64(f[3], 0, UINT32_MAX - 1, &gid, NULL) < 0 ||
			!strcmp(f[0], "user") || account_has(m->users, m->n_users, f[0]))
			continue;
		account_add(&m->users, &m->n_users, f[0], uid);
		buf_addf(out, "%s:x:%u:%u:%s:%s:%s\n", f[0], uid, (unsigned)gid, f[4], f[5], f[6]);
	}
	if (!account_has(m->users, m->n_users, "nobody")) {
		account_add(&m->users, &m->n_users, "nobody", NOBODY_ID);
		buf_addf(out, "nobody:x:%d:%d:nobody:/nonexistent:/usr/sbin/nologin\n", NOBODY_ID,
			NOBODY_ID);
	}
	account_add(&m->users, &m->n_users, "user", BOX_UID);
	buf_addf(out, "user:x:%d:%d::/home/user:%s\n", BOX_UID, BOX_UID, shell_of(m));
}

/* Of the members of a host's group, those that the box has too. */
static void members_compose(struct make *m, char *members, bool with_user, struct buf *out)
{
	const char *sep = "";
	char *one;

	while ((one = strsep(&members, ","))) {
		if (!*one || !strcmp(one, "user") || !account_has(m->users, m->n_users, one))
			continue;
		buf_addf(out, "%s%s", sep, one);
		sep = ",";
	}
	if (with_user)
		buf_addf(out, "%suser", sep);
}

static unsigned gid_free(struct make *m, unsigned wanted)
{
	for (unsigned gid = wanted;; gid = gid == wanted ? FIRST_PERSON - 1 : gid - 1) {
		bool taken = false;

		for (size_t i = 0; i < m->n_groups; i++)
			taken |= m->groups[i].id == gid;
		if (!taken)
			return gid;
	}
}

static void group_add(struct make *m, const char *name, unsigned gid, char *members,
	struct buf *group, struct buf *gshadow)
{
	auto_buf list = { 0 };

	members_compose(m, members, !strcmp(name, "sudo"), &list);
	account_add(&m->groups, &m->n_groups, name, gid);
	buf_addf(group, "%s:x:%u:%s\n", name, gid, buf_str(&list));
	buf_addf(gshadow, "%s:*::%s\n", name, buf_str(&list));
}

static void groups_compose(struct make *m, struct buf *group, struct buf *gshadow)
{
	auto_free char *text = accounts_read(m, "etc/group");
	char *rest = text, *line, *f[4], none[1] = "";
	unsigned gid;

	group_add(m, "root", 0, none, group, gshadow);
	while ((line = strsep(&rest, "\n"))) {
		if (!fields_split(line, f, 4) || !name_is_sane(f[0]) ||
			!id_is_systems(f[2], &gid) || !strcmp(f[0], "user") ||
			account_has(m->groups, m->n_groups, f[0]))
			continue;
		group_add(m, f[0], gid, f[3], group, gshadow);
	}
	if (!account_has(m->groups, m->n_groups, "sudo"))
		group_add(m, "sudo", gid_free(m, SUDO_GID), none, group, gshadow);
	group_add(m, "user", BOX_UID, none, group, gshadow);
}

int accounts_make(struct make *m, struct den_err *err)
{
	auto_buf passwd = { 0 }, shadow = { 0 }, group = { 0 }, gshadow = { 0 };
	auto_fd etc = -1;
	unsigned shadow_gid;

	passwd_compose(m, &passwd);
	groups_compose(m, &group, &gshadow);
	for (size_t i = 0; i < m->n_users; i++)
		buf_addf(&shadow, "%s:*:::::::\n", m->users[i].name);
	shadow_gid = account_id(m->groups, m->n_groups, "shadow", 0);
	if (make_dir(m, "etc", &etc, err) < 0 ||
		make_file(m, "etc/passwd", passwd.p, passwd.len, 0, 0, 0644, err) < 0 ||
		make_file(m, "etc/group", group.p, group.len, 0, 0, 0644, err) < 0 ||
		make_file(m, "etc/shadow", shadow.p, shadow.len, 0, shadow_gid, 0640, err) < 0 ||
		make_file(m, "etc/gshadow", gshadow.p, gshadow.len, 0, shadow_gid, 0640, err) < 0)
		return den_wrap(err, "accounts");
	return 0;
}
