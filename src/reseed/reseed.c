/*
 * What a box with --reseed has its programs load (LD_PRELOAD=/run/den/reseed.so): OpenSSL's generator keeps its state
 * in the program's memory, and memory that is restored or forked would give the same numbers twice. So before OpenSSL
 * is asked for some, this looks whether the process was brought back since, and feeds it from the kernel first. The
 * primary generator is reseeded by that; those of threads see that it was, and follow.
 *
 * It is loaded into whatever program there is: it has no libc of its own, allocates nothing, and where it finds no
 * OpenSSL it does nothing.
 */
#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define GENERATION "/run/den/generation"
#define DROPPABLE 0x08 /* MAP_DROPPABLE */
#define SEED_BYTES 48

#pragma weak dlopen
#pragma weak dlsym
#pragma weak dlerror

int RAND_bytes(unsigned char *p, int n);
int RAND_priv_bytes(unsigned char *p, int n);
int RAND_bytes_ex(void *ctx, unsigned char *p, size_t n, unsigned strength);
int RAND_priv_bytes_ex(void *ctx, unsigned char *p, size_t n, unsigned strength);

static const char *const libraries[] = { "libcrypto.so.3", "libcrypto.so.1.1" };
#define LIBRARIES (sizeof(libraries) / sizeof(libraries[0]))

/* ---- was this process brought back? ---- */

/* A page that the kernel may drop is in no image: after a restore it is empty. So looking takes no system call, which a
 * program with a filter of its own might not be allowed. NULL: Linux before 6.11, or gVisor. */
static unsigned char *page;
static _Atomic uint64_t seen;
/* A method of OpenSSL's that somebody made may ask OpenSSL for numbers itself. */
static __thread int busy __attribute__((tls_model("initial-exec")));

/* Which file /run/den/generation is; each restore makes a new one. */
static uint64_t generation(void)
{
	struct stat st;

	if (syscall(SYS_newfstatat, AT_FDCWD, GENERATION, &st, 0) < 0)
		return 1;
	return ((uint64_t)st.st_ino << 32) ^
	       ((uint64_t)st.st_ctim.tv_sec * 1000000000ULL + (uint64_t)st.st_ctim.tv_nsec);
}

static void seed(void (*feed)(const void *, int))
{
	unsigned char fresh[SEED_BYTES] = { 0 };

	/* without a byte of ours it still asks the kernel itself */
	if (syscall(SYS_getrandom, fresh, sizeof(fresh), 0) >= 0)
		feed(fresh, sizeof(fresh));
}

static void quiet(void)
{
	if (dlerror)
		(void)dlerror(); /* what we did not find is no error of the program's */
}

/* In the program itself, or where only a module of it uses OpenSSL. */
static void seed_all(void)
{
	void (*done)(const void *, int) = NULL, (*feed)(const void *, int);

	if (!dlsym)
		return;
	feed = (void (*)(const void *, int))dlsym(RTLD_NEXT, "RAND_seed");
	if (feed)
		seed(done = feed);
	for (size_t i = 0; dlopen && i < LIBRARIES; i++) {
		void *h = dlopen(libraries[i],
			RTLD_LAZY | RTLD_NOLOAD); /* it stays: its functions are kept below */

		feed = h ? (void (*)(const void *, int))dlsym(h, "RAND_seed") : NULL;
		if (feed && feed != done)
			seed(feed);
	}
	quiet();
}

static void look(void)
{
	int error = errno;
	uint64_t now = 0;

	if (busy || (page && __atomic_load_n(page, __ATOMIC_ACQUIRE)))
		return;
	if (!page) {
		now = generation();
		errno = error;
		if (now == atomic_load(&seen))
			return;
	}
	/* two threads may both do it; none goes on before it is done */
	busy = 1;
	seed_all();
	busy = 0;
	if (page)
		__atomic_store_n(page, 1, __ATOMIC_RELEASE);
	else
		atomic_store(&seen, now);
	errno = error;
}

/* ---- OpenSSL's own ---- */

static void *find(const char *name)
{
	void *f = dlsym ? dlsym(RTLD_NEXT, name) : NULL;

	for (size_t i = 0; !f && dlsym && dlopen && i < LIBRARIES; i++) {
		void *h = dlopen(libraries[i], RTLD_LAZY | RTLD_NOLOAD);

		f = h ? dlsym(h, name) : NULL;
	}
	if (!f)
		quiet();
	return f;
}

/* Of a library that we know no name of: the kernel's numbers are as good. */
static int from_kernel(unsigned char *p, size_t n)
{
	for (size_t done = 0; done < n;) {
		long r = syscall(SYS_getrandom, p + done, n - done, 0);

		if (r < 0 && errno == EINTR)
			continue;
		if (r <= 0)
			return 0;
		done += (size_t)r;
	}
	return 1;
}

typedef int (*bytes_fn)(unsigned char *, int);
typedef int (*bytes_ex_fn)(void *, unsigned char *, size_t, unsigned);

static int bytes(_Atomic(bytes_fn) *own, const char *name, unsigned char *p, int n)
{
	bytes_fn f = atomic_load(own);

	if (!f) {
		f = (bytes_fn)find(name);
		atomic_store(own, f);
	}
	look();
	if (!f)
		return n < 0 ? 0 : from_kernel(p, (size_t)n);
	return f(p, n);
}

static int bytes_ex(_Atomic(bytes_ex_fn) *own, const char *name, void *ctx, unsigned char *p,
	size_t n, unsigned strength)
{
	bytes_ex_fn f = atomic_load(own);

	if (!f) {
		f = (bytes_ex_fn)find(name);
		atomic_store(own, f);
	}
	look();
	return f ? f(ctx, p, n, strength) : from_kernel(p, n);
}

int RAND_bytes(unsigned char *p, int n)
{
	static _Atomic(bytes_fn) own;

	return bytes(&own, "RAND_bytes", p, n);
}

int RAND_priv_bytes(unsigned char *p, int n)
{
	static _Atomic(bytes_fn) own;

	return bytes(&own, "RAND_priv_bytes", p, n);
}

int RAND_bytes_ex(void *ctx, unsigned char *p, size_t n, unsigned strength)
{
	static _Atomic(bytes_ex_fn) own;

	return bytes_ex(&own, "RAND_bytes_ex", ctx, p, n, strength);
}

int RAND_priv_bytes_ex(void *ctx, unsigned char *p, size_t n, unsigned strength)
{
	static _Atomic(bytes_ex_fn) own;

	return bytes_ex(&own, "RAND_priv_bytes_ex", ctx, p, n, strength);
}

/* ---- at the start ---- */

extern const ElfW(Ehdr) __ehdr_start __attribute__((visibility("hidden")));

/* Memory that is mapped from a file needs that very file when it is restored, and a newer den brings another one. So
 * this becomes memory of the program's own, where it is. */
static void detach(uintptr_t start, size_t len, int prot)
{
	void *copy = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (copy == MAP_FAILED)
		return;
	memcpy(copy, (const void *)start, len);
	if (mprotect(copy, len, prot) < 0 ||
		syscall(SYS_mremap, copy, len, len, MREMAP_MAYMOVE | MREMAP_FIXED, start) == -1)
		(void)munmap(copy, len);
}

__attribute__((constructor)) static void begin(void)
{
	const char *base = (const char *)&__ehdr_start;
	const ElfW(Phdr) *ph = (const void *)(base + __ehdr_start.e_phoff);
	uintptr_t mask = (uintptr_t)sysconf(_SC_PAGESIZE) - 1;
	int error = errno;
	void *p = mmap(NULL, mask + 1, PROT_READ | PROT_WRITE, DROPPABLE | MAP_ANONYMOUS, -1, 0);

	if (p != MAP_FAILED) {
		*(unsigned char *)p = 1;
		page = p;
	} else {
		atomic_store(&seen, generation());
	}
	for (int i = 0; i < __ehdr_start.e_phnum; i++) {
		uintptr_t at = (uintptr_t)base + ph[i].p_vaddr, start = at & ~mask;
		int prot = (ph[i].p_flags & PF_R ? PROT_READ : 0) |
			   (ph[i].p_flags & PF_W ? PROT_WRITE : 0) |
			   (ph[i].p_flags & PF_X ? PROT_EXEC : 0);

		if (ph[i].p_type == PT_LOAD)
			detach(start, ((at + ph[i].p_memsz + mask) & ~mask) - start, prot);
	}
	errno = error;
}
