/* What a program says about its memory with farmem.h. Without Farmem every call does nothing; what stays and what leaves is looked at only with it. */
#include "check.h"

#include <sys/time.h>

#include "../../../include/farmem.h"

#define REGION (2 * MEBIBYTE)

/* Whether there is a pager. One comes to the program when memory gets short, and finds what the program has left for it a little later. */
static int is_present(void)
{
	for (int round = 0; round < 1000 && getenv("HINTS_HAVE_A_PAGER") && !farmem_is_present(); round++) {
		squeeze();
		usleep(10000);
	}
	CHECK(farmem_is_present() == (getenv("HINTS_HAVE_A_PAGER") != NULL));
	return farmem_is_present();
}

static size_t resident(const void *memory, size_t bytes)
{
	static __thread unsigned char states[8192];
	size_t pages = (bytes + PAGE - 1) / PAGE, count = 0;
	CHECK(pages <= sizeof states);
	CHECK(mincore((void *)memory, bytes, states) == 0);
	for (size_t page = 0; page < pages; page++)
		count += states[page] & 1;
	return count;
}

/* Squeezes until most of it has left: with half of the memory local that may take a while. */
static void push_out(const void *memory, size_t bytes)
{
	squeeze();
	if (!is_present())
		return;
	for (int round = 0; round < 30 && resident(memory, bytes) >= bytes / PAGE / 2; round++)
		squeeze();
	CHECK(resident(memory, bytes) < bytes / PAGE / 2);
}

/* Hints are followed in the background, and other memory is needed meanwhile. */
static void wait_until_most_is_resident(const void *memory, size_t bytes)
{
	for (int look = 0; look < 20000 && resident(memory, bytes) < bytes / PAGE * 3 / 4; look++)
		usleep(1000);
	CHECK(resident(memory, bytes) >= bytes / PAGE * 3 / 4);
}

static void hint_prefetch(void)
{
	unsigned char *memory = map_filled(REGION, 1);
	for (int round = 0; round < 3; round++) {
		push_out(memory, REGION);
		/* Not aligned: the pages at both ends belong to it. */
		CHECK(farmem_prefetch(memory + 100, REGION - 200) == 0);
		if (is_present())
			wait_until_most_is_resident(memory, REGION);
		verify(memory, REGION, 1);
	}
	unmap(memory, REGION);
}

/* Page by page, as a program does that knows which it will want; and more than fits. */
static void hint_prefetch_scattered(void)
{
	unsigned char *memory = map_filled(4 * REGION, 2);
	for (int round = 0; round < 3; round++) {
		squeeze();
		for (size_t page = 0; page < 4 * REGION / PAGE; page += 3) {
			int answer = farmem_prefetch(memory + page * PAGE + 8, 8);
			CHECK(answer == 0 || answer == EAGAIN);
		}
		verify(memory, 4 * REGION, 2);
		int answer = farmem_prefetch(memory, 4 * REGION);
		CHECK(answer == 0 || answer == EAGAIN);
	}
	for (int more = 0; more < 100000; more++) {
		int answer = farmem_prefetch(memory, 4 * REGION);
		CHECK(answer == 0 || answer == EAGAIN);
	}
	verify(memory, 4 * REGION, 2);
	unmap(memory, 4 * REGION);
}

static void hint_pin(void)
{
	unsigned char *memory = map_filled(REGION, 3);
	is_present();
	squeeze();
	CHECK(farmem_pin(memory + 5, REGION - 5) == 0);
	for (int round = 0; round < 3; round++) {
		if (is_present())
			CHECK(resident(memory, REGION) == REGION / PAGE);
		verify(memory, REGION, 3 + round);
		fill(memory, REGION, 4 + round);
		squeeze();
	}
	/* Twice is as good as once. */
	CHECK(farmem_pin(memory, REGION) == 0);
	CHECK(farmem_unpin(memory, REGION) == 0);
	push_out(memory, REGION);
	verify(memory, REGION, 6);
	CHECK(farmem_unpin(memory, REGION) == 0);
	unmap(memory, REGION);
}

/* Pinned before it is written, it stays from when it is. */
static void hint_pin_untouched(void)
{
	unsigned char *memory = map(REGION);
	is_present();
	CHECK(farmem_pin(memory, REGION) == 0);
	squeeze();
	fill(memory, REGION, 9);
	squeeze();
	if (is_present())
		CHECK(resident(memory, REGION) == REGION / PAGE);
	verify(memory, REGION, 9);
	CHECK(madvise(memory, REGION, MADV_DONTNEED) == 0);
	verify_zero(memory, REGION);
	fill(memory, REGION, 10);
	squeeze();
	if (is_present())
		CHECK(resident(memory, REGION) == REGION / PAGE);
	verify(memory, REGION, 10);
	unmap(memory, REGION);
}

static void hint_pin_too_much(void)
{
	unsigned char *memory = map_filled(arena_bytes, 11);
	int expected = is_present() ? ENOMEM : 0;
	CHECK(farmem_pin(memory, arena_bytes) == expected);
	push_out(memory, REGION);
	/* Nothing of it counts, and what is pinned already counts once. */
	for (int round = 0; round < 20; round++)
		CHECK(farmem_pin(memory, REGION) == 0);
	CHECK(farmem_pin(memory, arena_bytes) == expected);
	if (is_present())
		CHECK(resident(memory, REGION) == REGION / PAGE);
	/* With a hole. */
	unmap(memory + REGION, PAGE);
	CHECK(farmem_pin(memory + REGION - PAGE, 3 * PAGE) == expected);
	verify(memory, REGION, 11);
	unmap(memory, arena_bytes);
}

/* A pin goes with memory that is moved, and ends with memory that is unmapped: there is room for the next. */
static void hint_pin_moves_and_ends(void)
{
	for (int round = 0; round < 10; round++) {
		unsigned char *memory = map_filled(REGION, 20 + round), *place = map(2 * REGION);
		is_present();
		squeeze();
		CHECK(farmem_pin(memory, REGION) == 0);
		CHECK(mremap(memory, REGION, 2 * REGION, MREMAP_MAYMOVE | MREMAP_FIXED, place) == place);
		squeeze();
		if (is_present())
			CHECK(resident(place, REGION) == REGION / PAGE);
		verify(place, REGION, 20 + round);
		unmap(place, 2 * REGION);
		unsigned char *other = mmap(place, REGION, PROT_READ | PROT_WRITE,
					    MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
		CHECK(other == place);
		fill(other, REGION, 1);
		push_out(other, REGION);
		verify(other, REGION, 1);
		unmap(other, REGION);
	}
}

static void hint_cold(void)
{
	unsigned char *cold = map_filled(REGION, 30), *warm = map_filled(REGION, 31);
	squeeze();
	int has_left_first = 0;
	for (int round = 0; round < 50 && !has_left_first; round++) {
		verify(warm, REGION, 31);
		verify(cold, REGION, 30);
		/* The pages at both ends have other bytes, too. */
		CHECK(farmem_cold(cold + 1, REGION - 2) == 0);
		if (!is_present())
			break;
		usleep(50000);
		unsigned char *more = map_filled(REGION, 32);
		has_left_first = resident(cold, REGION) + REGION / PAGE / 2 < resident(warm, REGION);
		unmap(more, REGION);
	}
	CHECK(has_left_first || !is_present());
	verify(cold, REGION, 30);
	verify(warm, REGION, 31);
	unmap(cold, REGION);
	unmap(warm, REGION);
}

/* Wrong addresses, no bytes, memory that isn't managed. */
static void hint_anywhere(void)
{
	static const char constant[] = "not to be written";
	char local[100];
	int invalid = is_present() ? EINVAL : 0, unmapped = is_present() ? ENOMEM : 0;
	/* Once there is a pager: what it maps for itself may come to lie where nothing is. */
	unsigned char *gone = map(REGION);
	unmap(gone, REGION);
	int (*const all[])(const void *, size_t) = {farmem_prefetch, farmem_cold, farmem_pin, farmem_unpin};
	errno = 77;
	for (size_t which = 0; which < 4; which++) {
		int is_pin = all[which] == farmem_pin;
		CHECK(all[which](NULL, 0) == 0);
		CHECK(all[which]((void *)1, 0) == 0);
		CHECK(all[which](NULL, 1) == (is_pin ? unmapped : 0));
		CHECK(all[which](gone, REGION) == (is_pin ? unmapped : 0));
		CHECK(all[which](gone, SIZE_MAX) == invalid);
		CHECK(all[which]((void *)-1, 1) == invalid);
		CHECK(all[which]((void *)((uintptr_t)1 << 47), 1) == invalid);
		CHECK(all[which](constant, sizeof constant) == 0);
		CHECK(all[which](local, sizeof local) == 0);
		CHECK(all[which]((void *)(uintptr_t)hint_anywhere, 10) == 0);
	}
	CHECK(farmem_unpin(local, sizeof local) == 0);
	CHECK(errno == 77);
}

static void hint_pin_and_fork(void)
{
	unsigned char *memory = map_filled(2 * REGION, 40);
	is_present();
	squeeze();
	CHECK(farmem_pin(memory, REGION) == 0);
	for (int round = 0; round < 3; round++) {
		pid_t child = fork();
		if (child == 0) {
			/* The parent's pin is none here. */
			verify(memory, 2 * REGION, 40);
			fill(memory, 2 * REGION, 41);
			is_present();
			push_out(memory, REGION);
			CHECK(farmem_pin(memory + REGION, MEBIBYTE) == 0);
			squeeze();
			if (is_present())
				CHECK(resident(memory + REGION, MEBIBYTE) == MEBIBYTE / PAGE);
			verify(memory, 2 * REGION, 41);
			CHECK(farmem_prefetch(memory, REGION) == 0);
			_exit(7);
		}
		fill(memory + REGION, MEBIBYTE, 42);
		expect_exit(child, 7);
		verify(memory, REGION, 40);
		fill(memory + REGION, REGION, 40);
		verify_from(memory + REGION, REGION, 40, 0);
		fill(memory, 2 * REGION, 40);
		squeeze();
		if (is_present())
			CHECK(resident(memory, REGION) == REGION / PAGE);
	}
	unmap(memory, 2 * REGION);
}

static unsigned char *shared;
static atomic_int hinting;

static void *hint_at_random(void *seed)
{
	uint64_t state = (uintptr_t)seed;
	while (atomic_load(&hinting)) {
		state = state * 6364136223846793005ULL + 1442695040888963407ULL;
		size_t offset = (state >> 20) % REGION, bytes = (state >> 44) % (REGION - offset);
		int answer = 0;
		switch (state >> 62) {
		case 0: answer = farmem_prefetch(shared + offset, bytes); break;
		case 1: answer = farmem_cold(shared + offset, bytes); break;
		case 2: answer = farmem_pin(shared + offset, bytes); break;
		case 3: answer = farmem_unpin(shared + offset, bytes); break;
		}
		/* Others may need all the room at that moment. */
		CHECK(answer == 0 || answer == EAGAIN || (answer == ENOMEM && state >> 62 == 2));
	}
	return NULL;
}

static void hint_in_handler(int number)
{
	(void)number;
	int answer = farmem_prefetch(shared, REGION);
	CHECK(answer == 0 || answer == EAGAIN);
	answer = farmem_cold(shared, REGION / 2);
	CHECK(answer == 0 || answer == EAGAIN);
}

/* Threads say this and that of memory that others use, in handlers of signals as well. */
static void hint_threads(void)
{
	shared = map_filled(REGION, 50);
	is_present();
	struct sigaction action = {.sa_handler = hint_in_handler, .sa_flags = SA_RESTART}, before;
	CHECK(sigaction(SIGALRM, &action, &before) == 0);
	struct itimerval often = {{0, 2000}, {0, 2000}}, never = {{0, 0}, {0, 0}};
	CHECK(setitimer(ITIMER_REAL, &often, NULL) == 0);
	atomic_store(&hinting, 1);
	pthread_t threads[3];
	for (uintptr_t each = 0; each < 3; each++)
		threads[each] = start_thread(hint_at_random, (void *)(each + 1));
	for (int round = 0; round < 4; round++) {
		squeeze();
		verify(shared, REGION, 50 + round);
		fill(shared, REGION, 51 + round);
	}
	atomic_store(&hinting, 0);
	for (int each = 0; each < 3; each++)
		join_thread(threads[each]);
	CHECK(setitimer(ITIMER_REAL, &never, NULL) == 0);
	CHECK(sigaction(SIGALRM, &before, NULL) == 0);
	verify(shared, REGION, 54);
	unmap(shared, REGION);
}

/* Memory comes and goes while hints about it are on their way. */
static void hint_of_memory_that_goes(void)
{
	is_present();
	for (int round = 0; round < 60; round++) {
		unsigned char *memory = map_filled(REGION, round);
		CHECK(farmem_cold(memory, REGION) == 0);
		if (round % 8 == 0)
			squeeze();
		CHECK(farmem_prefetch(memory, REGION) == 0);
		if (round % 3 == 0)
			CHECK(farmem_pin(memory, REGION / 2) == 0);
		verify(memory, REGION, round);
		if (round % 2 == 0) {
			CHECK(madvise(memory, REGION, MADV_DONTNEED) == 0);
			verify_zero(memory, REGION);
		}
		unmap(memory, REGION);
	}
}

static struct {
	_Atomic size_t calls, faults;
	atomic_int ends_itself;
} observed;

/* Each page leads to another one, by a rule that no policy finds out. */
static size_t next_page(size_t page)
{
	return (page * 365 + 211) % (4 * REGION / PAGE);
}

static void call_for_next(const struct farmem_fault *faults, size_t count, void *context)
{
	CHECK(context == &observed && count > 0);
	sigset_t blocked;
	CHECK(pthread_sigmask(SIG_SETMASK, NULL, &blocked) == 0);
	CHECK(sigismember(&blocked, SIGALRM) && sigismember(&blocked, SIGTERM));
	for (size_t each = 0; each < count; each++) {
		CHECK(faults[each].thread != (unsigned)gettid() && faults[each].is_write <= 1);
		size_t offset = (unsigned char *)faults[each].address - shared;
		if ((uintptr_t)faults[each].address < (uintptr_t)shared || offset >= 4 * REGION)
			continue;
		/* It may fault itself. */
		verify_from(shared + offset / PAGE * PAGE, PAGE, 60, offset / PAGE * PAGE);
		size_t page = offset / PAGE;
		for (int step = 0; step < 16; step++) {
			page = next_page(page);
			int answer = farmem_prefetch(shared + page * PAGE, PAGE);
			CHECK(answer == 0 || answer == EAGAIN);
		}
		observed.faults++;
	}
	observed.calls++;
	if (atomic_load(&observed.ends_itself))
		CHECK(farmem_register_prefetcher(NULL, NULL, 0) == 0);
}

static void follow_rule(void)
{
	size_t page = 1;
	for (size_t step = 0; step < 8 * REGION / PAGE; step++) {
		verify_from(shared + page * PAGE, PAGE, 60, page * PAGE);
		page = next_page(page);
	}
}

static void hint_prefetcher(void)
{
	shared = map_filled(4 * REGION, 60);
	int has_pager = is_present();
	CHECK(farmem_register_prefetcher(NULL, NULL, 0) == 0);
	CHECK(farmem_register_prefetcher(call_for_next, &observed, 101) == EINVAL);
	for (int round = 0; round < 3; round++) {
		observed.calls = 0;
		CHECK(farmem_register_prefetcher(call_for_next, &observed, round * 50) == 0);
		CHECK(farmem_register_prefetcher(call_for_next, &observed, 0) == EBUSY);
		for (int pass = 0; pass < 40 && (pass == 0 || (has_pager && observed.calls == 0)); pass++) {
			squeeze();
			follow_rule();
		}
		CHECK((observed.calls > 0) == has_pager);
		/* A child has none, and may have one of its own. */
		pid_t child = fork();
		if (child == 0) {
			verify(shared, 4 * REGION, 60);
			CHECK(farmem_register_prefetcher(call_for_next, &observed, 0) == 0);
			CHECK(farmem_register_prefetcher(NULL, NULL, 0) == 0);
			_exit(9);
		}
		expect_exit(child, 9);
		CHECK(farmem_register_prefetcher(NULL, NULL, 0) == 0);
		size_t calls = observed.calls;
		squeeze();
		follow_rule();
		CHECK(observed.calls == calls);
	}
	/* The last one takes itself away. */
	observed.calls = 0;
	atomic_store(&observed.ends_itself, 1);
	CHECK(farmem_register_prefetcher(call_for_next, &observed, 100) == 0);
	for (int pass = 0; pass < 40 && has_pager && observed.calls == 0; pass++) {
		squeeze();
		follow_rule();
	}
	CHECK(farmem_register_prefetcher(NULL, NULL, 0) == 0);
	CHECK(observed.calls == (size_t)has_pager);
	CHECK(!has_pager || observed.faults > 0);
	unmap(shared, 4 * REGION);
}

const struct check hint_checks[] = {
	{"hint_prefetcher", hint_prefetcher},
	{"hint_prefetch", hint_prefetch},
	{"hint_prefetch_scattered", hint_prefetch_scattered},
	{"hint_pin", hint_pin},
	{"hint_pin_untouched", hint_pin_untouched},
	{"hint_pin_too_much", hint_pin_too_much},
	{"hint_pin_moves_and_ends", hint_pin_moves_and_ends},
	{"hint_pin_and_fork", hint_pin_and_fork},
	{"hint_cold", hint_cold},
	{"hint_anywhere", hint_anywhere},
	{"hint_threads", hint_threads},
	{"hint_of_memory_that_goes", hint_of_memory_that_goes},
	{0},
};
