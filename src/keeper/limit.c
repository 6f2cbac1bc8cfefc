/*
 * How execs end: by a limit, by somebody's wish, by themselves. Limits are measured and enforced from
 * this side; init is asked only where there is no cgroup.
 */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include "clock.h"
#include "keeper.h"

#define CPU_CHECK_MIN_MS 20
#define LAST_MS 3000 /* after KILL, until init's silence is taken for an answer */

/* ---- limits ---- */

void kexec_signal_tree(struct kexec *x, int sig, bool limit)
{
	struct keeper *k = x->k;
	auto_buf b = { 0 };
	struct den_err err;

	if (x->grouped) {
		(void)k->ops->exec_signal(&k->wall, (uint32_t)x->info.exec, sig, &err);
		if (sig != SIGKILL) /* a stopped process cannot act on it */
			(void)k->ops->exec_signal(&k->wall, (uint32_t)x->info.exec, SIGCONT, &err);
		return;
	}
	wire_put_u64(&b, F_EXEC, x->info.exec);
	wire_put_u64(&b, F_SIG, (uint64_t)sig);
	wire_put_u64(&b, F_SCOPE, 2);
	if (limit)
		wire_put_u64(&b, F_REASON, 1);
	conn_send_buf(&k->init, WM_SIGNAL, 0, &b);
}

/* It was killed and init does not say so: then we do. What is left of it, if anything, goes with its
 * group or with the box; nobody waits for it any longer. */
static void last_cb(struct loop_timer *t)
{
	struct kexec *x = CONTAINER_OF(t, struct kexec, last);
	struct exec_result killed = { .exited = false, .status = SIGKILL };
	struct keeper *k = x->k;

	kexec_ended(x, &killed);
	list_for_each_safe(l, next, &k->chans) {
		struct chan *ch = CONTAINER_OF(l, struct chan, link);

		if (ch->x != x)
			continue;
		chan_tell_exit(ch);
		chan_free(ch);
	}
	kexec_thin(k);
}

static void arm_last(struct kexec *x)
{
	x->last.cb = last_cb;
	if (!x->last.when)
		loop_timer_set(x->k->loop, &x->last, clock_mono_ns() + LAST_MS * NS_PER_MS);
}

static void grace_cb(struct loop_timer *t)
{
	struct kexec *x = CONTAINER_OF(t, struct kexec, grace);

	kexec_signal_tree(x, SIGKILL, true);
	arm_last(x);
}

void kexec_kill(struct kexec *x, int sig, enum exec_reason why)
{
	if (x->ended)
		return;
	if (why && !x->reason)
		x->reason = why;
	x->doomed = true;
	kexec_signal_tree(x, sig, true);
	x->grace.cb = grace_cb;
	if (sig == SIGKILL)
		arm_last(x);
	else if (!x->grace.when)
		loop_timer_set(x->k->loop, &x->grace,
			clock_mono_ns() + (int64_t)(x->info.grace_ms ? x->info.grace_ms : EXEC_GRACE_MS) * NS_PER_MS);
}

static void timeout_cb(struct loop_timer *t)
{
	kexec_kill(CONTAINER_OF(t, struct kexec, timeout), SIGTERM, EXEC_BY_TIMEOUT);
}

static bool kexec_is(struct keeper *k, const struct kexec *x, uint64_t number)
{
	list_for_each(l, &k->execs)
		if (CONTAINER_OF(l, struct kexec, link) == x && x->info.exec == number)
			return true;
	return false;
}

/* CPU time is looked at when it could be used up at the earliest: all processors running it. */
static void cpu_cb(struct loop_timer *t)
{
	struct kexec *x = CONTAINER_OF(t, struct kexec, cpu);
	struct keeper *k = x->k;
	uint64_t used = 0, left, number;
	struct den_err err;

	if (x->ended)
		return;
	number = x->info.exec;
	if (x->grouped ? k->ops->exec_cpu(&k->wall, (uint32_t)x->info.exec, &used, &err) < 0 :
			 tree_cpu(k, x->info.pid, &used) < 0)
		used = 0; /* not there yet */
	if (!kexec_is(k, x, number) || x->ended) /* it ended while that was found out */
		return;
	if (used >= x->info.cpu_ms * 1000) {
		kexec_kill(x, SIGTERM, EXEC_BY_CPU);
		return;
	}
	left = (x->info.cpu_ms - used / 1000) / (uint64_t)MAX(sysconf(_SC_NPROCESSORS_ONLN), 1L);
	loop_timer_set(k->loop, t, clock_mono_ns() + (int64_t)MAX(left, CPU_CHECK_MIN_MS) * NS_PER_MS);
}

void kexec_arm(struct kexec *x)
{
	x->timeout.cb = timeout_cb;
	x->cpu.cb = cpu_cb;
	if (x->info.timeout_ms) {
		int64_t ran = MAX(clock_wall_ms() - x->info.started_ms, 0); /* under a keeper before us */
		int64_t left = (int64_t)MIN(x->info.timeout_ms, 1ULL << 43) - ran;

		loop_timer_set(x->k->loop, &x->timeout, clock_mono_ns() + MAX(left, 1) * NS_PER_MS);
	}
	if (x->info.cpu_ms)
		loop_timer_set(x->k->loop, &x->cpu, clock_mono_ns() + CPU_CHECK_MIN_MS * NS_PER_MS);
}

/* ---- ending ---- */

void kexec_free(struct kexec *x)
{
	loop_timer_clear(&x->timeout);
	loop_timer_clear(&x->cpu);
	loop_timer_clear(&x->grace);
	loop_timer_clear(&x->last);
	loop_timer_clear(&x->orphan);
	list_remove(&x->link);
	exec_info_free(&x->info);
	free(x);
}

void chan_free(struct chan *ch)
{
	list_remove(&ch->link);
	free(ch);
}

bool kexec_has_chan(struct keeper *k, const struct kexec *x)
{
	list_for_each(l, &k->chans)
		if (CONTAINER_OF(l, struct chan, link)->x == x)
			return true;
	return false;
}

/* Keeps the newest ended ones, as init does. */
void kexec_thin(struct keeper *k)
{
	size_t n = 0;

	list_for_each(l, &k->execs)
		n += CONTAINER_OF(l, struct kexec, link)->ended;
	list_for_each_safe(l, next, &k->execs) {
		struct kexec *x = CONTAINER_OF(l, struct kexec, link);

		if (!x->ended || kexec_has_chan(k, x))
			continue;
		if (n > ENDED_KEPT || (x->info.flags & EXEC_FORGET)) {
			kexec_free(x);
			n--;
		}
	}
}

/* Why it ended, as far as limits had a hand in it. */
static enum exec_reason judge(struct kexec *x, const struct exec_result *r)
{
	struct keeper *k = x->k;
	bool failed = !r->exited || r->status != 0;

	if (x->reason || !failed)
		return x->reason;
	if (k->stopping && !r->exited)
		return EXEC_BY_STOP;
	if (r->reason == EXEC_BY_OUTPUT)
		return EXEC_BY_OUTPUT;
	if (!r->exited && r->status == SIGXCPU && x->info.cpu_ms)
		return EXEC_BY_CPU;
	if (k->row.info.spec.memory && k->ops->oom_kills(&k->wall) > x->oom_before)
		return EXEC_BY_MEMORY;
	if (k->ops->pids_refused(&k->wall) > x->refused_before)
		return EXEC_BY_PIDS;
	if (k->row.info.spec.disk) {
		struct box_stats st = { 0 };

		disk_stats(k, &st);
		if (st.disk_limit && st.disk + (64 << 10) >= st.disk_limit)
			return EXEC_BY_DISK;
	}
	return EXEC_BY_ITSELF;
}

/* The only place where an exec ends. */
void kexec_ended(struct kexec *x, const struct exec_result *r)
{
	struct keeper *k = x->k;

	if (x->ended)
		return;
	x->ended = true;
	loop_timer_clear(&x->timeout);
	loop_timer_clear(&x->cpu);
	loop_timer_clear(&x->grace);
	loop_timer_clear(&x->last);
	loop_timer_clear(&x->orphan);
	x->info.result = *r;
	x->info.ended_ms = clock_wall_ms();
	x->info.result.oom_kills = k->row.info.spec.memory ? k->ops->oom_kills(&k->wall) - x->oom_before : 0;
	x->info.result.reason = judge(x, r);
	/* Another kernel may tell it in its own way that the host's killed what the program ran on. */
	if (k->ops->own_kernel && x->info.result.reason == EXEC_BY_MEMORY && r->exited) {
		x->info.result.exited = false;
		x->info.result.status = SIGKILL;
	}
	if (x->grouped) {
		/* What a limit ended must not live on in something it started. */
		struct den_err err;

		if (x->doomed || x->info.result.reason == EXEC_BY_OUTPUT)
			(void)k->ops->exec_signal(&k->wall, (uint32_t)x->info.exec, SIGKILL, &err);
		k->ops->exec_close(&k->wall, (uint32_t)x->info.exec);
	}
	feed_exec(k, &x->info);
	box_turn(k, &x->info);
}

void chan_tell_exit(struct chan *ch)
{
	auto_buf b = { 0 };

	if (!ch->client)
		return;
	exec_result_put(&b, &ch->x->info.result);
	conn_send_buf(&ch->client->conn, WM_EXIT, ch->theirs, &b);
}

void kexec_box_down(struct keeper *k)
{
	struct exec_result killed = { .exited = false, .status = SIGKILL, .reason = EXEC_BY_STOP };

	list_for_each(l, &k->execs) {
		struct kexec *x = CONTAINER_OF(l, struct kexec, link);

		if (x->ended)
			continue;
		x->reason = x->reason ? x->reason : EXEC_BY_STOP;
		x->grouped = false; /* the groups go with the box */
		kexec_ended(x, &killed);
	}
	while (!list_empty(&k->chans)) {
		struct chan *ch = CONTAINER_OF(k->chans.next, struct chan, link);

		if (ch->started)
			chan_tell_exit(ch);
		else if (ch->client) {
			struct den_err err;

			den_fail(&err, DEN_CONFLICT, 0, "the box was stopped");
			conn_fail(&ch->client->conn, ch->theirs, &err);
		}
		chan_free(ch);
	}
	while (!list_empty(&k->execs))
		kexec_free(CONTAINER_OF(k->execs.next, struct kexec, link));
}
