/* Names and addresses that are right, for tests of what takes them. */
#pragma once

#include "addr.h"
#include "name.h"
#include "test.h"

static inline struct net_name name(const char *s)
{
	struct net_name n;
	struct den_err err = { 0 };

	if (net_name_parse(s, strlen(s), &n, &err) < 0)
		test_fail(__FILE__, __LINE__, err.msg);
	return n;
}

static inline struct net_addr addr(const char *s)
{
	struct net_addr a = { 0 };

	if (net_addr_parse(s, &a) < 0)
		test_fail(__FILE__, __LINE__, s);
	return a;
}
