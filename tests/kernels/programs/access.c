/* Threads that access pages at random, and check every byte of each.

   access MEBIBYTES THREADS WRITES-PERCENT ACCESSES [ADDRESS]

   Each thread has pages of its own, scattered among those of the others. It begins when a quarter of them is no longer resident, at most a minute after they
   were written: emulated, a pager needs longer to come than the program to be done. With 0 accesses it does not wait. Prints the time of an access, all threads together, in microseconds, then
   `ok` when all was as it was written. With an address the memory lies there: one above 2^47 exists with page tables of five levels only. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { PAGE = 4096, WORDS = PAGE / 8, MOST_THREADS = 16 };

static uint64_t *memory;
/* How often each page was written. It stays far smaller than the data. */
static uint32_t *versions;
static size_t pages, threads, accesses;
static unsigned writes_percent;

static uint64_t mixed(uint64_t value)
{
	value = (value ^ value >> 30) * 0xbf58476d1ce4e5b9ULL;
	value = (value ^ value >> 27) * 0x94d049bb133111ebULL;
	return value ^ value >> 31;
}

/* Every second word is small, so that pages compress to about half. */
static uint64_t word_of(uint64_t seed, size_t index)
{
	uint64_t word = (seed + index) * 0x9e3779b97f4a7c15ULL;
	return index & 1 ? word & 0xff : word ^ word >> 29;
}

static uint64_t seed_of(size_t page) { return mixed(page << 32 | versions[page]); }

static void fill(size_t page)
{
	uint64_t seed = seed_of(page);
	for (size_t index = 0; index < WORDS; index++)
		memory[page * WORDS + index] = word_of(seed, index);
}

static void check(size_t page)
{
	uint64_t seed = seed_of(page);
	for (size_t index = 0; index < WORDS; index++) {
		uint64_t found = memory[page * WORDS + index];
		if (found != word_of(seed, index)) {
			printf("page %zu, word %zu: %llx, not %llx\n", page, index, (unsigned long long)found,
			       (unsigned long long)word_of(seed, index));
			exit(1);
		}
	}
}

static void *fill_all(void *argument)
{
	for (size_t page = (size_t)argument; page < pages; page += threads)
		fill(page);
	return NULL;
}

static void *check_all(void *argument)
{
	for (size_t page = (size_t)argument; page < pages; page += threads)
		check(page);
	return NULL;
}

static void *access_at_random(void *argument)
{
	size_t number = (size_t)argument;
	uint64_t state = number;
	for (size_t done = 0; done < accesses / threads; done++) {
		state += 0x9e3779b97f4a7c15ULL;
		uint64_t chance = mixed(state);
		size_t page = (chance >> 8) % (pages / threads) * threads + number;
		check(page);
		if ((chance & 0xff) * 100 < writes_percent * 256) {
			versions[page]++;
			fill(page);
		}
	}
	return NULL;
}

static void in_threads(void *(*work)(void *))
{
	pthread_t started[MOST_THREADS];
	for (size_t number = 0; number < threads; number++)
		if (pthread_create(&started[number], NULL, work, (void *)number) != 0) {
			puts("a thread can't be started");
			exit(1);
		}
	for (size_t number = 0; number < threads; number++)
		pthread_join(started[number], NULL);
}

static void wait_for_pager(void)
{
	for (int tried = 0; tried < 600; tried++) {
		size_t resident = 0;
		FILE *file = fopen("/proc/self/statm", "r");
		if (file == NULL || fscanf(file, "%*u %zu", &resident) != 1)
			exit(1);
		fclose(file);
		if (resident < pages / 4 * 3)
			return;
		usleep(100000);
	}
}

static double now_us(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

int main(int count, char **arguments)
{
	if (count < 5) {
		fputs("usage: access MEBIBYTES THREADS WRITES-PERCENT ACCESSES [ADDRESS]\n", stderr);
		return 2;
	}
	size_t bytes = strtoul(arguments[1], NULL, 10) << 20;
	pages = bytes / PAGE;
	threads = strtoul(arguments[2], NULL, 10);
	writes_percent = (unsigned)strtoul(arguments[3], NULL, 10);
	accesses = strtoul(arguments[4], NULL, 10);
	if (threads < 1 || threads > MOST_THREADS || pages < threads) {
		fputs("access: from 1 to 16 threads, and a MiB at least\n", stderr);
		return 2;
	}
	void *wanted = count > 5 ? (void *)strtoul(arguments[5], NULL, 0) : NULL;
	memory = mmap(wanted, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	versions = calloc(pages, sizeof *versions);
	if (memory == MAP_FAILED || versions == NULL || (wanted != NULL && (void *)memory != wanted)) {
		puts("there is no memory where it is wanted");
		return 1;
	}
	in_threads(fill_all);
	if (accesses > 0)
		wait_for_pager();
	double begun = now_us();
	in_threads(access_at_random);
	printf("%.2f us an access\n", (now_us() - begun) / (double)(accesses > 0 ? accesses : 1));
	in_threads(check_all);
	puts("ok");
	return 0;
}
