/* What people type becomes a number here, strictly: the whole text must be understood. */
#pragma once

#include <stdint.h>

#include "err.h"

int parse_u64(const char *text, uint64_t min, uint64_t max, uint64_t *ret, struct den_err *err);
/* "512M", "2G", "64k", "1.5GiB", plain bytes. Powers of 1024. At least 1. */
int parse_size(const char *text, uint64_t *ret, struct den_err *err);
/* "500ms", "30s", "5m", "2h", "1d", plain seconds, "1.5". In milliseconds, at least 1. */
int parse_duration(const char *text, uint64_t *ret_ms, struct den_err *err);
/* "0.5", "2": in thousandths of a processor, at least 10. */
int parse_cpus(const char *text, uint64_t *ret_milli, struct den_err *err);
/* "9", "KILL", "SIGKILL", any case. */
int parse_signal(const char *text, int *ret, struct den_err *err);
/* "KILL" for 9; NULL for a number without a name. */
const char *signal_name(int sig);
/* "1.5 GiB" */
void format_size(uint64_t bytes, char out[static 16]);
/* The candidate nearest to text (edit distance), NULL when none is near; for "did you mean". */
const char *parse_nearest(const char *text, const char *const *candidates, int n);
