/* Threads: what is theirs, what they hold, what they wait for. */
#include "memory.h"

#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#define THREADS 5

static _Thread_local uint64_t own;
static pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER, held = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t go = PTHREAD_COND_INITIALIZER, done = PTHREAD_COND_INITIALIZER;
static pthread_rwlock_t rw = PTHREAD_RWLOCK_INITIALIZER;
static sem_t sem;
static unsigned round_no, answered;
static bool told_wrong;
static volatile bool blocked_got_it;

/* Wakes for each round and says whether it is still itself. */
static void *worker(void *arg)
{
	uintptr_t me = (uintptr_t)arg;
	char name[16], now[16];
	pid_t tid = (pid_t)syscall(SYS_gettid);
	unsigned seen = 0;
	sigset_t mask, mask_now;

	own = mix(me);
	snprintf(name, sizeof(name), "worker-%d", (int)me);
	prctl(PR_SET_NAME, name);
	sigemptyset(&mask);
	sigaddset(&mask, SIGRTMIN + (int)me);
	pthread_sigmask(SIG_SETMASK, &mask, NULL);
	pthread_mutex_lock(&gate);
	for (;;) {
		while (round_no == seen)
			pthread_cond_wait(&go, &gate);
		seen = round_no;
		prctl(PR_GET_NAME, now);
		pthread_sigmask(SIG_SETMASK, NULL, &mask_now);
		if (own != mix(me) || strcmp(name, now) || tid != (pid_t)syscall(SYS_gettid) ||
			!sigismember(&mask_now, SIGRTMIN + (int)me) ||
			sigismember(&mask_now, SIGUSR1))
			told_wrong = true;
		answered++;
		pthread_cond_signal(&done);
	}
	return NULL;
}

static void *holder(void *arg)
{
	pthread_mutex_lock(&held);
	pthread_rwlock_rdlock(&rw);
	sem_post(arg);
	for (;;)
		pause();
	return NULL;
}

static void *blocked(void *arg)
{
	(void)arg;
	pthread_mutex_lock(&held);
	blocked_got_it = true;
	return NULL;
}

static void threads_setup(const char *argument)
{
	pthread_t t;

	(void)argument;
	MUST(sem_init(&sem, 0, 0) == 0);
	for (uintptr_t i = 0; i < THREADS; i++)
		MUST(pthread_create(&t, NULL, worker, (void *)i) == 0);
	MUST(pthread_create(&t, NULL, holder, &sem) == 0);
	MUST(sem_wait(&sem) == 0);
	MUST(pthread_create(&t, NULL, blocked, NULL) == 0);
	sem_post(&sem);
	sem_post(&sem);
}

static void threads_check(void)
{
	struct timespec end;
	int n = 0, r = 0;

	clock_gettime(CLOCK_REALTIME, &end);
	end.tv_sec += 8;
	pthread_mutex_lock(&gate);
	answered = 0;
	round_no++;
	pthread_cond_broadcast(&go);
	while (answered < THREADS && r == 0)
		r = pthread_cond_timedwait(&done, &gate, &end);
	IS(answered, THREADS);
	pthread_mutex_unlock(&gate);
	CHECK(!told_wrong);
	IS(pthread_mutex_trylock(&held), EBUSY);
	CHECK(!blocked_got_it);
	IS(pthread_rwlock_trywrlock(&rw), EBUSY);
	IS(pthread_rwlock_tryrdlock(&rw), 0);
	pthread_rwlock_unlock(&rw);
	sem_getvalue(&sem, &n);
	IS(n, 2);
}

const struct subject subject_threads = { "threads", threads_setup, threads_check, NULL, NULL };

/* ---- robust: a mutex whose owner is another process; when that dies, the next one is told ---- */

static pthread_mutex_t *shared;
static pid_t owner;

static void own_it(void)
{
	volatile uint32_t *locked = (void *)(shared + 1);

	*locked = 0;
	owner = fork();
	if (owner == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		pthread_mutex_lock(shared);
		*locked = 1;
		for (;;)
			pause();
	}
	for (int i = 0; i < 3000 && !*locked; i++)
		nap_ms(1);
}

static void robust_setup(const char *argument)
{
	pthread_mutexattr_t a;

	(void)argument;
	shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	MUST(shared != MAP_FAILED);
	pthread_mutexattr_init(&a);
	pthread_mutexattr_setpshared(&a, PTHREAD_PROCESS_SHARED);
	pthread_mutexattr_setrobust(&a, PTHREAD_MUTEX_ROBUST);
	MUST(pthread_mutex_init(shared, &a) == 0);
	own_it();
}

static void robust_check(void)
{
	IS(pthread_mutex_trylock(shared), EBUSY);
	CHECK(kill(owner, SIGKILL) == 0);
	IS(waitpid(owner, NULL, 0), owner);
	IS(pthread_mutex_trylock(shared), EOWNERDEAD);
	IS(pthread_mutex_consistent(shared), 0);
	pthread_mutex_unlock(shared);
	own_it();
}

const struct subject subject_robust = { "robust", robust_setup, robust_check, NULL, NULL };
