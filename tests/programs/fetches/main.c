/* Threads that read far pages at random, next to one that maps, touches and unmaps memory of its own, and touches some that it has had from the
   beginning, which faults: fetches MIB THREADS FOLDER

   Fills MIB of memory, makes `FOLDER/ready`, and begins to read when there is `FOLDER/go`. For each file `FOLDER/step-N`, N from 1, the thread with
   memory of its own takes STEPS steps more, and `FOLDER/taken-N` is made. With `FOLDER/end` all ends; every page that was read, and all of them at
   the end, must hold what was written. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGE_WORDS 512
#define PAGE_BYTES 4096
#define OWN_BYTES (16 * PAGE_BYTES)
#define FRESH_BYTES (1024 * PAGE_BYTES)
#define STEPS 50
#define MOST_THREADS 1024

static uint64_t *data;
static char *fresh;
static size_t pages;
static atomic_bool ends;
static atomic_long wrong, steps;
static const char *folder;

static uint64_t content(size_t word)
{
	uint64_t value = word * 0x9e3779b97f4a7c15ULL + 1;
	value ^= value >> 29;
	return value * 0xbf58476d1ce4e5b9ULL;
}

static void *read_at_random(void *number)
{
	uint64_t state = (uintptr_t)number * 7919 + 88172645463325252ULL;
	while (!ends) {
		state ^= state << 13;
		state ^= state >> 7;
		state ^= state << 17;
		size_t word = (state % pages) * PAGE_WORDS + (state >> 40) % PAGE_WORDS;
		if (data[word] != content(word))
			wrong++;
	}
	return NULL;
}

static void *use_own(void *nothing)
{
	(void)nothing;
	size_t next = 0;
	while (!ends) {
		if (fresh[next])
			wrong++;
		fresh[next] = 1;
		next += PAGE_BYTES;
		if (next == FRESH_BYTES) {
			madvise(fresh, FRESH_BYTES, MADV_DONTNEED);
			next = 0;
		}
		char *own = mmap(NULL, OWN_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (own == MAP_FAILED)
			continue;
		for (size_t at = 0; at < OWN_BYTES; at += PAGE_BYTES) {
			if (own[at])
				wrong++;
			own[at] = 1;
		}
		munmap(own, OWN_BYTES);
		steps++;
		usleep(200);
	}
	return NULL;
}

static int is_there(const char *kind, int number)
{
	char path[4096];
	snprintf(path, sizeof path, number ? "%s/%s-%d" : "%s/%s", folder, kind, number);
	return access(path, F_OK) == 0;
}

static void make(const char *kind, int number)
{
	char path[4096];
	snprintf(path, sizeof path, number ? "%s/%s-%d" : "%s/%s", folder, kind, number);
	FILE *file = fopen(path, "w");
	if (file)
		fclose(file);
}

int main(int count, char **arguments)
{
	if (count != 4)
		return 2;
	pages = (size_t)atoi(arguments[1]) * (1 << 20) / PAGE_BYTES;
	int threads = atoi(arguments[2]);
	folder = arguments[3];
	if (threads < 1 || threads > MOST_THREADS)
		return 2;
	data = mmap(NULL, pages * PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	fresh = mmap(NULL, FRESH_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (data == MAP_FAILED || fresh == MAP_FAILED)
		return 3;
	for (size_t word = 0; word < pages * PAGE_WORDS; word++)
		data[word] = content(word);
	make("ready", 0);
	while (!is_there("go", 0))
		usleep(1000);
	pthread_t readers[MOST_THREADS], own;
	for (int at = 0; at < threads; at++)
		if (pthread_create(&readers[at], NULL, read_at_random, (void *)(uintptr_t)(at + 1)))
			return 4;
	if (pthread_create(&own, NULL, use_own, NULL))
		return 4;
	for (int step = 1; !is_there("end", 0);) {
		if (is_there("step", step)) {
			long before = steps;
			while (steps < before + STEPS)
				usleep(200);
			make("taken", step++);
		}
		usleep(1000);
	}
	ends = 1;
	for (int at = 0; at < threads; at++)
		pthread_join(readers[at], NULL);
	pthread_join(own, NULL);
	for (size_t word = 0; word < pages * PAGE_WORDS; word++)
		if (data[word] != content(word))
			wrong++;
	printf("%zu pages, %ld words wrong\n", pages, (long)wrong);
	return wrong != 0;
}
