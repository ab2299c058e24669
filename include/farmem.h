/* What a program may tell Farmem about its memory.
 *
 * Nothing needs to be linked. A program leaves word in a mailbox: memory of its own that a pager finds when it is attached to the program
 * (docs/formats/mailbox.md), also in static programs and before that. What is called for is kept until then. Where there is no Farmem nobody ever reads it, every
 * call returns 0, and nothing comes of it. So a program with hints in it runs everywhere.
 *
 * Every function takes any address and any length. They return 0, or a number of <errno.h>, and don't change errno. While there is no pager they return 0,
 * but for what is said here:
 *
 *   EINVAL  no program can have such addresses; farmem_register_prefetcher: more than 100 percent, also without a pager
 *   ENOMEM  farmem_pin: more would stay local than may, some of it isn't mapped, or there is no room for it to come back to,
 *           after which nothing of it is pinned
 *   EBUSY   farmem_register_prefetcher: there is one already, also without a pager
 *   EAGAIN  too much has been asked for and not been done yet; the hint is dropped, and may be given again. Without a pager: more than 1024 ranges would be pinned
 *
 * Memory that Farmem doesn't manage is local anyway: hints about it do nothing. Only what has been stored can be fetched, so hints about
 * memory that was never written do nothing either.
 *
 * All functions may be called by several threads at a time. farmem_prefetch and farmem_cold wait for nobody and may be called in handlers
 * of signals, once any function of this header has returned in the same file; the others may not.
 *
 * A forked child begins without pins and without a prefetcher, and without what its parent has asked for at that moment.
 */
#ifndef FARMEM_H
#define FARMEM_H

#include <errno.h>
#include <stddef.h>
#include <stdint.h>

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

/* The mailbox, in words of 8 bytes: where things lie, and how long they are. */
#define FARMEM_MAGIC 0x78626d656d726166ULL
#define FARMEM_VERSION 1
enum farmem_layout {
	FARMEM_AT_MAGIC = 0,
	FARMEM_AT_VERSION = 1,
	FARMEM_AT_PAGER = 2,
	FARMEM_AT_BEAT = 3,
	FARMEM_AT_HEAD = 8,
	FARMEM_AT_TAIL = 16,
	FARMEM_AT_LOCK = 24,
	FARMEM_AT_PINS_VERSION = 25,
	FARMEM_AT_ASKED = 26,
	FARMEM_AT_KIND = 27,
	FARMEM_AT_START = 28,
	FARMEM_AT_LENGTH = 29,
	FARMEM_AT_ANSWER = 32,
	FARMEM_AT_READER = 40,
	FARMEM_AT_IS_ASLEEP = 41,
	FARMEM_AT_FAULT_HEAD = 48,
	FARMEM_AT_PINS = 512,
	FARMEM_PINS = 1024,
	FARMEM_AT_HINTS = FARMEM_AT_PINS + 2 * FARMEM_PINS,
	FARMEM_HINTS = 1024,
	FARMEM_AT_FAULTS = FARMEM_AT_HINTS + 3 * FARMEM_HINTS,
	FARMEM_FAULTS = 4096,
	FARMEM_WORDS = FARMEM_AT_FAULTS + 2 * FARMEM_FAULTS
};

/* The C library's, under names of their own: not every standard has them declared. None is weak: the program's own uses of it would be, too. */
extern long farmem_syscall(long, ...) __asm__("syscall");
extern int farmem_thread_create(void *, const void *, void *(*)(void *), void *) __asm__("pthread_create");
extern int farmem_thread_detach(unsigned long) __asm__("pthread_detach");

#define FARMEM_GET(word, how) __atomic_load_n(&(word), __ATOMIC_##how)
#define FARMEM_SET(word, value, how) __atomic_store_n(&(word), (value), __ATOMIC_##how)
#define FARMEM_SWAP_IF(word, expected, value) \
	__atomic_compare_exchange_n(&(word), (expected), (value), 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)

/* A system call, or -1; errno stays as it was. Numbers are those of x86-64, which is what Farmem runs on; elsewhere none is made. */
static inline long farmem_system(long number, long a, long b, long c, long d, long e, long f)
{
#if defined(__linux__) && defined(__x86_64__) && !defined(__ILP32__)
	int before = errno;
	long result = farmem_syscall(number, a, b, c, d, e, f);
	errno = before;
	return result;
#else
	(void)number, (void)a, (void)b, (void)c, (void)d, (void)e, (void)f;
	return -1;
#endif
}

enum farmem_system_call {
	FARMEM_MMAP = 9,
	FARMEM_MUNMAP = 11,
	FARMEM_RT_SIGPROCMASK = 14,
	FARMEM_MADVISE = 28,
	FARMEM_SHMGET = 29,
	FARMEM_SHMAT = 30,
	FARMEM_SHMCTL = 31,
	FARMEM_NANOSLEEP = 35,
	FARMEM_SHMDT = 67,
	FARMEM_PRCTL = 157,
	FARMEM_GETTID = 186,
	FARMEM_FUTEX = 202,
	FARMEM_CLOCK_GETTIME = 228
};

/* Sleeps while the 4 bytes at `word` hold `value`, at most so long. */
static inline void farmem_wait(const void *word, uint32_t value, long milliseconds)
{
	long timeout[2] = {milliseconds / 1000, milliseconds % 1000 * 1000000};
	farmem_system(FARMEM_FUTEX, (long)word, 0, (long)value, (long)timeout, 0, 0);
}

static inline void farmem_wake(const void *word)
{
	farmem_system(FARMEM_FUTEX, (long)word, 1, 0x7fffffff, 0, 0, 0);
}

static inline void farmem_rest(uint64_t nanoseconds)
{
	long time[2] = {(long)(nanoseconds / 1000000000), (long)(nanoseconds % 1000000000)};
	farmem_system(FARMEM_NANOSLEEP, (long)time, 0, 0, 0, 0, 0);
}

static inline uint64_t farmem_thread_time(void)
{
	long time[2] = {0, 0};
	farmem_system(FARMEM_CLOCK_GETTIME, 3, (long)time, 0, 0, 0, 0);
	return (uint64_t)time[0] * 1000000000 + (uint64_t)time[1];
}

/* What a process keeps: in a page that a forked child finds empty, so that it makes a mailbox of its own. */
struct farmem_home {
	uint64_t *mailbox; /* null before the first call; this home itself where none can be made */
	farmem_prefetcher *prefetcher;
	void *context;
	uint32_t state, percent, thread;
};

/* One for all files of a program: null before the first call. */
__attribute__((weak)) struct farmem_home *farmem_home_1;

static inline struct farmem_home *farmem_get_home(void)
{
	struct farmem_home *home = FARMEM_GET(farmem_home_1, ACQUIRE), *none = NULL;
	if (home)
		return home;
	/* Readable, writable; private, of no file. */
	long page = farmem_system(FARMEM_MMAP, 0, 4096, 3, 0x22, -1, 0);
	if (page == -1)
		return NULL;
	home = (struct farmem_home *)page;
	/* MADV_WIPEONFORK. Without it a child would take its parent's mailbox for its own. */
	if (farmem_system(FARMEM_MADVISE, page, 4096, 18, 0, 0, 0) == -1)
		home = NULL;
	else if (FARMEM_SWAP_IF(farmem_home_1, &none, home))
		return home;
	else
		home = none;
	farmem_system(FARMEM_MUNMAP, page, 4096, 0, 0, 0, 0);
	return home;
}

/* A segment that goes with its last mapping, that no child gets, and that has no name. */
static inline uint64_t *farmem_make_mailbox(void)
{
	long bytes = 8L * FARMEM_WORDS, segment = farmem_system(FARMEM_SHMGET, 0, bytes, 01600, 0, 0, 0);
	if (segment == -1)
		return NULL;
	long place = farmem_system(FARMEM_SHMAT, segment, 0, 0, 0, 0, 0);
	farmem_system(FARMEM_SHMCTL, segment, 0, 0, 0, 0, 0);
	if (place == -1)
		return NULL;
	/* MADV_DONTFORK, MADV_DONTDUMP. */
	if (farmem_system(FARMEM_MADVISE, place, bytes, 10, 0, 0, 0) == -1) {
		farmem_system(FARMEM_SHMDT, place, 0, 0, 0, 0, 0);
		return NULL;
	}
	farmem_system(FARMEM_MADVISE, place, bytes, 16, 0, 0, 0);
	uint64_t *words = (uint64_t *)place;
	FARMEM_SET(words[FARMEM_AT_VERSION], (uint64_t)FARMEM_VERSION, RELEASE);
	FARMEM_SET(words[FARMEM_AT_MAGIC], FARMEM_MAGIC, RELEASE);
	return words;
}

/* This process's mailbox, made by the first call; null where there can be none. */
static inline uint64_t *farmem_mailbox(void)
{
	struct farmem_home *home = farmem_get_home();
	if (!home)
		return NULL;
	uint64_t *nothing = (uint64_t *)(void *)home, *words = FARMEM_GET(home->mailbox, ACQUIRE);
	if (!words) {
		uint64_t *made = farmem_make_mailbox();
		words = made ? made : nothing;
		uint64_t *none = NULL;
		if (!FARMEM_SWAP_IF(home->mailbox, &none, words)) {
			if (made)
				farmem_system(FARMEM_SHMDT, (long)made, 0, 0, 0, 0, 0);
			words = none;
		}
	}
	return words == nothing ? NULL : words;
}

/* The number of the pager that there is; even when there is none. */
static inline uint64_t farmem_pager(uint64_t *words)
{
	return FARMEM_GET(words[FARMEM_AT_PAGER], SEQ_CST);
}

static inline int farmem_is_valid(const void *address, size_t length)
{
	uint64_t start = (uint64_t)(uintptr_t)address, end = start + length;
	return end >= start && end <= (uint64_t)1 << 47;
}

/* Leaves a hint; 0 when there is no room. Whose a cell is, its turn says. */
static inline int farmem_push(uint64_t *words, uint64_t start, uint64_t length_and_kind)
{
	uint64_t position = FARMEM_GET(words[FARMEM_AT_HEAD], RELAXED);
	for (;;) {
		uint64_t index = position % FARMEM_HINTS, *cell = words + FARMEM_AT_HINTS + 3 * index;
		int64_t ahead = (int64_t)(FARMEM_GET(cell[0], ACQUIRE) + index - position);
		if (ahead < 0)
			return 0;
		if (ahead > 0) {
			position = FARMEM_GET(words[FARMEM_AT_HEAD], RELAXED);
		} else if (FARMEM_SWAP_IF(words[FARMEM_AT_HEAD], &position, position + 1)) {
			FARMEM_SET(cell[1], start, RELAXED);
			FARMEM_SET(cell[2], length_and_kind, RELAXED);
			FARMEM_SET(cell[0], position + 1 - index, RELEASE);
			return 1;
		}
	}
}

static inline int farmem_hint(int is_cold, const void *address, size_t length)
{
	uint64_t *words = farmem_mailbox();
	if (!words)
		return 0;
	int is_present = farmem_pager(words) & 1;
	if (!farmem_is_valid(address, length))
		return is_present ? EINVAL : 0;
	uint64_t kind = is_cold ? (uint64_t)1 << 63 : 0;
	/* Without a pager those that were kept are enough for one that comes later. */
	return length == 0 || farmem_push(words, (uint64_t)(uintptr_t)address, length | kind) || !is_present ? 0 : EAGAIN;
}

static inline void farmem_put_pin(uint64_t *words, size_t index, uint64_t start, uint64_t end)
{
	FARMEM_SET(words[FARMEM_AT_PINS + 2 * index], start, RELAXED);
	FARMEM_SET(words[FARMEM_AT_PINS + 2 * index + 1], end, RELAXED);
}

/* Notes for a pager that comes later what is pinned, or no longer; 0, and nothing noted, when there is no room. Under the lock. */
static inline int farmem_note(uint64_t *words, int is_unpin, const void *address, size_t length)
{
	uint64_t start = (uint64_t)(uintptr_t)address & ~(uint64_t)4095;
	uint64_t end = ((uint64_t)(uintptr_t)address + length + 4095) & ~(uint64_t)4095;
	size_t space = FARMEM_PINS, joined = FARMEM_PINS;
	int is_cut = 0;
	for (size_t index = 0; index < FARMEM_PINS; index++) {
		uint64_t from = words[FARMEM_AT_PINS + 2 * index], to = words[FARMEM_AT_PINS + 2 * index + 1];
		if (to == 0)
			space = index < space ? index : space;
		else if (from <= end && start <= to)
			joined = index < joined ? index : joined;
		is_cut |= to != 0 && from < start && end < to;
	}
	if (space == FARMEM_PINS && (is_unpin ? is_cut : joined == FARMEM_PINS))
		return 0;
	uint64_t version = words[FARMEM_AT_PINS_VERSION] | 1;
	FARMEM_SET(words[FARMEM_AT_PINS_VERSION], version, RELAXED);
	__atomic_thread_fence(__ATOMIC_RELEASE);
	for (size_t index = 0; index < FARMEM_PINS; index++) {
		uint64_t from = words[FARMEM_AT_PINS + 2 * index], to = words[FARMEM_AT_PINS + 2 * index + 1];
		if (to == 0)
			continue;
		if (!is_unpin && from <= end && start <= to) {
			start = from < start ? from : start;
			end = to > end ? to : end;
			farmem_put_pin(words, index, 0, 0);
		} else if (is_unpin && from < end && start < to) {
			if (from < start)
				farmem_put_pin(words, index, from, start);
			else if (end < to)
				farmem_put_pin(words, index, end, to);
			else
				farmem_put_pin(words, index, 0, 0);
			if (from < start && end < to) {
				farmem_put_pin(words, space, end, to);
				break;
			}
		}
	}
	if (!is_unpin)
		farmem_put_pin(words, joined < FARMEM_PINS ? joined : space, start, end);
	FARMEM_SET(words[FARMEM_AT_PINS_VERSION], version + 1, SEQ_CST);
	return 1;
}

/* Waits for the pager's answer: 0, ENOMEM, EAGAIN when it gives no sign of life, or -1 when it is there no more. */
static inline int farmem_wait_for_answer(uint64_t *words, uint64_t pager, uint64_t number)
{
	uint64_t last = FARMEM_GET(words[FARMEM_AT_BEAT], RELAXED);
	for (int still = 0; still < 100;) {
		uint64_t answer = FARMEM_GET(words[FARMEM_AT_ANSWER], ACQUIRE);
		if (answer >> 2 == (number << 2) >> 2)
			return answer & 1 ? ENOMEM : 0;
		if (farmem_pager(words) != pager)
			return -1;
		farmem_wait(&words[FARMEM_AT_ANSWER], (uint32_t)answer, 100);
		uint64_t beat = FARMEM_GET(words[FARMEM_AT_BEAT], RELAXED);
		still = beat == last ? still + 1 : 0;
		last = beat;
	}
	return EAGAIN;
}

/* Under the lock. Pagers may come and go meanwhile. */
static inline int farmem_pin_alone(uint64_t *words, int is_unpin, const void *address, size_t length)
{
	for (int pagers = 0; pagers < 16; pagers++) {
		uint64_t pager = farmem_pager(words);
		if (!(pager & 1)) {
			if (!farmem_note(words, is_unpin, address, length))
				return EAGAIN;
			/* One that has come meanwhile may have looked before. */
			if (!(farmem_pager(words) & 1))
				return 0;
			continue;
		}
		uint64_t number = words[FARMEM_AT_ASKED] + 1;
		FARMEM_SET(words[FARMEM_AT_KIND], is_unpin ? 2 : 1, RELEASE);
		FARMEM_SET(words[FARMEM_AT_START], (uint64_t)(uintptr_t)address, RELEASE);
		FARMEM_SET(words[FARMEM_AT_LENGTH], (uint64_t)length, RELEASE);
		FARMEM_SET(words[FARMEM_AT_ASKED], number, SEQ_CST);
		farmem_wake(&words[FARMEM_AT_ASKED]);
		int answer = farmem_wait_for_answer(words, pager, number);
		/* For the next pager. Where there is no room for it, only this one knows of it. */
		if (answer == 0)
			farmem_note(words, is_unpin, address, length);
		if (answer >= 0)
			return answer;
	}
	return EAGAIN;
}

static inline int farmem_order(int is_unpin, const void *address, size_t length)
{
	uint64_t *words = farmem_mailbox(), none = 0;
	if (!words)
		return 0;
	if (!farmem_is_valid(address, length))
		return farmem_pager(words) & 1 ? EINVAL : 0;
	if (length == 0)
		return 0;
	/* 0: nobody pins, 1: somebody does, 2: somebody does, and others wait. */
	uint64_t *lock = &words[FARMEM_AT_LOCK];
	int is_locked = FARMEM_SWAP_IF(*lock, &none, 1);
	for (int naps = 0; naps < 100 && !is_locked; naps++) {
		is_locked = __atomic_exchange_n(lock, 2, __ATOMIC_ACQ_REL) == 0;
		if (!is_locked)
			farmem_wait(lock, 2, 100);
	}
	if (!is_locked)
		return EAGAIN;
	int answer = farmem_pin_alone(words, is_unpin, address, length);
	if (__atomic_exchange_n(lock, 0, __ATOMIC_ACQ_REL) == 2)
		farmem_wake(lock);
	return answer;
}

enum farmem_state {
	FARMEM_NOBODY,
	FARMEM_REGISTERED,
	FARMEM_ENDING
};

/* Reads the faults from position *tail on that are whole. */
static inline size_t farmem_read_faults(uint64_t *words, uint64_t *tail, struct farmem_fault *faults, size_t most)
{
	uint64_t head = FARMEM_GET(words[FARMEM_AT_FAULT_HEAD], ACQUIRE);
	/* The rest is about to be overwritten, too. */
	if (head - *tail > FARMEM_FAULTS)
		*tail = head - FARMEM_FAULTS / 2;
	size_t count = 0;
	for (; count < most && *tail != head; count++, ++*tail) {
		uint64_t *record = words + FARMEM_AT_FAULTS + 2 * (*tail % FARMEM_FAULTS);
		uint64_t who = FARMEM_GET(record[1], ACQUIRE), what = FARMEM_GET(record[0], RELAXED);
		__atomic_thread_fence(__ATOMIC_ACQUIRE);
		if (who != FARMEM_GET(record[1], RELAXED) || who >> 32 != ((*tail + 1) & 0xffffffff) || (uint32_t)who == 0)
			break;
		faults[count].address = (void *)(uintptr_t)(what & ~((uint64_t)1 << 63));
		faults[count].thread = (unsigned int)who;
		faults[count].is_write = (unsigned int)(what >> 63);
	}
	return count;
}

/* The thread farmem-observer. */
static inline void *farmem_observe(void *argument)
{
	struct farmem_home *home = (struct farmem_home *)argument;
	uint64_t *words = home->mailbox, tail = FARMEM_GET(words[FARMEM_AT_FAULT_HEAD], SEQ_CST);
	struct farmem_fault faults[256];
	uint32_t thread = (uint32_t)farmem_system(FARMEM_GETTID, 0, 0, 0, 0, 0, 0);
	farmem_system(FARMEM_PRCTL, 15, (long)"farmem-observer", 0, 0, 0, 0);
	FARMEM_SET(home->thread, thread, RELEASE);
	FARMEM_SET(words[FARMEM_AT_READER], (uint64_t)thread, RELEASE);
	while (FARMEM_GET(home->state, SEQ_CST) == FARMEM_REGISTERED) {
		size_t count = farmem_read_faults(words, &tail, faults, sizeof faults / sizeof *faults);
		if (count > 0) {
			uint64_t began = farmem_thread_time();
			home->prefetcher(faults, count, home->context);
			uint64_t rest = (farmem_thread_time() - began) * (100 - home->percent) / home->percent;
			/* Faults come together meanwhile, and need not wake anybody. */
			farmem_rest(rest > 100000 ? rest : 100000);
		} else if (FARMEM_GET(words[FARMEM_AT_FAULT_HEAD], SEQ_CST) != tail) {
			farmem_rest(100000);
		} else {
			FARMEM_SET(words[FARMEM_AT_IS_ASLEEP], 1, SEQ_CST);
			if (FARMEM_GET(words[FARMEM_AT_FAULT_HEAD], SEQ_CST) == tail &&
			    FARMEM_GET(home->state, SEQ_CST) == FARMEM_REGISTERED)
				farmem_wait(&words[FARMEM_AT_IS_ASLEEP], 1, 10000);
			FARMEM_SET(words[FARMEM_AT_IS_ASLEEP], 0, RELAXED);
		}
	}
	FARMEM_SET(words[FARMEM_AT_READER], 0, RELEASE);
	FARMEM_SET(home->thread, 0, RELEASE);
	FARMEM_SET(home->state, FARMEM_NOBODY, RELEASE);
	farmem_wake(&home->state);
	return NULL;
}

static inline int farmem_take_away(struct farmem_home *home, uint64_t *words)
{
	uint32_t registered = FARMEM_REGISTERED;
	(void)FARMEM_SWAP_IF(home->state, &registered, FARMEM_ENDING);
	if (FARMEM_GET(home->thread, ACQUIRE) == (uint32_t)farmem_system(FARMEM_GETTID, 0, 0, 0, 0, 0, 0))
		return 0;
	while (FARMEM_GET(home->state, ACQUIRE) == FARMEM_ENDING) {
		FARMEM_SET(words[FARMEM_AT_IS_ASLEEP], 0, SEQ_CST);
		farmem_wake(&words[FARMEM_AT_IS_ASLEEP]);
		farmem_wait(&home->state, FARMEM_ENDING, 100);
	}
	return 0;
}

/* 1 if this process has a pager now, else 0. One may be attached later, or leave. */
static inline int farmem_is_present(void)
{
	uint64_t *words = farmem_mailbox();
	return words ? (int)(farmem_pager(words) & 1) : 0;
}

/* These bytes will be wanted soon. Returns at once; what is far of their pages comes in the background, in the order of the calls and of
   addresses. One call brings in as much as half of what the process may have local, and makes other memory leave for that. */
static inline int farmem_prefetch(const void *address, size_t length)
{
	return farmem_hint(0, address, length);
}

/* These bytes won't be wanted for long: when something has to leave, they leave first. Whole pages only. Returns at once. */
static inline int farmem_cold(const void *address, size_t length)
{
	return farmem_hint(1, address, length);
}

/* These bytes stay local, with the pages that they share with others, until farmem_unpin or until they are unmapped. Returns when they are
   local; those that were never written come when they are. Pinning twice is as good as once. All processes of an application together may
   pin three quarters of its local memory. If that falls, what no longer fits is unpinned. Without a pager it returns at once, and a pager that is attached
   later begins with what is pinned then, as far as it may be. */
static inline int farmem_pin(const void *address, size_t length)
{
	return farmem_order(0, address, length);
}

/* These bytes, and what is on the same pages, may leave again. */
static inline int farmem_unpin(const void *address, size_t length)
{
	return farmem_order(1, address, length);
}

/* Has `prefetcher` called with faults as they come, from which it may tell what will be wanted, and call farmem_prefetch. It runs on a thread of
   its own, named farmem-observer, with all signals blocked. That thread rests so that the calls take at most share_percent of a processor (0: 10).
   Faults of that thread are left out, and so are, while it is busy, all but some thousand. It must not end its thread.

   There is one prefetcher at a time: EBUSY if there is one already. NULL takes it away, and returns when it is called no more (at once, when it
   does so itself). EINVAL for more than 100 percent; otherwise what pthread_create returns. Without a pager it waits for
   one to come. Not for handlers of signals. */
static inline int farmem_register_prefetcher(farmem_prefetcher *prefetcher, void *context, unsigned int share_percent)
{
	struct farmem_home *home = farmem_get_home();
	uint64_t *words = farmem_mailbox();
	uint32_t nobody = FARMEM_NOBODY;
	if (share_percent > 100)
		return EINVAL;
	if (!words)
		return 0;
	if (!prefetcher)
		return farmem_take_away(home, words);
	if (!FARMEM_SWAP_IF(home->state, &nobody, FARMEM_REGISTERED))
		return EBUSY;
	home->prefetcher = prefetcher;
	home->context = context;
	home->percent = share_percent ? share_percent : 10;
	/* All signals but the C library's own: they are for the program's other threads. */
	uint64_t all = ~((uint64_t)7 << 31), before = 0;
	unsigned long thread = 0;
	farmem_system(FARMEM_RT_SIGPROCMASK, 2, (long)&all, (long)&before, 8, 0, 0);
	int answer = farmem_thread_create(&thread, NULL, farmem_observe, home);
	farmem_system(FARMEM_RT_SIGPROCMASK, 2, (long)&before, 0, 8, 0, 0);
	if (answer == 0)
		farmem_thread_detach(thread);
	if (answer != 0)
		FARMEM_SET(home->state, FARMEM_NOBODY, RELEASE);
	return answer;
}

#ifdef __cplusplus
}
#endif
#endif
