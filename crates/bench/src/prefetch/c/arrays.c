/*
 * Four threads on one large array: arrays parts|columns|references BYTES. Each reads a part of its own in order; or columns of a matrix that is stored by rows;
 * or a part of an array of references, and what they refer to, which lies in memory in another order.
 */
#include <pthread.h>
#include <string.h>

#include "measured.h"

enum {
	THREADS = 4,
	PASSES = 3,
	/* A row of the matrix: farther than neighbours of a pattern are by address. */
	ROW_BYTES = 100 * 4096,
	PAGE_BYTES = 4096,
};

struct item {
	uint64_t value;
	char rest[56];
};

static const char *mode;
static uint64_t bytes;
static char *array;
static struct item **references;
static uint64_t items;

static uint64_t parts(uint64_t thread)
{
	uint64_t sum = 0, words = bytes / sizeof(uint64_t) / THREADS;
	const uint64_t *part = (const uint64_t *)array + thread * words;
	for (int pass = 0; pass < PASSES; pass++)
		for (uint64_t each = 0; each < words; each++)
			sum += part[each];
	return sum;
}

/* Of each page one word: what a column has of it. */
static uint64_t columns(uint64_t thread)
{
	uint64_t sum = 0, rows = bytes / ROW_BYTES;
	for (uint64_t column = thread; column < ROW_BYTES / PAGE_BYTES; column += THREADS)
		for (uint64_t row = 0; row < rows; row++)
			sum += *(const uint64_t *)(array + row * ROW_BYTES + column * PAGE_BYTES);
	return sum;
}

static uint64_t referred(uint64_t thread)
{
	uint64_t sum = 0, each = items / THREADS;
	for (uint64_t at = thread * each; at < thread * each + each / 8; at++)
		sum += references[at]->value;
	return sum;
}

static void *run(void *argument)
{
	uint64_t *sum = argument, thread = *sum;
	*sum = strcmp(mode, "parts") == 0 ? parts(thread) : strcmp(mode, "columns") == 0 ? columns(thread) : referred(thread);
	return NULL;
}

int main(int count, char **arguments)
{
	mode = count > 1 ? arguments[1] : "parts";
	bytes = count > 2 ? strtoull(arguments[2], NULL, 10) : 1 << 24;
	array = obtain(1, bytes);
	items = power_below(bytes / sizeof(struct item));
	if (strcmp(mode, "references") == 0) {
		references = obtain(items, sizeof *references);
		for (uint64_t each = 0; each < items; each++)
			references[each] = &((struct item *)array)[permuted(each, items)];
	}
	for (uint64_t each = 0; each < bytes / sizeof(struct item); each++)
		((struct item *)array)[each].value = scattered(each) & 0xffffff;

	double began = now();
	pthread_t threads[THREADS];
	uint64_t sums[THREADS], sum = 0;
	for (uint64_t thread = 0; thread < THREADS; thread++) {
		sums[thread] = thread;
		if (pthread_create(&threads[thread], NULL, run, &sums[thread]) != 0) {
			fputs("no thread can be made\n", stderr);
			return 1;
		}
	}
	for (int thread = 0; thread < THREADS; thread++) {
		pthread_join(threads[thread], NULL);
		sum += sums[thread];
	}
	tell("sum", sum, began);
	return 0;
}
