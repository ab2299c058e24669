/* Threads that fault, wait, and end while memory is far. */
#include "check.h"

#include <alloca.h>
#include <sched.h>
#include <semaphore.h>
#include <sys/rseq.h>
#include <time.h>

#define REGION (4 * MEBIBYTE)

static unsigned char *region;

static void *verify_region(void *argument)
{
	uint64_t rounds = (uintptr_t)argument;
	for (uint64_t round = 0; round < rounds; round++)
		verify(region, REGION, 131);
	return NULL;
}

/* The same far pages are wanted by several threads at the same time. */
static void threads_fault_same_pages(void)
{
	region = map_filled(REGION, 131);
	for (int round = 0; round < 5; round++) {
		pthread_t threads[6];
		squeeze();
		for (size_t number = 0; number < 6; number++)
			threads[number] = start_thread(verify_region, (void *)2);
		for (size_t number = 0; number < 6; number++)
			join_thread(threads[number]);
	}
}

static void *write_own_words(void *argument)
{
	size_t number = (uintptr_t)argument;
	for (int round = 0; round < 6; round++)
		for (size_t offset = number * 8; offset < REGION; offset += PAGE)
			(*(volatile uint64_t *)(region + offset))++;
	return NULL;
}

/* Writes of several threads to different words of the same pages: none may be lost between two copies of a page. */
static void threads_write_same_pages(void)
{
	enum { THREADS = 4 };
	region = map(REGION);
	pressure_start();
	pthread_t threads[THREADS];
	for (size_t number = 0; number < THREADS; number++)
		threads[number] = start_thread(write_own_words, (void *)number);
	for (size_t number = 0; number < THREADS; number++)
		join_thread(threads[number]);
	pressure_stop();
	for (size_t page = 0; page < REGION; page += PAGE)
		for (size_t number = 0; number < THREADS; number++)
			CHECK(*(uint64_t *)(region + page + number * 8) == 6);
}

static atomic_int touching;

static void *touch_region(void *argument)
{
	(void)argument;
	while (atomic_load(&touching))
		for (size_t page = 0; page < REGION; page += PAGE)
			(*(volatile uint64_t *)(region + page))++;
	return NULL;
}

/* Pages change at the moment when they are to leave: the processor notes again that they are in use, and Linux 6.18 then moves some of
   them that it doesn't count. */
static void threads_touch_cold_pages(void)
{
	region = map_filled(REGION, 132);
	uint64_t before[REGION / PAGE];
	for (size_t page = 0; page < REGION; page += PAGE)
		before[page / PAGE] = *(uint64_t *)(region + page);
	atomic_store(&touching, 1);
	pthread_t thread = start_thread(touch_region, NULL);
	pressure_start();
	for (int round = 0; round < 20000; round++)
		CHECK(madvise(region, REGION, MADV_COLD) == 0);
	pressure_stop();
	atomic_store(&touching, 0);
	join_thread(thread);
	uint64_t rounds = *(uint64_t *)region - before[0];
	CHECK(rounds > 0);
	for (size_t page = 0; page < REGION; page += PAGE) {
		CHECK(*(uint64_t *)(region + page) - before[page / PAGE] == rounds);
		*(uint64_t *)(region + page) = before[page / PAGE];
	}
	verify(region, REGION, 132);
}

static void *verify_one_page(void *argument)
{
	size_t page = (uintptr_t)argument % (REGION / PAGE);
	verify_from(region + page * PAGE, PAGE, 131, page * PAGE);
	return NULL;
}

static void thousands_of_threads(void)
{
	region = map_filled(REGION, 131);
	pressure_start();
	for (size_t round = 0; round < 250; round++) {
		pthread_t threads[8];
		for (size_t number = 0; number < 8; number++)
			threads[number] = start_thread(verify_one_page, (void *)(round * 8 + number));
		for (size_t number = 0; number < 8; number++)
			join_thread(threads[number]);
	}
	pressure_stop();
}

static atomic_int detached_left;

static void *verify_detached(void *argument)
{
	verify_one_page(argument);
	atomic_fetch_sub(&detached_left, 1);
	return NULL;
}

static void detached_threads(void)
{
	region = map_filled(REGION, 131);
	pressure_start();
	for (size_t round = 0; round < 40; round++) {
		atomic_store(&detached_left, 8);
		for (size_t number = 0; number < 8; number++)
			CHECK(pthread_detach(start_thread(verify_detached, (void *)(round * 8 + number))) == 0);
		while (atomic_load(&detached_left) > 0)
			sched_yield();
	}
	pressure_stop();
}

static pthread_barrier_t all_asleep, all_awake;

static void *sleep_on_a_full_stack(void *argument)
{
	uint64_t seed = (uintptr_t)argument;
	size_t bytes = MEBIBYTE / 2;
	unsigned char *memory = alloca(bytes);
	fill(memory, bytes, seed);
	pthread_barrier_wait(&all_asleep);
	pthread_barrier_wait(&all_awake);
	verify(memory, bytes, seed);
	return NULL;
}

/* Threads that sleep until their stacks and control blocks are far, and then end. */
static void thread_stacks_evicted(void)
{
	enum { THREADS = 8 };
	CHECK(pthread_barrier_init(&all_asleep, NULL, THREADS + 1) == 0);
	CHECK(pthread_barrier_init(&all_awake, NULL, THREADS + 1) == 0);
	for (int round = 0; round < 4; round++) {
		pthread_t threads[THREADS];
		for (uintptr_t number = 0; number < THREADS; number++)
			threads[number] = start_thread(sleep_on_a_full_stack, (void *)(600 + number));
		pthread_barrier_wait(&all_asleep);
		squeeze();
		squeeze();
		pthread_barrier_wait(&all_awake);
		for (size_t number = 0; number < THREADS; number++)
			join_thread(threads[number]);
	}
}

static void *ended_long_ago(void *argument)
{
	*(volatile int *)argument = 1;
	return argument;
}

/* A thread that nobody joins until everything of it is far. */
static void join_after_eviction(void)
{
	for (int round = 0; round < 10; round++) {
		int value = 0;
		pthread_t thread = start_thread(ended_long_ago, &value);
		squeeze();
		join_thread(thread);
		CHECK(value == 1);
	}
}

static void *sleep_then_end(void *argument)
{
	struct timespec pause = {.tv_nsec = 300 * 1000 * 1000};
	nanosleep(&pause, NULL);
	return argument;
}

/* The kernel clears a word of the thread's control block at its end; that word is far when the time comes. */
static void thread_ends_while_far(void)
{
	for (int round = 0; round < 3; round++) {
		pthread_t threads[8];
		for (size_t number = 0; number < 8; number++)
			threads[number] = start_thread(sleep_then_end, NULL);
		squeeze();
		squeeze();
		for (size_t number = 0; number < 8; number++)
			join_thread(threads[number]);
	}
}

struct meeting {
	pthread_mutex_t mutex;
	unsigned char gap[3 * 4096];
	pthread_cond_t changed;
	unsigned char gap_too[3 * 4096];
	long turn;
};

static void *play(void *argument)
{
	struct meeting *meeting = argument;
	for (long turn = 1; turn < 2000; turn += 2) {
		CHECK(pthread_mutex_lock(&meeting->mutex) == 0);
		while (meeting->turn != turn)
			CHECK(pthread_cond_wait(&meeting->changed, &meeting->mutex) == 0);
		meeting->turn++;
		CHECK(pthread_cond_broadcast(&meeting->changed) == 0);
		CHECK(pthread_mutex_unlock(&meeting->mutex) == 0);
	}
	return NULL;
}

static void meet(int protocol)
{
	struct meeting *meeting = (struct meeting *)map(sizeof *meeting);
	pthread_mutexattr_t attributes;
	CHECK(pthread_mutexattr_init(&attributes) == 0);
	CHECK(pthread_mutexattr_setprotocol(&attributes, protocol) == 0);
	CHECK(pthread_mutex_init(&meeting->mutex, &attributes) == 0);
	CHECK(pthread_cond_init(&meeting->changed, NULL) == 0);
	pthread_t thread = start_thread(play, meeting);
	pressure_start();
	for (long turn = 0; turn < 2000; turn += 2) {
		CHECK(pthread_mutex_lock(&meeting->mutex) == 0);
		while (meeting->turn != turn)
			CHECK(pthread_cond_wait(&meeting->changed, &meeting->mutex) == 0);
		meeting->turn++;
		CHECK(pthread_cond_broadcast(&meeting->changed) == 0);
		CHECK(pthread_mutex_unlock(&meeting->mutex) == 0);
		if (turn % 200 == 0) {
			struct timespec pause = {.tv_nsec = 30 * 1000 * 1000};
			nanosleep(&pause, NULL);
		}
	}
	join_thread(thread);
	pressure_stop();
	CHECK(meeting->turn == 2000);
}

/* Locks and condition variables, futexes in the kernel's eyes, on pages that are far. */
static void locks_evicted(void)
{
	meet(PTHREAD_PRIO_NONE);
}

static void priority_locks_evicted(void)
{
	meet(PTHREAD_PRIO_INHERIT);
}

static void *hold_and_die(void *argument)
{
	pthread_mutex_t *mutex = argument;
	CHECK(pthread_mutex_lock(mutex) == 0);
	struct timespec pause = {.tv_nsec = 200 * 1000 * 1000};
	nanosleep(&pause, NULL);
	return NULL;
}

/* A robust lock whose holder dies: the kernel walks the dead thread's list, which is far. */
static void robust_lock_evicted(void)
{
	for (int round = 0; round < 3; round++) {
		pthread_mutex_t *mutex = (pthread_mutex_t *)map(PAGE);
		pthread_mutexattr_t attributes;
		CHECK(pthread_mutexattr_init(&attributes) == 0);
		CHECK(pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST) == 0);
		CHECK(pthread_mutex_init(mutex, &attributes) == 0);
		pthread_t thread = start_thread(hold_and_die, mutex);
		squeeze();
		squeeze();
		join_thread(thread);
		CHECK(pthread_mutex_lock(mutex) == EOWNERDEAD);
		CHECK(pthread_mutex_consistent(mutex) == 0);
		CHECK(pthread_mutex_unlock(mutex) == 0);
	}
}

static __thread unsigned char own[64 * 4096];
static sem_t go_on, ready;

static void *use_own_storage(void *argument)
{
	uint64_t seed = (uintptr_t)argument;
	verify_zero(own, sizeof own);
	fill(own, sizeof own, seed);
	sem_post(&ready);
	while (sem_wait(&go_on) != 0)
		CHECK(errno == EINTR);
	verify(own, sizeof own, seed);
	return NULL;
}

static void thread_local_storage(void)
{
	CHECK(sem_init(&go_on, 0, 0) == 0 && sem_init(&ready, 0, 0) == 0);
	pthread_t threads[6];
	fill(own, sizeof own, 699);
	for (uintptr_t number = 0; number < 6; number++)
		threads[number] = start_thread(use_own_storage, (void *)(700 + number));
	for (int number = 0; number < 6; number++)
		while (sem_wait(&ready) != 0)
			CHECK(errno == EINTR);
	squeeze();
	for (int number = 0; number < 6; number++)
		sem_post(&go_on);
	for (size_t number = 0; number < 6; number++)
		join_thread(threads[number]);
	verify(own, sizeof own, 699);
}

static void *verify_until_cancelled(void *unused)
{
	for (;;) {
		verify(region, REGION, 131);
		pthread_testcancel();
	}
	return unused;
}

static void cancelled_threads(void)
{
	region = map_filled(REGION, 131);
	for (int round = 0; round < 10; round++) {
		pthread_t thread = start_thread(verify_until_cancelled, NULL);
		squeeze();
		CHECK(pthread_cancel(thread) == 0);
		void *result;
		CHECK(pthread_join(thread, &result) == 0 && result == PTHREAD_CANCELED);
	}
}

static void recurse(int depth, uint64_t seed)
{
	unsigned char memory[2 * 4096];
	fill(memory, sizeof memory, seed + (uint64_t)depth);
	if (depth > 0)
		recurse(depth - 1, seed);
	else
		squeeze();
	verify(memory, sizeof memory, seed + (uint64_t)depth);
}

static void deep_recursion(void)
{
	recurse(700, 800);
	squeeze();
	recurse(700, 801);
}

static void *recurse_in_thread(void *unused)
{
	recurse(700, 802);
	return unused;
}

static void deep_recursion_in_thread(void)
{
	pthread_attr_t attributes;
	CHECK(pthread_attr_init(&attributes) == 0);
	CHECK(pthread_attr_setstacksize(&attributes, 8 * MEBIBYTE) == 0);
	for (int round = 0; round < 2; round++) {
		pthread_t thread;
		CHECK(pthread_create(&thread, &attributes, recurse_in_thread, NULL) == 0);
		join_thread(thread);
	}
}

static pthread_t first_thread;

static void *go_on_alone(void *unused)
{
	join_thread(first_thread);
	for (int round = 0; round < 3; round++) {
		squeeze();
		verify(region, REGION, 131);
	}
	puts("ok first_thread_ends");
	exit(0);
	return unused;
}

/* The first thread ends, and with it what the kernel shows as the process's own state; the others go on. */
static void first_thread_ends(void)
{
	region = map_filled(REGION, 131);
	squeeze();
	first_thread = pthread_self();
	start_thread(go_on_alone, NULL);
	pthread_exit(NULL);
}

static int is_resident(const void *memory)
{
	uint64_t entry;
	int pagemap = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
	CHECK(pagemap >= 0);
	CHECK(pread(pagemap, &entry, 8, (off_t)((uintptr_t)memory / PAGE * 8)) == 8);
	close(pagemap);
	return entry >> 63;
}

static void *squeeze_and_look(void *area)
{
	for (int round = 0; round < 4; round++) {
		squeeze();
		CHECK(is_resident(area));
	}
	return NULL;
}

/* The kernel writes a thread's restartable-sequence area when it goes on after an interruption, and ends the program where
   it can't. The first thread's may lie on another page than what else the kernel writes for it. */
static void restartable_sequences_stay(void)
{
	CHECK(__rseq_size > 0);
	char *area = (char *)__builtin_thread_pointer() + __rseq_offset;
	/* Small mappings stay anyway; with a neighbour this one is large. */
	unsigned long start, end;
	char line[256];
	FILE *maps = fopen("/proc/self/maps", "r");
	CHECK(maps);
	do
		CHECK(fgets(line, sizeof line, maps) && sscanf(line, "%lx-%lx", &start, &end) == 2);
	while ((uintptr_t)area < start || (uintptr_t)area >= end);
	fclose(maps);
	size_t bytes = 64 * PAGE;
	for (uintptr_t address = start - bytes; address <= end; address += end - start + bytes) {
		void *neighbour = mmap((void *)address, bytes, PROT_READ | PROT_WRITE,
				       MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
		if (neighbour != MAP_FAILED)
			fill(neighbour, bytes, 132);
	}
	/* This thread sleeps, and touches nothing. */
	join_thread(start_thread(squeeze_and_look, area));
}

const struct check thread_checks[] = {
	{"threads_fault_same_pages", threads_fault_same_pages},
	{"threads_write_same_pages", threads_write_same_pages},
	{"threads_touch_cold_pages", threads_touch_cold_pages},
	{"thousands_of_threads", thousands_of_threads},
	{"detached_threads", detached_threads},
	{"thread_stacks_evicted", thread_stacks_evicted},
	{"join_after_eviction", join_after_eviction},
	{"thread_ends_while_far", thread_ends_while_far},
	{"locks_evicted", locks_evicted},
	{"priority_locks_evicted", priority_locks_evicted},
	{"robust_lock_evicted", robust_lock_evicted},
	{"thread_local_storage", thread_local_storage},
	{"cancelled_threads", cancelled_threads},
	{"deep_recursion", deep_recursion},
	{"deep_recursion_in_thread", deep_recursion_in_thread},
	{"first_thread_ends", first_thread_ends},
	{"restartable_sequences_stay", restartable_sequences_stay},
	{0},
};
