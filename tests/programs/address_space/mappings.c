/* Mappings that are made, moved, protected, advised and taken away while their pages are far. */
#include "check.h"

#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/uio.h>

#ifndef MADV_COLD
#define MADV_COLD 20
#define MADV_PAGEOUT 21
#endif
#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#define MADV_POPULATE_WRITE 23
#endif
#ifndef MREMAP_DONTUNMAP
#define MREMAP_DONTUNMAP 4
#endif

#define REGION (4 * MEBIBYTE)

static uintptr_t raw_brk(uintptr_t end)
{
	return (uintptr_t)syscall(SYS_brk, end);
}

static void brk_grow_shrink(void)
{
	uintptr_t start = (raw_brk(0) + PAGE - 1) & ~(PAGE - 1);
	for (int round = 0; round < 3; round++) {
		CHECK(raw_brk(start + 2 * REGION) == start + 2 * REGION);
		verify_zero((void *)start, 2 * REGION);
		fill((void *)start, 2 * REGION, 11);
		squeeze();
		verify((void *)start, 2 * REGION, 11);
		squeeze();
		CHECK(raw_brk(start + REGION) == start + REGION);
		CHECK(raw_brk(start + 2 * REGION) == start + 2 * REGION);
		verify_zero((void *)(start + REGION), REGION);
		verify((void *)start, REGION, 11);
		CHECK(raw_brk(start) == start);
	}
}

struct churn {
	uint64_t seed;
	int rounds;
	int squeeze_every;
};

static void *churn(void *argument)
{
	const struct churn *plan = argument;
	enum { KEPT = 24 };
	struct {
		unsigned char *memory;
		size_t bytes;
		uint64_t seed;
	} kept[KEPT] = {0};
	uint64_t random = plan->seed;
	for (int round = 0; round < plan->rounds; round++) {
		random = random * 6364136223846793005ULL + 1442695040888963407ULL;
		size_t slot = (random >> 40) % KEPT;
		if (kept[slot].memory) {
			verify(kept[slot].memory, kept[slot].bytes, kept[slot].seed);
			unmap(kept[slot].memory, kept[slot].bytes);
		}
		kept[slot].bytes = (1 + (random >> 33) % 96) * PAGE;
		kept[slot].seed = random;
		kept[slot].memory = map(kept[slot].bytes);
		verify_zero(kept[slot].memory, kept[slot].bytes);
		fill(kept[slot].memory, kept[slot].bytes, random);
		if (plan->squeeze_every && round % plan->squeeze_every == 0)
			squeeze();
	}
	for (size_t slot = 0; slot < KEPT; slot++)
		if (kept[slot].memory) {
			verify(kept[slot].memory, kept[slot].bytes, kept[slot].seed);
			unmap(kept[slot].memory, kept[slot].bytes);
		}
	return NULL;
}

static void mmap_churn(void)
{
	struct churn plan = {.seed = 1, .rounds = 300, .squeeze_every = 30};
	churn(&plan);
}

/* The kernel hands the addresses that one thread gave back to the next thread that asks. */
static void mmap_churn_threads(void)
{
	enum { THREADS = 4 };
	struct churn plans[THREADS];
	pthread_t threads[THREADS];
	pressure_start();
	for (int number = 0; number < THREADS; number++) {
		plans[number] = (struct churn){.seed = 100 + (uint64_t)number, .rounds = 200};
		threads[number] = start_thread(churn, &plans[number]);
	}
	for (int number = 0; number < THREADS; number++)
		join_thread(threads[number]);
	pressure_stop();
}

/* Every page verified and written again. */
static void rewrite(unsigned char *memory, size_t bytes, uint64_t old, uint64_t new)
{
	for (size_t offset = 0; offset < bytes; offset += PAGE) {
		verify(memory + offset, PAGE, old + offset);
		fill(memory + offset, PAGE, new + offset);
	}
}

static unsigned char *map_filled_by_page(size_t bytes, uint64_t seed)
{
	unsigned char *memory = map(bytes);
	for (size_t offset = 0; offset < bytes; offset += PAGE)
		fill(memory + offset, PAGE, seed + offset);
	return memory;
}

/* A hot set that is used again after every mebibyte of a scan over cold memory: it comes back soon whenever it leaves. */
static void hot_set_beside_a_scan(void)
{
	enum { ROUNDS = 6, HOT = 12, COLD = 28 };
	unsigned char *hot = map_filled_by_page(HOT * MEBIBYTE, 1);
	unsigned char *cold = map_filled_by_page(COLD * MEBIBYTE, 2);
	uint64_t hot_uses = 0;
	for (uint64_t round = 0; round < ROUNDS; round++)
		for (size_t part = 0; part < COLD; part++) {
			rewrite(cold + part * MEBIBYTE, MEBIBYTE, 2 + part * MEBIBYTE + round * 3,
				2 + part * MEBIBYTE + (round + 1) * 3);
			rewrite(hot, HOT * MEBIBYTE, 1 + hot_uses * 5, 1 + (hot_uses + 1) * 5);
			hot_uses++;
		}
	rewrite(cold, COLD * MEBIBYTE, 2 + ROUNDS * 3, 0);
	rewrite(hot, HOT * MEBIBYTE, 1 + hot_uses * 5, 0);
}

enum { FREED = 24, WANTED = 40 };

static void *free_when_full(void *memory)
{
	while (access("full", F_OK) != 0)
		usleep(10000);
	unmap(memory, FREED * MEBIBYTE);
	return NULL;
}

/* More memory than there is room for, until another thread, which needs none, gives some back: when the test says that
   the pool is full. */
static void freed_while_full(void)
{
	enum { STACK = 2 << 20 };
	unsigned char *freed = map_filled_by_page(FREED * MEBIBYTE, 131);
	unsigned char *stack = map(STACK);
	CHECK(mlock(stack, STACK) == 0);
	pthread_attr_t attributes;
	pthread_t thread;
	CHECK(pthread_attr_init(&attributes) == 0 && pthread_attr_setstack(&attributes, stack, STACK) == 0);
	CHECK(pthread_create(&thread, &attributes, free_when_full, freed) == 0);
	unsigned char *wanted = map_filled_by_page(WANTED * MEBIBYTE, 132);
	join_thread(thread);
	for (uint64_t round = 0; round < 2; round++)
		rewrite(wanted, WANTED * MEBIBYTE, 132 + round, 133 + round);
}

static void *churn_fixed(void *argument)
{
	unsigned char *place = argument;
	uint64_t seed = (uintptr_t)place;
	for (int round = 0; round < 100; round++) {
		size_t bytes = (size_t)(1 + round % 64) * PAGE;
		void *memory = mmap(place, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
		CHECK(memory == place);
		verify_zero(place, bytes);
		fill(place, bytes, ++seed);
		verify(place, bytes, seed);
		if (round % 3 == 0)
			unmap(place, bytes);
	}
	return NULL;
}

/* Each thread maps over its own place again and again, with memory pressure at the same time. */
static void map_fixed_threads(void)
{
	enum { THREADS = 3 };
	unsigned char *places = map(THREADS * MEBIBYTE);
	pthread_t threads[THREADS];
	pressure_start();
	for (size_t number = 0; number < THREADS; number++)
		threads[number] = start_thread(churn_fixed, places + number * MEBIBYTE);
	for (size_t number = 0; number < THREADS; number++)
		join_thread(threads[number]);
	pressure_stop();
}

static void map_fixed_over_itself(void)
{
	unsigned char *memory = map_filled(REGION, 21);
	squeeze();
	size_t hole = MEBIBYTE;
	CHECK(mmap(memory + hole, MEBIBYTE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) ==
	      memory + hole);
	verify_zero(memory + hole, MEBIBYTE);
	verify(memory, hole, 21);
	verify_from(memory + 2 * MEBIBYTE, 2 * MEBIBYTE, 21, 2 * MEBIBYTE);
	fill(memory + hole, MEBIBYTE, 22);
	squeeze();
	verify(memory + hole, MEBIBYTE, 22);
	/* A mapping of a file over the end of the new and the start of the old memory, then anonymous again. */
	int file = memfd_create("over", 0);
	CHECK(file >= 0 && ftruncate(file, (off_t)MEBIBYTE) == 0);
	unsigned char *middle = memory + hole + MEBIBYTE / 2;
	CHECK(mmap(middle, MEBIBYTE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0) == middle);
	fill(middle, MEBIBYTE, 23);
	squeeze();
	verify(middle, MEBIBYTE, 23);
	CHECK(mmap(middle, MEBIBYTE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == middle);
	verify_zero(middle, MEBIBYTE);
	fill(middle, MEBIBYTE, 24);
	squeeze();
	verify(middle, MEBIBYTE, 24);
	verify(memory + hole, MEBIBYTE / 2, 22);
	verify_from(middle + MEBIBYTE, MEBIBYTE + MEBIBYTE / 2, 21, 2 * MEBIBYTE + MEBIBYTE / 2);
	close(file);
	unmap(memory, REGION);
}

static void mprotect_cycle(void)
{
	unsigned char *memory = map_filled(REGION, 31);
	for (int round = 0; round < 3; round++) {
		squeeze();
		CHECK(mprotect(memory, REGION, PROT_NONE) == 0);
		squeeze();
		CHECK(mprotect(memory, REGION / 2, PROT_READ) == 0);
		verify(memory, REGION / 2, 31 + (uint64_t)round);
		squeeze();
		CHECK(mprotect(memory, REGION, PROT_READ | PROT_WRITE) == 0);
		verify(memory, REGION, 31 + (uint64_t)round);
		fill(memory, REGION, 32 + (uint64_t)round);
		/* One page of three read-only: many small mappings with far pages. */
		for (size_t offset = 0; offset < MEBIBYTE; offset += 3 * PAGE)
			CHECK(mprotect(memory + offset, PAGE, PROT_READ) == 0);
		squeeze();
		verify(memory, REGION, 32 + (uint64_t)round);
		CHECK(mprotect(memory, REGION, PROT_READ | PROT_WRITE) == 0);
	}
	unmap(memory, REGION);
}

static void mremap_grow(void)
{
	size_t bytes = MEBIBYTE;
	unsigned char *memory = map_filled(bytes, 41);
	for (int round = 0; round < 6; round++) {
		squeeze();
		unsigned char *grown = mremap(memory, bytes, bytes + MEBIBYTE, MREMAP_MAYMOVE);
		CHECK(grown != MAP_FAILED);
		memory = grown;
		verify(memory, bytes, 41);
		verify_zero(memory + bytes, MEBIBYTE);
		bytes += MEBIBYTE;
		fill(memory, bytes, 41);
	}
	squeeze();
	CHECK(mremap(memory, bytes, bytes / 2, 0) == memory);
	verify(memory, bytes / 2, 41);
	CHECK(mremap(memory, bytes / 2, bytes, MREMAP_MAYMOVE) != MAP_FAILED);
}

static void mremap_move(void)
{
	unsigned char *memory = map_filled(REGION, 42);
	for (int round = 0; round < 4; round++) {
		unsigned char *target = map_filled(REGION, 43);
		squeeze();
		/* Over a target whose own pages are far as well. */
		CHECK(mremap(memory, REGION, REGION, MREMAP_MAYMOVE | MREMAP_FIXED, target) == target);
		verify(target, REGION, 42);
		squeeze();
		verify(target, REGION, 42);
		memory = target;
	}
	/* A part out of the middle. */
	unsigned char *target = map(REGION);
	squeeze();
	CHECK(mremap(memory + MEBIBYTE, MEBIBYTE, MEBIBYTE, MREMAP_MAYMOVE | MREMAP_FIXED, target) == target);
	verify_from(target, MEBIBYTE, 42, MEBIBYTE);
	verify_zero(target + MEBIBYTE, REGION - MEBIBYTE);
	verify(memory, MEBIBYTE, 42);
	verify_from(memory + 2 * MEBIBYTE, 2 * MEBIBYTE, 42, 2 * MEBIBYTE);
	squeeze();
	verify_from(target, MEBIBYTE, 42, MEBIBYTE);
}

/* What lies at an address changes hands without the address ever being free. */
static void mremap_swap_places(void)
{
	unsigned char *left = map_filled(MEBIBYTE, 44);
	unsigned char *right = map_filled(MEBIBYTE, 45);
	for (int round = 0; round < 20; round++) {
		unsigned char *aside = map(MEBIBYTE);
		if (round % 4 == 0)
			squeeze();
		CHECK(mremap(left, MEBIBYTE, MEBIBYTE, MREMAP_MAYMOVE | MREMAP_FIXED, aside) == aside);
		CHECK(mremap(right, MEBIBYTE, MEBIBYTE, MREMAP_MAYMOVE | MREMAP_FIXED, left) == left);
		CHECK(mremap(aside, MEBIBYTE, MEBIBYTE, MREMAP_MAYMOVE | MREMAP_FIXED, right) == right);
		verify(left, MEBIBYTE, round % 2 ? 44 : 45);
		verify(right, MEBIBYTE, round % 2 ? 45 : 44);
	}
}

/* Old mappings with far pages and new ones that nobody has found yet take each other's places, and grow by memory that
   nobody has found either. */
static void mremap_new_and_old(void)
{
	enum { PLACES = 4, ROUNDS = 120 };
	const size_t bytes = 64 * PAGE, reserved = 4 * bytes;
	unsigned char *places[PLACES];
	uint64_t seeds[PLACES];
	for (size_t number = 0; number < PLACES; number++) {
		places[number] = map_filled(reserved, seeds[number] = 600 + number);
		CHECK(mremap(places[number], reserved, bytes, 0) == places[number]);
	}
	pressure_start();
	for (uint64_t round = 0; round < ROUNDS; round++) {
		size_t number = round % PLACES, other = (round + 1) % PLACES;
		unsigned char *fresh = map_filled(bytes, 700 + round);
		/* New over old. */
		CHECK(mremap(fresh, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, places[number]) == places[number]);
		seeds[number] = 700 + round;
		verify(places[number], bytes, seeds[number]);
		/* Old over new, the rest of which is not there before. */
		fresh = map_filled(reserved, 9);
		CHECK(mremap(places[other], bytes, reserved, MREMAP_MAYMOVE | MREMAP_FIXED, fresh) == fresh);
		places[other] = fresh;
		verify_zero(fresh + bytes, reserved - bytes);
		fill(fresh + bytes, reserved - bytes, 8);
		verify(fresh, bytes, seeds[other]);
		CHECK(mremap(fresh, reserved, bytes, 0) == fresh);
		if (round % 8 == 0) {
			pid_t child = fork();
			if (child == 0) {
				for (size_t place = 0; place < PLACES; place++)
					verify(places[place], bytes, seeds[place]);
				_exit(0);
			}
			expect_exit(child, 0);
		}
	}
	pressure_stop();
	for (size_t place = 0; place < PLACES; place++)
		verify(places[place], bytes, seeds[place]);
}

static void mremap_dontunmap(void)
{
	unsigned char *memory = map_filled(REGION, 46);
	squeeze();
	unsigned char *moved = mremap(memory, REGION, REGION, MREMAP_MAYMOVE | MREMAP_DONTUNMAP, NULL);
	if (moved == MAP_FAILED && errno == EINVAL) {
		skip("this kernel has no MREMAP_DONTUNMAP");
		return;
	}
	CHECK(moved != MAP_FAILED);
	verify_zero(memory, REGION / 2);
	verify(moved, REGION, 46);
	fill(memory, REGION, 47);
	squeeze();
	verify(memory, REGION, 47);
	verify(moved, REGION, 46);
	unmap(memory, REGION);
	squeeze();
	verify(moved, REGION, 46);
}

static void drop_and_check(unsigned char *memory, int raw)
{
	fill(memory, REGION, 51);
	squeeze();
	for (size_t offset = 0; offset < REGION; offset += 8 * PAGE) {
		long result = raw ? syscall(SYS_madvise, memory + offset, 3 * PAGE, MADV_DONTNEED)
				  : madvise(memory + offset, 3 * PAGE, MADV_DONTNEED);
		CHECK(result == 0);
	}
	for (size_t offset = 0; offset < REGION; offset += 8 * PAGE) {
		verify_zero(memory + offset, 3 * PAGE);
		verify_from(memory + offset + 3 * PAGE, 5 * PAGE, 51, offset + 3 * PAGE);
	}
	squeeze();
	CHECK((raw ? syscall(SYS_madvise, memory, REGION, MADV_DONTNEED) : madvise(memory, REGION, MADV_DONTNEED)) == 0);
	squeeze();
	verify_zero(memory, REGION);
}

static void madvise_dontneed(void)
{
	unsigned char *memory = map(REGION);
	drop_and_check(memory, 0);
	drop_and_check(memory, 0);
	unmap(memory, REGION);
}

static void madvise_dontneed_raw(void)
{
	unsigned char *memory = map(REGION);
	drop_and_check(memory, 1);
	drop_and_check(memory, 1);
	unmap(memory, REGION);
}

static atomic_int dropping;

static void *drop_repeatedly(void *argument)
{
	unsigned char *memory = argument;
	for (int round = 0; round < 400; round++) {
		size_t offset = (size_t)(round * 7 % 16) * 16 * PAGE;
		CHECK(madvise(memory + offset, 16 * PAGE, MADV_DONTNEED) == 0);
		verify_zero(memory + offset, 16 * PAGE);
		fill(memory + offset, 16 * PAGE, 52);
		verify(memory + offset, 16 * PAGE, 52);
	}
	atomic_fetch_sub(&dropping, 1);
	return NULL;
}

/* Memory that is given back by one thread while others are faulting. */
static void madvise_dontneed_threads(void)
{
	enum { THREADS = 3 };
	unsigned char *memory = map(THREADS * MEBIBYTE);
	pthread_t threads[THREADS];
	pressure_start();
	atomic_store(&dropping, THREADS);
	for (size_t number = 0; number < THREADS; number++)
		threads[number] = start_thread(drop_repeatedly, memory + number * MEBIBYTE);
	for (size_t number = 0; number < THREADS; number++)
		join_thread(threads[number]);
	CHECK(atomic_load(&dropping) == 0);
	pressure_stop();
}

static void madvise_free(void)
{
	unsigned char *memory = map_filled(REGION, 53);
	for (int round = 0; round < 3; round++) {
		if (round > 0)
			squeeze();
		CHECK(madvise(memory, REGION, MADV_FREE) == 0);
		/* Pages that are written again are kept; the others hold their bytes or zeros, whole pages of it. */
		fill(memory, REGION / 2, 54);
		squeeze();
		verify(memory, REGION / 2, 54);
		for (size_t offset = REGION / 2; offset < REGION; offset += PAGE)
			if (!is_zero(memory + offset, PAGE))
				verify_from(memory + offset, PAGE, 53, offset);
		fill(memory, REGION, 53);
		squeeze();
		verify(memory, REGION, 53);
	}
}

/* Memory that nobody may touch for a while, and that is zeros when everybody may again (Linux 6.13). */
static void madvise_guard(void)
{
	const int install = 102, remove = 103;
	unsigned char *memory = map_filled(REGION, 40);
	/* The first time it is far, the second time local but stored as well, the third time neither. */
	for (int round = 0; round < 3; round++) {
		squeeze();
		if (round == 1)
			verify(memory, REGION, 40);
		if (round == 2)
			fill(memory, REGION, 40);
		if (madvise(memory, REGION / 2, install) != 0) {
			CHECK(errno == EINVAL);
			skip("the kernel knows no guards");
			return;
		}
		squeeze();
		CHECK(madvise(memory, REGION / 2, remove) == 0);
		verify_zero(memory, REGION / 2);
		verify_from(memory + REGION / 2, REGION / 2, 40, REGION / 2);
		fill(memory, REGION / 2, 40);
	}
}

static void madvise_hugepage(void)
{
	size_t bytes = 4 * REGION;
	unsigned char *memory = map(bytes);
	unsigned char *aligned = (unsigned char *)(((uintptr_t)memory + 2 * MEBIBYTE - 1) & ~(2 * MEBIBYTE - 1));
	size_t aligned_bytes = bytes - 2 * MEBIBYTE;
	if (madvise(aligned, aligned_bytes, MADV_HUGEPAGE) != 0) {
		skip("this kernel has no transparent huge pages");
		return;
	}
	fill(aligned, aligned_bytes, 55);
	squeeze();
	verify(aligned, aligned_bytes, 55);
	CHECK(madvise(aligned + MEBIBYTE, PAGE, MADV_DONTNEED) == 0);
	squeeze();
	verify_zero(aligned + MEBIBYTE, PAGE);
	verify(aligned, MEBIBYTE, 55);
	verify_from(aligned + MEBIBYTE + PAGE, aligned_bytes - MEBIBYTE - PAGE, 55, MEBIBYTE + PAGE);
	CHECK(madvise(aligned, aligned_bytes, MADV_NOHUGEPAGE) == 0);
	fill(aligned, aligned_bytes, 56);
	squeeze();
	verify(aligned, aligned_bytes, 56);
	/* MADV_COLLAPSE may find nothing to do. */
	(void)madvise(aligned, aligned_bytes, 25);
	squeeze();
	verify(aligned, aligned_bytes, 56);
}

static void madvise_dontfork(void)
{
	unsigned char *memory = map_filled(REGION, 57);
	CHECK(madvise(memory, REGION, MADV_DONTFORK) == 0);
	squeeze();
	pid_t child = fork();
	if (child == 0) {
		unsigned char present[REGION / PAGE];
		CHECK(mincore(memory, REGION, present) == -1 && errno == ENOMEM);
		squeeze();
		/* The address is free in the child, and gives new memory. */
		CHECK(mmap(memory, REGION, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == memory);
		verify_zero(memory, REGION);
		fill(memory, REGION, 58);
		squeeze();
		verify(memory, REGION, 58);
		_exit(0);
	}
	verify(memory, REGION, 57);
	expect_exit(child, 0);
	CHECK(madvise(memory, REGION, MADV_DOFORK) == 0);
	squeeze();
	child = fork();
	if (child == 0) {
		verify(memory, REGION, 57);
		_exit(0);
	}
	expect_exit(child, 0);
}

static void madvise_wipeonfork(void)
{
	unsigned char *memory = map_filled(REGION, 59);
	CHECK(madvise(memory, REGION, MADV_WIPEONFORK) == 0);
	squeeze();
	pid_t child = fork();
	if (child == 0) {
		verify_zero(memory, REGION);
		fill(memory, REGION, 60);
		squeeze();
		verify(memory, REGION, 60);
		pid_t grandchild = fork();
		if (grandchild == 0) {
			verify_zero(memory, REGION);
			_exit(0);
		}
		expect_exit(grandchild, 0);
		verify(memory, REGION, 60);
		_exit(0);
	}
	expect_exit(child, 0);
	squeeze();
	verify(memory, REGION, 59);
	CHECK(madvise(memory, REGION, MADV_KEEPONFORK) == 0);
	child = fork();
	if (child == 0) {
		verify(memory, REGION, 59);
		_exit(0);
	}
	expect_exit(child, 0);
}

static void expect_in_clone(void (*look)(void *), void *argument)
{
	/* With a pager of its own, and served by its parent. */
	for (int is_raw = 0; is_raw < 2; is_raw++) {
		squeeze();
		pid_t child = is_raw ? (pid_t)syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, 0) : fork();
		CHECK(child >= 0);
		if (child == 0) {
			look(argument);
			_exit(0);
		}
		expect_exit(child, 0);
	}
}

static void look_at_places(void *argument)
{
	unsigned char **places = argument;
	/* Unmapped and mapped again, moved away, moved there, kept again. */
	verify(places[0], REGION, 62);
	verify(places[1], REGION, 63);
	verify_zero(places[2], REGION);
	verify(places[3], REGION, 65);
}

/* The wish belongs to a mapping, not to addresses. */
static void wipeonfork_moves_with_mappings(void)
{
	unsigned char *places[4];
	for (size_t number = 0; number < 4; number++) {
		places[number] = map_filled(REGION, 62 + number);
		if (number != 2)
			CHECK(madvise(places[number], REGION, MADV_WIPEONFORK) == 0);
	}
	squeeze();
	CHECK(mmap(places[0], REGION, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) ==
	      places[0]);
	fill(places[0], REGION, 62);
	CHECK(mremap(places[1], REGION, REGION, MREMAP_MAYMOVE | MREMAP_FIXED, places[2]) == places[2]);
	CHECK(mmap(places[1], REGION, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) ==
	      places[1]);
	fill(places[1], REGION, 63);
	CHECK(madvise(places[3], REGION, MADV_KEEPONFORK) == 0);
	expect_in_clone(look_at_places, places);
	verify(places[2], REGION, 63);
}

enum { WIPED = 100, WIPED_BYTES = 16 * 4096 };

static void look_at_stripes(void *argument)
{
	unsigned char *memory = argument;
	for (size_t number = 0; number < WIPED; number++) {
		verify_zero(memory + 2 * number * WIPED_BYTES, WIPED_BYTES);
		verify(memory + (2 * number + 1) * WIPED_BYTES, WIPED_BYTES, 66 + number);
	}
}

/* So many that they can't be a short list. */
static void wipeonfork_many(void)
{
	unsigned char *memory = map(2 * WIPED * WIPED_BYTES);
	for (size_t number = 0; number < WIPED; number++) {
		CHECK(madvise(memory + 2 * number * WIPED_BYTES, WIPED_BYTES, MADV_WIPEONFORK) == 0);
		fill(memory + 2 * number * WIPED_BYTES, 2 * WIPED_BYTES, 66);
		fill(memory + (2 * number + 1) * WIPED_BYTES, WIPED_BYTES, 66 + number);
	}
	expect_in_clone(look_at_stripes, memory);
}

static void madvise_hints(void)
{
	static const int hints[] = {MADV_COLD, MADV_PAGEOUT, MADV_POPULATE_READ, MADV_POPULATE_WRITE, MADV_WILLNEED,
				    MADV_RANDOM, MADV_SEQUENTIAL, MADV_NORMAL, MADV_MERGEABLE, MADV_UNMERGEABLE,
				    MADV_DONTDUMP, MADV_DODUMP};
	unsigned char *memory = map_filled(REGION, 61);
	for (size_t number = 0; number < sizeof hints / sizeof *hints; number++) {
		squeeze();
		/* A hint that the kernel does not know changes nothing either. */
		(void)madvise(memory, REGION, hints[number]);
		verify(memory, REGION, 61);
		(void)madvise(memory, REGION / 2, hints[number]);
		squeeze();
		verify(memory, REGION, 61);
	}
}

static void map_populate(void)
{
	for (int round = 0; round < 3; round++) {
		unsigned char *memory = mmap(NULL, REGION, PROT_READ | PROT_WRITE,
					     MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
		CHECK(memory != MAP_FAILED);
		squeeze();
		verify_zero(memory, REGION);
		fill(memory, REGION, 62);
		squeeze();
		verify(memory, REGION, 62);
		unmap(memory, REGION);
	}
}

static void many_small_mappings(void)
{
	enum { COUNT = 6000 };
	unsigned char *memory = map_filled((size_t)COUNT * PAGE, 63);
	for (size_t number = 0; number < COUNT; number += 2)
		CHECK(mprotect(memory + number * PAGE, PAGE, PROT_READ) == 0);
	squeeze();
	verify(memory, (size_t)COUNT * PAGE, 63);
	for (size_t number = 1; number < COUNT; number += 4)
		unmap(memory + number * PAGE, PAGE);
	squeeze();
	for (size_t number = 0; number < COUNT; number++)
		if (number % 4 != 1)
			verify_from(memory + number * PAGE, PAGE, 63, number * PAGE);
	unmap(memory, (size_t)COUNT * PAGE);
}

static void sparse_noreserve(void)
{
	size_t bytes = (size_t)64 << 30, stride = (size_t)61 << 20;
	unsigned char *memory =
		mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	CHECK(memory != MAP_FAILED);
	for (size_t offset = 0; offset < bytes; offset += stride)
		fill(memory + (offset & ~(PAGE - 1)), 2 * PAGE, offset);
	squeeze();
	for (size_t offset = 0; offset < bytes; offset += stride) {
		verify(memory + (offset & ~(PAGE - 1)), 2 * PAGE, offset);
		verify_zero(memory + (offset & ~(PAGE - 1)) + 2 * PAGE, PAGE);
	}
	unmap(memory, bytes / 2);
	squeeze();
	size_t offset = (bytes / 2 / stride + 1) * stride;
	verify(memory + (offset & ~(PAGE - 1)), 2 * PAGE, offset);
}

static void read_only_zero_pages(void)
{
	unsigned char *memory = map(REGION);
	verify_zero(memory, REGION);
	squeeze();
	verify_zero(memory, REGION);
	for (size_t offset = 0; offset < REGION; offset += 2 * PAGE)
		fill(memory + offset, PAGE, offset);
	squeeze();
	for (size_t offset = 0; offset < REGION; offset += 2 * PAGE) {
		verify(memory + offset, PAGE, offset);
		verify_zero(memory + offset + PAGE, PAGE);
	}
}

/* Memory that is read before it is written shows zeros, and takes memory only then: pages come to be without a touch of a
 * missing one. */
static void zeros_read_before_written(void)
{
	/* A prime that doesn't divide the number of pages: each is read once, far from the one before. */
	size_t pages = arena_bytes / PAGE, step = 7919;
	unsigned char *early = map(arena_bytes);
	for (int pass = 0; pass < 2; pass++) {
		unsigned char *memory = pass == 0 ? early : map(arena_bytes);
		for (size_t page = 0; page < pages; page++)
			verify_zero(memory + page * step % pages * PAGE, PAGE);
		for (size_t page = 0; page < pages; page++)
			fill(memory + page * PAGE, PAGE, page + pass);
		for (size_t page = 0; page < pages; page++)
			verify(memory + page * PAGE, PAGE, page + pass);
		unmap(memory, arena_bytes);
	}
}

static void same_filled_pages(void)
{
	unsigned char *memory = map(REGION);
	for (size_t page = 0; page < REGION / PAGE; page++)
		memset(memory + page * PAGE, (int)(page & 0xff), PAGE);
	squeeze();
	for (size_t page = 0; page < REGION / PAGE; page++)
		for (size_t offset = 0; offset < PAGE; offset++)
			CHECK(memory[page * PAGE + offset] == (page & 0xff));
	/* All the same but the last byte. */
	for (size_t page = 0; page < REGION / PAGE; page++)
		memory[page * PAGE + PAGE - 1] ^= 0x80;
	squeeze();
	for (size_t page = 0; page < REGION / PAGE; page++) {
		CHECK(memory[page * PAGE + PAGE - 2] == (page & 0xff));
		CHECK(memory[page * PAGE + PAGE - 1] == ((page & 0xff) ^ 0x80));
	}
}

static void shared_and_file_mappings(void)
{
	unsigned char *shared = mmap(NULL, REGION, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(shared != MAP_FAILED);
	int file = memfd_create("file", 0);
	CHECK(file >= 0 && ftruncate(file, (off_t)REGION) == 0);
	unsigned char *of_file = mmap(NULL, REGION, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	CHECK(of_file != MAP_FAILED);
	fill(of_file, REGION, 71);
	unsigned char *own = mmap(NULL, REGION, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 0);
	CHECK(own != MAP_FAILED);
	fill(own, REGION / 2, 72);
	fill(shared, REGION, 73);
	squeeze();
	verify(own, REGION / 2, 72);
	verify_from(own + REGION / 2, REGION / 2, 71, REGION / 2);
	verify(of_file, REGION, 71);
	pid_t child = fork();
	if (child == 0) {
		verify(shared, REGION, 73);
		fill(shared, REGION, 74);
		fill(own, REGION, 75);
		squeeze();
		verify(own, REGION, 75);
		_exit(0);
	}
	expect_exit(child, 0);
	verify(shared, REGION, 74);
	verify(own, REGION / 2, 72);
	CHECK(madvise(own, REGION, MADV_DONTNEED) == 0);
	verify(own, REGION, 71);
	squeeze();
}

static void mlock_evicted(void)
{
	unsigned char *memory = map_filled(REGION, 81);
	squeeze();
	if (mlock(memory, REGION / 2) != 0) {
		skip("this user may not lock 2 MiB");
		return;
	}
	verify(memory, REGION, 81);
	fill(memory, REGION, 82);
	squeeze();
	verify(memory, REGION, 82);
	CHECK(munlock(memory, REGION / 4) == 0);
	squeeze();
	verify(memory, REGION, 82);
	CHECK(munlock(memory, REGION) == 0);
	squeeze();
	verify(memory, REGION, 82);
	/* Locked when touched. */
	CHECK(syscall(SYS_mlock2, memory, MEBIBYTE, 1) == 0);
	squeeze();
	verify(memory, REGION, 82);
}

static void mlockall_future(void)
{
	if (mlockall(MCL_FUTURE) != 0) {
		skip("this user may not lock memory");
		return;
	}
	unsigned char *memory = mmap(NULL, MEBIBYTE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (memory == MAP_FAILED) {
		skip("this user may not lock 1 MiB");
		CHECK(munlockall() == 0);
		return;
	}
	fill(memory, MEBIBYTE, 83);
	squeeze();
	verify(memory, MEBIBYTE, 83);
	CHECK(munlockall() == 0);
	squeeze();
	verify(memory, MEBIBYTE, 83);
}

/* Everything is locked, the far pages too: the budget can't be kept then, the bytes must. */
static void mlockall_current(void)
{
	unsigned char *memory = map_filled(REGION, 84);
	squeeze();
	if (mlockall(MCL_CURRENT) != 0) {
		skip("this user may not lock all of its memory");
		return;
	}
	verify(memory, REGION, 84);
	squeeze();
	CHECK(munlockall() == 0);
	squeeze();
	verify(memory, REGION, 84);
}

static void limited_address_space(void)
{
	unsigned char *memory = map_filled(REGION, 91);
	unsigned long pages = 0;
	FILE *file = fopen("/proc/self/statm", "r");
	CHECK(file && fscanf(file, "%lu", &pages) == 1);
	fclose(file);
	/* What works in the program's address space takes 4 MiB of it, if it comes from now on. */
	struct rlimit limit = {.rlim_cur = pages * PAGE + 4 * REGION, .rlim_max = RLIM_INFINITY};
	struct rlimit before;
	CHECK(getrlimit(RLIMIT_AS, &before) == 0);
	limit.rlim_max = before.rlim_max;
	CHECK(setrlimit(RLIMIT_AS, &limit) == 0);
	CHECK(mmap(NULL, 64 * MEBIBYTE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED &&
	      errno == ENOMEM);
	squeeze();
	verify(memory, REGION, 91);
	unsigned char *more = map_filled(REGION, 92);
	squeeze();
	verify(more, REGION, 92);
	verify(memory, REGION, 91);
	CHECK(setrlimit(RLIMIT_AS, &before) == 0);
	unmap(more, REGION);
}

/* The process's memory, as others see it. */
static void memory_seen_from_outside(void)
{
	unsigned char *memory = map_filled(REGION, 93);
	unsigned char *copy = map(REGION);
	squeeze();
	int own = open("/proc/self/mem", O_RDWR);
	CHECK(own >= 0);
	/* The kernel does not wait for far pages on this way: an error is allowed then, other bytes are not. */
	for (size_t offset = 0; offset < REGION; offset += 16 * PAGE) {
		ssize_t got = pread(own, copy, 16 * PAGE, (off_t)(uintptr_t)(memory + offset));
		CHECK(got > 0 || errno == EIO);
		if (got > 0)
			verify_from(copy, (size_t)got, 93, offset);
	}
	fill(copy, REGION, 94);
	squeeze();
	for (size_t offset = 0; offset < REGION; offset += PAGE) {
		ssize_t put = pwrite(own, copy + offset, PAGE, (off_t)(uintptr_t)(memory + offset));
		CHECK(put == (ssize_t)PAGE || (put < 0 && errno == EIO));
		verify_from(memory + offset, PAGE, put < 0 ? 93 : 94, offset);
	}
	close(own);
	memcpy(memory, copy, REGION);
	squeeze();
	struct iovec local = {copy, REGION}, remote = {memory, REGION};
	pid_t parent = getpid();
	CHECK(process_vm_readv(parent, &local, 1, &remote, 1, 0) == (ssize_t)REGION);
	verify(copy, REGION, 94);
	squeeze();
	pid_t child = fork();
	if (child == 0) {
		memset(copy, 0, REGION);
		ssize_t read = process_vm_readv(parent, &local, 1, &remote, 1, 0);
		if (read < 0 && errno == EPERM) {
			skip("this user may not read the memory of other processes");
			_exit(0);
		}
		CHECK(read == (ssize_t)REGION);
		verify(copy, REGION, 94);
		_exit(0);
	}
	expect_exit(child, 0);
}

/* What a program's own userfaultfd needs; the headers of older kernels lack some of it. */
#include <linux/userfaultfd.h>
#include <poll.h>

struct own_pager {
	int descriptor;
	unsigned char *region;
	unsigned char *page;
	int served;
	atomic_int stop;
};

static void *serve_own_faults(void *argument)
{
	struct own_pager *pager = argument;
	while (!atomic_load(&pager->stop)) {
		struct pollfd ready = {.fd = pager->descriptor, .events = POLLIN};
		if (poll(&ready, 1, 50) <= 0)
			continue;
		struct uffd_msg message;
		if (read(pager->descriptor, &message, sizeof message) != (ssize_t)sizeof message)
			continue;
		CHECK(message.event == UFFD_EVENT_PAGEFAULT);
		uintptr_t address = message.arg.pagefault.address & ~(PAGE - 1);
		fill(pager->page, PAGE, address - (uintptr_t)pager->region);
		struct uffdio_copy copy = {.dst = address, .src = (uintptr_t)pager->page, .len = PAGE};
		if (ioctl(pager->descriptor, UFFDIO_COPY, &copy) == 0)
			pager->served++;
		else
			CHECK(errno == EEXIST);
	}
	return NULL;
}

static void own_userfaultfd(void)
{
	struct own_pager pager = {.region = map(MEBIBYTE), .page = map(PAGE)};
	pager.descriptor = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | 1);
	if (pager.descriptor < 0) {
		skip("this user may not use userfaultfd");
		return;
	}
	struct uffdio_api api = {.api = UFFD_API};
	CHECK(ioctl(pager.descriptor, UFFDIO_API, &api) == 0);
	struct uffdio_register range = {.range = {(uintptr_t)pager.region, MEBIBYTE},
					.mode = UFFDIO_REGISTER_MODE_MISSING};
	if (ioctl(pager.descriptor, UFFDIO_REGISTER, &range) != 0) {
		/* The memory is under management already; a new mapping after the descriptor's own was made may not be. */
		CHECK(errno == EBUSY);
		pager.region = map(MEBIBYTE);
		range.range.start = (uintptr_t)pager.region;
		CHECK(ioctl(pager.descriptor, UFFDIO_REGISTER, &range) == 0);
	}
	pthread_t thread = start_thread(serve_own_faults, &pager);
	squeeze();
	for (size_t offset = 0; offset < MEBIBYTE; offset += PAGE)
		verify(pager.region + offset, PAGE, offset);
	squeeze();
	for (size_t offset = 0; offset < MEBIBYTE; offset += PAGE)
		verify(pager.region + offset, PAGE, offset);
	CHECK(madvise(pager.region, MEBIBYTE / 2, MADV_DONTNEED) == 0);
	for (size_t offset = 0; offset < MEBIBYTE; offset += PAGE)
		verify(pager.region + offset, PAGE, offset);
	atomic_store(&pager.stop, 1);
	join_thread(thread);
	CHECK(pager.served == (int)(MEBIBYTE / PAGE + MEBIBYTE / 2 / PAGE));
	struct uffdio_range whole = {(uintptr_t)pager.region, MEBIBYTE};
	CHECK(ioctl(pager.descriptor, UFFDIO_UNREGISTER, &whole) == 0);
	close(pager.descriptor);
	fill(pager.region, MEBIBYTE, 95);
	squeeze();
	verify(pager.region, MEBIBYTE, 95);
}

const struct check mapping_checks[] = {
	{"brk_grow_shrink", brk_grow_shrink},
	{"mmap_churn", mmap_churn},
	{"hot_set_beside_a_scan", hot_set_beside_a_scan},
	{"mmap_churn_threads", mmap_churn_threads},
	{"freed_while_full", freed_while_full},
	{"map_fixed_threads", map_fixed_threads},
	{"map_fixed_over_itself", map_fixed_over_itself},
	{"mprotect_cycle", mprotect_cycle},
	{"mremap_grow", mremap_grow},
	{"mremap_move", mremap_move},
	{"mremap_swap_places", mremap_swap_places},
	{"mremap_new_and_old", mremap_new_and_old},
	{"mremap_dontunmap", mremap_dontunmap},
	{"madvise_dontneed", madvise_dontneed},
	{"madvise_dontneed_raw", madvise_dontneed_raw},
	{"madvise_dontneed_threads", madvise_dontneed_threads},
	{"madvise_free", madvise_free},
	{"madvise_guard", madvise_guard},
	{"madvise_hugepage", madvise_hugepage},
	{"madvise_dontfork", madvise_dontfork},
	{"madvise_wipeonfork", madvise_wipeonfork},
	{"wipeonfork_moves_with_mappings", wipeonfork_moves_with_mappings},
	{"wipeonfork_many", wipeonfork_many},
	{"madvise_hints", madvise_hints},
	{"map_populate", map_populate},
	{"many_small_mappings", many_small_mappings},
	{"sparse_noreserve", sparse_noreserve},
	{"read_only_zero_pages", read_only_zero_pages},
	{"zeros_read_before_written", zeros_read_before_written},
	{"same_filled_pages", same_filled_pages},
	{"shared_and_file_mappings", shared_and_file_mappings},
	{"mlock_evicted", mlock_evicted},
	{"mlockall_future", mlockall_future},
	{"mlockall_current", mlockall_current},
	{"limited_address_space", limited_address_space},
	{"memory_seen_from_outside", memory_seen_from_outside},
	{"own_userfaultfd", own_userfaultfd},
	{0},
};
