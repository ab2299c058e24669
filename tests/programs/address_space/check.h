/* What all the checks share: patterns for memory, and pressure that drives everything else out of a small budget. */
#ifndef CHECK_H
#define CHECK_H

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGE ((size_t)4096)
#define MEBIBYTE ((size_t)1 << 20)

/* Ends the process with status 1 and a sentence on standard error when the condition does not hold. */
#define CHECK(condition)                                                                                             \
	do {                                                                                                         \
		if (!(condition))                                                                                    \
			fail(__FILE__, __LINE__, #condition);                                                        \
	} while (0)

_Noreturn void fail(const char *file, int line, const char *condition);

/* Says on standard error that the machine can't do something, so that the check is without effect here. */
void skip(const char *reason);

/* Private anonymous memory, zeroed. */
unsigned char *map(size_t bytes);
void unmap(void *memory, size_t bytes);

/* Writes every byte; what is written depends on the seed and the offset alone. About half of it compresses. */
void fill(void *memory, size_t bytes, uint64_t seed);
/* Reads every byte back. `from` is the offset at which `memory` lay when it was filled. */
void verify_from(const void *memory, size_t bytes, uint64_t seed, size_t from);
void verify(const void *memory, size_t bytes, uint64_t seed);
void verify_zero(const void *memory, size_t bytes);
int is_zero(const void *memory, size_t bytes);

/* A new mapping, filled. */
unsigned char *map_filled(size_t bytes, uint64_t seed);

/* How much memory makes the pressure. */
extern size_t arena_bytes;

/* One pass over more memory than the budget, verified and rewritten: whatever else was resident is cold afterwards.
   Only one thread of a process may be in it. */
void squeeze(void);
/* Forgets what an interrupted pass left, for the child of a process whose pressure thread was in the middle of one. */
void squeeze_afresh(void);

/* A thread that squeezes all the time; nobody else may then. */
void pressure_start(void);
void pressure_stop(void);

/* Waits for a child, which must exit with the status. */
void expect_exit(pid_t child, int status);
pthread_t start_thread(void *(*run)(void *), void *argument);
void join_thread(pthread_t thread);

struct check {
	const char *name;
	void (*run)(void);
};

extern const struct check mapping_checks[], process_checks[], kept_checks[], thread_checks[], call_checks[], signal_checks[],
	hint_checks[], presence_checks[];

#endif
