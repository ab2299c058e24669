// Memory whose every word tells what it should be, for programs that print what they have found.
#ifndef MEMORY_H
#define MEMORY_H

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

enum { PAGE = 4096, WORDS = PAGE / 8, MIB = 1 << 20 };

static inline void end(const char *reason)
{
	printf("%s: %s\n", reason, strerror(errno));
	exit(1);
}

struct memory {
	uint64_t *words;
	size_t pages;
	uint64_t generation;
};

static inline uint64_t word(uint64_t generation, size_t page, size_t nth)
{
	return (page * 0x9e3779b97f4a7c15 + nth) * (generation + 1);
}

static inline void fill_page(struct memory memory, size_t page, uint64_t generation)
{
	for (size_t nth = 0; nth < WORDS; nth++)
		memory.words[page * WORDS + nth] = word(generation, page, nth);
}

static inline struct memory fresh(size_t mebibytes)
{
	struct memory memory = {NULL, mebibytes * MIB / PAGE, 0};
	memory.words = mmap(NULL, mebibytes * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (memory.words == MAP_FAILED)
		end("mmap");
	for (size_t page = 0; page < memory.pages; page++)
		fill_page(memory, page, 0);
	return memory;
}

static inline void refill(struct memory *memory, uint64_t generation)
{
	for (size_t page = 0; page < memory->pages; page++)
		fill_page(*memory, page, generation);
	memory->generation = generation;
}

static inline size_t wrong_pages(struct memory memory)
{
	size_t wrong = 0;
	for (size_t page = 0; page < memory.pages; page++)
		for (size_t nth = 0; nth < WORDS; nth++)
			if (memory.words[page * WORDS + nth] != word(memory.generation, page, nth)) {
				wrong++;
				break;
			}
	return wrong;
}

// Reads all of it again and again for so long: within that time a pager comes.
static inline size_t press(struct memory memory, double seconds)
{
	struct timespec now, began;
	size_t wrong = 0;
	clock_gettime(CLOCK_MONOTONIC, &began);
	do {
		wrong += wrong_pages(memory);
		clock_gettime(CLOCK_MONOTONIC, &now);
	} while (now.tv_sec - began.tv_sec + (now.tv_nsec - began.tv_nsec) / 1e9 < seconds);
	return wrong;
}

// How many of its pages aren't in memory: natively none of what was written.
static inline size_t far_pages(struct memory memory)
{
	static unsigned char is_there[1 << 15];
	size_t far = 0;
	for (size_t from = 0; from < memory.pages; from += sizeof is_there) {
		size_t count = memory.pages - from < sizeof is_there ? memory.pages - from : sizeof is_there;
		if (mincore(memory.words + from * WORDS, count * PAGE, is_there) != 0)
			end("mincore");
		for (size_t page = 0; page < count; page++)
			far += !(is_there[page] & 1);
	}
	return far;
}

// Reads all of it until a pager has come and so much of it is far; at most for half a minute.
static inline size_t press_until_far(struct memory memory, size_t pages)
{
	size_t wrong = 0;
	time_t began = time(NULL);
	while (far_pages(memory) < pages && time(NULL) - began < 30)
		wrong += wrong_pages(memory);
	return wrong + (far_pages(memory) < pages);
}

static inline int report(const char *what, size_t wrong)
{
	printf("%s: %zu wrong\n", what, wrong);
	return wrong != 0;
}

#endif
