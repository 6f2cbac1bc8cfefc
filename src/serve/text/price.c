#include "price.h"

#include <stdlib.h>
#include <string.h>

#include "mem.h"

#define DIGITS "0123456789"
#define HOUR_MS 3600000.0
#define GIB 1073741824.0
#define AMOUNT_MAX 1000000 /* a larger one is a slip */

static const struct {
	const char *option, *field;
} names[PRICES] = {
	[PRICE_CPU_HOUR] = { "cpu-hour", "cpu_hour" },
	[PRICE_GIB_HOUR] = { "gib-hour", "gib_hour" },
	[PRICE_GIB_DISK_HOUR] = { "gib-disk-hour", "gib_disk_hour" },
	[PRICE_GIB_IN] = { "gib-in", "gib_in" },
	[PRICE_GIB_OUT] = { "gib-out", "gib_out" },
};

/* Plain decimals: strtod() alone also takes "inf", "0x1p3" and "1e400". */
static int amount_parse(const char *text, double *ret, struct den_err *err)
{
	size_t whole = strspn(text, DIGITS), n = whole, part = 0;
	double v;

	if (text[n] == '.') {
		part = strspn(text + n + 1, DIGITS);
		n += 1 + part;
	}
	if (!whole || text[n] || (n > whole && !part) || n > 24)
		return den_fail(err, DEN_INVALID, 0, "'%.40s' is no amount; write it like 0.05", text);
	v = strtod(text, NULL);
	if (v > AMOUNT_MAX)
		return den_fail(err, DEN_INVALID, 0, "%.40s is more than %d", text, AMOUNT_MAX);
	*ret = v;
	return 0;
}

int price_parse(const char *text, struct prices *p, struct den_err *err)
{
	size_t n = strcspn(text, "="), i = 0;

	while (i < PRICES && (strlen(names[i].option) != n || strncmp(text, names[i].option, n)))
		i++;
	if (i == PRICES)
		return den_fail(err, DEN_INVALID, 0,
			"there is no price '%.*s'; there are: cpu-hour gib-hour gib-disk-hour gib-in gib-out",
			(int)MIN(n, (size_t)40), text);
	if (!text[n])
		return den_fail(err, DEN_INVALID, 0, "how much? write %s=0.05", names[i].option);
	if (p->given & (1U << i))
		return den_fail(err, DEN_INVALID, 0, "%s was given before", names[i].option);
	if (amount_parse(text + n + 1, &p->each[i], err) < 0)
		return den_wrap(err, "%s", names[i].option);
	p->given |= 1U << i;
	return 0;
}

bool currency_ok(const char *text)
{
	return strlen(text) == 3 && strspn(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") == 3;
}

double price_of(const struct prices *p, const struct price_use *u)
{
	return p->each[PRICE_CPU_HOUR] * ((double)u->cpu_usec / 1000 / HOUR_MS) +
	       p->each[PRICE_GIB_HOUR] * ((double)u->memory_mib_ms / 1024 / HOUR_MS) +
	       p->each[PRICE_GIB_DISK_HOUR] * ((double)u->disk_mib_ms / 1024 / HOUR_MS) +
	       p->each[PRICE_GIB_IN] * ((double)u->net_in / GIB) + p->each[PRICE_GIB_OUT] * ((double)u->net_out / GIB);
}

json_t *prices_json(const struct prices *p)
{
	json_t *o;

	if (!p->given)
		return json_null();
	o = json_object();
	for (size_t i = 0; i < PRICES; i++)
		if (p->given & (1U << i))
			json_object_set_new(o, names[i].field, json_real(p->each[i]));
	return o;
}

json_t *prices_currency(const struct prices *p)
{
	return p->given ? json_string(p->currency ? p->currency : "USD") : json_null();
}
