#include "strv.h"

#include <stdlib.h>
#include <string.h>

#include "mem.h"

size_t strv_len(char *const *v)
{
	size_t n = 0;

	while (v && v[n])
		n++;
	return n;
}

void strv_addn(char ***v, const char *s, size_t n)
{
	size_t len = strv_len(*v);

	/* Room is 2, 4, 8, ...: it runs out just when the entries and their NULL fill a power of
	 * two. */
	if (len == 0 || (len + 1 >= 2 && ((len + 1) & len) == 0))
		*v = mem_realloc(*v, (len ? (len + 1) * 2 : 2) * sizeof(**v));
	(*v)[len] = mem_strndup(s, n);
	(*v)[len + 1] = NULL;
}

void strv_add(char ***v, const char *s)
{
	strv_addn(v, s, strlen(s));
}

char **strv_copy(const char *const *v)
{
	char **out = NULL;

	for (size_t i = 0; v && v[i]; i++)
		strv_add(&out, v[i]);
	return out;
}

void strv_free(char **v)
{
	for (size_t i = 0; v && v[i]; i++)
		free(v[i]);
	free(v);
}

const char *strv_env_get(char *const *env, const char *name)
{
	size_t n = strlen(name);

	for (size_t i = 0; env && env[i]; i++)
		if (!strncmp(env[i], name, n) && env[i][n] == '=')
			return env[i] + n + 1;
	return NULL;
}

void strv_env_put(char ***env, const char *assignment)
{
	size_t n = strcspn(assignment, "=") + 1;

	for (size_t i = 0; *env && (*env)[i]; i++) {
		if (!strncmp((*env)[i], assignment, n)) {
			free((*env)[i]);
			(*env)[i] = mem_strdup(assignment);
			return;
		}
	}
	strv_add(env, assignment);
}
