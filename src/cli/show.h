/* Boxes and files as JSON, and lines for people, the same wherever they appear. */
#pragma once

#include "den.h"
#include "json.h"

void show_box_json(struct json *j, const char *key, const struct den_box_info *i);
void show_lease_json(struct json *j, const struct den_box_info *i); /* its fields */
void show_lease(struct buf *out, const struct den_box_info *i);	    /* in lines; nothing where it has no end */
void show_stats_json(struct json *j, const struct den_stats *s);
void show_exec_json(struct json *j, const struct den_exec_info *e);
void show_entry_json(struct json *j, const struct den_entry *e);
void show_strings_json(struct json *j, const char *key, const char *const *v);
/* "key          value", nothing where there is no value. */
void show_line(struct buf *out, const char *key, const char *value);
void show_line_size(struct buf *out, const char *key, uint64_t bytes);
void show_line_time(struct buf *out, const char *key, int64_t ms);
/* argv in one line, as a shell would take it, but printable. */
void show_argv(struct buf *out, const char *const *argv);
