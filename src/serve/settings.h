/* What den-serve was told on its command line; `den serve` and `den key` have checked and spelled it out. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "auth.h"
#include "err.h"
#include "price.h"
#include "warm.h"

#define LISTEN_MAX 8

struct settings {
	const char *state, *den, *domain, *url, *user, *log;
	const char *listen[LISTEN_MAX], *socket;
	size_t n_listen;
	const char *tls_cert, *tls_key;
	bool tls_self_signed, no_templates, routes, json, help;
	struct warm_setting warm[WARM_MAX];
	size_t n_warm;
	uint64_t workers, grace_ms;
	struct prices prices;
	/* den key */
	const char *verb; /* "create", "ls", "revoke"; NULL: serve */
	const char *id, *org, *name;
	uint32_t scopes;
	struct quota quota;
};

int settings_parse(int argc, char **argv, struct settings *ret, struct den_err *err);
