/* Errors: context going up, no allocation, usable in a forked child. */
#pragma once

#ifndef DEN_ERR_TYPES /* include/den.h has the same; a program may see either first */
#define DEN_ERR_TYPES
enum den_code {
	DEN_OK,
	DEN_INVALID,
	DEN_NOT_FOUND,
	DEN_CONFLICT,
	DEN_DENIED,
	DEN_LIMIT,
	DEN_TIMEOUT,
	DEN_UNSUPPORTED,
	DEN_INTERNAL,
};
struct den_err {
	enum den_code code; /* stable: maps one to one to an exit status and an HTTP status */
	int sys;	    /* errno that caused it, 0 if none */
	char msg[244];	    /* "outer: inner: reason", for people */
};
#endif

#define ERR_CODES (DEN_INTERNAL + 1)
/* The exit status of a program that failed so; den and den-fetch have the same. */
int err_exit_status(enum den_code code);

/* Sets *e (which may be NULL). With sys != 0, ": <strerror>" is added. Always -1. */
int den_fail(struct den_err *e, enum den_code code, int sys, const char *fmt, ...)
	__attribute__((format(printf, 4, 5), cold));
/* Puts "context: " before the message. Always -1. */
int den_wrap(struct den_err *e, const char *fmt, ...) __attribute__((format(printf, 2, 3), cold));
/* den_fail() with the code that fits errno value sys. Always -1. */
int den_fail_sys(struct den_err *e, int sys, const char *fmt, ...)
	__attribute__((format(printf, 3, 4), cold));

const char *den_code_str(enum den_code code);
enum den_code den_code_of_errno(int sys);
