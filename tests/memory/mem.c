/* Memory: counters, heaps, mappings, memory shared with others. */
#include "memory.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/msg.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <sys/stat.h>
#include <sys/wait.h>

/* ---- counter: data, bss, heap, stack of a thread; and a thread that never stops counting ---- */

#define BLOCKS 300

static unsigned data_count = 1000, bss_count;
static _Thread_local unsigned tls_count = 77;
static unsigned char *blocks[BLOCKS];
static volatile uint64_t ahead, behind, seen_ahead;
static volatile bool torn;

static size_t block_size(unsigned i)
{
	return 16 + (size_t)(mix(i) % 20000);
}

/* A step changes each seventh block. */
static uint64_t block_seed(unsigned i)
{
	return i % 7 == 0 ? i + 1000000ULL * steps : i;
}

static void *count_on(void *arg)
{
	(void)arg;
	for (;;) {
		uint64_t a = ahead;

		if (a != behind)
			torn = true;
		ahead = a + 1;
		behind = a + 1;
		if ((a & 0x3ff) == 0)
			nap_ms(2);
	}
	return NULL;
}

static void counter_setup(const char *argument)
{
	pthread_t t;

	(void)argument;
	for (unsigned i = 0; i < BLOCKS; i++) {
		blocks[i] = malloc(block_size(i));
		MUST(blocks[i]);
		fill(blocks[i], block_size(i), block_seed(i));
	}
	MUST(pthread_create(&t, NULL, count_on, NULL) == 0);
}

static void counter_step(void)
{
	data_count++;
	bss_count++;
	tls_count++;
	for (unsigned i = 0; i < BLOCKS; i += 7)
		fill(blocks[i], block_size(i), block_seed(i));
}

static void counter_check(void)
{
	int64_t end = mono_ns() + 10000000000LL;

	IS(data_count, 1000 + steps);
	IS(bss_count, steps);
	IS(tls_count, 77 + steps);
	for (unsigned i = 0; i < BLOCKS; i++)
		if (!filled(blocks[i], block_size(i), block_seed(i)))
			wrong("block %u of the heap is not what it was", i);
	CHECK(!torn);
	while (ahead <= seen_ahead && mono_ns() < end)
		nap_ms(1);
	CHECK(ahead > seen_ahead);
	seen_ahead = ahead;
}

const struct subject subject_counter = { "counter", counter_setup, counter_check, counter_step,
	NULL };

/* ---- heap: so many megabytes that nothing compresses away, each word known ---- */

static uint64_t *heap;
static size_t heap_words;

/* A step writes to each sixteenth page. */
static uint64_t heap_word(size_t i)
{
	return mix(i ^ ((i / 512) % 16 == 0 ? (uint64_t)steps << 48 : 0));
}

static void heap_write(bool all)
{
	for (size_t i = 0; i < heap_words; i++)
		if (all || (i / 512) % 16 == 0)
			heap[i] = heap_word(i);
}

static void heap_setup(const char *argument)
{
	size_t mb = argument ? (size_t)atoi(argument) : 8;

	heap_words = mb << 17;
	heap = malloc(heap_words * 8);
	MUST(heap);
	heap_write(true);
}

static void heap_step(void)
{
	heap_write(false);
}

static void heap_check(void)
{
	for (size_t i = 0; i < heap_words; i++)
		if (heap[i] != heap_word(i)) {
			wrong("word %zu of %zu is not what it was", i, heap_words);
			return;
		}
}

const struct subject subject_heap = { "heap", heap_setup, heap_check, heap_step, NULL };

/* ---- maps ---- */

#define PAGE 4096UL
#define MAP_PAGES 16UL

static unsigned char *m_private, *m_shared, *m_cow, *m_file, *m_ro, *m_none, *m_code, *m_hole;
static volatile uint32_t *m_talk;

static int code_says(void)
{
	int (*fn)(void);

	memcpy(&fn, &m_code, sizeof(fn));
	return fn();
}

static void maps_setup(const char *argument)
{
	static const unsigned char code[] = { 0xb8, 42, 0, 0, 0, 0xc3 }; /* mov eax, 42; ret */
	const size_t n = MAP_PAGES * PAGE;
	int fd = open("mapped", O_RDWR | O_CREAT, 0644);

	(void)argument;
	MUST(fd >= 0 && writes(fd, n, 1));
	m_private = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	m_shared = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	m_talk = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	m_cow = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
	m_file = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	m_ro = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	m_none = mmap(NULL, n, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	m_hole = mmap(NULL, 3 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	m_code = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	MUST(m_private != MAP_FAILED && m_shared != MAP_FAILED && m_talk != MAP_FAILED &&
		m_cow != MAP_FAILED);
	MUST(m_file != MAP_FAILED && m_ro != MAP_FAILED && m_none != MAP_FAILED &&
		m_hole != MAP_FAILED);
	MUST(m_code != MAP_FAILED);
	close(fd);
	fill(m_private, n, 2);
	fill(m_shared, n, 3);
	fill(m_cow + 3 * PAGE, PAGE, 4);
	fill(m_ro, n, 5);
	memcpy(m_code, code, sizeof(code));
	MUST(mprotect(m_ro, n, PROT_READ) == 0);
	MUST(mprotect(m_code, PAGE, PROT_READ | PROT_EXEC) == 0);
	MUST(munmap(m_hole + PAGE, PAGE) == 0);
	if (fork() == 0)
		for (;;) {
			m_talk[1] = m_talk[0] + 1;
			if (getppid() == 1)
				_exit(0);
			nap_ms(2);
		}
}

static void maps_check(void)
{
	const size_t n = MAP_PAGES * PAGE;
	int fd = open("mapped", O_RDONLY);
	int64_t end = mono_ns() + 5000000000LL;

	CHECK(filled(m_private, n, 2));
	CHECK(filled(m_shared, n - PAGE, 3));
	CHECK(filled(m_cow + 3 * PAGE, PAGE, 4));
	CHECK(filled(m_file, PAGE, steps ? 100 + steps : 1));
	CHECK(fd >= 0 && reads(fd, PAGE, steps ? 100 + steps : 1));
	close(fd);
	CHECK(filled(m_ro, n, 5));
	IS(code_says(), 42);
	IS(touched(m_ro, true), SIGSEGV);
	IS(touched(m_ro, false), 0);
	IS(touched(m_none, false), SIGSEGV);
	IS(touched(m_hole, true), 0);
	IS(touched(m_hole + PAGE, true), SIGSEGV);
	IS(touched(m_hole + 2 * PAGE, true), 0);
	/* What is shared with a child stays shared. */
	m_talk[0] += 10;
	while (m_talk[1] != m_talk[0] + 1 && mono_ns() < end)
		nap_ms(1);
	IS(m_talk[1], m_talk[0] + 1);
}

static void maps_step(void)
{
	fill(m_file, PAGE, 100 + steps);
}

const struct subject subject_maps = { "maps", maps_setup, maps_check, maps_step, NULL };

/* ---- shm: System V and POSIX ---- */

#define SHM_SIZE (256UL << 10)
#define SHM_KEY 0x64656e

static int shm_id, shm_keyed, sem_id, msg_id = -1;
static unsigned char *shm_at, *posix_at, *posix_gone;
static char posix_kept[40], posix_unlinked[40];

struct msg_text {
	long type;
	char text[32];
};

static unsigned char *posix_map(const char *name, bool unlink_it)
{
	int fd = shm_open(name, O_RDWR | O_CREAT | O_EXCL, 0600);
	unsigned char *p;

	MUST(fd >= 0 && ftruncate(fd, SHM_SIZE) == 0);
	p = mmap(NULL, SHM_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	MUST(p != MAP_FAILED);
	close(fd);
	if (unlink_it)
		shm_unlink(name);
	return p;
}

static void shm_setup(const char *argument)
{
	struct msg_text m = { 3, "carried" };

	(void)argument;
	shm_id = shmget(IPC_PRIVATE, SHM_SIZE, IPC_CREAT | 0600);
	MUST(shm_id >= 0);
	shm_at = shmat(shm_id, NULL, 0);
	MUST(shm_at != (void *)-1);
	fill(shm_at, SHM_SIZE, 6);
	shm_keyed = shmget(SHM_KEY, 4096, IPC_CREAT | 0640); /* attached by nobody */
	MUST(shm_keyed >= 0);
	sem_id = semget(IPC_PRIVATE, 3, IPC_CREAT | 0600);
	MUST(sem_id >= 0);
	for (int i = 0; i < 3; i++)
		MUST(semctl(sem_id, i, SETVAL, 5 + i) == 0);
	msg_id = msgget(IPC_PRIVATE, IPC_CREAT | 0600);
	if (msg_id < 0 || msgsnd(msg_id, &m, sizeof(m.text), 0) < 0)
		without("message queues");
	snprintf(posix_kept, sizeof(posix_kept), "/memory-kept-%lld", (long long)mono_ns());
	snprintf(posix_unlinked, sizeof(posix_unlinked), "/memory-gone-%lld", (long long)mono_ns());
	posix_at = posix_map(posix_kept, false);
	posix_gone = posix_map(posix_unlinked, true);
	fill(posix_at, SHM_SIZE, 7);
	fill(posix_gone, SHM_SIZE, 8);
}

static void shm_check(void)
{
	struct shmid_ds d;
	struct msg_text m;
	int fd;

	CHECK(filled(shm_at, SHM_SIZE, 6));
	CHECK(shmctl(shm_id, IPC_STAT, &d) == 0);
	IS(d.shm_nattch, 1);
	IS(d.shm_segsz, SHM_SIZE);
	IS(shmget(SHM_KEY, 4096, 0), shm_keyed);
	for (int i = 0; i < 3; i++)
		IS(semctl(sem_id, i, GETVAL), 5 + i + (i == 1 ? (int)steps : 0));
	if (msg_id >= 0) {
		IS(msgrcv(msg_id, &m, sizeof(m.text), 3, IPC_NOWAIT), sizeof(m.text));
		CHECK(strcmp(m.text, "carried") == 0);
		CHECK(msgsnd(msg_id, &m, sizeof(m.text), IPC_NOWAIT) == 0);
	}
	CHECK(filled(posix_at, SHM_SIZE, 7));
	CHECK(filled(posix_gone, SHM_SIZE, 8));
	fd = shm_open(posix_kept, O_RDONLY, 0);
	CHECK(fd >= 0 && reads(fd, SHM_SIZE, 7));
	close(fd);
	CHECK(shm_open(posix_unlinked, O_RDONLY, 0) < 0);
}

static void shm_step(void)
{
	struct sembuf up = { 1, 1, 0 };

	CHECK(semop(sem_id, &up, 1) == 0);
}

const struct subject subject_shm = { "shm", shm_setup, shm_check, shm_step, NULL };

/* ---- memfd ---- */

static int memfd, sealed;
static unsigned char *memfd_at;

static void memfd_setup(const char *argument)
{
	(void)argument;
	memfd = memfd_create("carried", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	MUST(memfd >= 0 && ftruncate(memfd, 100000) == 0);
	memfd_at = mmap(NULL, 100000, PROT_READ | PROT_WRITE, MAP_SHARED, memfd, 0);
	MUST(memfd_at != MAP_FAILED);
	fill(memfd_at, 100000, 9);
	MUST(lseek(memfd, 1234, SEEK_SET) == 1234);
	sealed = memfd_create("sealed", MFD_ALLOW_SEALING);
	MUST(sealed >= 0 && writes(sealed, 5000, 10));
	MUST(fcntl(sealed, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE) == 0);
}

static void memfd_check(void)
{
	unsigned char b[5000];

	CHECK(filled(memfd_at, 50000, 9));
	IS(memfd_at[60000], steps ? (unsigned char)steps : memfd_at[60000]);
	IS(lseek(memfd, 0, SEEK_CUR), 1234);
	IS(fcntl(memfd, F_GETFD), FD_CLOEXEC);
	memfd_at[70000]++;
	IS(pread(memfd, b, 1, 70000), 1);
	IS(b[0], memfd_at[70000]);
	IS(fcntl(sealed, F_GET_SEALS), F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE);
	IS(pread(sealed, b, sizeof(b), 0), sizeof(b));
	CHECK(filled(b, sizeof(b), 10));
	CHECK(pwrite(sealed, b, 1, 0) < 0 && errno == EPERM);
}

static void memfd_step(void)
{
	memfd_at[60000] = (unsigned char)steps;
}

const struct subject subject_memfd = { "memfd", memfd_setup, memfd_check, memfd_step, NULL };
