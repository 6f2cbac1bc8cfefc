/* Structured logs: one JSON object a line on stderr (or text, --log text). The only place that writes them. */
#pragma once

#include <stdbool.h>

#include "json.h"

void log_line(const char *level /* "info" "warn" "error" */, const char *what, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/* With fields of its own: log_begin(), json_str(&l.j, ...) and the like, log_end(). Any bytes may go in. */
struct log {
	struct json j;
	const char *level, *what;
};
void log_begin(struct log *l, const char *level, const char *what);
void log_end(struct log *l);

bool log_is_text(void);
void log_set_text(bool on); /* lines for people instead of JSON */
void log_set_level(const char *level); /* what is below it is dropped; "info" by default */
