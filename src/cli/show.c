#include "show.h"

#include <stdio.h>
#include <string.h>

#include "mem.h"
#include "outcome.h"
#include "parse.h"
#include "table.h"

void show_strings_json(struct json *j, const char *key, const char *const *v)
{
	json_open(j, key, '[');
	for (; v && *v; v++)
		json_str(j, NULL, *v);
	json_close(j, ']');
}

static void limit_json(struct json *j, const char *key, uint64_t v)
{
	if (v)
		json_u64(j, key, v);
	else
		json_nothing(j, key);
}

void show_lease_json(struct json *j, const struct den_box_info *i)
{
	json_time(j, "expires", i->expires_ms);
	json_str(j, "on_expire", i->on_expire);
	limit_json(j, "idle_ms", i->idle_ms);
	json_str(j, "on_idle", i->on_idle);
	json_time(j, "active", i->active_ms);
}

void show_lease(struct buf *out, const struct den_box_info *i)
{
	auto_buf b = { 0 };
	char text[32];

	if (i->expires_ms) {
		format_time(i->expires_ms, text);
		buf_addf(&b, "%s, then %s", text, i->on_expire);
		show_line(out, "expires", buf_str(&b));
		b.len = 0;
	}
	if (i->idle_ms) {
		format_duration(i->idle_ms, text);
		buf_addf(&b, "%s, then %s", text, i->on_idle);
		show_line(out, "idle", buf_str(&b));
	}
}

void show_box_json(struct json *j, const char *key, const struct den_box_info *i)
{
	json_open(j, key, '{');
	json_str(j, "id", i->id);
	json_str(j, "name", i->name);
	json_str(j, "state", i->state);
	json_str(j, "reason", i->reason);
	json_bool(j, "on_disk", i->on_disk);
	json_bool(j, "hibernated", i->hibernated);
	json_u64(j, "restores", i->restores);
	json_u64(j, "images", i->images);
	json_str(j, "template", i->template_name);
	json_str(j, "wall", i->wall);
	json_str(j, "net", i->policy || i->policy_name ? "policy" : i->net);
	if (i->policy)
		json_raw(j, "policy", i->policy);
	else
		json_nothing(j, "policy");
	json_str(j, "policy_name", i->policy_name);
	json_u64(j, "policy_generation", i->generation);
	show_strings_json(j, "ports", i->publish);
	json_str(j, "hostname", i->hostname);
	json_str(j, "user", i->user);
	json_str(j, "workdir", i->workdir);
	json_str(j, "detail", i->detail);
	show_strings_json(j, "env", i->env);
	json_open(j, "mounts", '[');
	for (size_t m = 0; m < i->n_mounts; m++) {
		json_open(j, NULL, '{');
		json_str(j, "host", i->mounts[m].host);
		json_str(j, "box", i->mounts[m].box);
		json_bool(j, "ro", i->mounts[m].ro);
		json_close(j, '}');
	}
	json_close(j, ']');
	json_open(j, "limits", '{');
	limit_json(j, "cpu_milli", i->cpu_milli);
	limit_json(j, "memory", i->memory);
	limit_json(j, "pids", i->pids);
	limit_json(j, "disk", i->disk);
	limit_json(j, "nofile", i->nofile);
	limit_json(j, "max_runtime_ms", i->max_runtime_ms);
	json_close(j, '}');
	json_bool(j, "ephemeral", i->ephemeral);
	json_bool(j, "reseed", i->reseed);
	json_str(j, "history", i->history);
	json_u64(j, "turn", i->turn);
	json_str(j, "owner", i->owner);
	show_strings_json(j, "labels", i->labels);
	show_lease_json(j, i);
	json_time(j, "created", i->created_ms);
	json_time(j, "started", i->started_ms);
	json_time(j, "stopped", i->stopped_ms);
	json_str(j, "boot_id", i->boot_id);
	json_i64(j, "init_pid", i->init_pid);
	json_i64(j, "keeper_pid", i->keeper_pid);
	json_close(j, '}');
}

void show_stats_json(struct json *j, const struct den_stats *s)
{
	const struct {
		uint64_t bit;
		const char *key;
		uint64_t v;
	} rows[] = {
		{ DEN_STAT_CPU, "cpu_usec", s->cpu_usec },
		{ DEN_STAT_THROTTLED, "throttled_usec", s->throttled_usec },
		{ DEN_STAT_MEMORY, "memory", s->memory },
		{ DEN_STAT_MEMORY_PEAK, "memory_peak", s->memory_peak },
		{ DEN_STAT_MEMORY_LIMIT, "memory_limit", s->memory_limit },
		{ DEN_STAT_PIDS, "pids", s->pids },
		{ DEN_STAT_PIDS_MAX, "pids_max", s->pids_max },
		{ DEN_STAT_DISK, "disk", s->disk },
		{ DEN_STAT_DISK_LIMIT, "disk_limit", s->disk_limit },
		{ DEN_STAT_IO_READ, "io_read", s->io_read },
		{ DEN_STAT_IO_WRITE, "io_write", s->io_write },
		{ DEN_STAT_OOM_KILLS, "oom_kills", s->oom_kills },
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		if (s->has & rows[i].bit)
			json_u64(j, rows[i].key, rows[i].v);
		else
			json_nothing(j, rows[i].key);
	}
}

void show_exec_json(struct json *j, const struct den_exec_info *e)
{
	json_open(j, NULL, '{');
	json_i64(j, "pid", e->pid);
	json_u64(j, "number", e->number);
	json_str(j, "tag", e->tag);
	show_strings_json(j, "argv", e->argv);
	json_str(j, "user", e->user);
	json_str(j, "workdir", e->cwd);
	json_bool(j, "running", e->running);
	json_bool(j, "tty", e->tty);
	json_time(j, "started", e->started_ms);
	json_time(j, "ended", e->ended_ms);
	if (e->running) {
		json_nothing(j, "status");
		json_nothing(j, "signal");
		json_nothing(j, "reason");
	} else {
		json_i64(j, "status", result_status(&e->result));
		if (e->result.exited)
			json_nothing(j, "signal");
		else
			json_i64(j, "signal", e->result.status);
		json_str(j, "reason",
			e->result.reason && e->result.reason[0] ? e->result.reason : NULL);
	}
	json_u64(j, "out_bytes", e->result.out_bytes);
	json_u64(j, "err_bytes", e->result.err_bytes);
	json_close(j, '}');
}

void show_entry_json(struct json *j, const struct den_entry *e)
{
	char mode[8];

	snprintf(mode, sizeof(mode), "%04o", e->mode & 07777);
	json_str(j, "path", e->path);
	json_str(j, "type", e->type);
	json_str(j, "target", e->target);
	json_str(j, "mode", mode);
	json_u64(j, "size", e->size);
	json_str(j, "user", e->user);
	json_str(j, "group", e->group);
	json_u64(j, "uid", e->uid);
	json_u64(j, "gid", e->gid);
	json_u64(j, "ino", e->ino);
	json_u64(j, "nlink", e->nlink);
	json_i64(j, "mtime_ns", e->mtime_ns);
}

void show_line(struct buf *out, const char *key, const char *value)
{
	if (!value || !value[0])
		return;
	buf_addf(out, "%-13s", key);
	text_printable(out, value, strlen(value));
	buf_addstr(out, "\n");
}

void show_line_size(struct buf *out, const char *key, uint64_t bytes)
{
	char text[16];

	if (!bytes)
		return;
	format_size(bytes, text);
	show_line(out, key, text);
}

void show_line_time(struct buf *out, const char *key, int64_t ms)
{
	char text[32];

	if (!ms)
		return;
	format_time(ms, text);
	show_line(out, key, text);
}

static void quoted(struct buf *out, const char *word)
{
	buf_addstr(out, "'");
	for (const char *end; (end = strchr(word, '\'')); word = end + 1) {
		text_printable(out, word, (size_t)(end - word));
		buf_addstr(out, "'\\''");
	}
	text_printable(out, word, strlen(word));
	buf_addstr(out, "'");
}

void show_argv(struct buf *out, const char *const *argv)
{
	static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
				    "@%+=:,./-_";

	for (size_t i = 0; argv && argv[i]; i++) {
		if (i)
			buf_addstr(out, " ");
		if (argv[i][0] && !argv[i][strspn(argv[i], plain)])
			buf_addstr(out, argv[i]);
		else
			quoted(out, argv[i]);
	}
}
