// Memory with content that compresses to about a half, as that of most programs does.
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

enum { PAGE_BYTES = 4096, MIB = 1 << 20 };

static void fail(const char *what)
{
	perror(what);
	exit(1);
}

static void fill(uint64_t *words, size_t bytes, uint64_t seed)
{
	uint64_t state = seed * 0x9e3779b97f4a7c15 + 1;
	for (size_t at = 0; at < bytes / sizeof *words; at++) {
		state = state * 6364136223846793005 + 1442695040888963407;
		words[at] = state >> 32;
	}
}

static uint64_t *memory(size_t bytes)
{
	uint64_t *words = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (words == MAP_FAILED)
		fail("mmap");
	return words;
}
