/*
 * Execs: between a client's channel and init's.
 *
 * Bytes are relayed as they come, both ways bounded by credit, so nothing piles up here. What init
 * says of an exec is believed for that exec's own output alone; limits are measured and enforced
 * from this side.
 */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "clock.h"
#include "fd.h"
#include "gate.h"
#include "keeper.h"
#include "reseed.h"
#include "strv.h"

#define ARGV_SHOWN 4096 /* bytes of a command line that listings keep */

/* ---- finding ---- */

static struct chan *chan_by_theirs(struct client *c, uint32_t theirs)
{
	list_for_each(l, &c->k->chans) {
		struct chan *ch = CONTAINER_OF(l, struct chan, link);

		if (ch->client == c && ch->theirs == theirs)
			return ch;
	}
	return NULL;
}

static struct chan *chan_by_ours(struct keeper *k, uint32_t ours)
{
	list_for_each(l, &k->chans) {
		struct chan *ch = CONTAINER_OF(l, struct chan, link);

		if (ch->ours == ours)
			return ch;
	}
	return NULL;
}

static struct kexec *exec_by_number(struct keeper *k, uint64_t number)
{
	list_for_each(l, &k->execs) {
		struct kexec *x = CONTAINER_OF(l, struct kexec, link);

		if (x->info.exec == number)
			return x;
	}
	return NULL;
}

struct ref {
	uint64_t pid, exec;
	char *tag;
	uint64_t off_out, off_err, credit, sig, scope, flags;
};

static int ref_get(const struct wire_frame *f, struct ref *r, struct den_err *err)
{
	struct wire_reader rd = wire_reader(f->p, f->len);
	struct wire_value v;
	int got;

	while ((got = wire_next(&rd, &v, err)) > 0) {
		int bad = 0;

		switch (v.tag) {
		case F_PID:
			bad = wire_u64(&v, 1 << 30, &r->pid, err);
			break;
		case F_EXEC:
			bad = wire_u64(&v, UINT32_MAX, &r->exec, err);
			break;
		case F_TAG:
			bad = wire_str(&v, 255, &r->tag, err);
			break;
		case F_OFF_OUT:
			bad = wire_u64(&v, UINT64_MAX, &r->off_out, err);
			break;
		case F_OFF_ERR:
			bad = wire_u64(&v, UINT64_MAX, &r->off_err, err);
			break;
		case F_CREDIT:
			bad = wire_u64(&v, WIRE_WINDOW, &r->credit, err);
			break;
		case F_SIG:
			bad = wire_u64(&v, 64, &r->sig, err);
			break;
		case F_SCOPE:
			bad = wire_u64(&v, 2, &r->scope, err);
			break;
		case F_FLAGS:
			bad = wire_u64(&v, ATTACH_LIVE | ATTACH_OTHER, &r->flags, err);
			break;
		default:
			bad = wire_unexpected(&v, err);
		}
		if (bad < 0)
			return -1;
	}
	return got;
}

/* The newest that fits, running ones first. */
static struct kexec *exec_by_ref(struct keeper *k, const struct ref *r, struct den_err *err)
{
	struct kexec *found = NULL;

	list_for_each(l, &k->execs) {
		struct kexec *x = CONTAINER_OF(l, struct kexec, link);
		bool fits = r->exec ? x->info.exec == r->exec :
			r->tag      ? x->info.tag && !strcmp(x->info.tag, r->tag) :
				      x->info.pid == r->pid;

		if (fits && (!found || !x->ended || found->ended))
			found = x;
	}
	if (found)
		return found;
	if (r->tag)
		den_fail(err, DEN_NOT_FOUND, 0, "no exec '%.80s' in this box; 'den ps' lists them", r->tag);
	else
		den_fail(err, DEN_NOT_FOUND, 0, "no exec with pid %llu in this box; 'den ps' lists them",
			(unsigned long long)r->pid);
	return NULL;
}

/* ---- requests ---- */

static int check_up(struct keeper *k, struct den_err *err)
{
	if (!k->has_box || k->gone)
		return den_fail(err, DEN_NOT_FOUND, 0, "the box is gone");
	if (k->row.info.state == BOX_PAUSED)
		return den_fail(err, DEN_CONFLICT, 0, "the box is paused; 'den resume' lets it go on");
	if (k->park_late) /* it is about to let go of its connection, and with it of what is on its way */
		return den_fail(err, DEN_CONFLICT, EAGAIN, "the box's init process does not answer yet; try again");
	if (k->init_up && !k->init_known && !k->fresh)
		return den_fail(err, DEN_CONFLICT, EAGAIN, "the box is just waking up; try again");
	if (k->row.info.state != BOX_RUNNING || !k->init_up || k->stopping)
		return den_fail(err, DEN_CONFLICT, 0, "the box is not running; 'den start' starts it");
	return 0;
}

static int check_exec(struct keeper *k, struct client *c, uint32_t chan, struct exec_spec *s, struct den_err *err)
{
	struct ref r = { .tag = s->tag };
	size_t n = 0;
	struct kexec *x;

	if (check_up(k, err) < 0)
		return -1;
	if (chan == 0 || chan_by_theirs(c, chan))
		return den_fail(err, DEN_INVALID, 0, "channel %u is in use", chan);
	s->flags &= EXEC_CLIENT_FLAGS;
	list_for_each(l, &k->execs)
		n += !CONTAINER_OF(l, struct kexec, link)->ended;
	if (n >= EXECS_MAX)
		return den_fail(err, DEN_LIMIT, 0, "%d execs are running in this box", EXECS_MAX);
	x = s->tag ? exec_by_ref(k, &r, err) : NULL;
	if (x && !x->ended)
		return den_fail(err, DEN_CONFLICT, 0, "tag '%.80s' is in use by pid %llu", s->tag,
			(unsigned long long)x->info.pid);
	if ((s->flags & EXEC_BUILTIN) && (s->flags & EXEC_TTY))
		return den_fail(err, DEN_INVALID, 0, "a file operation has no terminal");
	if (s->cwd && s->cwd[0] != '/')
		return den_fail(err, DEN_INVALID, 0, "cwd '%.100s' must be absolute", s->cwd);
	for (size_t i = 0; s->env && s->env[i]; i++)
		if (s->env[i][0] == '=' || !strchr(s->env[i], '='))
			return den_fail(err, DEN_INVALID, 0, "env '%.60s' is not NAME=VALUE", s->env[i]);
	return 0;
}

/* What the box says where the exec is silent. */
static void complete_exec(struct keeper *k, struct exec_spec *s)
{
	const struct box_spec *box = &k->row.info.spec;
	char **env = k->gate && !(s->flags & EXEC_BUILTIN) ? strv_copy((const char *const *)k->gate->env) : NULL;

	for (size_t i = 0; box->env && box->env[i]; i++)
		strv_env_put(&env, box->env[i]);
	for (size_t i = 0; s->env && s->env[i]; i++)
		strv_env_put(&env, s->env[i]);
	if ((box->flags & BOX_RESEED) && !(s->flags & EXEC_BUILTIN))
		reseed_env(&env);
	strv_free(s->env);
	s->env = env;
	if (s->flags & EXEC_BUILTIN) {
		s->flags |= EXEC_FORGET;
		return; /* file operations are root's unless they say otherwise */
	}
	if (!s->user && box->user)
		s->user = mem_strdup(box->user);
	if (!s->cwd && box->cwd)
		s->cwd = mem_strdup(box->cwd);
	s->nofile = box->nofile;
}

/* The beginning of a command line: a listing needs no more, and must fit a frame. */
static char **argv_shown(char *const *argv)
{
	char **out = NULL;
	size_t left = ARGV_SHOWN;

	for (size_t i = 0; argv[i] && left; i++) {
		size_t n = MIN(strlen(argv[i]), left);

		strv_addn(&out, argv[i], n);
		left -= n;
	}
	return out;
}

static struct kexec *kexec_new(struct keeper *k, const struct exec_spec *s)
{
	struct kexec *x = mem_new(struct kexec);

	x->k = k;
	x->info.exec = s->exec;
	x->info.argv = argv_shown(s->argv);
	x->info.tag = s->tag ? mem_strdup(s->tag) : NULL;
	x->info.user = s->user ? mem_strdup(s->user) : NULL;
	x->info.cwd = s->cwd ? mem_strdup(s->cwd) : NULL;
	x->info.flags = s->flags;
	x->info.started_ms = clock_wall_ms();
	x->info.timeout_ms = s->timeout_ms;
	x->info.cpu_ms = s->cpu_ms;
	x->info.grace_ms = s->grace_ms;
	x->info.nonce = s->nonce;
	x->refused_before = k->ops->pids_refused(&k->wall);
	x->oom_before = k->row.info.spec.memory ? k->ops->oom_kills(&k->wall) : 0;
	list_append(&k->execs, &x->link);
	return x;
}

static struct chan *chan_new(struct client *c, uint32_t theirs, struct kexec *x)
{
	struct chan *ch = mem_new(struct chan);

	ch->client = c;
	ch->theirs = theirs;
	do
		ch->ours = ++c->k->next_chan;
	while (ch->ours == 0 || chan_by_ours(c->k, ch->ours));
	ch->x = x;
	list_append(&c->k->chans, &ch->link);
	return ch;
}

/* Asked for again by a client whose keeper died before it said that the program runs. It does. */
static void rejoin(struct client *c, uint32_t theirs, struct kexec *x, uint64_t credit)
{
	struct keeper *k = c->k;
	auto_buf b = { 0 };
	struct chan *ch;

	loop_timer_clear(&x->orphan);
	if (x->info.flags & EXEC_DETACH) {
		wire_put_u64(&b, F_PID, x->info.pid);
		wire_put_u64(&b, F_EXEC, x->info.exec);
		wire_put_u64(&b, F_FLAGS, x->info.flags);
		conn_send_buf(&c->conn, WM_STARTED, theirs, &b);
		return;
	}
	ch = chan_new(c, theirs, x);
	ch->credit = credit;
	ch->kill_on_close = x->info.flags & (EXEC_KILL_ON_CLOSE | EXEC_BUILTIN);
	wire_put_u64(&b, F_EXEC, x->info.exec);
	wire_put_u64(&b, F_OFF_OUT, 0);
	wire_put_u64(&b, F_OFF_ERR, 0);
	wire_put_u64(&b, F_CREDIT, credit);
	conn_send_buf(&k->init, WM_ATTACH, ch->ours, &b);
}

static struct kexec *exec_by_nonce(struct keeper *k, uint64_t nonce)
{
	list_for_each(l, &k->execs) {
		struct kexec *x = CONTAINER_OF(l, struct kexec, link);

		if (nonce && x->info.nonce == nonce)
			return x;
	}
	return NULL;
}

void kexec_request(struct client *c, const struct wire_frame *f)
{
	struct keeper *k = c->k;
	struct exec_spec s = { 0 };
	auto_buf b = { 0 };
	auto_fd group = -1;
	struct den_err err;
	struct kexec *x;
	struct chan *ch;

	if (exec_spec_get(f->p, f->len, &s, &err) == 0 && check_up(k, &err) == 0 && (x = exec_by_nonce(k, s.nonce))) {
		rejoin(c, f->chan, x, s.credit);
		exec_spec_free(&s);
		return;
	}
	if (!s.argv || check_exec(k, c, f->chan, &s, &err) < 0) {
		conn_fail(&c->conn, f->chan, &err);
		exec_spec_free(&s);
		return;
	}
	home_room(k);
	complete_exec(k, &s);
	exec_spec_put(&b, &s);
	if (b.len > WIRE_MAX_PAYLOAD - 64) { /* the box's own environment counts, too */
		den_fail(&err, DEN_INVALID, E2BIG, "arguments and environment are too long");
		conn_fail(&c->conn, f->chan, &err);
		exec_spec_free(&s);
		return;
	}
	b.len = 0;
	s.exec = ++k->next_exec;
	if (!(s.flags & EXEC_BUILTIN)) {
		if (k->ops->exec_open(&k->wall, (uint32_t)s.exec, &group, &err) == 0)
			s.flags |= EXEC_CGROUP;
		else if (err.code == DEN_UNSUPPORTED)
			s.flags |= EXEC_SUBREAPER;
		else {
			conn_fail(&c->conn, f->chan, &err);
			exec_spec_free(&s);
			return;
		}
	}
	x = kexec_new(k, &s);
	x->grouped = group >= 0;
	ch = chan_new(c, f->chan, x);
	ch->kill_on_close = s.flags & (EXEC_KILL_ON_CLOSE | EXEC_BUILTIN);
	ch->detach = s.flags & EXEC_DETACH;
	ch->credit = s.credit;
	exec_spec_put(&b, &s);
	conn_send_fds(&k->init, WM_EXEC, ch->ours, b.p, b.len, &group, group >= 0);
	kexec_arm(x); /* from now: an init that never starts it must not stop the clock */
	exec_spec_free(&s);
}

/* Nobody follows it, and nobody is told how it goes. s is the caller's. */
int kexec_begin(struct keeper *k, struct exec_spec *s, struct den_err *err)
{
	struct client nobody = { .k = k };
	auto_fd group = -1;
	auto_buf b = { 0 };
	struct kexec *x;
	struct chan *ch;

	complete_exec(k, s);
	s->exec = ++k->next_exec;
	if (k->ops->exec_open(&k->wall, (uint32_t)s->exec, &group, err) == 0)
		s->flags |= EXEC_CGROUP;
	else if (err->code == DEN_UNSUPPORTED)
		s->flags |= EXEC_SUBREAPER;
	else
		return -1;
	exec_spec_put(&b, s);
	x = kexec_new(k, s);
	x->grouped = group >= 0;
	ch = chan_new(&nobody, 0, x);
	ch->client = NULL;
	conn_send_fds(&k->init, WM_EXEC, ch->ours, b.p, b.len, &group, group >= 0);
	kexec_arm(x);
	return 0;
}

void kexec_attach(struct client *c, const struct wire_frame *f)
{
	struct keeper *k = c->k;
	struct ref r = { 0 };
	auto_buf b = { 0 };
	struct den_err err;
	struct kexec *x = NULL;
	struct chan *ch;

	if (ref_get(f, &r, &err) == 0 && check_up(k, &err) == 0)
		x = exec_by_ref(k, &r, &err);
	free(r.tag);
	if (!x) {
		conn_fail(&c->conn, f->chan, &err);
		return;
	}
	ch = chan_new(c, f->chan, x);
	ch->credit = r.credit;
	ch->live = r.flags & ATTACH_LIVE;
	if (r.exec && !(r.flags & ATTACH_OTHER)) { /* by number: its own client, back after a keeper died */
		ch->kill_on_close = x->info.flags & (EXEC_KILL_ON_CLOSE | EXEC_BUILTIN);
		loop_timer_clear(&x->orphan);
	}
	wire_put_u64(&b, F_EXEC, x->info.exec);
	wire_put_u64(&b, F_OFF_OUT, r.off_out);
	wire_put_u64(&b, F_OFF_ERR, r.off_err);
	wire_put_u64(&b, F_CREDIT, r.credit);
	if (r.flags)
		wire_put_u64(&b, F_FLAGS, r.flags);
	conn_send_buf(&k->init, WM_ATTACH, ch->ours, &b);
}

static int signal_exec(struct kexec *x, uint64_t sig, uint64_t scope, struct den_err *err)
{
	auto_buf b = { 0 };

	if (x->ended)
		return den_fail(err, DEN_NOT_FOUND, ESRCH, "that exec has ended");
	if (sig < 1)
		return den_fail(err, DEN_INVALID, 0, "no signal was given");
	if (scope == 2) {
		kexec_signal_tree(x, (int)sig, false);
		return 0;
	}
	wire_put_u64(&b, F_EXEC, x->info.exec);
	wire_put_u64(&b, F_SIG, sig);
	wire_put_u64(&b, F_SCOPE, scope);
	conn_send_buf(&x->k->init, WM_SIGNAL, 0, &b);
	return 0;
}

/* Channel 0: any exec by name, answered. A channel: its own exec, not answered. */
void kexec_signal(struct client *c, const struct wire_frame *f)
{
	struct chan *ch = f->chan ? chan_by_theirs(c, f->chan) : NULL;
	struct kexec *x = ch ? ch->x : NULL;
	struct ref r = { 0 };
	struct den_err err;
	int res = -1;

	if (ref_get(f, &r, &err) == 0 && check_up(c->k, &err) == 0) {
		if (!f->chan)
			x = exec_by_ref(c->k, &r, &err);
		if (x)
			res = signal_exec(x, r.sig, r.scope, &err);
	}
	free(r.tag);
	if (f->chan)
		return;
	if (res < 0)
		conn_fail(&c->conn, 0, &err);
	else
		conn_ok(&c->conn, 0);
}

static uint64_t credit_in(const struct wire_frame *f)
{
	struct wire_reader rd = wire_reader(f->p, f->len);
	struct wire_value v;
	uint64_t n = 0;

	while (wire_next(&rd, &v, NULL) > 0)
		if (v.tag == F_CREDIT)
			(void)wire_u64(&v, UINT32_MAX, &n, NULL);
	return n;
}

/* IN, IN_EOF, CREDIT, RESIZE, DETACH: as they are, to init. */
void kexec_relay(struct client *c, const struct wire_frame *f)
{
	struct chan *ch = chan_by_theirs(c, f->chan);

	if (ch && f->type == WM_CREDIT && c->k->row.info.on_disk)
		ch->credit = MIN(ch->credit + credit_in(f), (uint64_t)WIRE_WINDOW); /* told when it is back */
	if (ch && f->type == WM_DETACH && c->k->row.info.on_disk)
		chan_free(ch);
	if (!ch || !c->k->init_up)
		return; /* it ended while this was under way */
	if (f->type == WM_IN)
		ch->in_sent += f->len;
	if (f->type == WM_CREDIT) {
		struct ref r = { 0 };

		if (ref_get(f, &r, NULL) == 0)
			ch->credit = MIN(ch->credit + r.credit, (uint64_t)WIRE_WINDOW);
		free(r.tag);
	}
	if (f->type == WM_DETACH && (ch->x->info.flags & EXEC_BUILTIN))
		kexec_kill(ch->x, SIGKILL, EXEC_BY_ITSELF); /* nobody wants the rest */
	conn_send(&c->k->init, f->type, ch->ours, f->p, f->len);
	if (f->type == WM_DETACH)
		chan_free(ch);
}

/* ---- from init ---- */

/* Its client is gone. */
static void chan_leave(struct keeper *k, struct chan *ch)
{
	if (k->row.info.on_disk) { /* nothing of it runs: it waits for whoever comes */
		chan_free(ch);
		return;
	}
	if (ch->kill_on_close)
		/* a file operation tidies up and ends; the signal is there before the end of its input */
		kexec_kill(ch->x, ch->x->info.flags & EXEC_BUILTIN ? SIGTERM : SIGHUP, EXEC_BY_ITSELF);
	ch->client = NULL;
	if (!ch->started && k->init_up)
		return; /* nobody may have been there to get that: again when init says that it runs */
	if (k->init_up)
		conn_send(&k->init, WM_DETACH, ch->ours, NULL, 0);
	chan_free(ch);
}

static void on_started(struct keeper *k, struct chan *ch, const struct wire_frame *f)
{
	uint64_t pid = wire_find_u64(f->p, f->len, F_PID, 0);
	uint64_t off[2] = { wire_find_u64(f->p, f->len, F_OFF_OUT, 0), wire_find_u64(f->p, f->len, F_OFF_ERR, 0) };
	bool was_again = ch->again, again = was_again && ch->started, same = off[0] == ch->off[0] && off[1] == ch->off[1];

	if (pid > 1 << 30)
		pid = 0;
	ch->again = false;
	memcpy(ch->off, off, sizeof(off));
	if (again && same)
		return; /* it goes on where it was */
	if (ch->started && !again && (!ch->live || ch->credit < WIRE_GAP_COST)) {
		box_down(k, "its init process broke the protocol");
		return;
	}
	if (ch->started && !again)
		ch->credit -= WIRE_GAP_COST; /* a live follower is told that it lost something */
	if (!ch->x->info.pid) {
		ch->x->info.pid = pid;
		feed_exec(k, &ch->x->info);
	}
	ch->started = true;
	if (!ch->client) {
		chan_leave(k, ch);
		return;
	}
	conn_send(&ch->client->conn, WM_STARTED, ch->theirs, f->p, f->len);
	if (ch->detach && was_again)
		conn_send(&k->init, WM_DETACH, ch->ours, NULL, 0);
	if (ch->detach)
		chan_free(ch);
}

static void on_failed(struct keeper *k, struct chan *ch, const struct wire_frame *f)
{
	struct kexec *x = ch->x;

	if (ch->client)
		conn_send(&ch->client->conn, WM_FAIL, ch->theirs, f->p, f->len);
	chan_free(ch);
	if (x->info.pid || kexec_has_chan(k, x))
		return; /* an attachment failed, not the exec */
	if (x->grouped)
		k->ops->exec_close(&k->wall, (uint32_t)x->info.exec);
	kexec_free(x);
}

/* On channel 0: an exec ended, followed or not. */
static void on_ended(struct keeper *k, const struct wire_frame *f)
{
	struct wire_reader rd = wire_reader(f->p, f->len);
	struct wire_value v;

	while (wire_next(&rd, &v, NULL) > 0) {
		struct exec_info i;
		struct kexec *x;

		if (v.tag != F_RECORD || exec_info_get(v.p, v.len, &i, NULL) < 0)
			continue;
		x = exec_by_number(k, i.exec);
		if (x)
			kexec_ended(x, &i.result);
		exec_info_free(&i);
	}
	kexec_thin(k);
}

static void orphan_cb(struct loop_timer *t)
{
	kexec_kill(CONTAINER_OF(t, struct kexec, orphan), SIGKILL, EXEC_BY_ITSELF);
}

/* After a keeper died: what init still has. */
static void on_hello(struct keeper *k, const struct wire_frame *f)
{
	struct wire_reader rd = wire_reader(f->p, f->len);
	struct wire_value v;
	uint64_t more = 0, highest = 0;

	if (k->init_known)
		return; /* it says so once */
	while (wire_next(&rd, &v, NULL) > 0 && k->hello_records < EXECS_MAX + 4 * ENDED_KEPT) {
		struct exec_info i;
		struct kexec *x;

		if (v.tag == F_FLAGS)
			(void)wire_u64(&v, 1, &more, NULL);
		if (v.tag == F_EXEC && wire_u64(&v, UINT32_MAX - EXECS_MAX, &highest, NULL) == 0)
			k->next_exec = MAX(k->next_exec, (uint32_t)highest);
		k->hello_records++;
		if (v.tag != F_RECORD || exec_info_get(v.p, v.len, &i, NULL) < 0)
			continue;
		k->next_exec = MAX(k->next_exec, (uint32_t)i.exec);
		x = exec_by_number(k, i.exec);
		if (x) { /* it was parked, and is told of what happened meanwhile */
			x->info.timeout_ms = i.timeout_ms;
			if (i.ended_ms)
				kexec_ended(x, &i.result);
			exec_info_free(&i);
			continue;
		}
		x = mem_new(struct kexec);
		x->k = k;
		x->info = i; /* taken over */
		x->ended = i.ended_ms != 0;
		x->grouped = i.flags & EXEC_CGROUP;
		list_append(k->execs.next, &x->link); /* they come newest first; ours is oldest first */
		if (!x->ended)
			kexec_arm(x);
		if (!x->ended && (i.flags & (EXEC_KILL_ON_CLOSE | EXEC_BUILTIN))) {
			/* it belongs to a client, who comes back in a moment or is gone, too */
			x->orphan.cb = orphan_cb;
			loop_timer_set(k->loop, &x->orphan, clock_mono_ns() + CLIENT_GONE_MS * NS_PER_MS);
		}
	}
	k->init_known = !more;
}

void kexec_from_init(struct keeper *k, const struct wire_frame *f)
{
	struct chan *ch;

	if (f->chan == 0) {
		if (f->type == WM_HELLO)
			on_hello(k, f);
		else if (f->type == WM_EXIT)
			on_ended(k, f);
		else if (f->type == WM_PARK)
			k->parked = true;
		else if (f->type == WM_PS)
			inside_answer(k, f);
		return;
	}
	ch = chan_by_ours(k, f->chan);
	if (!ch || (!ch->client && f->type != WM_STARTED && f->type != WM_FAIL && f->type != WM_EXIT))
		return;
	switch (f->type) {
	case WM_STARTED:
		on_started(k, ch, f);
		break;
	case WM_FAIL:
		on_failed(k, ch, f);
		break;
	case WM_EXIT:
		if (!ch->x->ended) { /* init always tells channel 0 first; this one lies */
			struct exec_result r = { .exited = false, .status = SIGKILL };

			kexec_ended(ch->x, &r);
		}
		chan_tell_exit(ch);
		chan_free(ch);
		kexec_thin(k);
		break;
	case WM_OUT:
	case WM_ERR:
		if (f->len > ch->credit) {
			box_down(k, "its init process broke the protocol");
			return;
		}
		ch->credit -= f->len;
		ch->off[f->type == WM_ERR] += f->len;
		conn_send(&ch->client->conn, f->type, ch->theirs, f->p, f->len);
		break;
	case WM_IN_CREDIT:
		if (credit_in(f) > ch->in_sent) {
			box_down(k, "its init process broke the protocol");
			return;
		}
		ch->in_sent -= credit_in(f);
		conn_send(&ch->client->conn, f->type, ch->theirs, f->p, f->len);
		break;
	}
}

void kexec_client_gone(struct client *c)
{
	struct keeper *k = c->k;

	list_for_each_safe(l, next, &k->chans) {
		struct chan *ch = CONTAINER_OF(l, struct chan, link);

		if (ch->client == c)
			chan_leave(k, ch);
	}
	kexec_thin(k);
}
