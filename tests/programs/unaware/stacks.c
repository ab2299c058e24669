// Stacks that grow, are deep, or are the program's own, and handlers that find memory far.
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#include "../memory.h"
#include "checks.h"

// --- mappings that grow downwards

// Together they are within the limit for stacks.
enum { BEGIN = 256 << 10, GROWN = 3 * MIB };
// Nothing else comes to lie below.
#define TOP ((unsigned char *)0x200000000000)

static void fill_from_the_top(struct memory stack)
{
	for (size_t page = stack.pages; page-- > 0;)
		fill_page(stack, page, stack.generation);
}

static size_t wrong_in_a_child(struct memory memory)
{
	int status = 0;
	pid_t child = fork();
	if (child == 0)
		_exit(wrong_pages(memory) != 0);
	if (child < 0 || waitpid(child, &status, 0) != child)
		end("a child");
	return status != 0;
}

static int mappings_that_grow_downwards(void)
{
	struct memory other = fresh(32);
	size_t wrong = press_until_far(other, 1);
	if (mmap(TOP - BEGIN, BEGIN, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_GROWSDOWN | MAP_STACK | MAP_FIXED_NOREPLACE,
		 -1, 0) != TOP - BEGIN)
		end("mmap");
	struct memory begun = {(uint64_t *)(TOP - BEGIN), BEGIN / PAGE, 5};
	fill_from_the_top(begun);
	wrong += press(other, 0.3) + wrong_pages(begun);
	// By calls that go deeper.
	struct memory all = {(uint64_t *)(TOP - GROWN), GROWN / PAGE, 6};
	fill_from_the_top(all);
	for (int round = 0; round < 4; round++)
		wrong += press(other, 0.2) + wrong_pages(all);
	wrong += wrong_in_a_child(all);
	// What has grown stays when what was asked for goes, and grows on.
	if (munmap(TOP - BEGIN, BEGIN) != 0)
		end("munmap");
	all.pages -= BEGIN / PAGE;
	wrong += press(other, 0.3) + wrong_pages(all);
	struct memory deeper = {(uint64_t *)(TOP - 2 * GROWN), GROWN / PAGE, 7};
	fill_from_the_top(deeper);
	wrong += press(other, 0.3) + wrong_pages(deeper) + wrong_pages(all);
	// What comes where all of it was is empty.
	if (munmap(TOP - 2 * GROWN, 2 * GROWN - BEGIN) != 0 ||
	    mmap(TOP - GROWN, GROWN, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) != TOP - GROWN)
		end("mmap");
	for (size_t nth = 0; nth < GROWN / 8; nth++)
		wrong += ((uint64_t *)(TOP - GROWN))[nth] != 0;
	return report("mappings that grow downwards", wrong + wrong_pages(other));
}

// --- the main thread's stack

static struct memory others;
static atomic_int is_deep, is_over;
static atomic_size_t others_wrong;

static void *press_while_it_is_deep(void *unused)
{
	while (!atomic_load(&is_deep))
		usleep(1000);
	others_wrong += press_until_far(others, 1) + press(others, 1);
	atomic_store(&is_over, 1);
	return unused;
}

static size_t __attribute__((noinline)) descend(size_t levels)
{
	volatile uint64_t own[WORDS * 15];
	size_t wrong = 0;
	for (size_t nth = 0; nth < sizeof own / sizeof *own; nth++)
		own[nth] = word(8, levels, nth);
	if (levels > 1)
		wrong += descend(levels - 1);
	else {
		atomic_store(&is_deep, 1);
		while (!atomic_load(&is_over))
			usleep(1000);
	}
	for (size_t nth = 0; nth < sizeof own / sizeof *own; nth++)
		wrong += own[nth] != word(8, levels, nth);
	return wrong;
}

static size_t descend_while_others_press(size_t mebibytes)
{
	pthread_t thread;
	atomic_store(&is_deep, 0);
	atomic_store(&is_over, 0);
	if (pthread_create(&thread, NULL, press_while_it_is_deep, NULL) != 0)
		end("pthread_create");
	size_t wrong = descend(mebibytes * MIB / (15 * PAGE));
	pthread_join(thread, NULL);
	return wrong + others_wrong;
}

// Far deeper than the budget, and then idle. It is left, and entered again.
static int a_deep_main_stack_that_is_idle(void)
{
	struct rlimit limit;
	getrlimit(RLIMIT_STACK, &limit);
	limit.rlim_cur = 64 * MIB;
	if (setrlimit(RLIMIT_STACK, &limit) != 0)
		end("setrlimit");
	others = fresh(24);
	size_t wrong = 0;
	for (int round = 0; round < 2; round++)
		wrong += descend_while_others_press(48);
	return report("a deep main stack", wrong + wrong_pages(others));
}

// --- guards of a runtime's own

static struct memory heap;
static volatile sig_atomic_t guards_met, strangers_met;

// As runtimes look closely at a fault before they take it for their own.
static void open_guard(int signal, siginfo_t *information, void *context)
{
	const ucontext_t *where = context;
	uintptr_t address = (uintptr_t)information->si_addr, start = (uintptr_t)heap.words;
	enum { PAGE_FAULT = 14, IS_THERE = 1, BY_USER = 4 };
	unsigned long error = where->uc_mcontext.gregs[REG_ERR];
	int is_right = signal == SIGSEGV && information->si_code == SEGV_ACCERR && address >= start && address < start + heap.pages * PAGE &&
		       (uintptr_t)where->uc_mcontext.gregs[REG_CR2] == address && where->uc_mcontext.gregs[REG_TRAPNO] == PAGE_FAULT && error & BY_USER;
	if (!is_right)
		strangers_met++;
	guards_met++;
	mprotect((void *)(address & -PAGE), PAGE, PROT_READ | PROT_WRITE);
	// The handler has memory of its own, which is as far.
	for (size_t page = 0; page < others.pages; page += 512)
		strangers_met += others.words[page * WORDS + 9] != word(others.generation, page, 9);
}

static int guards_on_memory_that_is_far(void)
{
	static const int protections[] = {PROT_NONE, PROT_READ};
	stack_t stack = {.ss_size = 16 * PAGE};
	// Between guards, and itself far: the kernel writes the frame of the signal there.
	unsigned char *around = mmap(NULL, 18 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	stack.ss_sp = around + PAGE;
	if (around == MAP_FAILED || mprotect(stack.ss_sp, stack.ss_size, PROT_READ | PROT_WRITE) != 0 || sigaltstack(&stack, NULL) != 0)
		end("a stack for signals");
	struct sigaction action = {.sa_sigaction = open_guard, .sa_flags = SA_SIGINFO | SA_ONSTACK};
	sigaction(SIGSEGV, &action, NULL);
	heap = fresh(16);
	others = fresh(32);
	size_t wrong = press_until_far(heap, 1);
	for (int round = 0; round < 6; round++) {
		int protection = protections[round % 2];
		wrong += press(others, 0.2);
		if (mprotect(heap.words, heap.pages * PAGE, protection) != 0)
			end("mprotect");
		if (round % 3 == 0)
			wrong += press(others, 0.2);
		guards_met = 0;
		refill(&heap, round + 10);
		// Each page was met once, by the write.
		wrong += (size_t)guards_met != heap.pages;
		wrong += wrong_pages(heap);
	}
	wrong += mprotect(heap.words, heap.pages * PAGE, PROT_READ | PROT_WRITE) != 0;
	return report("guards on memory that is far", wrong + strangers_met + wrong_pages(others));
}

const struct check stack_checks[] = {
	{"mappings_that_grow_downwards", mappings_that_grow_downwards},
	{"a_deep_main_stack_that_is_idle", a_deep_main_stack_that_is_idle},
	{"guards_on_memory_that_is_far", guards_on_memory_that_is_far},
	{0},
};
