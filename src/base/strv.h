/* A NULL-terminated, owned vector of strings. NULL is an empty vector. */
#pragma once

#include <stddef.h>

size_t strv_len(char *const *v);
void strv_add(char ***v, const char *s);	/* copies s */
void strv_addn(char ***v, const char *s, size_t n);
char **strv_copy(const char *const *v);
void strv_free(char **v);
static inline void strv_freep(char ***v)
{
	strv_free(*v);
}
#define auto_strv __attribute__((cleanup(strv_freep))) char **
/* The value of NAME in a vector of "NAME=value"; NULL when absent. */
const char *strv_env_get(char *const *env, const char *name);
/* Adds or replaces "NAME=value". */
void strv_env_put(char ***env, const char *assignment);
