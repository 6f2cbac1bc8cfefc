/* Whose files are, that a request without a user makes: the box's own user's. */
#include <stdlib.h>
#include <string.h>

#include "files.h"
#include "mem.h"

static int box_user(struct den_box *box, struct envd *e, struct person *ret, struct den_err *err)
{
	*e = (struct envd){ .box = box };
	memcpy(e->id, den_box_id(box), strlen(den_box_id(box)) + 1);
	return person_get(e, "", ret, err);
}

static int at_home(const struct person *p, char **path, struct den_err *err)
{
	char *whole;

	if (person_path(p, *path, &whole, err) < 0)
		return -1;
	free(*path);
	*path = whole;
	return 0;
}

int v1_home_path(struct den_box *box, const char *user, char **path, struct den_err *err)
{
	struct person p;
	struct envd e;

	if (user || **path == '/')
		return 0;
	return box_user(box, &e, &p, err) < 0 ? -1 : at_home(&p, path, err);
}

int v1_owner_of(struct den_box *box, const char *user, char **path, struct v1_owner *ret, struct den_err *err)
{
	*ret = (struct v1_owner){ .box = box };
	if (user)
		return 0;
	if (box_user(box, &ret->e, &ret->p, err) < 0)
		return -1;
	ret->given = ret->p.uid != 0;
	return **path == '/' ? 0 : at_home(&ret->p, path, err);
}

int v1_owner_write(struct v1_owner *o, const char *path, const struct den_file_opt *opt, den_source source, void *user,
	struct den_err *err)
{
	return o->given ? as_person_write(&o->e, &o->p, path, opt, source, user, err)
			: den_file_write(o->box, path, opt, source, user, err);
}

int v1_owner_mkdir(struct v1_owner *o, const char *path, const struct den_file_opt *how, struct den_err *err)
{
	struct den_file_opt opt = *how;

	if (!o->given)
		return den_file_mkdir(o->box, path, &opt, err);
	opt.user = o->p.name;
	if (den_file_mkdir(o->box, path, &opt, err) == 0)
		return 0;
	if (err->code != DEN_DENIED || (opt.parents && as_person_parents(&o->e, &o->p, path, err) < 0))
		return -1;
	opt.user = NULL;
	opt.parents = false;
	if (den_file_mkdir(o->box, path, &opt, err) < 0)
		return -1;
	return as_person_chown(&o->e, &o->p, path, err);
}
