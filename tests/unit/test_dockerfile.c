/* Dockerfiles and what goes with them: words, variables, patterns, apt sources. */
#include <string.h>

#include "apt_sources.h"
#include "dockerfile.h"
#include "ignore.h"
#include "mem.h"
#include "strv.h"
#include "test.h"

static int parse(const char *text, struct dockerfile *d, struct den_err *err)
{
	*err = (struct den_err){ 0 };
	return dockerfile_parse(text, strlen(text), d, err);
}

/* The text is refused, and the message says `has`. */
static int refused(const char *text, const char *has)
{
	struct dockerfile d;
	struct den_err err;

	if (parse(text, &d, &err) == 0) {
		dockerfile_free(&d);
		return 0;
	}
	if (!strstr(err.msg, has))
		fprintf(stderr, "  '%s' is not in '%s'\n", has, err.msg);
	return strstr(err.msg, has) != NULL;
}

TEST(dockerfile_steps_keep_their_lines_and_texts)
{
	struct dockerfile d;
	struct den_err err;

	CHECK(parse("# a comment\n\nFROM host AS one\r\n  run echo a \\\n  # inside\n\n   b\nCMD "
		    "[\"x\", \"y z\"]\n",
		      &d, &err) == 0);
	CHECK(d.n == 3);
	CHECK(d.steps[0].kind == DF_FROM && d.steps[0].line == 3 &&
		!strcmp(d.steps[0].text, "host AS one"));
	CHECK(d.steps[1].kind == DF_RUN && d.steps[1].line == 4 &&
		!strcmp(d.steps[1].text, "echo a    b"));
	CHECK(d.steps[2].kind == DF_CMD && d.steps[2].line == 8 && strv_len(d.steps[2].list) == 2);
	CHECK(!strcmp(d.steps[2].list[1], "y z"));
	dockerfile_free(&d);
}

TEST(dockerfile_two_escapes_at_the_end_do_not_continue)
{
	struct dockerfile d;
	struct den_err err;

	CHECK(parse("FROM a\nRUN x \\\\\nRUN y\n", &d, &err) == 0);
	CHECK(d.n == 3 && !strcmp(d.steps[1].text, "x \\\\"));
	dockerfile_free(&d);
}

TEST(dockerfile_escape_directive_counts_only_at_the_top)
{
	struct dockerfile d;
	struct den_err err;

	CHECK(parse("# escape=`\nFROM a\nRUN x `\n  y\\\nRUN z\n", &d, &err) == 0);
	CHECK(d.escape == '`' && d.n == 3 && !strcmp(d.steps[1].text, "x   y\\"));
	dockerfile_free(&d);
	CHECK(parse("FROM a\n# escape=`\nRUN x\n", &d, &err) == 0);
	CHECK(d.escape == '\\');
	dockerfile_free(&d);
	CHECK(refused("# escape=x\nFROM a\n", "line 1"));
}

TEST(dockerfile_flags_are_taken_off_and_unknown_ones_refused)
{
	struct dockerfile d;
	struct den_err err;

	CHECK(parse("FROM a\nCOPY --from=b --chown=1:2 x y /z/\n", &d, &err) == 0);
	CHECK(!strcmp(df_flag(&d.steps[1], "from"), "b") &&
		!strcmp(df_flag(&d.steps[1], "chown"), "1:2"));
	CHECK(!df_flag(&d.steps[1], "chmod") && !strcmp(d.steps[1].text, "x y /z/"));
	dockerfile_free(&d);
	CHECK(refused("FROM a\nCOPY --form=b x y\n", "did you mean --from?"));
	CHECK(refused("FROM a\nRUN --mount=type=cache,target=/x ls\n",
		"line 2: RUN --mount is not supported"));
}

TEST(dockerfile_mistakes_name_the_line_and_the_nearest_word)
{
	CHECK(refused(
		"FROM a\n\nRNU ls\n", "line 3: there is no instruction 'RNU'; did you mean RUN?"));
	CHECK(refused("FROM a\nfrobnicate\n", "line 2: there is no instruction 'frobnicate'"));
	CHECK(refused("RUN ls\nFROM a\n", "line 1: RUN stands before FROM"));
	CHECK(refused("", "there is no FROM"));
	CHECK(refused("ARG X=1\n", "there is no FROM"));
	CHECK(refused("FROM a\nRUN\n", "line 2: RUN: nothing follows"));
	CHECK(refused("FROM a\nSHELL /bin/sh\n", "SHELL takes a list"));
	CHECK(refused("FROM a\nRUN <<EOF\nls\n", "no line 'EOF' at its end"));
}

TEST(dockerfile_refuses_bytes_that_are_no_text)
{
	static const char zero[] = "FROM a\0b\n";
	struct dockerfile d;
	struct den_err err;

	CHECK(dockerfile_parse(zero, sizeof(zero) - 1, &d, &err) < 0 && err.code == DEN_INVALID);
}

TEST(dockerfile_heredocs_belong_to_their_step)
{
	struct dockerfile d;
	struct den_err err;

	CHECK(parse("FROM a\nRUN <<EOF\n# no comment\necho \\\nx\nEOF\nCOPY <<-\"A\" <<B "
		    "/d/\n\t$x\n\tA\ntwo\nB\n"
		    "RUN cat <<<word\nRUN echo $((1<<2))\n",
		      &d, &err) == 0);
	CHECK(d.n == 5);
	CHECK(d.steps[1].n_docs == 1 && d.steps[1].docs[0].expand);
	CHECK(!strcmp(d.steps[1].docs[0].text, "# no comment\necho \\\nx\n"));
	CHECK(d.steps[2].n_docs == 2 && !d.steps[2].docs[0].expand && d.steps[2].docs[1].expand);
	CHECK(!strcmp(d.steps[2].docs[0].name, "A") && !strcmp(d.steps[2].docs[0].text, "$x\n"));
	CHECK(!strcmp(d.steps[2].docs[1].text, "two\n") && d.steps[2].line == 7);
	CHECK(d.steps[3].n_docs == 0 && d.steps[4].n_docs == 0);
	dockerfile_free(&d);
}

TEST(dockerfile_a_bracket_that_is_no_list_is_for_the_shell)
{
	struct dockerfile d;
	struct den_err err;

	CHECK(parse("FROM a\nRUN [ -f /x ] || ls\nRUN [\"a\", 1]\n", &d, &err) == 0);
	CHECK(!d.steps[1].list && !d.steps[2].list);
	dockerfile_free(&d);
}

static const char *lookup(const char *name, void *user)
{
	static const char *const vars[][2] = { { "X", "one" }, { "EMPTY", "" }, { "long_1", "L" } };

	(void)user;
	for (size_t i = 0; i < ARRAY_SIZE(vars); i++)
		if (!strcmp(vars[i][0], name))
			return vars[i][1];
	return NULL;
}

TEST(variables_expand_as_in_a_shell)
{
	static const char *const cases[][2] = {
		{ "a$X", "aone" },
		{ "${X}b", "oneb" },
		{ "$Xb", "" },
		{ "$long_1.", "L." },
		{ "${NO:-d}", "d" },
		{ "${EMPTY:-d}", "d" },
		{ "${EMPTY-d}", "" },
		{ "${X:+y}", "y" },
		{ "${NO:+y}", "" },
		{ "${EMPTY+y}", "y" },
		{ "${NO:-${X}z}", "onez" },
		{ "'$X'", "$X" },
		{ "\"$X y\"", "one y" },
		{ "\\$X", "$X" },
		{ "\"\\$X\"", "$X" },
		{ "a\\ b", "a b" },
		{ "\"a\\b\"", "a\\b" },
		{ "$", "$" },
		{ "a$ b", "a$ b" },
		{ "${NO}", "" },
		{ "\"it's\"", "it's" },
		{ "${X:?no}", "one" },
		{ "100%", "100%" },
	};
	struct den_err err;

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		char *out = NULL;

		CHECK(df_expand(cases[i][0], '\\', lookup, NULL, &out, &err) == 0);
		if (strcmp(out, cases[i][1]))
			fprintf(stderr, "  %s: '%s'\n", cases[i][0], out);
		CHECK(!strcmp(out, cases[i][1]));
		free(out);
	}
}

TEST(variables_that_make_no_sense_are_refused)
{
	static const char *const bad[] = { "${X", "${", "${}", "${X:-a", "'a", "\"a", "${X##*/}",
		"${NO:?is needed}", "${1}" };
	struct den_err err;
	char deep[400] = "";

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		char *out = (char *)"untouched";

		CHECK(df_expand(bad[i], '\\', lookup, NULL, &out, &err) < 0);
		CHECK(!strcmp(out, "untouched") && err.msg[0]);
	}
	for (int i = 0; i < 40; i++)
		strcat(deep, "${A:-");
	CHECK(df_expand(deep, '\\', lookup, NULL, &(char *){ NULL }, &err) < 0 &&
		err.code == DEN_LIMIT);
}

static const char *huge(const char *name, void *user)
{
	(void)name;
	return user;
}

TEST(variables_cannot_fill_the_memory)
{
	char *big = mem_alloc(3 << 20), *out = NULL;
	struct den_err err;

	memset(big, 'x', (3 << 20) - 1);
	big[(3 << 20) - 1] = '\0';
	CHECK(df_expand("$A", '\\', huge, big, &out, &err) == 0);
	free(out);
	CHECK(df_expand("$A$A$A$A", '\\', huge, big, &out, &err) < 0 && err.code == DEN_LIMIT);
	free(big);
}

TEST(pairs_are_read_in_both_spellings)
{
	auto_strv names = NULL;
	auto_strv values = NULL;
	struct den_err err;

	CHECK(df_pairs("A=1 B=\"two words\" C=a\\ b", '\\', false, &names, &values, &err) == 0);
	CHECK(strv_len(names) == 3 && !strcmp(values[1], "\"two words\"") &&
		!strcmp(values[2], "a\\ b"));
	strv_free(names);
	strv_free(values);
	names = values = NULL;
	CHECK(df_pairs("A  one two = three", '\\', false, &names, &values, &err) == 0);
	CHECK(strv_len(names) == 1 && !strcmp(names[0], "A") &&
		!strcmp(values[0], "one two = three"));
	strv_free(names);
	strv_free(values);
	names = values = NULL;
	CHECK(df_pairs("A=1 B", '\\', false, &names, &values, &err) < 0 &&
		strstr(err.msg, "B=VALUE"));
	CHECK(df_pairs("A", '\\', false, &names, &values, &err) < 0);
	CHECK(df_pairs("=x", '\\', false, &names, &values, &err) < 0);
	CHECK(df_pairs("A B=2", '\\', true, &names, &values, &err) == 0);
	CHECK(!strcmp(values[0], DF_NO_VALUE) && !strcmp(values[1], "2"));
}

TEST(path_patterns_match_parts_and_depths)
{
	static const struct {
		const char *pattern, *path;
		bool yes;
	} cases[] = {
		{ "*.txt", "a.txt", true },
		{ "*.txt", "d/a.txt", false },
		{ "d/*", "d/a", true },
		{ "d/*", "d/a/b", false },
		{ "**/a", "a", true },
		{ "**/a", "x/y/a", true },
		{ "**/a", "x/y/ab", false },
		{ "d/**", "d/x/y", true },
		{ "**/*.o", "x/y.o", true },
		{ "a?c", "abc", true },
		{ "a?c", "a/c", false },
		{ "[a-c]x", "bx", true },
		{ "[^a-c]x", "bx", false },
		{ "[^a-c]x", "dx", true },
		{ "\\*", "*", true },
		{ "\\*", "a", false },
		{ "a*b*c", "aXbYbc", true },
		{ "a**", "abc", true },
		{ "", "a", false },
		{ "a/**/z", "a/b/c/z", true },
		{ "a/**/z", "a/z", true },
		{ "[", "[", true },
		{ "*", "", false },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		if (path_match(cases[i].pattern, cases[i].path) != cases[i].yes && *cases[i].path)
			fprintf(stderr, "  '%s' '%s'\n", cases[i].pattern, cases[i].path);
		CHECK(!*cases[i].path ||
			path_match(cases[i].pattern, cases[i].path) == cases[i].yes);
	}
}

TEST(path_patterns_take_no_exponential_time)
{
	char text[2001];

	memset(text, 'a', 2000);
	text[2000] = '\0';
	/* would not end before the test's alarm */
	CHECK(!path_match("*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*ab", text));
}

TEST(path_clean_never_leaves_the_top)
{
	static const char *const bad[] = { "..", "../x", "a/../..", "/../x", "a/b/../../../c" };
	static const char *const good[][2] = { { "a/../b", "b" }, { "/x//y/.", "x/y" }, { ".", "" },
		{ "a..b", "a..b" }, { "...", "..." } };

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		CHECK(!path_clean(bad[i]));
	for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
		auto_free char *c = path_clean(good[i][0]);

		CHECK(c && !strcmp(c, good[i][1]));
	}
}

TEST(ignore_the_last_match_decides)
{
	struct ignore g;
	struct den_err err;

	CHECK(ignore_parse("# comment\n\n*.md\n!README.md\n/build/\n  node_modules "
			   "\n**/*.tmp\nsecret\n!secret/ok\n",
		      &g, &err) == 0);
	CHECK(g.exceptions);
	CHECK(ignore_has(&g, "a.md") && !ignore_has(&g, "README.md") && !ignore_has(&g, "d/a.md"));
	CHECK(ignore_has(&g, "build") && ignore_has(&g, "build/x/y") &&
		!ignore_has(&g, "src/build"));
	CHECK(ignore_has(&g, "node_modules/m/i.js") && ignore_has(&g, "x/y.tmp"));
	CHECK(ignore_has(&g, "secret/key") && !ignore_has(&g, "secret/ok") &&
		!ignore_has(&g, "secret/ok/deep"));
	ignore_free(&g);
}

TEST(apt_sources_are_read_in_both_forms)
{
	struct apt_sources s = { 0 };
	auto_strv lines = NULL;

	apt_sources_add_list(&s,
		"# comment\ndeb [arch=amd64 signed-by=/k.gpg] http://m/debian bookworm main "
		"contrib\n"
		"deb-src http://m/debian bookworm main\n  deb http://m/sec bookworm-security main "
		"# c\n"
		"deb http://other stable main\nnonsense\ndeb [broken http://x y z\n");
	CHECK(s.n == 3);
	CHECK(!strcmp(s.list[0].signed_by, "/k.gpg") &&
		!strcmp(s.list[0].components, "main contrib"));
	apt_sources_add_deb822(&s,
		"Types: deb deb-src\nURIs: http://a http://b\nSuites: bookworm\n bookworm-updates\n"
		"Components: main\nSigned-By:\n -----BEGIN\n .\n\n"
		"Types: deb\nURIs: http://off\nSuites: bookworm\nEnabled: no\n\n"
		"# c\nTypes: deb-src\nURIs: http://src\nSuites: bookworm\n");
	CHECK(s.n == 7);
	CHECK(!s.list[3].signed_by && !strcmp(s.list[4].suite, "bookworm-updates"));
	lines = apt_sources_lines(&s, "bookworm", "trixie");
	CHECK(strv_len(lines) == 6);
	CHECK(!strcmp(lines[0], "deb [signed-by=/k.gpg] http://m/debian trixie main contrib"));
	CHECK(!strncmp(lines[1], "deb http://m/sec trixie-security main", 37));
	strv_free(lines);
	lines = apt_sources_lines(&s, "bookworm", "sid");
	CHECK(strv_len(lines) == 3); /* no updates beside it */
	strv_free(lines);
	lines = apt_sources_lines(&s, "book", "sid");
	CHECK(!lines);
	apt_sources_free(&s);
}
