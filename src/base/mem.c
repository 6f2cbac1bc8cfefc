#include "mem.h"

#include <link.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "compat.h"

static void *checked(void *p)
{
	static const char msg[] = "den: out of memory\n";

	if (!p) {
		(void)!write(2, msg, sizeof(msg) - 1);
		abort();
	}
	return p;
}

void *mem_alloc(size_t n)
{
	return checked(malloc(n ? n : 1));
}

void *mem_zalloc(size_t n)
{
	return checked(calloc(1, n ? n : 1));
}

void *mem_realloc(void *p, size_t n)
{
	return checked(realloc(p, n ? n : 1));
}

char *mem_strdup(const char *s)
{
	return checked(strdup(s));
}

char *mem_strndup(const char *s, size_t n)
{
	return checked(strndup(s, n));
}

static int drop_segments(struct dl_phdr_info *info, size_t size, void *user)
{
	uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);

	(void)size, (void)user;
	for (int i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *p = &info->dlpi_phdr[i];
		uintptr_t from = (info->dlpi_addr + p->p_vaddr + page - 1) & ~(page - 1);
		uintptr_t to = (info->dlpi_addr + p->p_vaddr + p->p_memsz) & ~(page - 1);

		/* only what is never written: the file has the same bytes */
		if (p->p_type == PT_LOAD && !(p->p_flags & PF_W) && to > from)
			madvise((void *)from, to - from, MADV_DONTNEED);
	}
	return 0;
}

void mem_idle(void)
{
	malloc_trim(0);
	dl_iterate_phdr(drop_segments, NULL);
}
