// A program that runs before anybody manages it. Linked statically.
//
//   resident FOLDER MEBIBYTES HOT CHILDREN [alone]
//
// It and its children have so many mebibytes each, in four threads, which check every word of the first HOT hundredths of it again and again, and write them anew.
// It makes FOLDER/ready when it has its memory. When there is a FOLDER/end all of it is checked once more, and FOLDER/result says how many words were wrong. With `alone` its first thread ends at the beginning.

#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <signal.h>
#include <unistd.h>

enum { PAGE = 4096, WORDS = PAGE / 8, MIB = 1 << 20, THREADS = 4 };

static uint64_t *words;
static size_t pages, hot;
static uint32_t *generations;
static char ending[4096];
static _Atomic size_t wrong;

static uint64_t word(size_t page, size_t nth)
{
	return (page * 0x9e3779b97f4a7c15 + nth) * (generations[page] + 1ull);
}

static void fill(size_t page)
{
	for (size_t nth = 0; nth < WORDS; nth++)
		words[page * WORDS + nth] = word(page, nth);
}

static void check(size_t page)
{
	for (size_t nth = 0; nth < WORDS; nth++)
		if (words[page * WORDS + nth] != word(page, nth))
			wrong++;
}

static int is_over(void)
{
	return access(ending, F_OK) == 0;
}

static void *work(void *argument)
{
	size_t own = (size_t)argument;
	for (size_t round = 0; !is_over(); round++) {
		for (size_t page = own; page < hot; page += THREADS) {
			check(page);
			if (round % 3 == 0) {
				generations[page]++;
				fill(page);
			}
		}
		usleep(1000);
	}
	for (size_t page = own; page < pages; page += THREADS)
		check(page);
	return NULL;
}

static void *memory(size_t bytes)
{
	void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (at == MAP_FAILED)
		exit(3);
	return at;
}

static pthread_t threads[THREADS];

static void begin(void)
{
	for (size_t nth = 0; nth < THREADS; nth++)
		if (pthread_create(&threads[nth], NULL, work, (void *)nth))
			exit(4);
}

static size_t join(void)
{
	for (size_t nth = 0; nth < THREADS; nth++)
		pthread_join(threads[nth], NULL);
	return wrong;
}

static void say(const char *folder, const char *name, size_t number)
{
	char path[4200], last[4200];
	snprintf(path, sizeof path, "%s/.%s", folder, name);
	snprintf(last, sizeof last, "%s/%s", folder, name);
	FILE *file = fopen(path, "w");
	if (!file)
		exit(5);
	fprintf(file, "%zu\n", number);
	fclose(file);
	rename(path, last);
}

static int run(char **arguments)
{
	const char *folder = arguments[1];
	snprintf(ending, sizeof ending, "%s/end", folder);
	pages = strtoul(arguments[2], NULL, 10) * MIB / PAGE;
	hot = pages * strtoul(arguments[3], NULL, 10) / 100;
	size_t children = strtoul(arguments[4], NULL, 10);
	words = memory(pages * PAGE);
	generations = memory(pages * sizeof *generations);
	for (size_t page = 0; page < pages; page++)
		fill(page);
	for (size_t nth = 0; nth < children; nth++)
		if (fork() == 0) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			// What it has is its own from here on.
			for (size_t page = 0; page < pages; page++)
				fill(page);
			begin();
			_exit(join() != 0);
		}
	begin();
	say(folder, "ready", (size_t)getpid());
	size_t bad = join();
	for (size_t nth = 0; nth < children; nth++) {
		int status = 0;
		wait(&status);
		bad += status != 0;
	}
	say(folder, "result", bad);
	return bad != 0;
}

static void *run_alone(void *arguments)
{
	exit(run(arguments));
}

int main(int count, char **arguments)
{
	pthread_t thread;
	if (count == 5)
		return run(arguments);
	if (count != 6 || strcmp(arguments[5], "alone") || pthread_create(&thread, NULL, run_alone, arguments))
		return 2;
	pthread_exit(NULL);
}
