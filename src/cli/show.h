/* Boxes and files as JSON, the same wherever they appear. */
#pragma once

#include "den.h"
#include "json.h"

void show_box_json(struct json *j, const char *key, const struct den_box_info *i);
void show_stats_json(struct json *j, const struct den_stats *s);
void show_exec_json(struct json *j, const struct den_exec_info *e);
void show_entry_json(struct json *j, const struct den_entry *e);
/* argv in one line, as a shell would take it, but printable. */
void show_argv(struct buf *out, const char *const *argv);
