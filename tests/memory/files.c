/* Files that are open, locked, deleted, or only in memory. */
#include "memory.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/un.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <sys/xattr.h>

/* ---- files: offsets, flags, numbers ---- */

static int f_mid, f_dup, f_append, f_read, f_dir, f_high, f_path;

static void files_setup(const char *argument)
{
	(void)argument;
	f_mid = open("middle", O_RDWR | O_CREAT, 0640);
	MUST(f_mid >= 0 && writes(f_mid, 10000, 1) && lseek(f_mid, 4321, SEEK_SET) == 4321);
	f_dup = dup(f_mid);
	f_append = open("append", O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
	MUST(f_append >= 0 && writes(f_append, 100, 2));
	f_read = open("middle", O_RDONLY | O_NONBLOCK | O_NOFOLLOW);
	MUST(f_read >= 0 && lseek(f_read, 99, SEEK_SET) == 99);
	MUST(mkdir("d", 0755) == 0);
	f_dir = open("d", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	f_high = fcntl(f_read, F_DUPFD_CLOEXEC, 300);
	f_path = open("middle", O_PATH);
	MUST(f_dup >= 0 && f_dir >= 0 && f_high >= 300 && f_path >= 0);
}

static void files_check(void)
{
	struct stat a, b;
	char name[40];
	int fd;

	/* A step moves on by 7. The two that share an offset move together. */
	IS(lseek(f_mid, 0, SEEK_CUR), 4321 + 7 * steps);
	IS(lseek(f_dup, 0, SEEK_CUR), 4321 + 7 * steps);
	lseek(f_dup, 5, SEEK_SET);
	IS(lseek(f_mid, 0, SEEK_CUR), 5);
	lseek(f_mid, 4321 + 7 * steps, SEEK_SET);
	IS(lseek(f_read, 0, SEEK_CUR), 99);
	IS(fcntl(f_mid, F_GETFL) & (O_ACCMODE | O_APPEND | O_NONBLOCK), O_RDWR);
	IS(fcntl(f_append, F_GETFL) & (O_ACCMODE | O_APPEND), O_WRONLY | O_APPEND);
	IS(fcntl(f_read, F_GETFL) & (O_ACCMODE | O_NONBLOCK), O_RDONLY | O_NONBLOCK);
	IS(fcntl(f_mid, F_GETFD), 0);
	IS(fcntl(f_append, F_GETFD), FD_CLOEXEC);
	IS(fcntl(f_high, F_GETFD), FD_CLOEXEC);
	IS(fcntl(f_path, F_GETFL) & O_PATH, O_PATH);
	CHECK(fstat(f_append, &a) == 0);
	IS(a.st_size, 100 + steps);
	/* The file that is open is the one that has the name. */
	CHECK(fstat(f_mid, &a) == 0 && stat("middle", &b) == 0);
	IS(a.st_ino, b.st_ino);
	IS(a.st_mode, S_IFREG | 0640);
	snprintf(name, sizeof(name), "made-%lld", (long long)mono_ns());
	fd = openat(f_dir, name, O_WRONLY | O_CREAT | O_EXCL, 0644);
	CHECK(fd >= 0);
	close(fd);
	CHECK(unlinkat(f_dir, name, 0) == 0);
}

static void files_step(void)
{
	char c[7];

	IS(read(f_mid, c, sizeof(c)), sizeof(c));
	lseek(f_append, 0, SEEK_SET); /* which does not matter */
	IS(write(f_append, "x", 1), 1);
}

const struct subject subject_files = { "files", files_setup, files_check, files_step, NULL };

/* ---- deleted: no name leads to them any more ---- */

#define GONE_LARGE (3UL << 20)

static int d_small, d_large, d_dir, d_link, d_other;
static nlink_t d_links, d_one; /* 0 and 1, where the kernel knows */

static void deleted_setup(const char *argument)
{
	struct stat st;

	(void)argument;
	d_small = open("small", O_RDWR | O_CREAT, 0604);
	d_large = open("large", O_RDWR | O_CREAT, 0600);
	MUST(mkdir("gone", 0755) == 0);
	d_dir = open("gone/file", O_RDWR | O_CREAT, 0600);
	d_link = open("one", O_RDWR | O_CREAT, 0600);
	MUST(d_small >= 0 && d_large >= 0 && d_dir >= 0 && d_link >= 0);
	MUST(writes(d_small, 1000, 1) && writes(d_large, GONE_LARGE, 2) && writes(d_dir, 10, 3));
	MUST(writes(d_link, 50, 4) && link("one", "other") == 0);
	MUST(lseek(d_small, 500, SEEK_SET) == 500);
	MUST(unlink("small") == 0 && unlink("large") == 0 && unlink("gone/file") == 0);
	MUST(rmdir("gone") == 0 && unlink("one") == 0);
	MUST(fstat(d_small, &st) == 0);
	d_links = st.st_nlink;
	MUST(stat("other", &st) == 0);
	d_one = st.st_nlink;
	/* Another took its name. */
	d_other = open("small", O_RDWR | O_CREAT | O_EXCL, 0600);
	MUST(d_other >= 0 && writes(d_other, 77, 5));
}

static bool holds(int fd, size_t n, uint64_t seed)
{
	unsigned char *p = malloc(n + 1);
	bool ok = pread(fd, p, n + 1, 0) == (ssize_t)n && filled(p, n, seed);

	free(p);
	return ok;
}

static void deleted_check(void)
{
	struct stat a, b;

	CHECK(holds(d_small, 1000, 1 + 100 * steps));
	CHECK(holds(d_large, GONE_LARGE, 2));
	CHECK(holds(d_dir, 10, 3));
	CHECK(holds(d_link, 50, 4));
	CHECK(holds(d_other, 77, 5));
	IS(lseek(d_small, 0, SEEK_CUR), 500);
	CHECK(fstat(d_small, &a) == 0 && stat("small", &b) == 0);
	IS(a.st_nlink, d_links);
	CHECK(a.st_ino != b.st_ino);
	CHECK(access("large", F_OK) < 0 && access("gone", F_OK) < 0 && access("one", F_OK) < 0);
	CHECK(fstat(d_link, &a) == 0 && stat("other", &b) == 0);
	IS(a.st_ino, b.st_ino);
	CHECK(b.st_nlink == 1 || b.st_nlink == d_one);
}

static void deleted_step(void)
{
	unsigned char p[1000];

	fill(p, sizeof(p), 1 + 100 * steps);
	IS(pwrite(d_small, p, sizeof(p), 0), sizeof(p));
}

const struct subject subject_deleted = { "deleted", deleted_setup, deleted_check, deleted_step,
	NULL };

/* ---- locks ---- */

static int l_flock, l_shared, l_posix;

/* What somebody else would be told who wants it: 0 is granted. */
static int wants_flock(const char *path, int how)
{
	int status;
	pid_t pid = fork();

	if (pid == 0) {
		int fd = open(path, O_RDWR);

		_exit(fd < 0 ? 99 : flock(fd, how | LOCK_NB) == 0 ? 0 : errno);
	}
	waitpid(pid, &status, 0);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static int wants_range(const char *path, int cmd, short type, off_t from, off_t len)
{
	int status;
	pid_t pid = fork();

	if (pid == 0) {
		struct flock l = {
			.l_type = type, .l_whence = SEEK_SET, .l_start = from, .l_len = len
		};
		int fd = open(path, O_RDWR);

		_exit(fd < 0 ? 99 : fcntl(fd, cmd, &l) == 0 ? 0 : errno);
	}
	waitpid(pid, &status, 0);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void range(int fd, int cmd, short type, off_t from, off_t len)
{
	struct flock l = { .l_type = type, .l_whence = SEEK_SET, .l_start = from, .l_len = len };

	MUST(fcntl(fd, cmd, &l) == 0);
}

static void locks_setup(const char *argument)
{
	(void)argument;
	l_flock = open("flock", O_RDWR | O_CREAT, 0600);
	l_shared = open("shared", O_RDWR | O_CREAT, 0600);
	l_posix = open("posix", O_RDWR | O_CREAT, 0600);
	MUST(l_flock >= 0 && l_shared >= 0 && l_posix >= 0);
	MUST(flock(l_flock, LOCK_EX) == 0 && flock(l_shared, LOCK_SH) == 0);
	range(l_posix, F_SETLK, F_WRLCK, 10, 10);
	range(l_posix, F_SETLK, F_RDLCK, 30, 10);
}

static void locks_check(void)
{
	IS(wants_flock("flock", LOCK_SH), EWOULDBLOCK);
	IS(wants_flock("shared", LOCK_SH), 0);
	IS(wants_flock("shared", LOCK_EX), EWOULDBLOCK);
	IS(wants_range("posix", F_SETLK, F_RDLCK, 19, 1), EAGAIN);
	IS(wants_range("posix", F_SETLK, F_WRLCK, 0, 10), 0);
	IS(wants_range("posix", F_SETLK, F_WRLCK, 20, 10), 0);
	IS(wants_range("posix", F_SETLK, F_RDLCK, 30, 10), 0);
	IS(wants_range("posix", F_SETLK, F_WRLCK, 39, 1), EAGAIN);
}

const struct subject subject_locks = { "locks", locks_setup, locks_check, NULL, NULL };

/* Locks of an open file rather than of a process. */
static int l_ofd;

static void ofd_setup(const char *argument)
{
	(void)argument;
	l_ofd = open("ofd", O_RDWR | O_CREAT, 0600);
	MUST(l_ofd >= 0);
	range(l_ofd, F_OFD_SETLK, F_WRLCK, 5, 5);
}

static void ofd_check(void)
{
	IS(wants_range("ofd", F_OFD_SETLK, F_RDLCK, 9, 1), EAGAIN);
	IS(wants_range("ofd", F_OFD_SETLK, F_WRLCK, 10, 1), 0);
}

const struct subject subject_ofd = { "ofd", ofd_setup, ofd_check, NULL, NULL };

/* ---- tmpfs: files that are only in memory ---- */

#define TMPFS_MAGIC_NUMBER 0x01021994
#define MANY 120
#define HOLEY (64L << 20)

static const char *tmpfs_at;
static blkcnt_t tmpfs_blocks; /* that the file with holes takes */
static char tmpfs_dir[80];
static struct timespec tmpfs_time = { 1000000000, 123456789 };

static const char *in_tmpfs(const char *name)
{
	static char path[4][120];
	static int n;

	n = (n + 1) % 4;
	snprintf(path[n], sizeof(path[n]), "%s/%s", tmpfs_dir, name);
	return path[n];
}

static void tmpfs_setup(const char *argument)
{
	static const char *const places[] = { "/dev/shm", "/tmp", "/run" };
	const struct timespec times[2] = { tmpfs_time, tmpfs_time };
	struct statfs fs;
	struct stat st;
	char name[20];
	int fd;

	(void)argument;
	for (size_t i = 0; i < 3 && !tmpfs_at; i++)
		if (statfs(places[i], &fs) == 0 && fs.f_type == TMPFS_MAGIC_NUMBER &&
			access(places[i], W_OK) == 0)
			tmpfs_at = places[i];
	MUST(tmpfs_at);
	snprintf(tmpfs_dir, sizeof(tmpfs_dir), "%s/memory-%lld", tmpfs_at, (long long)mono_ns());
	MUST(mkdir(tmpfs_dir, 01751) == 0 && chmod(tmpfs_dir, 01751) == 0);
	fd = open(in_tmpfs("holes"), O_RDWR | O_CREAT, 0600);
	MUST(fd >= 0 && ftruncate(fd, HOLEY) == 0);
	for (int i = 0; i < 4; i++)
		MUST(pwrite(fd, "here", 4, i * (HOLEY / 4) + 12345) == 4);
	MUST(fstat(fd, &st) == 0);
	tmpfs_blocks = st.st_blocks;
	close(fd);
	fd = open(in_tmpfs("mode"), O_RDWR | O_CREAT, 0600);
	MUST(fd >= 0 && writes(fd, 3000, 1) && fchmod(fd, 04711) == 0 && futimens(fd, times) == 0);
	close(fd);
	MUST(link(in_tmpfs("mode"), in_tmpfs("link")) == 0);
	MUST(symlink("nowhere/at all", in_tmpfs("symlink")) == 0);
	MUST(mkfifo(in_tmpfs("fifo"), 0620) == 0 && chmod(in_tmpfs("fifo"), 0620) == 0);
	MUST(mkdir(in_tmpfs("many"), 0755) == 0);
	for (int i = 0; i < MANY; i++) {
		snprintf(name, sizeof(name), "many/%d", i);
		fd = open(in_tmpfs(name), O_WRONLY | O_CREAT, 0644);
		MUST(fd >= 0 && writes(fd, (size_t)i * 10 + 1, 50 + (uint64_t)i));
		close(fd);
	}
}

static void tmpfs_many(void)
{
	char name[20];

	for (int i = 0; i < MANY; i++) {
		int fd;

		snprintf(name, sizeof(name), "many/%d", i);
		fd = open(in_tmpfs(name), O_RDONLY);
		if (fd < 0 || !reads(fd, (size_t)i * 10 + 1, 50 + (uint64_t)i))
			wrong("%s is not what it was", in_tmpfs(name));
		close(fd);
	}
}

static void tmpfs_check(void)
{
	struct stat a, b;
	char text[20] = "";
	int fd = open(in_tmpfs("holes"), O_RDONLY);

	CHECK(fd >= 0 && fstat(fd, &a) == 0);
	IS(a.st_size, HOLEY);
	CHECK(a.st_blocks <= tmpfs_blocks);
	for (int i = 0; i < 4; i++) {
		memset(text, 0, sizeof(text));
		CHECK(pread(fd, text, 4, i * (HOLEY / 4) + 12345) == 4 &&
			strcmp(text, "here") == 0);
		CHECK(pread(fd, text, 4, i * (HOLEY / 4) + 2345) == 4 && text[0] == 0);
	}
	close(fd);
	CHECK(stat(tmpfs_dir, &a) == 0);
	IS(a.st_mode, S_IFDIR | 01751);
	CHECK(stat(in_tmpfs("mode"), &a) == 0 && stat(in_tmpfs("link"), &b) == 0);
	IS(a.st_mode, S_IFREG | 04711);
	IS(a.st_ino, b.st_ino);
	IS(a.st_nlink, 2);
	IS(a.st_mtim.tv_sec, tmpfs_time.tv_sec);
	fd = open(in_tmpfs("mode"), O_RDONLY);
	CHECK(fd >= 0 && reads(fd, 3000, 1));
	close(fd);
	memset(text, 0, sizeof(text));
	CHECK(readlink(in_tmpfs("symlink"), text, sizeof(text) - 1) > 0 &&
		strcmp(text, "nowhere/at all") == 0);
	CHECK(stat(in_tmpfs("fifo"), &a) == 0);
	IS(a.st_mode, S_IFIFO | 0620);
	tmpfs_many();
	snprintf(text, sizeof(text), "step-%u", steps);
	CHECK(steps == 0 || access(in_tmpfs(text), F_OK) == 0);
}

static void tmpfs_step(void)
{
	char name[20];
	int fd;

	snprintf(name, sizeof(name), "step-%u", steps);
	fd = open(in_tmpfs(name), O_WRONLY | O_CREAT, 0600);
	CHECK(fd >= 0);
	close(fd);
}

const struct subject subject_tmpfs = { "tmpfs", tmpfs_setup, tmpfs_check, tmpfs_step, NULL };
