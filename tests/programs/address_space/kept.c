/* Children that their parent serves: each one until its own pager has begun, and for good those that can't have one, here because
   there are no descriptors left for it. */
#include "check.h"

#include <sched.h>
#include <sys/resource.h>

#define REGION (4 * MEBIBYTE)

/* Runs in each new child before its own pager begins: in a child, handlers run in the order in which they were registered, and
   nobody registers one earlier than this. */
static void (*in_new_child)(void);

static void new_child(void)
{
	if (in_new_child)
		in_new_child();
}

/* Runs just before the kernel forks: these handlers run the other way round. */
static void (*before_fork)(void);

static void fork_begins(void)
{
	if (before_fork)
		before_fork();
}

static void register_early(void)
{
	pthread_atfork(fork_begins, NULL, new_child);
}

__attribute__((section(".preinit_array"), used)) static void (*const before_libraries)(void) = register_early;

static pid_t clone_process(void)
{
	return (pid_t)syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, 0);
}

/* Shared by all processes. */
static atomic_int *stage;

static void make_stage(void)
{
	stage = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(stage != MAP_FAILED);
}

/* Two minutes at most: whoever is to go on may have been killed. */
static void await_stage(int wanted)
{
	for (int look = 0; atomic_load(stage) < wanted; look++) {
		CHECK(look < 120000);
		usleep(1000);
	}
}

static void allow_few_descriptors(void)
{
	struct rlimit limit = {.rlim_cur = 4, .rlim_max = 4};
	squeeze();
	closefrom(3);
	CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
}

static unsigned char *move(unsigned char *from, unsigned char *to)
{
	CHECK(mremap(from, REGION, REGION, MREMAP_MAYMOVE | MREMAP_FIXED, to) == to);
	return to;
}

static unsigned char *early_memory, *early_target;

static void unmap_early(void)
{
	unmap(early_memory, REGION);
}

static void discard_early(void)
{
	CHECK(madvise(early_memory, REGION, MADV_DONTNEED) == 0);
}

static void move_early(void)
{
	move(early_memory, early_target);
}

static void fork_early(void)
{
	in_new_child = NULL;
	pid_t child = fork();
	if (child == 0) {
		verify(early_memory, REGION, 161);
		_exit(0);
	}
	expect_exit(child, 0);
}

/* The child changes its memory before its pager begins. */
static void fork_changes_early(void)
{
	void (*const changes[])(void) = {unmap_early, discard_early, move_early, fork_early};
	unsigned char *memory = map_filled(REGION, 160);
	early_target = map(REGION);
	for (size_t number = 0; number < sizeof changes / sizeof *changes; number++) {
		early_memory = map_filled(REGION, 161);
		squeeze();
		in_new_child = changes[number];
		pid_t child = fork();
		in_new_child = NULL;
		if (child == 0) {
			if (changes[number] == unmap_early)
				CHECK(mmap(early_memory, REGION, PROT_READ | PROT_WRITE,
					   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == early_memory);
			if (changes[number] == unmap_early || changes[number] == discard_early)
				verify_zero(early_memory, REGION);
			if (changes[number] == move_early)
				verify(early_target, REGION, 161);
			verify(memory, REGION, 160);
			fill(memory, REGION, 162);
			squeeze();
			verify(memory, REGION, 162);
			_exit(0);
		}
		squeeze();
		verify(early_memory, REGION, 161);
		expect_exit(child, 0);
		verify(memory, REGION, 160);
		unmap(early_memory, REGION);
	}
}

static void touch_early(void)
{
	verify(early_memory, REGION, 161);
}

/* The test has the child killed while it waits for its first page; it may also live. */
static void fork_ends_early(void)
{
	unsigned char *memory = map_filled(REGION, 160);
	early_memory = map_filled(REGION, 161);
	for (int round = 0; round < 3; round++) {
		squeeze();
		in_new_child = touch_early;
		pid_t child = fork();
		in_new_child = NULL;
		if (child == 0)
			_exit(0);
		int status;
		CHECK(child > 0 && waitpid(child, &status, 0) == child);
		CHECK(status == 0 || (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL));
		squeeze();
		verify(memory, REGION, 160);
	}
}

static void fork_and_verify(int signal)
{
	(void)signal;
	pid_t child = fork();
	if (child == 0) {
		verify(early_memory, REGION, 161);
		_exit(0);
	}
	expect_exit(child, 0);
}

static void interrupt(void)
{
	before_fork = NULL;
	CHECK(raise(SIGUSR1) == 0);
}

/* A signal comes while the process is forking, and its handler forks. */
static void fork_within_a_fork(void)
{
	early_memory = map_filled(REGION, 161);
	struct sigaction action = {.sa_handler = fork_and_verify};
	CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
	for (int round = 0; round < 3; round++) {
		squeeze();
		before_fork = interrupt;
		pid_t child = fork();
		if (child == 0) {
			verify(early_memory, REGION, 161);
			fill(early_memory, REGION, 162);
			squeeze();
			verify(early_memory, REGION, 162);
			_exit(0);
		}
		squeeze();
		expect_exit(child, 0);
		verify(early_memory, REGION, 161);
		fork_and_verify(0);
	}
}

/* What a grandchild has is neither what the first process has now, nor where it was there. */
static void kept_grandchildren(void)
{
	unsigned char *unmapped = map_filled(REGION, 160), *moved = map_filled(REGION, 161), *target = map(REGION);
	make_stage();
	allow_few_descriptors();
	squeeze();
	pid_t child = fork();
	if (child == 0) {
		await_stage(1);
		move(moved, target);
		pid_t grandchild = fork();
		if (grandchild == 0) {
			verify(unmapped, REGION, 160);
			verify(target, REGION, 161);
			_exit(0);
		}
		expect_exit(grandchild, 0);
		verify(unmapped, REGION, 160);
		verify(target, REGION, 161);
		_exit(0);
	}
	unmap(unmapped, REGION);
	atomic_store(stage, 1);
	expect_exit(child, 0);
	verify(moved, REGION, 161);
	verify_zero(target, REGION);
}

/* Served children that all make one more at once. */
static void bare_children_clone(void)
{
	enum { COUNT = 12 };
	unsigned char *memory = map_filled(REGION, 160);
	make_stage();
	squeeze();
	pid_t children[COUNT];
	for (int number = 0; number < COUNT; number++) {
		children[number] = clone_process();
		if (children[number] == 0) {
			await_stage(1);
			pid_t grandchild = clone_process();
			if (grandchild == 0) {
				verify(memory, MEBIBYTE, 160);
				syscall(SYS_exit_group, 0);
			}
			expect_exit(grandchild, 0);
			syscall(SYS_exit_group, 0);
		}
	}
	atomic_store(stage, 1);
	for (int number = 0; number < COUNT; number++)
		expect_exit(children[number], 0);
	verify(memory, REGION, 160);
}

static unsigned char *beside[4];

static void await_changes(void)
{
	atomic_store(stage, 1);
	await_stage(2);
}

static void *change_beside(void *unused)
{
	await_stage(1);
	CHECK(madvise(beside[0], REGION, MADV_DONTNEED) == 0);
	unmap(beside[1], REGION);
	move(beside[2], beside[3]);
	atomic_store(stage, 2);
	return unused;
}

static void fork_beside_changes(void)
{
	for (int number = 0; number < 3; number++)
		beside[number] = map_filled(REGION, 160 + (uint64_t)number);
	beside[3] = map(REGION);
	atomic_store(stage, 0);
	squeeze();
	pthread_t thread = start_thread(change_beside, NULL);
	in_new_child = await_changes;
	pid_t child = fork();
	in_new_child = NULL;
	if (child == 0) {
		for (int number = 0; number < 3; number++)
			verify(beside[number], REGION, 160 + (uint64_t)number);
		verify_zero(beside[3], REGION);
		_exit(0);
	}
	expect_exit(child, 0);
	join_thread(thread);
	verify_zero(beside[0], REGION);
	verify(beside[3], REGION, 162);
	unmap(beside[0], REGION);
	unmap(beside[3], REGION);
}

/* Another thread of the parent changes memory when the child is there but its pager has not begun. */
static void changes_beside_a_fork(void)
{
	make_stage();
	fork_beside_changes();
	allow_few_descriptors();
	fork_beside_changes();
}

/* Lets the other thread go on, until it has changed what is at beside[0]: the page that is touched here stays while the process forks. */
static void let_change(void)
{
	unsigned char resident;
	verify_from(beside[0], PAGE, 160, 0);
	atomic_store(stage, 1);
	for (int look = 0; mincore(beside[0], PAGE, &resident) == 0 && resident & 1; look++) {
		CHECK(look < 120000);
		usleep(1000);
	}
}

static void *move_before(void *unused)
{
	await_stage(1);
	move(beside[0], beside[1]);
	return unused;
}

static void *replace_before(void *unused)
{
	await_stage(1);
	CHECK(mmap(beside[0], REGION, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == beside[0]);
	return unused;
}

/* Another thread has just moved, or replaced, memory when the process forks. The test has the pager hear of it late. */
static void changes_before_a_fork(void)
{
	void *(*const changes[])(void *) = {move_before, replace_before};
	make_stage();
	for (int number = 0; number < 2; number++) {
		beside[0] = map_filled(REGION, 160);
		/* Nobody manages this, so moving something here is one change and not two. */
		beside[1] = mmap(NULL, REGION, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		CHECK(beside[1] != MAP_FAILED);
		atomic_store(stage, 0);
		squeeze();
		pthread_t thread = start_thread(changes[number], NULL);
		before_fork = let_change;
		pid_t child = fork();
		before_fork = NULL;
		unsigned char *memory = beside[number == 0];
		if (child == 0) {
			if (number == 0)
				verify(memory, REGION, 160);
			else
				verify_zero(memory, REGION);
			fill(memory, REGION, 161);
			squeeze();
			verify(memory, REGION, 161);
			_exit(0);
		}
		expect_exit(child, 0);
		join_thread(thread);
		if (number == 0)
			verify(memory, REGION, 160);
		else
			verify_zero(memory, REGION);
		unmap(memory, REGION);
	}
}

/* More than can be served at a time, one after the other. */
static void many_bare_children(void)
{
	unsigned char *memory = map_filled(REGION, 160);
	squeeze();
	for (size_t number = 0; number < 1500; number++) {
		pid_t child = clone_process();
		CHECK(child >= 0);
		if (child == 0) {
			size_t at = number % (REGION / PAGE) * PAGE;
			verify_from(memory + at, PAGE, 160, at);
			syscall(SYS_exit_group, 0);
		}
		expect_exit(child, 0);
	}
	verify(memory, REGION, 160);
}

/* A process that the C library hears nothing of makes one that it hears of. */
static void bare_child_forks(void)
{
	unsigned char *memory = map_filled(REGION, 160);
	squeeze();
	for (int round = 0; round < 6; round++) {
		pressure_start();
		usleep(20000);
		pid_t child = clone_process();
		CHECK(child >= 0);
		if (child == 0) {
			pid_t grandchild = fork();
			if (grandchild == 0) {
				verify(memory, REGION, 160);
				syscall(SYS_exit_group, 0);
			}
			expect_exit(grandchild, 0);
			verify(memory, REGION, 160);
			syscall(SYS_exit_group, 0);
		}
		expect_exit(child, 0);
		pressure_stop();
		pid_t forked = fork();
		if (forked == 0) {
			verify(memory, REGION, 160);
			_exit(0);
		}
		expect_exit(forked, 0);
		verify(memory, REGION, 160);
	}
}

const struct check kept_checks[] = {
	{"fork_changes_early", fork_changes_early},
	{"fork_ends_early", fork_ends_early},
	{"fork_within_a_fork", fork_within_a_fork},
	{"kept_grandchildren", kept_grandchildren},
	{"bare_children_clone", bare_children_clone},
	{"changes_beside_a_fork", changes_beside_a_fork},
	{"changes_before_a_fork", changes_before_a_fork},
	{"many_bare_children", many_bare_children},
	{"bare_child_forks", bare_child_forks},
	{0},
};
