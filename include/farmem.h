/* What a program may tell Farmem about its memory.
 *
 * Nothing needs to be linked. The functions are looked for when they are called first: a program that runs without Farmem, and a static
 * one, finds none of them, and every call then does nothing and returns 0. So a program with hints in it runs everywhere.
 *
 * Every function takes any address and any length. They return 0, or a number of <errno.h>, and don't change errno:
 *
 *   EINVAL  no program can have such addresses
 *   ENOMEM  farmem_pin: more would stay local than may, some of it isn't mapped, or there is no room for it to come back to,
 *           after which nothing of it is pinned
 *   EBUSY   farmem_register_prefetcher: there is one already
 *   EAGAIN  too much has been asked for and not been done yet; the hint is dropped, and may be given again
 *
 * Memory that Farmem doesn't manage is local anyway: hints about it do nothing. Only what has been stored can be fetched, so hints about
 * memory that was never written do nothing either.
 *
 * All functions may be called by several threads at a time. farmem_prefetch and farmem_cold wait for nobody and may be called in handlers
 * of signals, once any function of this header has returned in the same file; farmem_pin and farmem_unpin may not.
 *
 * A forked child begins without pins and without a prefetcher, and without what its parent has asked for at that moment.
 */
#ifndef FARMEM_H
#define FARMEM_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A fault on a page that had to be fetched. */
struct farmem_fault {
	void *address;         /* what was touched */
	unsigned int thread;   /* the kernel's number of the thread (gettid) */
	unsigned int is_write; /* 1 if it was written, else 0 */
};

/* Is called with the faults since it was called last, the oldest first; see farmem_register_prefetcher. */
typedef void farmem_prefetcher(const struct farmem_fault *faults, size_t count, void *context);

typedef void farmem_any_function(void);
typedef int farmem_range_function(const void *, size_t);
typedef int farmem_register_function(farmem_prefetcher *, void *, unsigned int);

/* The C library's dlsym. Weak: a static program has none. Under a name and a type of its own: headers declare it in different ways, and a
   pointer to data can't be made one to a function everywhere. */
extern farmem_any_function *farmem_dlsym(void *, const char *) __asm__("dlsym") __attribute__((weak));

enum farmem_function {
	FARMEM_IS_PRESENT,
	FARMEM_PREFETCH,
	FARMEM_COLD,
	FARMEM_PIN,
	FARMEM_UNPIN,
	FARMEM_REGISTER_PREFETCHER,
	FARMEM_FUNCTIONS
};

/* Where the function is; null without Farmem. */
static inline farmem_any_function *farmem_find(enum farmem_function which)
{
	static const char *const names[FARMEM_FUNCTIONS] = {"farmem_is_present", "farmem_prefetch", "farmem_cold", "farmem_pin",
							    "farmem_unpin", "farmem_register_prefetcher"};
	static farmem_any_function *found[FARMEM_FUNCTIONS];
	static int is_looked_for;
	if (!__atomic_load_n(&is_looked_for, __ATOMIC_ACQUIRE)) {
		/* Threads that come here at the same time find the same. A null handle: all that is loaded. */
		for (int each = 0; each < FARMEM_FUNCTIONS; each++) {
			farmem_any_function *function = farmem_dlsym ? farmem_dlsym(NULL, names[each]) : NULL;
			__atomic_store_n(&found[each], function, __ATOMIC_RELAXED);
		}
		__atomic_store_n(&is_looked_for, 1, __ATOMIC_RELEASE);
	}
	return __atomic_load_n(&found[which], __ATOMIC_RELAXED);
}

static inline int farmem_call(enum farmem_function which, const void *address, size_t length)
{
	farmem_range_function *function = (farmem_range_function *)farmem_find(which);
	return function ? function(address, length) : 0;
}

/* 1 if the program runs under Farmem, else 0. */
static inline int farmem_is_present(void)
{
	int (*function)(void) = (int (*)(void))farmem_find(FARMEM_IS_PRESENT);
	return function ? function() : 0;
}

/* These bytes will be wanted soon. Returns at once; what is far of their pages comes in the background, in the order of the calls and of
   addresses. One call brings in as much as half of what the process may have local, and makes other memory leave for that. */
static inline int farmem_prefetch(const void *address, size_t length)
{
	return farmem_call(FARMEM_PREFETCH, address, length);
}

/* These bytes won't be wanted for long: when something has to leave, they leave first. Whole pages only. Returns at once. */
static inline int farmem_cold(const void *address, size_t length)
{
	return farmem_call(FARMEM_COLD, address, length);
}

/* These bytes stay local, with the pages that they share with others, until farmem_unpin or until they are unmapped. Returns when they are
   local; those that were never written come when they are. Pinning twice is as good as once. All processes of an application together may
   pin three quarters of its local memory. If that falls, what no longer fits is unpinned. */
static inline int farmem_pin(const void *address, size_t length)
{
	return farmem_call(FARMEM_PIN, address, length);
}

/* These bytes, and what is on the same pages, may leave again. */
static inline int farmem_unpin(const void *address, size_t length)
{
	return farmem_call(FARMEM_UNPIN, address, length);
}

/* Has `prefetcher` called with faults as they come, from which it may tell what will be wanted, and call farmem_prefetch. It runs on a thread of
   its own, named farmem-observer, with all signals blocked. That thread rests so that the calls take at most share_percent of a processor (0: 10).
   Faults of that thread are left out, and so are, while it is busy, all but some thousand. It must not end its thread.

   There is one prefetcher at a time: EBUSY if there is one already. NULL takes it away, and returns when it is called no more (at once, when it
   does so itself). EINVAL for more than 100 percent; otherwise what pthread_create returns. Not for handlers of signals. */
static inline int farmem_register_prefetcher(farmem_prefetcher *prefetcher, void *context, unsigned int share_percent)
{
	farmem_register_function *function = (farmem_register_function *)farmem_find(FARMEM_REGISTER_PREFETCHER);
	return function ? function(prefetcher, context, share_percent) : 0;
}

#ifdef __cplusplus
}
#endif
#endif
