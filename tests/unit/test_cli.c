#include "test.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>

#include "box_args.h"
#include "cli.h"
#include "copy.h"
#include "mem.h"
#include "outcome.h"
#include "strv.h"
#include "table.h"
#include "verbs.h"

/* Parses a NULL-terminated argv for a verb; the words after the verb's name. */
static int parse(const struct verb *v, struct args *a, struct den_err *err, char **argv)
{
	args_init(a);
	*err = (struct den_err){ 0 };
	return verb_parse(v, (int)strv_len(argv), argv, a, err);
}
#define PARSE(v, ...) parse(&(v), &a, &err, (char *[]){ __VA_ARGS__, NULL })
#define REFUSED(v, text, ...)                                                                      \
	do {                                                                                       \
		CHECK(PARSE(v, __VA_ARGS__) < 0);                                                  \
		CHECK(err.code == DEN_INVALID && strstr(err.msg, text));                           \
		args_free(&a);                                                                     \
	} while (0)

TEST(cli_options_take_their_value_after_a_space_or_an_equals_sign)
{
	struct args a;
	struct den_err err;

	CHECK(PARSE(verb_run, "--memory", "512M", "--cpus=0.5", "-e", "A=1", "-eB=2", "true") == 0);
	CHECK(a.memory == 512U << 20 && a.cpus == 500);
	CHECK(strv_len(a.env) == 2 && !strcmp(a.env[0], "A=1") && !strcmp(a.env[1], "B=2"));
	CHECK(a.n_words == 1 && !strcmp(a.words[0], "true"));
	CHECK(args_given(&a, "memory") && !args_given(&a, "disk"));
	args_free(&a);
}

TEST(cli_letters_of_flags_combine)
{
	struct args a;
	struct den_err err;

	CHECK(PARSE(verb_exec, "-tqe", "X=", "web", "sh") == 0);
	CHECK(a.tty && a.quiet && !strcmp(a.env[0], "X="));
	args_free(&a);
	CHECK(PARSE(verb_fs_rm, "-rf", "web", "/x") == 0);
	CHECK(a.recursive && a.force);
	args_free(&a);
	REFUSED(verb_fs_rm, "-z", "-rz", "web", "/x");
}

TEST(cli_a_command_keeps_its_own_options)
{
	struct args a;
	struct den_err err;

	CHECK(PARSE(verb_run, "--quiet", "ls", "--memory", "--help", "--", "-x") == 0);
	CHECK(a.n_words == 5 && !a.help && !a.memory && !strcmp(a.words[3], "--"));
	args_free(&a);
	CHECK(PARSE(verb_exec, "web", "--user", "app", "ls", "-u", "x") == 0);
	CHECK(!strcmp(a.user, "app") && a.n_words == 4 && !strcmp(a.words[2], "-u"));
	args_free(&a);
	CHECK(PARSE(verb_exec, "web", "--", "--odd") == 0);
	CHECK(a.n_words == 2 && !strcmp(a.words[1], "--odd"));
	args_free(&a);
}

TEST(cli_options_stand_anywhere_when_there_is_no_command)
{
	struct args a;
	struct den_err err;

	CHECK(PARSE(verb_kill, "web", "--signal", "kill", "api", "--tree") == 0);
	CHECK(a.signal == 9 && a.tree && a.n_words == 2 && !strcmp(a.words[1], "api"));
	args_free(&a);
	CHECK(PARSE(verb_kill, "--", "-web", "--tree") == 0);
	CHECK(!a.tree && !strcmp(a.words[0], "-web"));
	args_free(&a);
	CHECK(PARSE(verb_cp, "-", "web:/x") == 0); /* a lone dash is a word */
	CHECK(a.n_words == 2);
	args_free(&a);
}

TEST(cli_an_unknown_option_is_refused_with_the_nearest_named)
{
	struct args a;
	struct den_err err;

	REFUSED(verb_run, "did you mean --memory?", "--memroy", "1G", "true");
	REFUSED(verb_run, "did you mean --cpus?", "--cpu=2", "true");
	REFUSED(verb_run, "unknown option --zzzzzzzz", "--zzzzzzzz", "true");
	REFUSED(verb_ls, "unknown option --force", "--force");
}

TEST(cli_missing_and_extra_arguments_are_refused)
{
	struct args a;
	struct den_err err;

	REFUSED(verb_exec, "too few", "--quiet");
	REFUSED(verb_kill, "too few", "web");
	REFUSED(verb_kill, "'more' is too much", "web", "1", "more");
	REFUSED(verb_ls, "options only", "web");
	REFUSED(verb_run, "--name needs a value", "--name");
	REFUSED(verb_run, "--name needs a value", "--name", "--rm", "true");
	REFUSED(verb_run, "takes no value", "--tty=yes", "true");
	REFUSED(verb_run, "empty", "--name=", "true");
}

TEST(cli_contradictions_are_refused)
{
	struct args a;
	struct den_err err;

	REFUSED(verb_run, "contradict", "--tty", "--no-tty", "true");
	REFUSED(verb_run, "contradict", "-Tt", "true");
	REFUSED(verb_kill, "contradict", "--group", "--tree", "web", "1");
	REFUSED(verb_run, "given twice", "--memory", "1G", "--memory", "2G", "true");
	REFUSED(verb_run, "given twice", "--rm", "--rm=false", "true");
	/* said twice, but the same */
	CHECK(PARSE(verb_run, "--memory", "1G", "--memory=1G", "-t", "-t", "true") == 0);
	args_free(&a);
	CHECK(PARSE(verb_exec, "--detach", "--tty", "--tag", "x", "web", "sh") == 0);
	args_free(&a);
}

TEST(cli_bad_values_are_refused_and_say_which_option)
{
	struct args a;
	struct den_err err;

	REFUSED(verb_run, "--memory: ", "--memory", "lots", "true");
	REFUSED(verb_run, "--cpus: ", "--cpus", "0", "true");
	REFUSED(verb_run, "--pids: ", "--pids", "0", "true");
	REFUSED(verb_run, "--timeout: ", "--timeout=-1", "true");
	REFUSED(verb_run, "--timeout", "--timeout=0", "true");
	REFUSED(verb_run, "--rm: ", "--rm=maybe", "true");
	REFUSED(verb_kill, "--signal: ", "--signal", "NOPE", "web", "1");
	CHECK(PARSE(verb_stop, "--grace", "0", "web") == 0);
	CHECK(a.grace == 0 && args_given(&a, "grace"));
	args_free(&a);
}

TEST(cli_rm_is_on_unless_told)
{
	struct args a;
	struct den_err err;

	CHECK(PARSE(verb_run, "true") == 0 && a.rm);
	args_free(&a);
	CHECK(PARSE(verb_run, "--rm=false", "true") == 0 && !a.rm);
	args_free(&a);
	CHECK(PARSE(verb_run, "--rm", "false") == 0 && a.rm && a.n_words == 1);
	args_free(&a);
}

TEST(cli_help_needs_no_other_argument)
{
	struct args a;
	struct den_err err;

	for (size_t i = 0; verbs[i]; i++) {
		CHECK(parse(verbs[i], &a, &err, (char *[]){ "--help", NULL }) == 0 && a.help);
		args_free(&a);
	}
}

TEST(cli_every_verb_is_told_about)
{
	for (size_t i = 0; verbs[i]; i++) {
		const struct verb *v = verbs[i];

		CHECK(v->summary && v->summary[strlen(v->summary) - 1] != '.');
		CHECK(v->help && strstr(v->help, "Examples:") &&
			v->help[strlen(v->help) - 1] == '\n');
		CHECK((v->run != NULL) != (v->subs != NULL));
		CHECK(v->subs || (v->complete && v->complete[0]));
		CHECK(verb_find(verbs, v->name) == v);
	}
}

/* Two tables of one verb with the same option would shadow each other. */
TEST(cli_no_verb_has_an_option_twice)
{
	for (size_t i = 0; verbs[i]; i++) {
		const struct option_def *all[128];
		size_t n = 0;

		for (size_t t = 0; t <= OPTION_TABLES; t++) {
			const struct option_def *d =
				t < OPTION_TABLES ? verbs[i]->options[t] : options_global;

			for (; d && d->name; d++) {
				for (size_t k = 0; k < n; k++) {
					CHECK(strcmp(all[k]->name, d->name));
					CHECK(!d->letter || all[k]->letter != d->letter);
				}
				CHECK((d->arg != NULL) == (d->kind != OPT_FLAG));
				all[n++] = d;
			}
		}
	}
}

TEST(cli_mounts_are_host_box_and_maybe_ro)
{
	struct den_err err;
	char *host, *box, spec[256], dir[128];
	bool ro;

	CHECK(mount_parse("/tmp:/data", &host, &box, &ro, &err) == 0);
	CHECK(!strcmp(host, "/tmp") && !strcmp(box, "/data") && !ro);
	free(host);
	free(box);
	/* a host path with a space and colons in it */
	snprintf(dir, sizeof(dir), "%s/a b:c", test_dir());
	CHECK(mkdir(dir, 0755) == 0);
	snprintf(spec, sizeof(spec), "%s:/x y:ro", dir);
	CHECK(mount_parse(spec, &host, &box, &ro, &err) == 0);
	CHECK(!strcmp(host, dir) && !strcmp(box, "/x y") && ro);
	free(host);
	free(box);
	CHECK(chdir(test_dir()) == 0);
	CHECK(mount_parse("./a b:c:/x:rw", &host, &box, &ro, &err) == 0);
	CHECK(!strcmp(host, dir) && !ro);
	free(host);
	free(box);
}

TEST(cli_mounts_that_mean_nothing_are_refused)
{
	static const char *const bad[] = { "", ":", "/tmp", "/tmp:", ":/x", "/tmp:x", "/tmp:/x:rx",
		"/tmp:ro", "/tmp:/", "/tmp://", "/tmp:/a/../b", "/tmp:/.", ":ro", "::ro",
		"/tmp:./x" };
	char *host = NULL, *box = NULL;
	struct den_err err;
	bool ro;

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		CHECK(mount_parse(bad[i], &host, &box, &ro, &err) < 0 && err.code == DEN_INVALID);
		CHECK(!host && !box);
	}
	CHECK(mount_parse("/no/such/place:/x", &host, &box, &ro, &err) < 0 &&
		err.code == DEN_NOT_FOUND);
}

TEST(cli_env_takes_values_and_passes_on)
{
	auto_strv env = NULL;
	struct den_err err;

	setenv("DEN_TEST_VAR", "from here", 1);
	unsetenv("DEN_TEST_NONE");
	CHECK(env_parse("A=1", &env, &err) == 0 && env_parse("A=2=3", &env, &err) == 0);
	CHECK(env_parse("DEN_TEST_VAR", &env, &err) == 0 && env_parse("E=", &env, &err) == 0);
	CHECK(strv_len(env) == 3 && !strcmp(strv_env_get(env, "A"), "2=3"));
	CHECK(!strcmp(strv_env_get(env, "DEN_TEST_VAR"), "from here") && !*strv_env_get(env, "E"));
	CHECK(env_parse("DEN_TEST_NONE", &env, &err) < 0 && err.code == DEN_INVALID);
	CHECK(env_parse("=x", &env, &err) < 0 && env_parse("", &env, &err) < 0);
	CHECK(strv_len(env) == 3);
}

TEST(cli_env_file_has_a_variable_a_line)
{
	auto_strv env = NULL;
	struct den_err err;
	char path[128];
	FILE *f;

	snprintf(path, sizeof(path), "%s/env", test_dir());
	f = fopen(path, "w");
	CHECK(f && fputs("# comment\n\nA=1\r\nB=two words\nC=#x", f) >= 0 && fclose(f) == 0);
	CHECK(env_file_parse(path, &env, &err) == 0 && strv_len(env) == 3);
	CHECK(!strcmp(strv_env_get(env, "A"), "1") && !strcmp(strv_env_get(env, "B"), "two words"));
	CHECK(!strcmp(strv_env_get(env, "C"), "#x"));
	f = fopen(path, "w");
	CHECK(f && fputs("A=1\n=2\n", f) >= 0 && fclose(f) == 0);
	CHECK(env_file_parse(path, &env, &err) < 0 && strstr(err.msg, "line 2"));
	CHECK(env_file_parse("/no/such/file", &env, &err) < 0 && err.code == DEN_NOT_FOUND);
}

TEST(cli_exit_codes_are_what_the_manual_says)
{
	static const struct {
		enum den_code code;
		int status;
	} table[] = { { DEN_OK, 0 }, { DEN_INTERNAL, 1 }, { DEN_INVALID, 2 }, { DEN_NOT_FOUND, 3 },
		{ DEN_CONFLICT, 4 }, { DEN_DENIED, 5 }, { DEN_LIMIT, 6 }, { DEN_TIMEOUT, 7 },
		{ DEN_UNSUPPORTED, 8 } };

	static_assert(ARRAY_SIZE(table) == ERR_CODES, "a code is not tested");
	for (size_t i = 0; i < ARRAY_SIZE(table); i++)
		CHECK(cli_exit_code(table[i].code) == table[i].status);
	CHECK(cli_exit_code((enum den_code)99) == 1);
}

TEST(cli_a_program_that_ran_decides_the_status)
{
	CHECK(result_status(&(struct den_exec_result){ .exited = true, .status = 255 }) == 255);
	CHECK(result_status(&(struct den_exec_result){ .exited = true, .status = 0 }) == 0);
	CHECK(result_status(&(struct den_exec_result){ .exited = false, .status = 9 }) == 137);
	CHECK(result_status(&(struct den_exec_result){ .exited = false, .status = 15 }) == 143);
}

TEST(cli_a_program_that_did_not_start_is_127_126_or_125)
{
	CHECK(failure_status(&(struct den_err){ DEN_NOT_FOUND, ENOENT, "" }) == 127);
	CHECK(failure_status(&(struct den_err){ DEN_DENIED, EACCES, "" }) == 126);
	CHECK(failure_status(&(struct den_err){ DEN_NOT_FOUND, 0, "" }) == 125);
	CHECK(failure_status(&(struct den_err){ DEN_CONFLICT, 0, "" }) == 125);
	CHECK(failure_status(&(struct den_err){ DEN_INTERNAL, EIO, "" }) == 125);
}

TEST(cli_places_are_in_a_box_or_here)
{
	static const struct {
		const char *text, *box, *path;
		bool stream, contents, slash;
	} table[] = {
		{ "web:/srv", "web", "/srv", false, false, false },
		{ "web:/srv/", "web", "/srv", false, false, true },
		{ "web:/srv/.", "web", "/srv", false, true, true },
		{ "web:/srv/./", "web", "/srv", false, true, true },
		{ "web:", "web", ".", false, true, false },
		{ "web:/", "web", "/", false, true, false },
		{ "web:a:b", "web", "a:b", false, false, false },
		{ "./a:b", NULL, "./a:b", false, false, false },
		{ "/x/a:b", NULL, "/x/a:b", false, false, false },
		{ ":x", NULL, ":x", false, false, false },
		{ ".", NULL, ".", false, true, false },
		{ "..", NULL, "..", false, false, false },
		{ "-", NULL, "-", true, false, false },
		{ "web:-", "web", "-", false, false, false },
	};

	for (size_t i = 0; i < ARRAY_SIZE(table); i++) {
		auto_place p = { 0 };

		place_parse(table[i].text, &p);
		CHECK(table[i].box ? p.box && !strcmp(p.box, table[i].box) : !p.box);
		CHECK(!strcmp(p.path, table[i].path));
		CHECK(p.stream == table[i].stream && p.contents == table[i].contents);
		CHECK(p.slash == table[i].slash);
	}
}

TEST(cli_a_path_without_a_name_is_not_a_target)
{
	static const char *const bad[] = { "/", ".", "..", "a/..", "/a/." };
	char *dir, *name;
	struct den_err err;

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		CHECK(path_split(bad[i], &dir, &name, &err) < 0 && err.code == DEN_INVALID);
	CHECK(path_split("/a", &dir, &name, &err) == 0 && !strcmp(dir, "/") && !strcmp(name, "a"));
	free(dir);
	free(name);
	CHECK(path_split("x/y z", &dir, &name, &err) == 0 && !strcmp(dir, "x") &&
		!strcmp(name, "y z"));
	free(dir);
	free(name);
}

TEST(cli_tables_align_and_escape_what_a_box_made)
{
	static const char *const heads[] = { "NAME", ">SIZE", "NOTE" };
	auto_table t = { .cols = 3, .heads = heads };
	auto_buf out = { 0 };

	table_cell(&t, "\033[31mred");
	table_cell(&t, "5");
	table_cell(&t, NULL);
	table_cell(&t, "\xc3\xa4");
	table_cell(&t, "12345");
	table_cell(&t, "x");
	table_print(&t, &out);
	CHECK(!strcmp(buf_str(&out), "NAME          SIZE  NOTE\n"
				     "\\x1b[31mred      5  -\n"
				     "\xc3\xa4            12345  x\n"));
}

TEST(cli_durations_read_well)
{
	static const struct {
		uint64_t ms;
		const char *text;
	} table[] = { { 5, "5ms" }, { 1500, "1.5s" }, { 30000, "30s" }, { 90000, "1m30s" },
		{ 300000, "5m" }, { 3600000, "1h" }, { 5400000, "1h30m" } };
	char text[32];

	for (size_t i = 0; i < ARRAY_SIZE(table); i++) {
		format_duration(table[i].ms, text);
		CHECK(!strcmp(text, table[i].text));
	}
}
