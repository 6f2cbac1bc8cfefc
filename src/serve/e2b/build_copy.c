/*
 * COPY: the archive that the client sent is unpacked in the box, below a directory that only root has, and moved
 * from there to its place by programs of the box. Nothing of it is looked at on this side but its compression.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#include "build.h"
#include "fd.h"
#include "mem.h"
#include "run.h"
#include "strv.h"

#define UNPACKED_MAX (32ULL << 30) /* bytes of an archive: more than this is no source tree */
#define PLACE "/.den-copy"

struct archive {
	int fd;
	bool plain, begun, ended;
	z_stream z;
	uint64_t sum;
	uint8_t in[32 << 10];
};

static ssize_t fill(struct archive *a, struct den_err *err)
{
	ssize_t n;

	do
		n = read(a->fd, a->in, sizeof(a->in));
	while (n < 0 && errno == EINTR);
	if (n < 0)
		return den_fail_sys(err, errno, "read the upload");
	a->z.next_in = a->in;
	a->z.avail_in = (uInt)n;
	return n;
}

/* The first bytes tell: clients may send it uncompressed. */
static int begin(struct archive *a, struct den_err *err)
{
	ssize_t n = fill(a, err);

	if (n < 0)
		return -1;
	a->begun = true;
	a->plain = n < 2 || a->in[0] != 0x1f || a->in[1] != 0x8b;
	if (!a->plain && inflateInit2(&a->z, 16 + MAX_WBITS) != Z_OK)
		return den_fail(err, DEN_INTERNAL, 0, "zlib does not start");
	return 0;
}

static ssize_t give_plain(struct archive *a, void *buf, size_t cap, struct den_err *err)
{
	size_t n;

	if (!a->z.avail_in && fill(a, err) < 0)
		return -1;
	n = MIN(cap, a->z.avail_in);
	memcpy(buf, a->z.next_in, n);
	a->z.next_in += n;
	a->z.avail_in -= (uInt)n;
	return (ssize_t)n;
}

static ssize_t give_inflated(struct archive *a, void *buf, size_t cap, struct den_err *err)
{
	a->z.next_out = buf;
	a->z.avail_out = (uInt)MIN(cap, 1U << 30);
	while (!a->ended && a->z.avail_out == (uInt)MIN(cap, 1U << 30)) {
		int r;

		if (!a->z.avail_in && fill(a, err) <= 0)
			return a->z.avail_in ? -1
					     : den_fail(err, DEN_INVALID, 0,
						       "the upload ends in the middle of its gzip "
						       "stream");
		r = inflate(&a->z, Z_NO_FLUSH);
		if (r == Z_STREAM_END)
			a->ended = true;
		else if (r != Z_OK)
			return den_fail(err, DEN_INVALID, 0, "the upload is no gzip stream: %s",
				a->z.msg ? a->z.msg : "damaged");
	}
	return (ssize_t)((uInt)MIN(cap, 1U << 30) - a->z.avail_out);
}

static ssize_t give(void *buf, size_t cap, void *user, struct den_err *err)
{
	struct archive *a = user;
	ssize_t n;

	if (!a->begun && begin(a, err) < 0)
		return -1;
	n = a->plain ? give_plain(a, buf, cap, err) : give_inflated(a, buf, cap, err);
	if (n > 0 && (a->sum += (uint64_t)n) > UNPACKED_MAX)
		return den_fail(err, DEN_LIMIT, 0, "the upload unpacks to more than %llu GiB",
			UNPACKED_MAX >> 30);
	return n;
}

/*
 * $1 source as the template says it, $2 destination, $3 owner, $4 mode. One directory: what is in it goes into
 * the destination. One file: the destination is its name, unless it ends with a slash or is a directory.
 * Several: the destination is a directory.
 */
static const char script[] =
	"set -e; shopt -s dotglob nullglob; cd " PLACE "; src=${1#/}; src=${src%/}; dest=$2\n"
	"if [ \"$src\" = . ] || [ -z \"$src\" ]; then list=(.); elif [ -e \"$src\" ] || [ -L "
	"\"$src\" ]; then list=(\"$src\")\n"
	"else IFS=; list=($src); unset IFS; fi\n"
	"[ ${#list[@]} -gt 0 ] || { echo \"COPY: no file matches '$1'\" >&2; exit 1; }\n"
	"chown -hR -- \"$3\" .\n"
	"[ -z \"$4\" ] || chmod -R -- \"$4\" \"${list[@]}\"\n"
	"if [ ${#list[@]} = 1 ] && { [ ! -d \"$list\" ] || [ -L \"$list\" ]; } && [ \"${dest%/}\" "
	"= \"$dest\" ] && [ ! -d \"$dest\" ]; then\n"
	"  mkdir -p -- \"$(dirname -- \"$dest\")\"; cp -a -- \"$list\" \"$dest\"\n"
	"else\n"
	"  [ -d \"$dest\" ] || { mkdir -p -- \"$dest\"; chown -- \"$3\" \"$dest\"; }\n"
	"  for f in \"${list[@]}\"; do if [ -d \"$f\" ] && [ ! -L \"$f\" ]; then\n"
	"    (cd \"$f\"; for e in *; do cp -a -- \"$e\" \"$dest/\"; done); else cp -a -- \"$f\" "
	"\"$dest/\"; fi; done\n"
	"fi\n";

static int unpack(struct build *b, const char *hash, struct den_err *err)
{
	auto_free struct archive *a = mem_zalloc(sizeof(*a));
	auto_fd fd = -1;
	int r;

	if (e2b_upload_open(b->who.org, hash, &fd, err) < 0)
		return -1;
	a->fd = fd;
	r = den_file_mkdir(b->box, PLACE,
		&(struct den_file_opt){ .size = sizeof(struct den_file_opt), .mode = "0700" }, err);
	if (r == 0)
		r = den_tar_in(b->box, PLACE, NULL, give, a, err);
	if (a->begun && !a->plain)
		inflateEnd(&a->z);
	return r;
}

static int place(struct build *b, const char *src, const char *dest, const char *owner,
	const char *mode, struct den_err *err)
{
	const char *const argv[] = { "/bin/bash", "-c", script, "copy", src, dest, owner, mode,
		NULL };
	struct den_exec_opt opt = { .size = sizeof(opt), .argv = argv, .user = "root", .cwd = "/" };
	struct den_exec_result res;

	if (run_wait(b->box, &opt, build_output, b, &res, err) < 0)
		return -1;
	build_output_end(b);
	if (!res.exited || res.status)
		return den_fail(err, DEN_CONFLICT, 0, "COPY %.60s %.60s failed; the log says why",
			src, dest);
	return 0;
}

static const char *arg(const json_t *args, size_t i)
{
	const char *s = json_string_value(json_array_get(args, i));

	return s ? s : "";
}

int build_copy(struct build *b, const json_t *step, struct den_err *err)
{
	const json_t *args = json_object_get(step, "args");
	const char *hash = json_string_value(json_object_get(step, "filesHash")),
		   *src = arg(args, 0), *dest = arg(args, 1), *owner = arg(args, 2),
		   *mode = arg(args, 3);
	auto_free char *path = NULL, *who = NULL;
	int r;

	if (!hash || !*src || !*dest)
		return den_fail(
			err, DEN_INVALID, 0, "COPY needs a source, a destination and filesHash");
	if (strlen(mode) > 5 || strspn(mode, "01234567") != strlen(mode))
		return den_fail(err, DEN_INVALID, 0, "COPY: mode '%.20s' is not octal", mode);
	if (asprintf(&path, dest[0] == '/' ? "%.0s%s" : "%s/%s", b->workdir, dest) < 0 ||
		asprintf(&who, strchr(owner, ':') ? "%s" : "%s:", *owner ? owner : b->user) < 0)
		abort();
	r = unpack(b, hash, err);
	if (r == 0)
		r = place(b, src, path, who, mode, err);
	if (r == 0)
		r = den_file_remove(b->box, PLACE,
			&(struct den_file_opt){
				.size = sizeof(struct den_file_opt), .recursive = true },
			err);
	return r;
}
