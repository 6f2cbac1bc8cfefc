/*
 * Files that a template's COPY steps bring: the client asks for a link, sends a (gzipped) tar there, and the
 * build unpacks it in a box. The name is a hash that the client made of the sources; it is the organisation's
 * own, so nobody can put something under somebody else's.
 */
#include "e2b_parts.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "fd.h"
#include "mem.h"
#include "sha256.h"

#define UPLOAD_MAX (4ULL << 30) /* bytes of one */
#define UPLOADS_MAX (16ULL << 30) /* bytes of all of an organisation */
#define LOOK_EACH (64U << 20)
#define KEEP_S (7 * 24 * 3600) /* a client that builds the same again need not send it again */

static bool hash_ok(const char *s)
{
	return strlen(s) == 64 && strspn(s, "0123456789abcdef") == 64;
}

static int hash_check(const char *hash, struct den_err *err)
{
	return hash_ok(hash) ? 0
			     : den_fail(err, DEN_INVALID, 0,
				       "'%.80s' is no hash: 64 hexadecimal digits", hash);
}

static void token_make(const char *org, const char *hash, char out[static 41])
{
	struct sha256 sha;
	char both[65];

	sha256_init(&sha);
	sha256_add(&sha, org, strlen(org) + 1);
	sha256_add(&sha, hash, strlen(hash));
	sha256_hex(&sha, both);
	both[40] = '\0'; /* as much as a token tells apart */
	auth_box_token(both, "upload", out);
}

/* STATE/serve/uploads/ORG; org is of an alphabet that a path may have (auth.h) */
static int dir_open(const char *org, bool make, int *ret, struct den_err *err)
{
	char path[64];

	snprintf(path, sizeof(path), "uploads/%s", org);
	if (make && ((mkdir("uploads", 0700) < 0 && errno != EEXIST) ||
			    (mkdir(path, 0700) < 0 && errno != EEXIST)))
		return den_fail_sys(err, errno, "STATE/serve/%s", path);
	*ret = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (*ret < 0)
		return den_fail_sys(err, errno, "STATE/serve/%s", path);
	return 0;
}

int e2b_upload_open(const char *org, const char *hash, int *ret, struct den_err *err)
{
	auto_fd dir = -1;

	if (hash_check(hash, err) < 0 || dir_open(org, false, &dir, err) < 0)
		return -1;
	*ret = openat(dir, hash, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	if (*ret < 0)
		return den_fail_sys(err, errno, "files %.12s were not uploaded", hash);
	(void)futimens(*ret, NULL); /* in use: keep it for longer */
	return 0;
}

int e2b_upload_link(struct req *r, struct den_err *err)
{
	const char *hash = req_arg(r, "hash"), *host = req_header(r, "Host"),
		   *org = req_who(r)->org;
	char token[41];
	auto_fd fd = -1;
	bool present;

	if (hash_check(hash, err) < 0)
		return -1;
	present = e2b_upload_open(org, hash, &fd, err) == 0;
	if (present)
		return req_reply_json(r, 201, json_pack("{s:b}", "present", 1));
	token_make(org, hash, token);
	/* as the client has just reached us */
	return req_reply_json(r, 201,
		json_pack("{s:b, s:o}", "present", 0, "url",
			host ? json_sprintf("%s://%s/templates/uploads/%s/%s/%s",
				       req_tls(r) ? "https" : "http", host, org, hash, token)
			     : json_sprintf("%s/templates/uploads/%s/%s/%s", serve.url, org, hash,
				       token)));
}

/* What nobody has asked for in a while goes. Bytes of what is left. */
static uint64_t sweep(int dir)
{
	uint64_t sum = 0;
	auto_fd fd = dup(dir);
	DIR *d = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *e;
	struct stat st;

	if (!d)
		return 0;
	(void)fd_take(&fd); /* d has it */
	rewinddir(d);
	while ((e = readdir(d))) {
		if (e->d_name[0] == '.' || fstatat(dir, e->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
			continue;
		if (st.st_mtime < time(NULL) - KEEP_S)
			(void)unlinkat(dir, e->d_name, 0);
		else
			sum += (uint64_t)st.st_size;
	}
	closedir(d);
	return sum;
}

static int take(struct req *r, int dir, int fd, struct den_err *err)
{
	auto_free char *room = mem_alloc(64 << 10);
	uint64_t sum = 0, looked = 0;
	ssize_t n;

	while ((n = req_read(r, room, 64 << 10, err)) > 0) {
		sum += (uint64_t)n;
		if (sum > UPLOAD_MAX)
			return den_fail(err, DEN_LIMIT, EFBIG, "more than %llu GiB of files",
				UPLOAD_MAX >> 30);
		if (sum - looked >= LOOK_EACH || sum == (uint64_t)n) { /* others of it may be at work, too */
			looked = sum;
			if (sweep(dir) > UPLOADS_MAX)
				return den_fail(err, DEN_LIMIT, EDQUOT,
					"your organisation has more than %llu GiB of uploads; those that "
					"no build uses go after a week",
					UPLOADS_MAX >> 30);
		}
		if (fd_write_all(fd, room, (size_t)n, err) < 0)
			return -1;
	}
	return n < 0 ? -1 : 0;
}

int e2b_upload(struct req *r, struct den_err *err)
{
	const char *org = req_arg(r, "org"), *hash = req_arg(r, "hash");
	char token[41], name[96];
	auto_fd dir = -1, fd = -1;
	int status;

	if (strlen(org) > 32 ||
		strspn(org, "abcdefghijklmnopqrstuvwxyz0123456789-") != strlen(org) || !*org ||
		!hash_ok(hash))
		return den_fail(err, DEN_NOT_FOUND, 0, "no such link");
	token_make(org, hash, token);
	if (!auth_same(token, req_arg(r, "token")))
		return den_fail(err, DEN_NOT_FOUND, 0, "no such link");
	if (req_share(r, org, err) < 0 || dir_open(org, true, &dir, err) < 0)
		return -1;
	snprintf(name, sizeof(name), "%s.%llu.part", hash, (unsigned long long)req_number(r));
	fd = openat(dir, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return den_fail_sys(err, errno, "upload");
	status = take(r, dir, fd, err);
	if (status == 0 && (fsync(fd) < 0 || renameat(dir, name, dir, hash) < 0))
		status = den_fail_sys(err, errno, "upload");
	if (status < 0) {
		(void)unlinkat(dir, name, 0);
		return -1;
	}
	return req_reply_empty(r, 200);
}
