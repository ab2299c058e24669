/* A program that does nasty things with its address space, one at a time, and checks every byte.

   address_space list     names every check
   address_space NAME     runs one; prints `ok NAME` and exits with 0, or says what was wrong and exits with 1

   ARENA_MIB sets how much memory makes the pressure; it must be more than the local budget. */
#include "check.h"

static unsigned char *arena;
size_t arena_bytes;
static uint64_t arena_generation;
static pthread_t pressure_thread;
static atomic_int pressure_wanted;

_Noreturn void fail(const char *file, int line, const char *condition)
{
	int error = errno;
	dprintf(2, "%s:%d: not so: %s (errno %d: %s)\n", file, line, condition, error, strerror(error));
	_exit(1);
}

void skip(const char *reason)
{
	dprintf(2, "skipped: %s\n", reason);
}

unsigned char *map(size_t bytes)
{
	void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(memory != MAP_FAILED);
	return memory;
}

void unmap(void *memory, size_t bytes)
{
	CHECK(munmap(memory, bytes) == 0);
}

static uint64_t word_at(uint64_t seed, size_t index)
{
	if (index & 1)
		return seed & 0xff;
	uint64_t word = (seed + index) * 0x9e3779b97f4a7c15ULL;
	return word ^ (word >> 29);
}

static unsigned char byte_at(uint64_t seed, size_t offset)
{
	return (unsigned char)(word_at(seed, offset / 8) >> (offset % 8 * 8));
}

void fill(void *memory, size_t bytes, uint64_t seed)
{
	unsigned char *target = memory;
	size_t words = bytes / 8;
	for (size_t index = 0; index < words; index++) {
		uint64_t word = word_at(seed, index);
		memcpy(target + index * 8, &word, 8);
	}
	for (size_t offset = words * 8; offset < bytes; offset++)
		target[offset] = byte_at(seed, offset);
}

static _Noreturn void wrong(const unsigned char *memory, size_t offset, uint64_t seed, size_t from)
{
	dprintf(2, "wrong byte at %p, offset %zu (page offset %zu): %02x, not %02x of seed %llu; page is zero: %d\n",
		(void *)(memory + offset), offset, (size_t)(memory + offset) % PAGE, memory[offset],
		byte_at(seed, from + offset), (unsigned long long)seed,
		is_zero((void *)((uintptr_t)(memory + offset) & ~(PAGE - 1)), PAGE));
	_exit(1);
}

void verify_from(const void *memory, size_t bytes, uint64_t seed, size_t from)
{
	const unsigned char *source = memory;
	size_t offset = 0;
	if (from % 8 == 0) {
		for (; offset + 8 <= bytes; offset += 8) {
			uint64_t word;
			memcpy(&word, source + offset, 8);
			if (word != word_at(seed, (from + offset) / 8))
				break;
		}
	}
	for (; offset < bytes; offset++)
		if (source[offset] != byte_at(seed, from + offset))
			wrong(source, offset, seed, from);
}

void verify(const void *memory, size_t bytes, uint64_t seed)
{
	verify_from(memory, bytes, seed, 0);
}

int is_zero(const void *memory, size_t bytes)
{
	const unsigned char *source = memory;
	for (size_t offset = 0; offset < bytes; offset++)
		if (source[offset] != 0)
			return 0;
	return 1;
}

void verify_zero(const void *memory, size_t bytes)
{
	CHECK(is_zero(memory, bytes));
}

unsigned char *map_filled(size_t bytes, uint64_t seed)
{
	unsigned char *memory = map(bytes);
	fill(memory, bytes, seed);
	return memory;
}

static uint64_t arena_seed(size_t page, uint64_t generation)
{
	return page * 1000003 + generation;
}

static void arena_fill(void)
{
	arena_generation++;
	for (size_t page = 0; page < arena_bytes / PAGE; page++)
		fill(arena + page * PAGE, PAGE, arena_seed(page, arena_generation));
}

void squeeze(void)
{
	for (size_t page = 0; page < arena_bytes / PAGE; page++) {
		unsigned char *memory = arena + page * PAGE;
		verify(memory, PAGE, arena_seed(page, arena_generation));
		fill(memory, PAGE, arena_seed(page, arena_generation + 1));
	}
	arena_generation++;
}

void squeeze_afresh(void)
{
	arena_fill();
	squeeze();
}

static void *press(void *unused)
{
	while (atomic_load(&pressure_wanted))
		squeeze();
	return unused;
}

void pressure_start(void)
{
	atomic_store(&pressure_wanted, 1);
	pressure_thread = start_thread(press, NULL);
}

void pressure_stop(void)
{
	atomic_store(&pressure_wanted, 0);
	join_thread(pressure_thread);
}

void expect_exit(pid_t child, int status)
{
	CHECK(child > 0);
	int how;
	pid_t ended;
	do
		ended = waitpid(child, &how, 0);
	while (ended < 0 && errno == EINTR);
	CHECK(ended == child);
	if (!WIFEXITED(how) || WEXITSTATUS(how) != status)
		dprintf(2, "child %d: wait status %#x\n", (int)child, (unsigned)how);
	CHECK(WIFEXITED(how) && WEXITSTATUS(how) == status);
}

pthread_t start_thread(void *(*run)(void *), void *argument)
{
	pthread_t thread;
	errno = pthread_create(&thread, NULL, run, argument);
	CHECK(errno == 0);
	return thread;
}

void join_thread(pthread_t thread)
{
	errno = pthread_join(thread, NULL);
	CHECK(errno == 0);
}

// Where memory is short from the start a pager comes all the same, but on a loaded machine not at once.
static void await_pager(void)
{
	size_t pages = arena_bytes / PAGE;
	unsigned char *is_there = malloc(pages);
	for (int look = 0; look < 20000 && is_there; look++) {
		if (mincore(arena, arena_bytes, is_there) != 0)
			break;
		for (size_t page = 0; page < pages; page++)
			if (!(is_there[page] & 1)) {
				free(is_there);
				return;
			}
		usleep(1000);
	}
	free(is_there);
}

int main(int count, char **arguments)
{
	const struct check *groups[] = {mapping_checks, process_checks, kept_checks, thread_checks,
					call_checks, signal_checks, hint_checks, presence_checks};
	size_t group_count = sizeof groups / sizeof *groups;
	if (count < 2) {
		fputs("usage: address_space list | NAME\n", stderr);
		return 2;
	}
	const char *wanted = arguments[1];
	if (strcmp(wanted, "list") == 0) {
		for (size_t group = 0; group < group_count; group++)
			for (const struct check *check = groups[group]; check->name; check++)
				puts(check->name);
		return 0;
	}
	const char *arena_mib = getenv("ARENA_MIB");
	arena_bytes = (arena_mib ? strtoul(arena_mib, NULL, 10) : 40) * MEBIBYTE;
	arena = map(arena_bytes);
	arena_fill();
	if (getenv("HAVE_A_PAGER"))
		await_pager();
	if (strcmp(wanted, "only_pressure") == 0) {
		squeeze();
		squeeze();
		puts("ok only_pressure");
		return 0;
	}
	for (size_t group = 0; group < group_count; group++)
		for (const struct check *check = groups[group]; check->name; check++)
			if (strcmp(check->name, wanted) == 0) {
				check->run();
				squeeze();
				printf("ok %s\n", wanted);
				return 0;
			}
	fprintf(stderr, "there is no check named %s\n", wanted);
	return 2;
}
