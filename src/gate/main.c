/* den-gate: see gate.h. Descriptors: 3 listens for keepers, 4 is the pidfd of the box's init. */
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "clock.h"
#include "fd.h"
#include "flow.h"
#include "gate.h"
#include "pins.h"
#include "plumb.h"
#include "resolve.h"
#include "tls_ctx.h"

#define TICK_NS (NS_PER_SEC / 2)

static void on_init(struct loop_source *s, uint32_t events)
{
	(void)events;
	loop_quit(CONTAINER_OF(s, struct gate, init)->loop); /* the box is gone: nobody is left to serve */
}

static void on_tick(struct loop_timer *t)
{
	struct gate *g = CONTAINER_OF(t, struct gate, tick);
	int64_t now = clock_mono_ns();

	flow_tick(g, now);
	dnsd_tick(g, now);
	udp_tick(g, now);
	ident_tick(g, now);
	inbound_tick(g);
	record_tick(g);
	socks_pause(g, false);
	loop_timer_set(g->loop, &g->tick, now + TICK_NS);
}

static int serve(struct gate *g, struct den_err *err)
{
	/* all that is ever read by name, and all chance that is taken from files */
	json_object_seed(0);
	if (tls_start(err) < 0 || guard_files(err) < 0 || loop_new(&g->loop, err) < 0 ||
		guard_calls(err) < 0 || resolver_new(g, &g->resolver, err) < 0)
		return -1;
	g->pins = pins_new();
	g->tokens_at = g->dns_tokens_at = clock_mono_ns();
	g->dns_tokens = 1000;
	g->init = (struct loop_source){ .fd = GATE_INIT_FD, .events = EPOLLIN, .cb = on_init };
	g->tick.cb = on_tick;
	loop_timer_set(g->loop, &g->tick, clock_mono_ns() + TICK_NS);
	if (loop_add(g->loop, &g->init, err) < 0 || control_listen(g, err) < 0)
		return -1;
	return loop_run(g->loop, err);
}

static int serve_main(void)
{
	struct gate *g = mem_new(struct gate);
	struct list *lists[] = { &g->socks, &g->flows, &g->throttled, &g->queries, &g->dns_conns,
		&g->waiting_tokens, &g->ports, &g->idents, &g->spare, &g->udp_flows };
	struct den_err err;

	prctl(PR_SET_NAME, "den-gate", 0, 0, 0);
	listen(GATE_LISTEN_FD, 16); /* once more: whoever connects sees from the kernel that it is this process */
	signal(SIGPIPE, SIG_IGN);
	for (size_t i = 0; i < ARRAY_SIZE(lists); i++)
		list_init(lists[i]);
	g->bundle_fd = g->identity.fd = -1;
	fd_close_from(GATE_INIT_FD + 1);
	if (serve(g, &err) < 0) {
		dprintf(STDOUT_FILENO, "%s\n", err.msg);
		return 1;
	}
	return 0;
}

int main(int argc, char **argv)
{
	if (argc == 2 && !strcmp(argv[1], "serve"))
		return serve_main();
	if (argc == 2 && !strcmp(argv[1], "plumb"))
		return plumb_main();
	if (argc == 2 && !strcmp(argv[1], "probe"))
		return probe_main();
	if ((argc == 3 || argc == 4) && !strcmp(argv[1], "dial"))
		return dial_main(argv[2], argc == 4 ? argv[3] : NULL);
	fprintf(stderr, "den-gate is started by den, see den(1)\n");
	return 2;
}
