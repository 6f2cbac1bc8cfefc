/* What runs in the box and what it uses, seen from the host. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include "buf.h"
#include "fd.h"
#include "keeper.h"

#define PS_MAX 2000
#define DU_MAX 200000

/* ---- processes ---- */

/* The pid inside: the last number of NSpid. */
static bool inner_pid(const char *status, uint64_t *pid, uint64_t *uid)
{
	const char *p = strstr(status, "\nNSpid:"), *u = strstr(status, "\nUid:");
	const char *end, *last;

	if (!p || !u)
		return false;
	p += 7;
	end = strchr(p, '\n');
	for (last = end ? end : p + strlen(p); last > p && last[-1] != '\t' && last[-1] != ' '; last--)
		;
	*pid = strtoull(last, NULL, 10);
	*uid = strtoull(u + 5, NULL, 10);
	return *pid > 0;
}

static void command_line(pid_t pid, const char *comm, struct buf *out)
{
	char path[64], text[512];
	auto_fd fd = -1;
	ssize_t n = 0;

	snprintf(path, sizeof(path), "/proc/%d/cmdline", (int)pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd >= 0)
		n = read(fd, text, sizeof(text));
	while (n > 0 && text[n - 1] == '\0')
		n--;
	for (ssize_t i = 0; i < n; i++)
		if (text[i] == '\0')
			text[i] = ' ';
	if (n > 0)
		buf_add(out, text, (size_t)n);
	else
		buf_addf(out, "[%s]", comm);
}

static void put_process(struct keeper *k, pid_t pid, struct buf *out)
{
	char path[64], status[4096], stat[1024], comm[64] = "";
	auto_buf rec = { 0 }, cmd = { 0 };
	unsigned long utime = 0, stime = 0;
	long rss = 0;
	uint64_t inner, uid;
	char state = '?', *open_p, *close_p;
	int ppid = 0;

	snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
	if (file_read_at(AT_FDCWD, path, status, sizeof(status), NULL) < 0 || !inner_pid(status, &inner, &uid))
		return;
	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	if (file_read_at(AT_FDCWD, path, stat, sizeof(stat), NULL) < 0)
		return;
	open_p = strchr(stat, '(');
	close_p = strrchr(stat, ')');
	if (!open_p || !close_p)
		return;
	snprintf(comm, sizeof(comm), "%.*s", (int)MIN(close_p - open_p - 1, 60), open_p + 1);
	if (sscanf(close_p + 1, " %c %d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu %*d %*d %*d %*d %*d %*d %*u %*u %ld",
		    &state, &ppid, &utime, &stime, &rss) < 5)
		return;
	command_line(pid, comm, &cmd);
	if (geteuid() == 0 && k->row.slot != UINT64_MAX) {
		uint64_t base = STORE_ID_BASE + k->row.slot * 65536;

		uid = uid >= base && uid < base + 65536 ? uid - base : 65534;
	} else if (uid == geteuid()) {
		uid = 0;
	}
	wire_put_u64(&rec, F_PID, inner);
	wire_put_u64(&rec, F_PPID, (uint64_t)ppid); /* host pid: the reader maps it, see ps_put() */
	wire_put_u64(&rec, F_INIT_PID, (uint64_t)pid);
	wire_put_u64(&rec, F_UID, uid);
	wire_put_u64(&rec, F_STATE, (uint64_t)(unsigned char)state);
	wire_put_u64(&rec, F_CPU_USEC, (utime + stime) * (uint64_t)(1000000 / sysconf(_SC_CLK_TCK)));
	wire_put_u64(&rec, F_MEM_BYTES, (uint64_t)rss * (uint64_t)sysconf(_SC_PAGESIZE));
	wire_put_bytes(&rec, F_COMM, cmd.p, cmd.len);
	wire_put_bytes(out, F_RECORD2, rec.p, rec.len);
}

/* Without a cgroup: every process of ours whose pid namespace is init's. */
static void scan_processes(struct keeper *k, pid_t **ret, size_t *n)
{
	char path[64], mine[64] = "", theirs[64];
	DIR *d = opendir("/proc");
	struct dirent *de;
	ssize_t len;

	snprintf(path, sizeof(path), "/proc/%d/ns/pid", (int)k->wall.pid);
	len = readlink(path, mine, sizeof(mine) - 1);
	mine[MAX(len, 0)] = '\0';
	*ret = mem_alloc(PS_MAX * sizeof(**ret));
	*n = 0;
	while (d && len > 0 && *n < PS_MAX && (de = readdir(d))) {
		ssize_t l2;

		if (de->d_name[0] < '1' || de->d_name[0] > '9')
			continue;
		snprintf(path, sizeof(path), "/proc/%.20s/ns/pid", de->d_name);
		l2 = readlink(path, theirs, sizeof(theirs) - 1);
		if (l2 == len && !memcmp(mine, theirs, (size_t)len))
			(*ret)[(*n)++] = (pid_t)atoi(de->d_name);
	}
	if (d)
		closedir(d);
}

struct tick {
	pid_t pid, ppid;
	uint64_t inner, ticks;
	bool in;
};

static bool read_tick(pid_t pid, struct tick *t)
{
	char path[64], status[4096], stat[1024], *p;
	unsigned long u, s;
	long cu, cs;
	uint64_t uid;

	snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
	if (file_read_at(AT_FDCWD, path, status, sizeof(status), NULL) < 0 || !inner_pid(status, &t->inner, &uid))
		return false;
	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	if (file_read_at(AT_FDCWD, path, stat, sizeof(stat), NULL) < 0)
		return false;
	p = strrchr(stat, ')');
	if (!p || sscanf(p + 1, " %*c %d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu %ld %ld", &t->ppid, &u, &s,
			  &cu, &cs) != 5)
		return false;
	t->pid = pid;
	t->in = false;
	t->ticks = u + s + (uint64_t)cu + (uint64_t)cs; /* with the children it has waited for */
	return true;
}

int tree_cpu(struct keeper *k, uint64_t inner_pid, uint64_t *usec)
{
	auto_free pid_t *pids = NULL;
	auto_free struct tick *t = NULL;
	size_t n, got = 0;
	uint64_t sum = 0;
	bool more = true;

	if (!inner_pid)
		return -1;
	if (k->ops->own_kernel)
		return inside_cpu(k, inner_pid, usec);
	scan_processes(k, &pids, &n);
	t = mem_alloc((n + 1) * sizeof(*t));
	for (size_t i = 0; i < n; i++)
		got += read_tick(pids[i], &t[got]);
	while (more) { /* the tree: its program reaps its orphans, so all of it hangs together */
		more = false;
		for (size_t i = 0; i < got; i++) {
			bool mine = t[i].inner == inner_pid;

			for (size_t j = 0; !t[i].in && !mine && j < got; j++)
				mine = t[j].in && t[j].pid == t[i].ppid;
			if (mine && !t[i].in) {
				t[i].in = more = true;
				sum += t[i].ticks;
			}
		}
	}
	*usec = sum * (uint64_t)(1000000 / sysconf(_SC_CLK_TCK));
	return 0;
}

void ps_put(struct keeper *k, struct buf *b)
{
	auto_free pid_t *pids = NULL;
	struct den_err err;
	size_t n = 0;

	list_for_each(l, &k->execs) {
		struct kexec *x = CONTAINER_OF(l, struct kexec, link);
		auto_buf rec = { 0 };

		if ((x->info.flags & EXEC_BUILTIN) || !x->info.pid)
			continue;
		exec_info_put(&rec, &x->info);
		if (b->len + rec.len < WIRE_MAX_PAYLOAD / 2)
			wire_put_bytes(b, F_RECORD, rec.p, rec.len);
	}
	if (!box_is_up(k))
		return;
	if (k->ops->own_kernel) {
		inside_ps(k, b);
		return;
	}
	if (k->ops->pids(&k->wall, &pids, &n, &err) < 0)
		scan_processes(k, &pids, &n);
	for (size_t i = 0; i < n && i < PS_MAX && b->len < WIRE_MAX_PAYLOAD - 4096; i++)
		put_process(k, pids[i], b);
}

/* ---- disk ---- */

/* Blocks below a directory, without following links; gives up counting after DU_MAX entries. */
static uint64_t du(int dirfd, unsigned *entries, int depth)
{
	DIR *d = fdopendir(dirfd);
	struct dirent *de;
	uint64_t sum = 0;

	if (!d) {
		close(dirfd);
		return 0;
	}
	while (*entries < DU_MAX && (de = readdir(d))) {
		struct stat st;

		if (!strcmp(de->d_name, ".") || !strcmp(de->d_name, ".."))
			continue;
		if (fstatat(dirfd, de->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
			continue;
		(*entries)++;
		sum += (uint64_t)st.st_blocks * 512;
		if (S_ISDIR(st.st_mode) && depth < 128) {
			int sub = openat(dirfd, de->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

			if (sub >= 0)
				sum += du(sub, entries, depth + 1);
		}
	}
	closedir(d);
	return sum;
}

void disk_stats(struct keeper *k, struct box_stats *st)
{
	char path[64];
	struct statfs fs;
	unsigned entries = 0;
	int fd;

	if (k->row.info.spec.disk && box_is_up(k)) {
		/* The box's own mount, which only its namespace has. */
		snprintf(path, sizeof(path), "/proc/%d/root/", (int)k->wall.pid);
		if (statfs(path, &fs) == 0) {
			st->disk = (uint64_t)(fs.f_blocks - fs.f_bfree) * (uint64_t)fs.f_bsize;
			st->disk_limit = (uint64_t)fs.f_blocks * (uint64_t)fs.f_bsize;
			st->has |= 1 << 7 | 1 << 8;
		}
		return;
	}
	for (size_t t = 0; t < k->tmpl.n_trees || t < 2; t++) {
		snprintf(path, sizeof(path), "u%zu", t);
		fd = openat(k->fsfd >= 0 ? k->fsfd : k->boxfd, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		if (fd >= 0)
			st->disk += du(fd, &entries, 0);
	}
	st->disk_limit = 0;
	st->has |= 1 << 7;
}
