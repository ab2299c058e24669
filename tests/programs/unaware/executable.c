// Memory that the program may both write and run, as programs have that make code while they run.
#define _GNU_SOURCE
#include <sys/wait.h>
#include <unistd.h>

#include "../memory.h"
#include "checks.h"

// Budgets are smaller than either part.
enum { RUN = 32 * MIB, MAKES = 6 };

struct code {
	unsigned char *start;
	size_t pages;
	uint32_t generation;
};

static struct code fresh_code(size_t bytes)
{
	void *start = mmap(NULL, bytes, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (start == MAP_FAILED)
		end("mmap");
	return (struct code){start, bytes / PAGE, 0};
}

static uint32_t returned(uint32_t generation, size_t page)
{
	return (uint32_t)(page * 0x9e3779b1 + generation * 0x85ebca6b);
}

// A function at the beginning of a page and one that crosses into the next page, which both return a number.
static void make(struct code code, size_t page)
{
	uint32_t number = returned(code.generation, page);
	unsigned char function[] = {0xb8, number, number >> 8, number >> 16, number >> 24, 0xc3};
	memcpy(code.start + page * PAGE, function, sizeof function);
	if (page + 1 < code.pages) {
		unsigned char crossing[] = {0xb8, ~number, ~number >> 8, ~number >> 16, ~number >> 24, 0xeb, 0};
		memcpy(code.start + (page + 1) * PAGE - 7, crossing, sizeof crossing);
	}
}

static size_t wrong_functions(struct code code, size_t step)
{
	size_t wrong = 0;
	for (size_t nth = 0, page = 0; nth < code.pages; nth++, page = (page + step) % code.pages) {
		uint32_t number = returned(code.generation, page);
		wrong += ((uint32_t(*)(void))(code.start + page * PAGE))() != number;
		// What it crosses to is the next page's first function.
		if (page + 1 < code.pages)
			wrong += ((uint32_t(*)(void))(code.start + (page + 1) * PAGE - 7))() != returned(code.generation, page + 1);
	}
	return wrong;
}

static int runs_what_it_writes(void)
{
	// It has such memory when its pager comes.
	struct code code = fresh_code(RUN);
	struct memory data = fresh(24);
	size_t wrong = 0;
	for (uint32_t round = 0; round < MAKES; round++) {
		code.generation = round;
		for (size_t page = code.pages; page-- > 0;)
			make(code, page);
		wrong += wrong_pages(data) + wrong_functions(code, 1) + wrong_functions(code, 37);
		int status = 0;
		pid_t child = fork();
		if (child == 0) {
			size_t wrong_there = wrong_functions(code, 101);
			code.generation = round + 100;
			for (size_t page = code.pages; page-- > 0;)
				make(code, page);
			_exit(wrong_there + wrong_functions(code, 1) + wrong_pages(data) != 0);
		}
		if (child < 0 || waitpid(child, &status, 0) != child)
			end("a child");
		wrong += (status != 0) + wrong_functions(code, 53);
		// Neighbours of different protection.
		if (mprotect(code.start + (round + 1) * 2 * MIB, MIB, PROT_READ | PROT_WRITE) != 0)
			end("mprotect");
		wrong += wrong_pages(data);
		if (mprotect(code.start + (round + 1) * 2 * MIB, MIB, PROT_READ | PROT_WRITE | PROT_EXEC) != 0)
			end("mprotect");
	}
	return report("runs what it writes", wrong);
}

// Its pager has come before there is such memory, which stays local.
static int runs_what_it_writes_late(void)
{
	struct memory data = fresh(24);
	size_t wrong = press_until_far(data, 1);
	struct code code = fresh_code(8 * MIB);
	for (uint32_t round = 0; round < 3; round++) {
		code.generation = round;
		for (size_t page = code.pages; page-- > 0;)
			make(code, page);
		wrong += press(data, 0.3) + wrong_functions(code, 37);
	}
	return report("runs what it writes late", wrong);
}

const struct check executable_checks[] = {
	{"runs_what_it_writes", runs_what_it_writes},
	{"runs_what_it_writes_late", runs_what_it_writes_late},
	{NULL, NULL},
};
