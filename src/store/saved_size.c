#include "saved_size.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fd.h"
#include "mem.h"
#include "saved.h"

#define DEPTH_MAX 4
#define BLOCK 512ULL /* of st_blocks, whatever the file system's are */

void saved_seen_free(struct saved_seen *s)
{
	free(s->at);
	*s = (struct saved_seen){ 0 };
}

/* No inode has the number 0: that is a free place. */
static size_t place(const struct saved_seen *s, uint64_t dev, uint64_t ino)
{
	size_t i = (size_t)((ino ^ dev << 32) * 0x9e3779b97f4a7c15ULL >> 20) & (s->room - 1);

	while (s->at[i].ino && (s->at[i].ino != ino || s->at[i].dev != dev))
		i = (i + 1) & (s->room - 1);
	return i;
}

static void grow(struct saved_seen *s)
{
	struct saved_seen more = { .room = s->room ? s->room * 2 : 64, .n = s->n };

	more.at = mem_zalloc(more.room * sizeof(*more.at));
	for (size_t i = 0; i < s->room; i++)
		if (s->at[i].ino)
			more.at[place(&more, s->at[i].dev, s->at[i].ino)] = s->at[i];
	free(s->at);
	*s = more;
}

/* Is it the first time? */
static bool add(struct saved_seen *s, const struct stat *st)
{
	size_t i;

	if (s->n * 2 >= s->room)
		grow(s);
	i = place(s, st->st_dev, st->st_ino);
	if (s->at[i].ino)
		return false;
	s->at[i].dev = st->st_dev;
	s->at[i].ino = st->st_ino;
	s->n++;
	return true;
}

static uint64_t count(int at, const char *name, struct saved_seen *seen, int depth)
{
	int fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	DIR *d = fd >= 0 ? fdopendir(fd) : NULL;
	struct dirent *de;
	uint64_t sum = 0;

	while (d && (de = readdir(d))) {
		struct stat st;

		if (!strcmp(de->d_name, ".") || !strcmp(de->d_name, "..") ||
			fstatat(fd, de->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
			continue;
		if (S_ISDIR(st.st_mode) && depth < DEPTH_MAX)
			sum += count(fd, de->d_name, seen, depth + 1);
		if (S_ISDIR(st.st_mode) || st.st_nlink < 2 || add(seen, &st))
			sum += (uint64_t)st.st_blocks * BLOCK;
	}
	if (d)
		closedir(d);
	else
		fd_close(&fd);
	return sum;
}

uint64_t saved_disk(struct store *s, const struct box_id *id, struct saved_seen *seen)
{
	auto_saved_seen own = { 0 };
	char path[64];

	snprintf(path, sizeof(path), SAVED_DIR "/%s", id->s);
	return count(s->fd, path, seen ? seen : &own, 0);
}
