/* What the programs of this folder have in common: numbers that are the same in every run, and what a run tells. */
#ifndef MEASURED_H
#define MEASURED_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

/* Numbers without an order, the same every time (SplitMix64). */
static inline uint64_t scattered(uint64_t number)
{
	number += 0x9e3779b97f4a7c15;
	number = (number ^ number >> 30) * 0xbf58476d1ce4e5b9;
	number = (number ^ number >> 27) * 0x94d049bb133111eb;
	return number ^ number >> 31;
}

/* All numbers below a power of two, each once, in another order. */
static inline uint64_t permuted(uint64_t number, uint64_t power_of_two)
{
	return (number * 0x5851f42d4c957f2d + 0x14057b7ef767814f) & (power_of_two - 1);
}

/* The largest power of two that isn't larger. */
static inline uint64_t power_below(uint64_t number)
{
	uint64_t power = 1;
	while (power <= number / 2)
		power *= 2;
	return power;
}

static inline void *obtain(size_t count, size_t bytes)
{
	void *memory = calloc(count, bytes);
	if (memory == NULL) {
		fputs("there is no memory\n", stderr);
		exit(1);
	}
	return memory;
}

static inline double now(void)
{
	struct timespec time;
	clock_gettime(CLOCK_MONOTONIC, &time);
	return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

/* What was found, and on a last line how long it took since `began`. */
static inline void tell(const char *what, uint64_t found, double began)
{
	printf("%s %llu\nseconds %.6f\n", what, (unsigned long long)found, now() - began);
}

#endif
