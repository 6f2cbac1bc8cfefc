#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "box_args.h"
#include "mem.h"
#include "parse.h"
#include "show.h"
#include "strv.h"
#include "table.h"
#include "warm.h"

#define WARM_MAX 10000
#define LOOK_MS 1000 /* with --run: so often it is counted */

/* One TEMPLATE=N. */
struct want {
	char *template_name;
	uint64_t n;
	uint64_t ready, made, dropped;
};

int warm_parse(const char *text, char **ret_template, uint64_t *ret_n, struct den_err *err)
{
	const char *eq = strrchr(text, '=');

	if (!eq || eq == text)
		return den_fail(
			err, DEN_INVALID, 0, "'%.60s' is not TEMPLATE=N, like base=4", text);
	if (parse_u64(eq + 1, 0, WARM_MAX, ret_n, err) < 0)
		return den_wrap(
			err, "how many of '%.*s'", (int)MIN(eq - text, (ptrdiff_t)60), text);
	*ret_template = strndup(text, (size_t)(eq - text));
	return 0;
}

/* ---- what is there ---- */

/* How many from the i-th on are of its template; 0: an earlier one counted it. */
static size_t count_here(const struct den_box_info *all, size_t n, size_t i)
{
	size_t count = 0;

	for (size_t k = 0; k < i; k++)
		if (!strcmp(all[k].template_name, all[i].template_name))
			return 0;
	for (size_t k = i; k < n; k++)
		count += !strcmp(all[k].template_name, all[i].template_name);
	return count;
}

int warm_text(struct den *d, struct buf *out, struct den_err *err)
{
	struct den_box_info *all;
	auto_buf line = { 0 };
	size_t n;

	if (den_ready_list(d, NULL, &all, &n, err) < 0)
		return -1;
	for (size_t i = 0; i < n; i++) {
		size_t count = count_here(all, n, i);

		if (count)
			buf_addf(&line, "%s%s=%zu", line.len ? " " : "", all[i].template_name,
				count);
	}
	den_box_infos_free(all, n);
	show_line(out, "ready boxes", n ? buf_str(&line) : "none");
	return 0;
}

int warm_json(struct den *d, struct json *j, struct den_err *err)
{
	struct den_box_info *all;
	size_t n;

	if (den_ready_list(d, NULL, &all, &n, err) < 0)
		return -1;
	json_open(j, "ready", '[');
	for (size_t i = 0; i < n; i++) {
		json_open(j, NULL, '{');
		json_str(j, "id", all[i].id);
		json_str(j, "template", all[i].template_name);
		json_str(j, "wall", all[i].wall);
		json_bool(j, "network", all[i].policy || all[i].policy_name);
		json_u64(j, "cpu_milli", all[i].cpu_milli);
		json_u64(j, "memory", all[i].memory);
		json_u64(j, "disk", all[i].disk);
		json_str(j, "history", all[i].history);
		json_time(j, "made", all[i].created_ms);
		json_close(j, '}');
	}
	json_close(j, ']');
	den_box_infos_free(all, n);
	return 0;
}

/* ---- as many as are wanted ---- */

static int drop_all(struct den *d, uint64_t *ret, struct den_err *err)
{
	struct den_box_info *all;
	size_t n;
	int r = 0;

	if (den_ready_list(d, NULL, &all, &n, err) < 0)
		return -1;
	for (size_t i = 0; i < n && r == 0; i++) {
		r = den_ready_drop(d, all[i].id, err);
		if (r < 0 && err->code == DEN_NOT_FOUND)
			r = 0; /* somebody took it just now */
		else
			++*ret;
	}
	den_box_infos_free(all, n);
	return r;
}

static int fill(struct den *d, const struct den_box_spec *spec, struct want *w, struct den_err *err)
{
	struct den_box_info *have;
	size_t n;
	int r = 0;

	if (den_ready_list(d, spec, &have, &n, err) < 0)
		return -1;
	w->ready = n;
	for (size_t i = 0; i < n && w->ready > w->n && r == 0; i++) {
		r = den_ready_drop(d, have[i].id, err);
		if (r < 0 && err->code == DEN_NOT_FOUND)
			r = 0;
		w->dropped++;
		w->ready--;
	}
	den_box_infos_free(have, n);
	while (r == 0 && w->ready < w->n) {
		r = den_ready_make(d, spec, err);
		if (r == 0) {
			w->made++;
			w->ready++;
		}
	}
	return r;
}

static int fill_all(
	struct den *d, struct den_box_spec *spec, struct want *wants, size_t n, struct den_err *err)
{
	for (size_t i = 0; i < n; i++) {
		spec->template_name = wants[i].template_name;
		if (fill(d, spec, &wants[i], err) < 0)
			return den_wrap(err, "%.60s", wants[i].template_name);
	}
	return 0;
}

static int tell(const struct args *a, const struct want *wants, size_t n)
{
	auto_buf out = { 0 };
	struct json j = { 0 };

	if (a->json)
		json_open(&j, NULL, '[');
	for (size_t i = 0; i < n; i++) {
		const struct want *w = &wants[i];

		if (!a->json) {
			buf_addf(&out, "%s: %llu ready", w->template_name,
				(unsigned long long)w->ready);
			if (w->made)
				buf_addf(&out, ", %llu made", (unsigned long long)w->made);
			if (w->dropped)
				buf_addf(
					&out, ", %llu thrown away", (unsigned long long)w->dropped);
			buf_addstr(&out, "\n");
			continue;
		}
		json_open(&j, NULL, '{');
		json_str(&j, "template", w->template_name);
		json_u64(&j, "ready", w->ready);
		json_u64(&j, "made", w->made);
		json_u64(&j, "dropped", w->dropped);
		json_close(&j, '}');
	}
	if (!a->json)
		return cli_print(a, &out);
	json_close(&j, ']');
	return cli_print_json(a, &j);
}

/* Until somebody ends it. What cannot be made now may be in a while: it is told once, and tried again. */
static int stay(const struct args *a, struct den *d, struct den_box_spec *spec, struct want *wants,
	size_t n)
{
	struct timespec t = { .tv_sec = LOOK_MS / 1000 };
	bool told = false;
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGHUP);
	sigprocmask(SIG_BLOCK, &set, NULL);
	cli_note(a, "keeping them ready; Ctrl-C ends that and leaves them there");
	while (sigtimedwait(&set, NULL, &t) < 0) {
		struct den_err err = { 0 };
		bool failed = fill_all(d, spec, wants, n, &err) < 0;

		if (failed && !told)
			cli_warn("%s; trying again", err.msg);
		told = failed;
	}
	return 0;
}

static int read_wants(const struct args *a, struct want *wants, size_t n, struct den_err *err)
{
	for (size_t i = 0; i < n; i++)
		if (warm_parse(a->words[i + 1], &wants[i].template_name, &wants[i].n, err) < 0)
			return -1;
	return 0;
}

static int check(const struct args *a, struct den_err *err)
{
	if (a->none && a->n_words > 1)
		return den_fail(err, DEN_INVALID, 0,
			"--none throws all away; leave out '%.60s' or it", a->words[1]);
	if (!a->none && a->n_words < 2)
		return den_fail(err, DEN_INVALID, 0,
			"how many of which template? Like 'den pool warm host=4', or --none");
	if (a->none && a->stay)
		return den_fail(err, DEN_INVALID, 0,
			"--run keeps boxes ready; there is nothing to keep with --none");
	if (a->template_name)
		return den_fail(err, DEN_INVALID, 0,
			"the template is said as TEMPLATE=N; leave out --template");
	if (a->name)
		return den_fail(
			err, DEN_INVALID, 0, "a name is one box's: it is given with 'den create'");
	return 0;
}

static int warm_none(const struct args *a, struct den *d)
{
	auto_buf out = { 0 };
	struct den_err err = { 0 };
	struct json j = { 0 };
	uint64_t n = 0;

	if (drop_all(d, &n, &err) < 0)
		return cli_fail(a, &err, NULL);
	if (!a->json) {
		buf_addf(&out, "%llu thrown away\n", (unsigned long long)n);
		return cli_print(a, &out);
	}
	json_open(&j, NULL, '{');
	json_u64(&j, "dropped", n);
	json_close(&j, '}');
	return cli_print_json(a, &j);
}

static int warm(const struct args *a, struct want *wants, size_t n)
{
	auto_session s = { 0 };
	auto_box_args b = { 0 };
	struct den_err err = { 0 };
	int status;

	if (check(a, &err) < 0 || read_wants(a, wants, n, &err) < 0 ||
		box_args_make(a, &b, &err) < 0)
		return cli_fail(a, &err, "see 'den pool --help'");
	if (cli_open(a, &s.den, &err) < 0)
		return cli_fail(a, &err, NULL);
	if (a->none)
		return warm_none(a, s.den);
	if (fill_all(s.den, &b.spec, wants, n, &err) < 0)
		return cli_fail(a, &err,
			err.code == DEN_NOT_FOUND ? "'den template ls' lists templates" : NULL);
	status = tell(a, wants, n);
	if (status)
		return status;
	if (a->stay)
		return stay(a, s.den, &b.spec, wants, n);
	cli_note(a, "made once: what is taken is not made again; --run stays and does");
	return 0;
}

int pool_warm(const struct args *a)
{
	size_t n = a->n_words > 1 ? (size_t)a->n_words - 1 : 0;
	struct want *wants = mem_zalloc(sizeof(*wants) * (n + 1));
	int status = warm(a, wants, n);

	for (size_t i = 0; i < n; i++)
		free(wants[i].template_name);
	free(wants);
	return status;
}
