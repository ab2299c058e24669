// Threads that are busy all the time, each with memory of its own, and note the longest time for which they stood still: `busy BOARD THREADS MEBIBYTES`. They
// end with the process that has started them.
//
// More threads than processors take turns, and waiting for a turn is no standstill: the kernel says how long a thread has waited so, and that is taken off.
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include "memory.h"

enum { MOST_THREADS = 64 };

// All in nanoseconds. The figures are those of the window that stands there.
struct slot {
	_Atomic uint64_t window, stood, gap, spare;
};

static struct board {
	_Atomic uint64_t window;
	struct slot slots[MOST_THREADS];
} *board;

static size_t bytes_each;

static uint64_t now(void)
{
	struct timespec time;
	clock_gettime(CLOCK_MONOTONIC, &time);
	return (uint64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

static uint64_t waited(int file)
{
	char text[128];
	ssize_t length = pread(file, text, sizeof text - 1, 0);
	if (length <= 0)
		fail("schedstat");
	text[length] = 0;
	return strtoull(strchr(text, ' '), NULL, 10);
}

struct instant {
	uint64_t at, waited;
};

// The clock, and what had been waited at that very moment.
static struct instant instant(int file)
{
	for (;;) {
		struct instant moment = {.waited = waited(file)};
		moment.at = now();
		if (waited(file) == moment.waited)
			return moment;
	}
}

static void note(_Atomic uint64_t *largest, uint64_t value)
{
	if (value > atomic_load_explicit(largest, memory_order_relaxed))
		atomic_store_explicit(largest, value, memory_order_relaxed);
}

static void *works(void *argument)
{
	size_t own = (size_t)argument, at = 0;
	struct slot *slot = &board->slots[own];
	uint64_t *words = memory(bytes_each);
	fill(words, bytes_each, own + 1);
	int file = open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC);
	if (file < 0)
		fail("schedstat");
	struct instant last = instant(file);
	for (;;) {
		for (size_t nth = 0; nth < 4 * PAGE_BYTES / sizeof *words; nth += 8, at += 8)
			words[at % (bytes_each / sizeof *words)] += 1;
		struct instant next = instant(file);
		uint64_t gap = next.at - last.at, turn = next.waited - last.waited;
		uint64_t window = atomic_load(&board->window);
		if (window != atomic_load(&slot->window)) {
			atomic_store(&slot->stood, 0);
			atomic_store(&slot->gap, 0);
			atomic_store(&slot->window, window);
		} else {
			note(&slot->gap, gap);
			note(&slot->stood, gap > turn ? gap - turn : 0);
		}
		last = next;
	}
	return NULL;
}

int main(int count, char **words)
{
	if (count != 4)
		return 2;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	int file = open(words[1], O_RDWR | O_CLOEXEC);
	size_t threads = (size_t)atoi(words[2]);
	if (threads < 1 || threads > MOST_THREADS)
		return 2;
	if (file < 0 || ftruncate(file, sizeof *board) != 0)
		fail(words[1]);
	bytes_each = (size_t)atoi(words[3]) * MIB / threads;
	board = mmap(NULL, sizeof *board, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	if (board == MAP_FAILED)
		fail("mmap");
	pthread_t others[MOST_THREADS];
	for (size_t nth = 1; nth < threads; nth++)
		if (pthread_create(&others[nth], NULL, works, (void *)nth) != 0)
			fail("pthread_create");
	works((void *)0);
}
