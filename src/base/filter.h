/*
 * A seccomp filter for a program of our own, put together call by call: what is not named gets what filter_load()
 * is told. (Boxes have another, made at build time: wall/container/seccomp_gen.c.)
 */
#pragma once

#include <linux/filter.h>
#include <stddef.h>
#include <stdint.h>

#include "err.h"

struct filter {
	struct sock_filter f[512];
	unsigned short n;
};

/* Statements for rules of one's own. After filter_begin() and each rule the accumulator has the call's number; a rule
 * that is met must return. */
#define FILTER_LOAD(field) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, field))
#define FILTER_RET(v) BPF_STMT(BPF_RET | BPF_K, (v))
#define FILTER_SKIP_UNLESS(v, n) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (v), 0, (n))
#define FILTER_SKIP_UNLESS_ANY(bits, n) BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, (bits), 0, (n))

void filter_emit(struct filter *p, struct sock_filter f);
#define FILTER(p, statement) filter_emit((p), (struct sock_filter)statement)

void filter_begin(struct filter *p); /* 64-bit calls of this architecture; others end the process */
void filter_rule(struct filter *p, int call, uint32_t action);
void filter_rules(struct filter *p, const int *calls, size_t n, uint32_t action);
/* mmap and mprotect, but memory that can be executed is never made. */
void filter_no_exec(struct filter *p);
/* A call whose first argument is one of these (b may be a again), else an error. */
void filter_first_arg(struct filter *p, int call, uint32_t a, uint32_t b, uint32_t otherwise);
int filter_load(struct filter *p, uint32_t otherwise, struct den_err *err);
