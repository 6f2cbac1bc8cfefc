/* What runs in the box, where the host cannot see it: a kernel that is not the host's. */
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fd.h"
#include "init.h"

#define LOOK_MAX 2000

static void put_status(int dir, struct buf *rec)
{
	char text[2048] = "", *uid, *tasks;

	(void)file_read_at(dir, "status", text, sizeof(text), NULL);
	uid = strstr(text, "\nUid:");
	tasks = strstr(text, "\nThreads:");
	wire_put_u64(rec, F_UID, uid ? strtoull(uid + 5, NULL, 10) : 65534);
	wire_put_u64(rec, F_PIDS_NOW, tasks ? strtoull(tasks + 9, NULL, 10) : 1);
}

static void put_command(int dir, const char *name, size_t n, struct buf *rec)
{
	char text[512];
	auto_fd fd = openat(dir, "cmdline", O_RDONLY | O_CLOEXEC);
	ssize_t len = fd < 0 ? 0 : read(fd, text, sizeof(text));

	while (len > 0 && text[len - 1] == '\0')
		len--;
	for (ssize_t i = 0; i < len; i++)
		if (text[i] == '\0')
			text[i] = ' ';
	if (len <= 0)
		len = snprintf(text, sizeof(text), "[%.*s]", (int)MIN(n, 60U), name);
	wire_put_bytes(rec, F_COMM, text, (size_t)len);
}

static void put_process(int pid, int dir, struct buf *out)
{
	char text[1024], state = '?', *name, *end;
	unsigned long u, s;
	long cu, cs, rss;
	auto_buf rec = { 0 };
	int ppid;

	if (file_read_at(dir, "stat", text, sizeof(text), NULL) < 0)
		return;
	name = strchr(text, '(');
	end = strrchr(text, ')');
	if (!name || !end || sscanf(end + 1, " %c %d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu %ld %ld %*d %*d %*d %*d "
					     "%*u %*u %ld", &state, &ppid, &u, &s, &cu, &cs, &rss) != 7)
		return;
	wire_put_u64(&rec, F_PID, (uint64_t)pid);
	wire_put_u64(&rec, F_PPID, (uint64_t)MAX(ppid, 0));
	wire_put_u64(&rec, F_INIT_PID, (uint64_t)pid);
	put_status(dir, &rec);
	wire_put_u64(&rec, F_STATE, (uint64_t)(unsigned char)state);
	wire_put_u64(&rec, F_CPU_USEC, (u + s) * (uint64_t)(1000000 / sysconf(_SC_CLK_TCK)));
	/* with the children it has waited for: what a limit of the whole tree counts */
	wire_put_u64(&rec, F_CPU_MS, (u + s + (uint64_t)MAX(cu, 0) + (uint64_t)MAX(cs, 0)) *
		(uint64_t)(1000 / sysconf(_SC_CLK_TCK)));
	wire_put_u64(&rec, F_MEM_BYTES, (uint64_t)MAX(rss, 0) * (uint64_t)sysconf(_SC_PAGESIZE));
	put_command(dir, name + 1, (size_t)(end - name - 1), &rec);
	wire_put_bytes(out, F_RECORD2, rec.p, rec.len);
}

void look_put(struct buf *out)
{
	DIR *d = opendir("/proc");
	struct dirent *de;
	size_t n = 0;

	while (d && n < LOOK_MAX && out->len < WIRE_MAX_PAYLOAD - 8192 && (de = readdir(d))) {
		int pid = atoi(de->d_name);
		auto_fd dir = pid > 0 ? openat(dirfd(d), de->d_name, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;

		if (dir < 0)
			continue;
		put_process(pid, dir, out);
		n++;
	}
	if (d)
		closedir(d);
}
