/*
 * The unit test harness: TEST() registers by hand-free means of a linker section, so a file of tests
 * needs no list. Each test runs in a forked child: a crash or an abort fails that test alone.
 *
 *   TEST(name_says_the_promise) { CHECK(1 + 1 == 2); }
 *   SKIP("why") ends a test that cannot run here; it is counted and the reason printed.
 *
 * Output, one line a test: "ok NAME", "FAIL NAME: file:line: expression", "skip NAME: reason"; then
 * "N passed, N failed, N skipped".
 */
#pragma once

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

struct test {
	const char *name;
	void (*run)(void);
};

#define TEST(id)                                                                                 \
	static void test_##id(void);                                                             \
	static const struct test test_entry_##id = { #id, test_##id };                           \
	static const struct test *const test_ptr_##id                                            \
		__attribute__((used, section("den_tests"))) = &test_entry_##id;                  \
	static void test_##id(void)

#define CHECK(x)                                                                                 \
	do {                                                                                     \
		if (!(x))                                                                        \
			test_fail(__FILE__, __LINE__, #x);                                       \
	} while (0)

#define SKIP(why) test_skip(why)

void test_fail(const char *file, int line, const char *expr) __attribute__((noreturn));
void test_skip(const char *why) __attribute__((noreturn));
/* A fresh directory below the test's own scratch space, removed after the test. */
const char *test_dir(void);
