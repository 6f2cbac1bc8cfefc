#include "parse.h"

#include <ctype.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "compat.h"
#include "mem.h"

int parse_u64(const char *text, uint64_t min, uint64_t max, uint64_t *ret, struct den_err *err)
{
	unsigned long long v;
	char *end;

	if (!isdigit((unsigned char)text[0]))
		return den_fail(err, DEN_INVALID, 0, "'%.60s' is not a number", text);
	errno = 0;
	v = strtoull(text, &end, 10);
	if (*end || errno)
		return den_fail(err, DEN_INVALID, 0, "'%.60s' is not a number", text);
	if (v < min || v > max)
		return den_fail(err, DEN_INVALID, 0, "%.60s is not between %llu and %llu", text,
			(unsigned long long)min, (unsigned long long)max);
	*ret = v;
	return 0;
}

/* Digits, at most one point, no sign, no exponent, no locale: in thousandths. */
static int parse_milli(const char *text, const char **end, uint64_t *ret)
{
	uint64_t whole = 0, frac = 0, unit = 1000;
	const char *p = text;
	int digits = 0;

	for (; isdigit((unsigned char)*p); p++, digits++) {
		if (whole > UINT64_MAX / 20000)
			return -1;
		whole = whole * 10 + (uint64_t)(*p - '0');
	}
	if (*p == '.') {
		for (p++; isdigit((unsigned char)*p); p++, digits++) {
			if (unit > 1) {
				unit /= 10;
				frac += (uint64_t)(*p - '0') * unit;
			}
		}
	}
	if (!digits || whole > (UINT64_MAX - frac) / 1000)
		return -1;
	*end = p;
	*ret = whole * 1000 + frac;
	return 0;
}

int parse_size(const char *text, uint64_t *ret, struct den_err *err)
{
	static const char units[] = "kmgtpe";
	const char *end;
	uint64_t milli, scale = 1;

	if (parse_milli(text, &end, &milli) < 0)
		goto bad;
	if (*end) {
		const char *u = strchr(units, tolower((unsigned char)*end));

		if (u && *u) {
			scale <<= 10 * (u - units + 1);
			end++;
			if (!strncasecmp(end, "ib", 2))
				end += 2;
			else if (tolower((unsigned char)*end) == 'b')
				end++;
		} else if (tolower((unsigned char)*end) == 'b') {
			end++;
		}
	}
	if (*end)
		goto bad;
	if (milli / 1000 > (UINT64_MAX >> 1) / scale)
		return den_fail(err, DEN_INVALID, 0, "size '%.60s' is too large", text);
	milli = milli / 1000 * scale + milli % 1000 * scale / 1000;
	if (milli < 1)
		return den_fail(
			err, DEN_INVALID, 0, "size '%.60s' must be more than nothing", text);
	*ret = milli;
	return 0;
bad:
	return den_fail(
		err, DEN_INVALID, 0, "'%.60s' is not a size; write it like 512M or 2G", text);
}

int parse_duration(const char *text, uint64_t *ret_ms, struct den_err *err)
{
	static const struct {
		const char *unit;
		uint64_t ms;
	} units[] = { { "", 1000 }, { "ms", 1 }, { "s", 1000 }, { "m", 60000 }, { "h", 3600000 },
		{ "d", 86400000 } };
	const char *end;
	uint64_t milli;

	if (parse_milli(text, &end, &milli) == 0) {
		for (size_t i = 0; i < ARRAY_SIZE(units); i++) {
			if (strcasecmp(end, units[i].unit))
				continue;
			/* ten thousand years of milliseconds fit; more is a slip of the finger */
			if (milli / 1000 > 315360000000000ULL / units[i].ms)
				return den_fail(
					err, DEN_INVALID, 0, "duration '%.60s' is too long", text);
			milli = milli / 1000 * units[i].ms + milli % 1000 * units[i].ms / 1000;
			if (milli < 1)
				return den_fail(err, DEN_INVALID, 0,
					"duration '%.60s' must be more than nothing", text);
			*ret_ms = milli;
			return 0;
		}
	}
	return den_fail(err, DEN_INVALID, 0,
		"'%.60s' is not a duration; write it like 30s, 5m or 500ms", text);
}

int parse_cpus(const char *text, uint64_t *ret_milli, struct den_err *err)
{
	const char *end;
	uint64_t milli;

	if (parse_milli(text, &end, &milli) < 0 || *end)
		return den_fail(err, DEN_INVALID, 0,
			"'%.60s' is not a number of processors; write it like 2 or 0.5", text);
	if (milli < 10 || milli > 4096000)
		return den_fail(err, DEN_INVALID, 0,
			"'%.60s' processors is not between 0.01 and 4096", text);
	*ret_milli = milli;
	return 0;
}

const char *signal_name(int sig)
{
	return sigabbrev_np(sig);
}

int parse_signal(const char *text, int *ret, struct den_err *err)
{
	const char *name = strncasecmp(text, "SIG", 3) ? text : text + 3;
	uint64_t n;

	if (isdigit((unsigned char)text[0])) {
		if (parse_u64(text, 1, 64, &n, err) < 0)
			return den_wrap(err, "signal");
		*ret = (int)n;
		return 0;
	}
	for (int i = 1; i < 65; i++) {
		const char *s = sigabbrev_np(i);

		if (s && !strcasecmp(s, name)) {
			*ret = i;
			return 0;
		}
	}
	return den_fail(err, DEN_INVALID, 0,
		"'%.60s' is not a signal; write it like TERM, KILL or 15", text);
}

void format_size(uint64_t bytes, char out[static 16])
{
	static const char units[] = "KMGTPE";
	uint64_t v = bytes, rest = 0;
	int u = -1;

	while (v >= 1024 && u < 5) {
		rest = v % 1024;
		v /= 1024;
		u++;
	}
	if (u < 0)
		snprintf(out, 16, "%u B", (unsigned)v);
	else
		snprintf(out, 16, "%u.%u %ciB", (unsigned)v % 10000, (unsigned)(rest * 10 / 1024),
			units[u]);
}

static int edit_distance(const char *a, const char *b)
{
	int row[64];
	int la = (int)strlen(a), lb = (int)strlen(b);

	if (la > 60 || lb > 60)
		return 99;
	for (int j = 0; j <= lb; j++)
		row[j] = j;
	for (int i = 1; i <= la; i++) {
		int diag = row[0];

		row[0] = i;
		for (int j = 1; j <= lb; j++) {
			int sub = diag + (a[i - 1] != b[j - 1]);

			diag = row[j];
			row[j] = MIN(sub, MIN(row[j], row[j - 1]) + 1);
		}
	}
	return row[lb];
}

const char *parse_nearest(const char *text, const char *const *candidates, int n)
{
	const char *best = NULL;
	int best_d = 3;

	for (int i = 0; i < n; i++) {
		int d = edit_distance(text, candidates[i]);

		if (d < best_d && d < (int)strlen(candidates[i])) {
			best_d = d;
			best = candidates[i];
		}
	}
	return best;
}
