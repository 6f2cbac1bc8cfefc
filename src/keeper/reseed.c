/*
 * The files of --reseed (src/reseed/), and the environment that makes programs load them. What it is good for, and why
 * it is asked for: docs/memory.md, docs/decisions/0014.
 */
#include "reseed.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "buf.h"
#include "fd.h"
#include "gate.h"
#include "spec.h"
#include "strv.h"

#define LIBRARY "reseed.so"
#define PYTHON "python"
#define IN_BOX "/run/den/"

extern const char den_reseed_so[], den_reseed_so_end[], den_reseed_py[], den_reseed_py_end[];

int reseed_prepare(struct keeper *k, struct den_err *err)
{
	auto_fd dir = -1, python = -1;

	if (!(k->row.info.spec.flags & BOX_RESEED))
		return 0;
	dir = openat(k->boxfd, GATE_RUN, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (dir < 0)
		return den_fail_sys(err, errno, "open '%s'", GATE_RUN);
	if (mkdirat(dir, PYTHON, 0755) < 0 && errno != EEXIST)
		return den_fail_sys(err, errno, "make '%s'", GATE_RUN "/" PYTHON);
	python = openat(dir, PYTHON, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (python < 0 || fchmod(python, 0755) < 0) /* whatever the umask */
		return den_fail_sys(err, errno, "make '%s'", GATE_RUN "/" PYTHON);
	if (file_replace_at(dir, LIBRARY, den_reseed_so,
		    (size_t)(den_reseed_so_end - den_reseed_so), 0444, err) < 0 ||
		file_replace_at(python, "sitecustomize.py", den_reseed_py,
			(size_t)(den_reseed_py_end - den_reseed_py), 0444, err) < 0)
		return den_wrap(err, "--reseed");
	return 0;
}

/* Is it one of those that a list has already? A program of the box may pass on what it got. */
static bool has(const char *list, const char *path)
{
	size_t n = strlen(path);

	for (const char *p = list; (p = strstr(p, path)); p += n)
		if ((p == list || p[-1] == ':' || p[-1] == ' ') &&
			(!p[n] || p[n] == ':' || p[n] == ' '))
			return true;
	return false;
}

static void add(char ***env, const char *name, const char *path, bool first)
{
	const char *was = strv_env_get(*env, name);
	auto_buf b = { 0 };

	if (!was || !*was)
		buf_addf(&b, "%s=%s", name, path);
	else if (has(was, path))
		return;
	else
		buf_addf(&b, "%s=%s:%s", name, first ? path : was, first ? was : path);
	strv_env_put(env, buf_str(&b));
}

void reseed_env(char ***env)
{
	add(env, "LD_PRELOAD", IN_BOX LIBRARY, false); /* what was asked for goes first */
	add(env, "PYTHONPATH", IN_BOX PYTHON, true); /* it loads the next of its name itself */
}
