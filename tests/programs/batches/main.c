/* Reads pages at random, in batches that are known ahead: batches DATA_MIB BATCHES none|prefetch|populate PASSES

   `prefetch` calls for the next batch with farmem.h before it reads this one, `populate` with madvise; each page is read PASSES times. What was
   read goes to standard output, the time to standard error. */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "../../../include/farmem.h"

#define PAGE_BYTES 4096
#define BATCH_PAGES 64
#define MOST_BATCHES 10000

static uint64_t state = 88172645463325252ULL;
static uint64_t *data;
static size_t pages, wanted[MOST_BATCHES * BATCH_PAGES];

static uint64_t next(void)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return state;
}

static double now_us(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1e6 + now.tv_nsec / 1e3;
}

static void *page_at(size_t page)
{
	return data + page * (PAGE_BYTES / 8);
}

static uint64_t read_page(size_t page, int passes)
{
	const uint64_t *words = page_at(page);
	uint64_t sum = page;
	for (int pass = 0; pass < passes; pass++)
		for (size_t word = 0; word < PAGE_BYTES / 8; word++)
			sum = sum * 31 + words[word];
	return sum;
}

static void call_for(const char *how, const size_t *batch)
{
	for (size_t each = 0; each < BATCH_PAGES; each++) {
		if (strcmp(how, "prefetch") == 0)
			farmem_prefetch(page_at(batch[each]), PAGE_BYTES);
		else if (strcmp(how, "populate") == 0)
			madvise(page_at(batch[each]), PAGE_BYTES, MADV_POPULATE_READ);
	}
}

int main(int count, char **arguments)
{
	if (count != 5)
		return 2;
	size_t bytes = strtoul(arguments[1], NULL, 10) << 20;
	size_t batches = strtoul(arguments[2], NULL, 10);
	const char *how = arguments[3];
	int passes = atoi(arguments[4]);
	if (bytes == 0 || batches > MOST_BATCHES)
		return 2;
	/* So that a pager finds what it says from the beginning. */
	farmem_is_present();
	pages = bytes / PAGE_BYTES;
	data = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (data == MAP_FAILED)
		return 1;
	/* Half of it compresses. */
	for (size_t word = 0; word < bytes / 8; word++)
		data[word] = word & 1 ? 7 : next();
	for (int look = 0; look < 5000 && getenv("HINTS_HAVE_A_PAGER") && !farmem_is_present(); look++)
		usleep(1000);
	uint64_t sum = 0;
	/* As many as are local at a quarter: from then on it is as it stays. */
	for (size_t each = 0; each < pages / 4; each++)
		sum += read_page(next() % pages, 1);
	for (size_t each = 0; each < batches * BATCH_PAGES; each++)
		wanted[each] = next() % pages;
	double began_us = now_us();
	if (batches > 0)
		call_for(how, wanted);
	for (size_t batch = 0; batch < batches; batch++) {
		if (batch + 1 < batches)
			call_for(how, wanted + (batch + 1) * BATCH_PAGES);
		for (size_t each = 0; each < BATCH_PAGES; each++)
			sum += read_page(wanted[batch * BATCH_PAGES + each], passes);
	}
	double took_us = now_us() - began_us;
	printf("%016llx\n", (unsigned long long)sum);
	fprintf(stderr, "%s: %.2f us for each page\n", how, took_us / (batches * BATCH_PAGES));
	return 0;
}
