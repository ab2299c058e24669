/* Fills memory, and looks whether each byte is there: pages MEBIBYTES ROUNDS

   Half of each page can be compressed. Every round looks at all pages in another order, and changes a third of them. Says "filled" and "round N" on
   standard output; ends with 1 at the first byte that is not what was written. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#define PAGE_WORDS 512

static uint64_t mixed(uint64_t word)
{
	word = (word ^ (word >> 30)) * 0xbf58476d1ce4e5b9ULL;
	word = (word ^ (word >> 27)) * 0x94d049bb133111ebULL;
	return word ^ (word >> 31);
}

static uint64_t word_of(uint64_t page, uint64_t version, unsigned at)
{
	return at % 2 ? page : mixed(page * PAGE_WORDS + at + (version << 48));
}

static void fill(uint64_t *data, uint64_t page, uint64_t version)
{
	for (unsigned at = 0; at < PAGE_WORDS; at++)
		data[page * PAGE_WORDS + at] = word_of(page, version, at);
}

int main(int count, char **words)
{
	if (count != 3) {
		fprintf(stderr, "usage: pages MEBIBYTES ROUNDS\n");
		return 2;
	}
	uint64_t pages = strtoull(words[1], NULL, 10) << 8, rounds = strtoull(words[2], NULL, 10);
	uint64_t *data = mmap(NULL, pages << 12, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	uint64_t *version = calloc(pages, sizeof *version);
	if (data == MAP_FAILED || !version)
		return 2;
	for (uint64_t page = 0; page < pages; page++)
		fill(data, page, 0);
	printf("filled\n");
	fflush(stdout);
	for (uint64_t round = 1; round <= rounds; round++) {
		for (uint64_t nth = 0; nth < pages; nth++) {
			/* Odd, so that each page has its turn where their number is a power of two. */
			uint64_t page = (nth * (2 * mixed(round) + 1)) % pages;
			for (unsigned at = 0; at < PAGE_WORDS; at++) {
				if (data[page * PAGE_WORDS + at] != word_of(page, version[page], at)) {
					printf("page %llu is wrong at word %u\n", (unsigned long long)page, at);
					return 1;
				}
			}
			if (page % 3 == round % 3)
				fill(data, page, ++version[page]);
		}
		printf("round %llu\n", (unsigned long long)round);
		fflush(stdout);
	}
	return 0;
}
