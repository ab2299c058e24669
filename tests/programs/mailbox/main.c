/* A static program that leaves word in its mailbox, before its pager comes and afterwards: mailbox WHAT. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "../../../include/farmem.h"

#define PAGE 4096
#define MEBIBYTE ((size_t)1 << 20)
#define REGION MEBIBYTE
#define ARENA (32 * MEBIBYTE)
#define CHECK(condition)                                                                                                       \
	do {                                                                                                                   \
		if (!(condition)) {                                                                                            \
			fprintf(stderr, "line %d: %s, errno %d\n", __LINE__, #condition, errno);                               \
			abort();                                                                                               \
		}                                                                                                              \
	} while (0)

static uint64_t *arena;
static uint64_t generation;

static void *map(size_t bytes)
{
	void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(memory != MAP_FAILED);
	return memory;
}

static void fill(uint64_t *words, size_t bytes, uint64_t seed)
{
	for (size_t at = 0; at < bytes / 8; at++)
		words[at] = (at + seed) * 0x9e3779b97f4a7c15u;
}

static void verify(const uint64_t *words, size_t bytes, uint64_t seed)
{
	for (size_t at = 0; at < bytes / 8; at++)
		CHECK(words[at] == (at + seed) * 0x9e3779b97f4a7c15u);
}

static void squeeze(void)
{
	verify(arena, ARENA, generation);
	fill(arena, ARENA, ++generation);
}

static size_t resident(const void *memory, size_t bytes)
{
	static unsigned char states[ARENA / PAGE];
	size_t count = 0;
	CHECK(mincore((void *)memory, bytes, states) == 0);
	for (size_t page = 0; page < bytes / PAGE; page++)
		count += states[page] & 1;
	return count;
}

/* The arena is more than the budget, so a pager comes. */
static void wait_for_pager(void)
{
	for (int round = 0; round < 2000 && !farmem_is_present(); round++) {
		squeeze();
		usleep(5000);
	}
	CHECK(farmem_is_present());
}

static void begin(void)
{
	arena = map(ARENA);
	fill(arena, ARENA, generation);
}

static void pin_before(void)
{
	CHECK(!farmem_is_present());
	uint64_t *pinned = map(REGION), *given_up = map(REGION);
	fill(pinned, REGION, 1);
	fill(given_up, REGION, 2);
	CHECK(farmem_pin(pinned, REGION) == 0 && farmem_pin(given_up, REGION) == 0);
	CHECK(farmem_unpin(given_up, REGION) == 0);
	CHECK(farmem_prefetch(pinned, REGION) == 0 && farmem_cold(given_up, REGION) == 0);
	begin();
	wait_for_pager();
	/* Nobody says when it has come to the pins of before. */
	for (int round = 0; round < 200 && resident(pinned, REGION) < REGION / PAGE; round++)
		squeeze();
	for (int round = 0; round < 5; round++) {
		squeeze();
		CHECK(resident(pinned, REGION) == REGION / PAGE);
	}
	for (int round = 0; round < 50 && resident(given_up, REGION) >= REGION / PAGE / 2; round++)
		squeeze();
	CHECK(resident(given_up, REGION) < REGION / PAGE / 2);
	CHECK(farmem_unpin(pinned, REGION) == 0);
	for (int round = 0; round < 50 && resident(pinned, REGION) >= REGION / PAGE / 2; round++)
		squeeze();
	CHECK(resident(pinned, REGION) < REGION / PAGE / 2);
	verify(pinned, REGION, 1);
	verify(given_up, REGION, 2);
}

static void full(void)
{
	/* Before a pager comes what doesn't fit is left out without a word; more pins than fit are refused. */
	for (int more = 0; more < 3000; more++)
		CHECK(farmem_prefetch((void *)0x10000, 10) == 0);
	for (uintptr_t pins = 0; pins < 1024; pins++)
		CHECK(farmem_pin((void *)(0x10000000 + pins * 3 * PAGE), PAGE) == 0);
	CHECK(farmem_pin((void *)0x20000000, PAGE) == EAGAIN);
	CHECK(farmem_unpin((void *)0x10000000, (size_t)1 << 30) == 0);
	CHECK(farmem_pin((void *)0x20000000, PAGE) == 0 && farmem_unpin((void *)0x20000000, PAGE) == 0);
	begin();
	wait_for_pager();
	int refused = 0;
	for (int more = 0; more < 200000 && refused < 10; more++) {
		int answer = farmem_prefetch((char *)arena + more % (ARENA / PAGE) * PAGE, PAGE);
		CHECK(answer == 0 || answer == EAGAIN);
		refused += answer == EAGAIN;
	}
	CHECK(refused == 10);
	squeeze();
	/* There is room again. */
	int answer = EAGAIN;
	for (int round = 0; round < 1000 && answer == EAGAIN; round++) {
		usleep(1000);
		answer = farmem_prefetch(arena, PAGE);
	}
	CHECK(answer == 0);
	CHECK(farmem_pin(arena, ARENA) == ENOMEM && farmem_pin((void *)-1, 1) == EINVAL && farmem_pin((void *)8, 1) == ENOMEM);
}

static void forked(void)
{
	uint64_t *pinned = map(REGION);
	fill(pinned, REGION, 3);
	CHECK(farmem_pin(pinned, REGION) == 0);
	begin();
	wait_for_pager();
	for (int round = 0; round < 3; round++) {
		pid_t child = fork();
		if (child == 0) {
			CHECK(!farmem_is_present());
			wait_for_pager();
			for (int each = 0; each < 50 && resident(pinned, REGION) >= REGION / PAGE / 2; each++)
				squeeze();
			CHECK(resident(pinned, REGION) < REGION / PAGE / 2);
			CHECK(farmem_pin(pinned, REGION) == 0);
			squeeze();
			CHECK(resident(pinned, REGION) == REGION / PAGE);
			verify(pinned, REGION, 3);
			_exit(7);
		}
		int how;
		CHECK(waitpid(child, &how, 0) == child && WIFEXITED(how) && WEXITSTATUS(how) == 7);
		CHECK(farmem_is_present());
		squeeze();
		CHECK(resident(pinned, REGION) == REGION / PAGE);
	}
}

static atomic_size_t told;

static void note(const struct farmem_fault *faults, size_t count, void *context)
{
	CHECK(context == &told);
	for (size_t each = 0; each < count; each++)
		CHECK(faults[each].thread != (unsigned)syscall(SYS_gettid) && faults[each].is_write <= 1);
	told += count;
}

static void prefetcher(void)
{
	CHECK(farmem_register_prefetcher(note, &told, 101) == EINVAL);
	CHECK(farmem_register_prefetcher(note, &told, 50) == 0);
	CHECK(farmem_register_prefetcher(note, &told, 50) == EBUSY);
	begin();
	wait_for_pager();
	for (int round = 0; round < 100 && told == 0; round++)
		squeeze();
	CHECK(told > 0);
	CHECK(farmem_register_prefetcher(NULL, NULL, 0) == 0);
	size_t before = told;
	squeeze();
	CHECK(told == before);
	CHECK(farmem_register_prefetcher(note, &told, 0) == 0 && farmem_register_prefetcher(NULL, NULL, 0) == 0);
}

static atomic_int is_over;

/* Writes whatever it likes to a mailbox. */
static void *write_wildly(void *words)
{
	uint64_t state = 7;
	volatile uint64_t *mailbox = words;
	while (!is_over) {
		state = state * 6364136223846793005u + 1442695040888963407u;
		size_t at = state >> 33;
		uint64_t value = state ^ state >> 29;
		switch (at >> 8 & 7) {
		case 0: value = (uintptr_t)arena + value % ARENA; break;
		case 1: value %= 4; break;
		case 2: value = mailbox[at % FARMEM_WORDS] + 1; break;
		case 3: value >>= 17; break;
		}
		/* The first words more often than others. */
		mailbox[at % (state >> 32 & 1 ? 64 : FARMEM_WORDS)] = value;
	}
	return NULL;
}

static void hostile(void)
{
	/* Segments of that size that are no mailboxes, and of another version. */
	for (int each = 0; each < 40; each++) {
		int segment = shmget(IPC_PRIVATE, 8 * FARMEM_WORDS, IPC_CREAT | 0600);
		uint64_t *words = shmat(segment, NULL, 0);
		CHECK(segment != -1 && words != (void *)-1 && shmctl(segment, IPC_RMID, NULL) == 0);
		words[FARMEM_AT_VERSION] = each < 8 ? 2 : 1;
		words[FARMEM_AT_MAGIC] = each < 8 ? FARMEM_MAGIC : each == 39 ? FARMEM_MAGIC : 5;
	}
	uint64_t *words = farmem_mailbox();
	CHECK(words);
	begin();
	pthread_t writer;
	struct timespec now, end;
	CHECK(clock_gettime(CLOCK_MONOTONIC, &end) == 0);
	end.tv_sec += 4;
	CHECK(pthread_create(&writer, NULL, write_wildly, words) == 0);
	do {
		squeeze();
		CHECK(clock_gettime(CLOCK_MONOTONIC, &now) == 0);
	} while (now.tv_sec < end.tv_sec);
	is_over = 1;
	CHECK(pthread_join(writer, NULL) == 0);
	for (int round = 0; round < 3; round++)
		squeeze();
}

/* Pins for as long as there is a pager, and says so when that has gone. */
static void left(void)
{
	begin();
	wait_for_pager();
	puts("managed");
	fflush(stdout);
	size_t orders = 0;
	while (farmem_is_present()) {
		CHECK(farmem_pin(arena, 2 * REGION) == 0);
		CHECK(farmem_unpin(arena, 2 * REGION) == 0);
		orders++;
		if (orders % 16 == 0)
			squeeze();
	}
	CHECK(farmem_pin(arena, ARENA) == 0 && farmem_prefetch(arena, (size_t)-1) == 0);
	squeeze();
	CHECK(orders > 0 && resident(arena, ARENA) == ARENA / PAGE);
}

int main(int count, char **arguments)
{
	static const struct {
		const char *name;
		void (*run)(void);
	} all[] = {{"pin_before", pin_before}, {"full", full}, {"forked", forked}, {"prefetcher", prefetcher}, {"hostile", hostile}, {"left", left}};
	for (size_t each = 0; each < sizeof all / sizeof *all; each++)
		if (count > 1 && strcmp(arguments[1], all[each].name) == 0) {
			all[each].run();
			if (arena)
				verify(arena, ARENA, generation);
			printf("ok %s\n", all[each].name);
			return 0;
		}
	return 2;
}
