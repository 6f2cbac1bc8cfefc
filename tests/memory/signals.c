/* Signals: sent and not delivered, blocked, handled, on a stack of their own. */
#include "memory.h"

#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#define ALT_SIZE 65536
#define RT (SIGRTMIN + 5)

static unsigned char *alt;
static volatile sig_atomic_t handled, on_alt;

static void handler(int sig, siginfo_t *i, void *context)
{
	unsigned char here;

	(void)sig;
	(void)i;
	(void)context;
	handled++;
	on_alt = (uintptr_t)&here >= (uintptr_t)alt && (uintptr_t)&here < (uintptr_t)alt + ALT_SIZE;
}

static void queue_all(void)
{
	for (int i = 0; i < 4; i++)
		CHECK(sigqueue(getpid(), RT, (union sigval){ .sival_int = 100 + i }) == 0);
	CHECK(kill(getpid(), SIGUSR1) == 0);
	CHECK(syscall(SYS_tgkill, getpid(), syscall(SYS_gettid), SIGUSR2) == 0);
}

static void signals_setup(const char *argument)
{
	struct sigaction a = { .sa_sigaction = handler,
		.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART | SA_NODEFER };
	stack_t s = { .ss_size = ALT_SIZE };
	sigset_t mask;

	(void)argument;
	alt = malloc(ALT_SIZE);
	s.ss_sp = alt;
	MUST(alt && sigaltstack(&s, NULL) == 0);
	sigemptyset(&a.sa_mask);
	sigaddset(&a.sa_mask, SIGTERM);
	MUST(sigaction(SIGALRM, &a, NULL) == 0);
	signal(SIGHUP, SIG_IGN);
	sigemptyset(&mask);
	sigaddset(&mask, SIGUSR1);
	sigaddset(&mask, SIGUSR2);
	sigaddset(&mask, RT);
	MUST(sigprocmask(SIG_SETMASK, &mask, NULL) == 0);
	MUST(prctl(PR_SET_PDEATHSIG, SIGTERM) == 0);
	MUST(prctl(PR_SET_CHILD_SUBREAPER, 1) == 0);
	queue_all();
}

static int takes(int sig, int *value)
{
	const struct timespec none = { 0, 0 };
	siginfo_t i;
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, sig);
	if (sigtimedwait(&set, &i, &none) != sig)
		return -1;
	*value = i.si_value.sival_int;
	return i.si_code;
}

static void state_check(void)
{
	struct sigaction a;
	sigset_t mask;
	stack_t s;
	int n = 0;

	sigprocmask(SIG_SETMASK, NULL, &mask);
	CHECK(sigismember(&mask, SIGUSR1) && sigismember(&mask, SIGUSR2) && sigismember(&mask, RT));
	CHECK(!sigismember(&mask, SIGTERM));
	CHECK(sigaction(SIGALRM, NULL, &a) == 0 && a.sa_sigaction == handler);
	IS(a.sa_flags & (SA_SIGINFO | SA_ONSTACK | SA_RESTART | SA_NODEFER),
		SA_SIGINFO | SA_ONSTACK | SA_RESTART | SA_NODEFER);
	CHECK(sigismember(&a.sa_mask, SIGTERM));
	CHECK(sigaction(SIGHUP, NULL, &a) == 0 && a.sa_handler == SIG_IGN);
	CHECK(sigaltstack(NULL, &s) == 0 && s.ss_sp == alt);
	IS(s.ss_size, ALT_SIZE);
	CHECK(prctl(PR_GET_PDEATHSIG, &n) == 0);
	IS(n, SIGTERM);
	CHECK(prctl(PR_GET_CHILD_SUBREAPER, &n) == 0);
	IS(n, 1);
}

static void signals_check(void)
{
	int before = handled, value = 0;

	state_check();
	raise(SIGALRM);
	IS(handled, before + 1);
	IS(on_alt, 1);
	for (int i = 0; i < 4; i++) {
		IS(takes(RT, &value), SI_QUEUE);
		IS(value, 100 + i);
	}
	IS(takes(RT, &value), -1);
	IS(takes(SIGUSR1, &value), SI_USER);
	IS(takes(SIGUSR2, &value), SI_USER); /* SI_TKILL, which the C library hides */
	queue_all();
}

const struct subject subject_signals = { "signals", signals_setup, signals_check, NULL, NULL };
