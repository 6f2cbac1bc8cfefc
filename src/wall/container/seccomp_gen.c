/*
 * Makes the box's seccomp filter out of seccomp_list.h, while den is built:
 *
 *   seccomp_gen x86_64 > seccomp_filter.h         (or aarch64: any build machine makes either)
 *   seccomp_gen --unlisted x86_64                 calls that libseccomp knows and the list doesn't
 *
 * libseccomp tells the numbers of the calls. It does not build the filter, for three reasons: for
 * an allowed socket() on i386 it adds an allowed socketcall(), whose family no filter sees; it
 * cannot say "every value of these 32 bits but one"; and its program is nearly three times as long,
 * which each box pays for when the kernel checks and compiles it. docs/decisions/0002-seccomp.md
 *
 * The program: one look at the architecture, then a binary search over ranges of call numbers with
 * the same verdict, then, for the few calls that have conditions, the rows of arg_rules in order.
 * An interpreter runs the finished program against the list before anything is printed, so a
 * mistake in here breaks the build and not the wall.
 */
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <seccomp.h> /* libseccomp's, not the header beside this file */
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "seccomp_list.h"

#ifndef SCMP_VER_MAJOR
#error "found our own seccomp.h in place of libseccomp's: compile without -I for this directory"
#endif

#define ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))
#define CALLS_MAX 1024
#define X32_BIT 0x40000000u
#define NO_CALL 0xffffffffu /* a tracer's "skip this call": the kernel does nothing for it */

#define die(...) (fprintf(stderr, "seccomp_gen: " __VA_ARGS__), fputc('\n', stderr), exit(1))

/* What becomes of a call: a verdict at once, or the rows of arg_rules from first on. */
struct fate {
	int verdict;
	const struct arg_rule *first; /* NULL: verdict decides */
};

struct call {
	uint32_t nr;
	const char *name;
	struct fate fate;
	int listed;
};

struct abi {
	const char *name;
	uint32_t token; /* libseccomp's, which is the kernel's AUDIT_ARCH_ value */
	struct call calls[CALLS_MAX];
	size_t n;
};

/* Call numbers from start up to the next range's start share a fate. */
struct range {
	uint32_t start;
	struct fate fate;
};

static struct abi abis[] = {
	{ .name = "x86_64", .token = SCMP_ARCH_X86_64 },
	{ .name = "i386", .token = SCMP_ARCH_X86 },
	{ .name = "aarch64", .token = SCMP_ARCH_AARCH64 },
	{ .name = "arm", .token = SCMP_ARCH_ARM },
};

/* The program while it is written: jumps go to labels, and labels lie ahead, as the kernel
 * wants. */
#define NEXT (-1)
static struct {
	uint16_t code;
	int jt, jf; /* labels, or NEXT */
	uint32_t k;
} code[BPF_MAXINSNS];
static size_t label_at[BPF_MAXINSNS];
static int n_labels;
static int rows_label[ARRAY_SIZE(arg_rules)];
static int verdict_label[256]; /* of the section at hand, by verdict; NEXT: not used in it */

/* The finished one. */
static struct sock_filter prog[BPF_MAXINSNS];
static size_t len;

/* ---- the list ------------------------------------------------------------------------------ */

static int group_has(const struct call_group *g, const char *name)
{
	size_t n = strlen(name);

	for (const char *s = g->names; (s = strstr(s, name)); s += n)
		if ((s == g->names || s[-1] == ' ') && (s[n] == ' ' || !s[n]))
			return 1;
	return 0;
}

/* True if the list has name; one that is there twice is a mistake. */
static int list_find(const char *name, struct fate *ret)
{
	int found = 0;

	for (size_t i = 0; i < ARRAY_SIZE(groups); i++)
		if (group_has(&groups[i], name)) {
			*ret = (struct fate){ groups[i].verdict, NULL };
			found++;
		}
	for (size_t i = 0; i < ARRAY_SIZE(arg_rules); i++)
		if (!strcmp(arg_rules[i].name, name) &&
			(i == 0 || strcmp(arg_rules[i - 1].name, name) != 0)) {
			*ret = (struct fate){ 0, &arg_rules[i] };
			found++;
		}
	if (found > 1)
		die("'%s' is listed twice", name);
	return found;
}

static const struct call *abi_find(const struct abi *a, uint32_t nr)
{
	for (size_t i = 0; i < a->n; i++)
		if (a->calls[i].nr == nr)
			return &a->calls[i];
	return NULL;
}

static void abi_add(struct abi *a, uint32_t nr, const char *name)
{
	struct call *c = &a->calls[a->n];
	const struct call *known = abi_find(a, nr);

	if (known && strcmp(known->name, name) != 0)
		die("%s %u is '%s' for libseccomp, '%s' in new_calls", a->name, nr, known->name,
			name);
	if (known)
		return;
	if (a->n++ == CALLS_MAX)
		die("too many calls");
	c->nr = nr;
	c->name = name;
	c->fate = (struct fate){ ENOSYS, NULL };
	c->listed = list_find(name, &c->fate);
}

static int call_cmp(const void *x, const void *y)
{
	const struct call *a = x, *b = y;

	return (a->nr > b->nr) - (a->nr < b->nr);
}

/* By number and not by name: by name libseccomp gives pseudo numbers for what socketcall and ipc
 * multiplex. From 0xf0000 on are ARM's private calls. */
static void abi_load(struct abi *a)
{
	for (uint32_t nr = 0; nr < 0xf0010; nr = nr == 1023 ? 0xf0000 : nr + 1) {
		const char *name = seccomp_syscall_resolve_num_arch(a->token, (int)nr);

		if (name)
			abi_add(a, nr, name);
	}
	for (size_t i = 0; i < ARRAY_SIZE(new_calls); i++)
		if (!new_calls[i].x86_64_only || a->token == SCMP_ARCH_X86_64)
			abi_add(a, (uint32_t)new_calls[i].nr, new_calls[i].name);
	qsort(a->calls, a->n, sizeof(a->calls[0]), call_cmp);
}

static void name_check(const char *name, size_t n)
{
	for (size_t i = 0; i < ARRAY_SIZE(abis); i++)
		for (size_t j = 0; j < abis[i].n; j++)
			if (strlen(abis[i].calls[j].name) == n &&
				!memcmp(abis[i].calls[j].name, name, n))
				return;
	die("no ABI has a call '%.*s'", (int)n, name);
}

/* A misspelled name would be a call silently refused, or silently not refused as meant. */
static void list_check(void)
{
	for (size_t i = 0; i < ARRAY_SIZE(groups); i++)
		for (const char *s = groups[i].names; *s;) {
			size_t n = strcspn(s, " ");

			name_check(s, n);
			s += n + strspn(s + n, " ");
		}
	for (size_t i = 0; i < ARRAY_SIZE(arg_rules); i++) {
		int last = i + 1 == ARRAY_SIZE(arg_rules) ||
			   strcmp(arg_rules[i].name, arg_rules[i + 1].name) != 0;

		name_check(arg_rules[i].name, strlen(arg_rules[i].name));
		if (last != !arg_rules[i].when[0].mask)
			die("the last row of '%s', and no other, has no condition",
				arg_rules[i].name);
	}
}

/* ---- the program --------------------------------------------------------------------------- */

static int label_new(void)
{
	if (n_labels == BPF_MAXINSNS)
		die("too many labels");
	return n_labels++;
}

static void label_here(int label)
{
	label_at[label] = len;
}

static void emit(uint16_t op, uint32_t k, int jt, int jf)
{
	if (len == BPF_MAXINSNS)
		die("the program is too long");
	code[len].code = op;
	code[len].k = k;
	code[len].jt = jt;
	code[len++].jf = jf;
}

static void emit_load(size_t offset)
{
	emit(BPF_LD | BPF_W | BPF_ABS, (uint32_t)offset, NEXT, NEXT);
}

static uint32_t verdict_ret(int verdict)
{
	return verdict == ALLOW ? SECCOMP_RET_ALLOW : SECCOMP_RET_ERRNO | (uint32_t)verdict;
}

/* A section returns each verdict in one place, at its end: half the length that a return at each
 * leaf would make, and a filter's length is what loading it costs. */
static void section_begin(void)
{
	for (size_t i = 0; i < ARRAY_SIZE(verdict_label); i++)
		verdict_label[i] = NEXT;
}

static int section_verdict(int verdict)
{
	if (verdict_label[verdict] == NEXT)
		verdict_label[verdict] = label_new();
	return verdict_label[verdict];
}

static void section_end(void)
{
	for (int i = 0; i < (int)ARRAY_SIZE(verdict_label); i++)
		if (verdict_label[i] != NEXT) {
			label_here(verdict_label[i]);
			emit(BPF_RET | BPF_K, verdict_ret(i), NEXT, NEXT);
		}
}

static int fate_same(const struct fate *a, const struct fate *b)
{
	return a->first == b->first && (a->first || a->verdict == b->verdict);
}

static void range_add(struct range *r, size_t *n, uint32_t start, struct fate fate)
{
	if (*n && r[*n - 1].start == start)
		(*n)--; /* it was empty */
	if (*n && fate_same(&r[*n - 1].fate, &fate))
		return;
	r[(*n)++] = (struct range){ start, fate };
}

/* At most two ranges a call, and NO_CALL. */
static size_t ranges_make(const struct abi *a, struct range *r)
{
	const struct fate unknown = { ENOSYS, NULL }, fine = { ALLOW, NULL };
	size_t n = 0;

	range_add(r, &n, 0, unknown);
	for (size_t i = 0; i < a->n; i++) {
		range_add(r, &n, a->calls[i].nr, a->calls[i].fate);
		range_add(r, &n, a->calls[i].nr + 1, unknown);
	}
	range_add(r, &n, NO_CALL, fine);
	return n;
}

/* Half a tree: a verdict's label, or a new one for what emit_tree() has yet to write. */
static int tree_label(const struct range *r, size_t n)
{
	return n == 1 && !r->fate.first ? section_verdict(r->fate.verdict) : label_new();
}

static void emit_tree(const struct range *r, size_t n, int label)
{
	size_t half = n / 2;
	int low, high;

	if (n == 1 && !r->fate.first)
		return;
	label_here(label);
	if (n == 1) { /* the rows are too far for a conditional jump */
		emit(BPF_JMP | BPF_JA, 0, rows_label[r->fate.first - arg_rules], NEXT);
		return;
	}
	low = tree_label(r, half);
	high = tree_label(r + half, n - half);
	emit(BPF_JMP | BPF_JGE | BPF_K, r[half].start, high, low);
	emit_tree(r, half, low);
	emit_tree(r + half, n - half, high);
}

static void emit_abi(const struct abi *a)
{
	static struct range r[2 * CALLS_MAX + 2];
	int mine = label_new(), other = label_new();

	emit(BPF_JMP | BPF_JEQ | BPF_K, a->token, mine, NEXT);
	emit(BPF_JMP | BPF_JA, 0, other, NEXT);
	label_here(mine);
	emit_load(offsetof(struct seccomp_data, nr));
	section_begin();
	emit_tree(r, ranges_make(a, r), label_new());
	section_end();
	label_here(other);
}

/* One half of a condition; all machines that we know are little-endian. */
static void emit_half(const struct cond *c, int high, int jt, int jf)
{
	uint32_t mask = (uint32_t)(c->mask >> (high ? 32 : 0));
	uint32_t value = (uint32_t)(c->value >> (high ? 32 : 0));

	emit_load(offsetof(struct seccomp_data, args) + 8u * c->arg + (high ? 4 : 0));
	if (mask != 0xffffffff)
		emit(BPF_ALU | BPF_AND | BPF_K, mask, NEXT, NEXT);
	emit(BPF_JMP | BPF_JEQ | BPF_K, value, jt, jf);
}

static void emit_row(const struct arg_rule *r)
{
	const struct cond *c = r->when, *end = c;
	int verdict = section_verdict(r->verdict), next = label_new();

	while (end < c + ARRAY_SIZE(r->when) && end->mask)
		end++;
	if (c == end)
		emit(BPF_JMP | BPF_JA, 0, verdict, NEXT);
	for (; c < end; c++) {
		int low = (uint32_t)c->mask != 0, then = c + 1 < end ? NEXT : verdict;

		if (c->mask >> 32)
			emit_half(c, 1, low ? NEXT : then, next);
		if (low)
			emit_half(c, 0, then, next);
	}
	label_here(next);
}

/* Each call's rows once, for both ABIs: the arguments are in the same places. */
static void emit_rows(void)
{
	section_begin();
	for (size_t i = 0; i < ARRAY_SIZE(arg_rules); i++) {
		label_here(rows_label[i]);
		emit_row(&arg_rules[i]);
	}
	section_end();
}

static uint32_t jump_length(size_t from, int label, uint32_t max)
{
	size_t to = label == NEXT ? from + 1 : label_at[label];

	if (to <= from || to - from - 1 > max)
		die("instruction %zu jumps too far, to %zu", from, to);
	return (uint32_t)(to - from - 1);
}

static void prog_finish(void)
{
	for (size_t i = 0; i < len; i++) {
		struct sock_filter *f = &prog[i];

		f->code = code[i].code;
		f->k = code[i].k;
		if (f->code == (BPF_JMP | BPF_JA)) {
			f->k = jump_length(i, code[i].jt, BPF_MAXINSNS);
		} else if (BPF_CLASS(f->code) == BPF_JMP) {
			f->jt = (uint8_t)jump_length(i, code[i].jt, 255);
			f->jf = (uint8_t)jump_length(i, code[i].jf, 255);
		}
	}
}

static void emit_all(const struct abi *native, const struct abi *compat)
{
	for (size_t i = 0; i < ARRAY_SIZE(arg_rules); i++)
		rows_label[i] = label_new();
	emit_load(offsetof(struct seccomp_data, arch));
	emit_abi(native);
	emit_abi(compat);
	emit(BPF_RET | BPF_K, verdict_ret(ENOSYS), NEXT, NEXT); /* no such machine */
	emit_rows();
	prog_finish();
}

/* ---- the proof ----------------------------------------------------------------------------- */

static uint32_t prog_run(const struct seccomp_data *d)
{
	uint32_t acc = 0;

	for (size_t pc = 0; pc < len; pc++) {
		const struct sock_filter *f = &prog[pc];

		switch (f->code) {
		case BPF_LD | BPF_W | BPF_ABS:
			memcpy(&acc, (const char *)d + f->k, sizeof(acc));
			break;
		case BPF_ALU | BPF_AND | BPF_K:
			acc &= f->k;
			break;
		case BPF_JMP | BPF_JEQ | BPF_K:
			pc += acc == f->k ? f->jt : f->jf;
			break;
		case BPF_JMP | BPF_JGE | BPF_K:
			pc += acc >= f->k ? f->jt : f->jf;
			break;
		case BPF_JMP | BPF_JA:
			pc += f->k;
			break;
		case BPF_RET | BPF_K:
			return f->k;
		default:
			die("instruction %zu is unknown", pc);
		}
	}
	die("the program runs off its end");
}

/* The list's answer, read off the list and not off the ranges. */
static int list_verdict(const struct abi *a, const struct seccomp_data *d)
{
	const struct call *c = abi_find(a, (uint32_t)d->nr);

	if ((uint32_t)d->nr == NO_CALL)
		return ALLOW;
	if (!c || !c->fate.first)
		return c ? c->fate.verdict : ENOSYS;
	for (const struct arg_rule *r = c->fate.first;; r++) {
		int match = 1;

		for (size_t i = 0; i < ARRAY_SIZE(r->when); i++)
			match &= (d->args[r->when[i].arg] & r->when[i].mask) == r->when[i].value;
		if (match)
			return r->verdict;
	}
}

static void prove_one(const struct abi *a, const struct seccomp_data *d)
{
	uint32_t want = verdict_ret(list_verdict(a, d)), got = prog_run(d);

	if (got != want)
		die("%s call %#x (%#llx, %#llx, %#llx): the list says %#x, the filter %#x", a->name,
			d->nr, (unsigned long long)d->args[0], (unsigned long long)d->args[1],
			(unsigned long long)d->args[2], want, got);
	if ((uint32_t)d->nr >= X32_BIT && (uint32_t)d->nr != NO_CALL && got == SECCOMP_RET_ALLOW)
		die("an x32 call gets through");
}

/* Every value that a row names, and what is one bit beside it at either end and in the high
 * half. */
static size_t samples_make(const char *name, uint8_t arg, uint64_t *v, size_t max)
{
	static const uint64_t flips[] = { 0, 1, 1ULL << 31, 1ULL << 32, 1ULL << 63 };
	size_t n = 0;

	v[n++] = 0;
	v[n++] = ALL;
	for (size_t i = 0; i < ARRAY_SIZE(arg_rules); i++)
		for (size_t j = 0; j < ARRAY_SIZE(arg_rules[i].when); j++)
			for (size_t k = 0; k < ARRAY_SIZE(flips); k++) {
				const struct cond *c = &arg_rules[i].when[j];

				if (strcmp(arg_rules[i].name, name) != 0 || c->arg != arg ||
					!c->mask)
					continue;
				if (n + 1 >= max)
					die("too many samples");
				v[n++] = c->value ^ flips[k];
				v[n++] = ~c->mask ^ flips[k]; /* all that the condition ignores */
			}
	return n;
}

static void prove_conditions(const struct abi *a, const struct call *c)
{
	static uint64_t v[3][512];
	struct seccomp_data d = { .nr = (int)c->nr, .arch = a->token };
	size_t n[3];

	for (uint8_t i = 0; i < 3; i++)
		n[i] = samples_make(c->name, i, v[i], ARRAY_SIZE(v[i]));
	for (size_t i = 0; i < n[0]; i++)
		for (size_t j = 0; j < n[1]; j++)
			for (size_t k = 0; k < n[2]; k++) {
				d.args[0] = v[0][i];
				d.args[1] = v[1][j];
				d.args[2] = v[2][k];
				prove_one(a, &d);
			}
	for (int bit = 0; bit < 64; bit++) /* and each flag by itself, in each argument */
		for (int i = 0; i < 3; i++) {
			memset(d.args, 0, sizeof(d.args));
			d.args[i] = 1ULL << bit;
			prove_one(a, &d);
		}
}

static void prove(const struct abi *a)
{
	struct seccomp_data d = { .arch = a->token };

	for (uint32_t nr = 0; nr < 0xf0100; nr = nr == 2047 ? 0xeff00 : nr + 1)
		for (uint32_t high = 0; high < 4; high++) { /* none, x32, sign, both */
			d.nr = (int)(nr | high << 30);
			prove_one(a, &d);
		}
	d.nr = -1;
	prove_one(a, &d);
	for (size_t i = 0; i < a->n; i++)
		if (a->calls[i].fate.first)
			prove_conditions(a, &a->calls[i]);
	d.nr = 0;
	d.arch = AUDIT_ARCH_PPC64;
	if (prog_run(&d) != verdict_ret(ENOSYS))
		die("a foreign architecture gets through");
}

/* ---- the ends ------------------------------------------------------------------------------ */

static void print(const struct abi *native, const struct abi *compat)
{
	printf("/* Made by seccomp_gen from seccomp_list.h, for %s and %s. */\n", native->name,
		compat->name);
	printf("#pragma once\n\n#include <linux/filter.h>\n\n");
	printf("static const struct sock_filter box_filter[] = {\n");
	for (size_t i = 0; i < len; i++)
		printf("\t{ 0x%02x, %u, %u, 0x%08x },\n", prog[i].code, prog[i].jt, prog[i].jf,
			prog[i].k);
	printf("};\n");
}

static void print_unlisted(const struct abi *a)
{
	for (size_t i = 0; i < a->n; i++)
		if (!a->calls[i].listed)
			printf("%s %u %s\n", a->name, a->calls[i].nr, a->calls[i].name);
}

int main(int argc, char **argv)
{
	int unlisted = argc == 3 && !strcmp(argv[1], "--unlisted");
	const char *machine = argc == 2 ? argv[1] : unlisted ? argv[2] : "";
	const struct abi *native = !strcmp(machine, "x86_64")	 ? &abis[0]
				   : !strcmp(machine, "aarch64") ? &abis[2]
								 : NULL;

	if (!native)
		die("usage: seccomp_gen [--unlisted] x86_64|aarch64");
	for (size_t i = 0; i < ARRAY_SIZE(abis); i++)
		abi_load(&abis[i]);
	list_check();
	if (unlisted) {
		print_unlisted(native);
		print_unlisted(native + 1);
		return 0;
	}
	emit_all(native, native + 1);
	prove(native);
	prove(native + 1);
	print(native, native + 1);
	return fflush(stdout) || ferror(stdout);
}
