/* Volumes that a box has: made when the first box has them. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

#include "fd.h"
#include "keeper.h"
#include "volume.h"

/* Others on the host get no further than the folder of volumes; in boxes everybody may write. */
#define MODE_FOLDER 0700
#define MODE_VOLUME 0777

static int volume_make(int folder, const char *name, struct den_err *err)
{
	auto_fd fd = -1;

	if (mkdirat(folder, name, 0700) < 0) {
		if (errno != EEXIST)
			return den_fail_sys(err, errno, "volume '%s'", name);
		return 0;
	}
	fd = openat(folder, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0 || fchmod(fd, MODE_VOLUME) < 0) /* mkdirat() obeys the umask */
		return den_fail_sys(err, errno, "volume '%s'", name);
	return 0;
}

int volumes_prepare(struct keeper *k, char **ret_path, struct den_err *err)
{
	const struct box_spec *s = &k->row.info.spec;
	auto_free char *path = NULL;
	auto_fd folder = -1;

	for (size_t i = 0; i < s->n_mounts; i++) {
		const char *name = volume_name(s->mounts[i].host);

		if (!name)
			continue;
		if (!path && asprintf(&path, "%s/" PLACE_VOLUMES, k->store->path) < 0)
			return den_fail(err, DEN_INTERNAL, ENOMEM, "path");
		if (folder < 0) {
			if (mkdir(path, MODE_FOLDER) < 0 && errno != EEXIST)
				return den_fail_sys(err, errno, "'%s'", path);
			folder = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
			if (folder < 0)
				return den_fail_sys(err, errno, "'%s'", path);
		}
		if (volume_make(folder, name, err) < 0)
			return -1;
	}
	*ret_path = mem_take(&path);
	return 0;
}
