/* "Did you mean": names that are near to one that is not there. */
#pragma once

struct req;

/* The template nearest to name, of those that who asks may see; NULL: none is near. free() */
char *suggest_template(struct req *r, const char *name);
