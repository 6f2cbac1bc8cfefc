/* What use costs, for whoever asked the server to say so: `den serve --price NAME=AMOUNT`. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "err.h"

enum price_of { PRICE_CPU_HOUR, PRICE_GIB_HOUR, PRICE_GIB_DISK_HOUR, PRICE_GIB_IN, PRICE_GIB_OUT, PRICES };

struct prices {
	double each[PRICES];
	uint32_t given; /* bits by enum price_of; 0: nothing has a price */
	const char *currency; /* NULL: "USD" */
};

/* What the meter counted. */
struct price_use {
	int64_t cpu_usec, memory_mib_ms, disk_mib_ms, net_in, net_out;
};

/* "cpu-hour=0.05". DEN_INVALID: no such price, no amount, or given before. */
int price_parse(const char *text, struct prices *p, struct den_err *err);
bool currency_ok(const char *text); /* as "USD" */
double price_of(const struct prices *p, const struct price_use *u);
/* For answers: an object of those that were given, null if there is none. */
json_t *prices_json(const struct prices *p);
json_t *prices_currency(const struct prices *p);
