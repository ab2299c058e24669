/* Processes that are forked, cloned, replaced and left behind while their memory is far. */
#include "check.h"

#include <linux/futex.h>
#include <sched.h>
#include <spawn.h>
#include <time.h>

#define REGION (4 * MEBIBYTE)

extern char **environ;

static void fork_writes_both_sides(void)
{
	unsigned char *memory = map_filled(REGION, 101);
	for (int round = 0; round < 3; round++) {
		squeeze();
		pid_t child = fork();
		if (child == 0) {
			verify(memory, REGION, 101 + (uint64_t)round);
			fill(memory, REGION / 2, 201);
			squeeze();
			verify(memory, REGION / 2, 201);
			verify_from(memory + REGION / 2, REGION / 2, 101 + (uint64_t)round, REGION / 2);
			squeeze();
			verify(memory, REGION / 2, 201);
			_exit(0);
		}
		/* The child still reads what this overwrites. */
		fill(memory, REGION, 102 + (uint64_t)round);
		squeeze();
		verify(memory, REGION, 102 + (uint64_t)round);
		expect_exit(child, 0);
		verify(memory, REGION, 102 + (uint64_t)round);
	}
}

/* The parent writes nothing until the child is gone, and the other way round. */
static void fork_writes_one_side(void)
{
	unsigned char *memory = map_filled(REGION, 103);
	squeeze();
	pid_t child = fork();
	if (child == 0) {
		fill(memory, REGION, 104);
		squeeze();
		verify(memory, REGION, 104);
		_exit(0);
	}
	expect_exit(child, 0);
	verify(memory, REGION, 103);
	int to_child[2];
	CHECK(pipe(to_child) == 0);
	squeeze();
	child = fork();
	if (child == 0) {
		char go;
		CHECK(read(to_child[0], &go, 1) == 1);
		verify(memory, REGION, 103);
		squeeze();
		verify(memory, REGION, 103);
		_exit(0);
	}
	fill(memory, REGION, 105);
	squeeze();
	CHECK(munmap(memory + REGION / 2, REGION / 2) == 0);
	CHECK(write(to_child[1], "g", 1) == 1);
	expect_exit(child, 0);
	verify(memory, REGION / 2, 105);
}

/* All memory is written by both processes at once, so that nothing stays shared. */
static void fork_writes_everything(void)
{
	const size_t bytes = 64 * MEBIBYTE;
	unsigned char *memory = map_filled(bytes, 125);
	for (int round = 0; round < 2; round++) {
		pid_t child = fork();
		CHECK(child >= 0);
		uint64_t seed = child == 0 ? 126 : 127;
		for (size_t offset = 0; offset < bytes; offset += PAGE) {
			verify_from(memory + offset, PAGE, 125, offset);
			fill(memory + offset, PAGE, seed + offset);
		}
		for (size_t offset = 0; offset < bytes; offset += PAGE)
			verify(memory + offset, PAGE, seed + offset);
		if (child == 0)
			_exit(0);
		expect_exit(child, 0);
		fill(memory, bytes, 125);
	}
}

/* Pages here and there, so that neither writing nor eviction finds neighbours. */
static void write_scattered(unsigned char *memory, size_t bytes, uint64_t seed)
{
	size_t pages = bytes / PAGE;
	for (size_t step = 0; step < pages; step++) {
		size_t page = step * 7919 % pages;
		verify_from(memory + page * PAGE, PAGE, 128, page * PAGE);
		fill(memory + page * PAGE, PAGE, seed + page);
	}
	for (size_t page = 0; page < pages; page++)
		verify(memory + page * PAGE, PAGE, seed + page);
}

/* Three processes share pages, and let go of some without writing them. */
static void fork_writes_scattered(void)
{
	const size_t bytes = 32 * MEBIBYTE, dropped = 4 * MEBIBYTE;
	unsigned char *memory = map_filled(bytes, 128);
	unsigned char *more = map_filled(dropped, 129);
	pid_t children[2];
	for (size_t number = 0; number < 2; number++) {
		children[number] = fork();
		CHECK(children[number] >= 0);
		if (children[number] == 0) {
			unmap(more, dropped);
			write_scattered(memory, bytes, 200000 * (number + 1));
			_exit(0);
		}
	}
	CHECK(madvise(more, dropped, MADV_DONTNEED) == 0);
	write_scattered(memory, bytes, 600000);
	verify_zero(more, dropped);
	for (size_t number = 0; number < 2; number++)
		expect_exit(children[number], 0);
}

static void *fork_from_thread(void *argument)
{
	uint64_t seed = (uintptr_t)argument;
	unsigned char *memory = map_filled(MEBIBYTE, seed);
	for (int round = 0; round < 3; round++) {
		pid_t child = fork();
		if (child == 0) {
			squeeze_afresh();
			verify(memory, MEBIBYTE, seed);
			fill(memory, MEBIBYTE, seed + 1);
			squeeze();
			verify(memory, MEBIBYTE, seed + 1);
			_exit(0);
		}
		expect_exit(child, 0);
		verify(memory, MEBIBYTE, seed);
	}
	return NULL;
}

static void fork_from_threads(void)
{
	pthread_t threads[3];
	pressure_start();
	for (uintptr_t number = 0; number < 3; number++)
		threads[number] = start_thread(fork_from_thread, (void *)(1000 + number * 10));
	for (size_t number = 0; number < 3; number++)
		join_thread(threads[number]);
	pressure_stop();
}

static void fork_and_exec(void)
{
	unsigned char *memory = map_filled(REGION, 106);
	for (int round = 0; round < 3; round++) {
		squeeze();
		pid_t child = fork();
		if (child == 0) {
			/* Its own `ok` must not be part of this program's output. */
			CHECK(dup2(2, 1) == 1);
			execl("/proc/self/exe", "address_space", "only_pressure", (char *)NULL);
			_exit(127);
		}
		verify(memory, REGION, 106);
		expect_exit(child, 0);
	}
}

static void descend(unsigned char *memory, int depth)
{
	for (int level = 0; level < depth; level++)
		verify(memory + (size_t)level * MEBIBYTE, MEBIBYTE, 300 + (uint64_t)level);
	if (depth == 4)
		return;
	fill(memory + (size_t)depth * MEBIBYTE, MEBIBYTE, 300 + (uint64_t)depth);
	squeeze();
	pid_t child = fork();
	if (child == 0) {
		descend(memory, depth + 1);
		_exit(0);
	}
	/* Ancestors change what their descendants have inherited. */
	fill(memory, MEBIBYTE, 400);
	expect_exit(child, 0);
	verify(memory, MEBIBYTE, 400);
	if (depth > 0)
		verify(memory + (size_t)depth * MEBIBYTE, MEBIBYTE, 300 + (uint64_t)depth);
}

static void fork_grandchildren(void)
{
	descend(map(4 * MEBIBYTE), 0);
}

static void fork_siblings(void)
{
	unsigned char *memory = map_filled(REGION, 107);
	pid_t children[4];
	squeeze();
	for (int number = 0; number < 4; number++) {
		children[number] = fork();
		if (children[number] == 0) {
			verify(memory, REGION, 107);
			fill(memory, REGION, 500 + (uint64_t)number);
			squeeze();
			verify(memory, REGION, 500 + (uint64_t)number);
			_exit(number);
		}
		fill(memory + (size_t)number * PAGE, PAGE, 9);
		fill(memory, REGION, 107);
	}
	for (int number = 0; number < 4; number++)
		expect_exit(children[number], number);
	verify(memory, REGION, 107);
}

static void fork_many_short(void)
{
	unsigned char *memory = map_filled(MEBIBYTE, 108);
	for (int round = 0; round < 60; round++) {
		if (round % 20 == 0)
			squeeze();
		pid_t child = fork();
		if (child == 0) {
			verify(memory + (size_t)round * PAGE, 0, 0);
			verify_from(memory + (size_t)round * PAGE, PAGE, 108, (size_t)round * PAGE);
			_exit(3);
		}
		expect_exit(child, 3);
	}
	verify(memory, MEBIBYTE, 108);
}

/* The usual way into the background: the parent ends, the grandchild goes on. */
static void parent_exits_first(void)
{
	unsigned char *memory = map_filled(REGION, 109);
	int from_daemon[2];
	CHECK(pipe(from_daemon) == 0);
	squeeze();
	pid_t child = fork();
	if (child == 0) {
		CHECK(setsid() > 0);
		pid_t grandchild = fork();
		CHECK(grandchild >= 0);
		if (grandchild > 0)
			_exit(0);
		while (getppid() == getpgrp())
			sched_yield();
		verify(memory, REGION, 109);
		fill(memory, REGION, 110);
		squeeze();
		verify(memory, REGION, 110);
		CHECK(write(from_daemon[1], "done", 4) == 4);
		_exit(0);
	}
	expect_exit(child, 0);
	fill(memory, REGION, 111);
	squeeze();
	char word[4];
	close(from_daemon[1]);
	CHECK(read(from_daemon[0], word, 4) == 4 && memcmp(word, "done", 4) == 0);
	verify(memory, REGION, 111);
}

/* A child that is still at work when the first process has ended; it leaves a file. */
static void child_outlives(void)
{
	unsigned char *memory = map_filled(REGION, 112);
	int to_child[2];
	CHECK(pipe(to_child) == 0);
	squeeze();
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		char end;
		close(to_child[1]);
		CHECK(read(to_child[0], &end, 1) == 0);
		for (int round = 0; round < 4; round++) {
			squeeze();
			verify(memory, REGION, 112);
		}
		int file = open("outlived.partial", O_WRONLY | O_CREAT, 0600);
		CHECK(file >= 0 && write(file, "verified", 8) == 8 && close(file) == 0);
		CHECK(rename("outlived.partial", "outlived") == 0);
		_exit(0);
	}
}

static void vfork_and_exec(void)
{
	char *path = (char *)map(PAGE);
	char **arguments = (char **)map(PAGE);
	strcpy(path, "/bin/true");
	arguments[0] = path;
	for (int round = 0; round < 5; round++) {
		squeeze();
		pid_t child = vfork();
		if (child == 0) {
			execve(path, arguments, environ);
			_exit(127);
		}
		expect_exit(child, 0);
		squeeze();
		child = vfork();
		if (child == 0)
			_exit(7);
		expect_exit(child, 7);
	}
}

static void spawn_and_friends(void)
{
	unsigned char *memory = map_filled(REGION, 113);
	char *arguments[] = {"sh", "-c", "exit 5", NULL};
	for (int round = 0; round < 4; round++) {
		squeeze();
		pid_t child;
		CHECK(posix_spawn(&child, "/bin/sh", NULL, NULL, arguments, environ) == 0);
		expect_exit(child, 5);
		squeeze();
		int status = system("exit 6");
		CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 6);
		squeeze();
		FILE *stream = popen("echo from the other side", "r");
		char line[64];
		CHECK(stream && fgets(line, sizeof line, stream));
		CHECK(strcmp(line, "from the other side\n") == 0);
		CHECK(pclose(stream) == 0);
		verify(memory, REGION, 113);
	}
}

/* A fork that no library hears of. */
static void raw_clone_process(void)
{
	unsigned char *memory = map_filled(REGION, 114);
	for (int round = 0; round < 3; round++) {
		squeeze();
		long child = syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, 0);
		CHECK(child >= 0);
		if (child == 0) {
			verify(memory, REGION, 114);
			fill(memory, REGION, 115);
			squeeze();
			verify(memory, REGION, 115);
			syscall(SYS_exit_group, 0);
		}
		fill(memory, REGION, 114);
		expect_exit((pid_t)child, 0);
		verify(memory, REGION, 114);
	}
}

static void make_file(const char *name)
{
	int file = open(name, O_WRONLY | O_CREAT, 0600);
	CHECK(file >= 0 && close(file) == 0);
}

static void await_file(const char *name)
{
	while (access(name, F_OK) != 0)
		usleep(10000);
}

/* A process that goes on when its parent has ended; it leaves a file. The test makes the others: `alone` when nobody but
   the parent looks after its children any more, `end` when the parent is to end. */
static void outlive_alone(pid_t (*new_process)(void))
{
	unsigned char *memory = map_filled(REGION, 118);
	squeeze();
	make_file("ready");
	await_file("alone");
	squeeze();
	pid_t parent = getpid();
	pid_t child = new_process();
	CHECK(child >= 0);
	if (child == 0) {
		while (getppid() == parent)
			usleep(10000);
		verify(memory, REGION, 118);
		make_file("outlived");
		_exit(0);
	}
	await_file("end");
}

static void fork_alone(void)
{
	outlive_alone(fork);
}

static pid_t clone_process(void)
{
	return (pid_t)syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, 0);
}

static void clone_alone(void)
{
	outlive_alone(clone_process);
}

struct raw_thread {
	unsigned char *memory;
	atomic_int done;
};

static int run_raw_thread(void *argument)
{
	struct raw_thread *task = argument;
	verify(task->memory, MEBIBYTE, 116);
	fill(task->memory, MEBIBYTE, 117);
	atomic_store(&task->done, 1);
	syscall(SYS_exit, 0);
	return 0;
}

enum { RAW_THREAD = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM };

/* Threads without a library's thread control block, on stacks that are far. */
static void raw_clone_thread(void)
{
	struct raw_thread *task = (struct raw_thread *)map(PAGE);
	task->memory = map(MEBIBYTE);
	unsigned char *stack = map(MEBIBYTE);
	for (int round = 0; round < 5; round++) {
		fill(task->memory, MEBIBYTE, 116);
		fill(stack, MEBIBYTE, 0);
		atomic_store(&task->done, 0);
		squeeze();
		CHECK(clone(run_raw_thread, stack + MEBIBYTE, RAW_THREAD, task) > 0);
		while (!atomic_load(&task->done))
			sched_yield();
		/* Done is not gone yet, and the stack is used again. */
		struct timespec pause = {.tv_nsec = 20 * 1000 * 1000};
		nanosleep(&pause, NULL);
		squeeze();
		verify(task->memory, MEBIBYTE, 117);
	}
}

/* The word that the kernel clears when a thread ends, on a page of its own that is far by then. */
static void raw_clone_cleared_word(void)
{
	struct raw_thread *task = (struct raw_thread *)map(PAGE);
	task->memory = map(MEBIBYTE);
	unsigned char *stack = map(MEBIBYTE);
	for (int round = 0; round < 5; round++) {
		uint32_t *word = (uint32_t *)map(PAGE);
		*word = 1;
		fill(task->memory, MEBIBYTE, 116);
		squeeze();
		CHECK(clone(run_raw_thread, stack + MEBIBYTE, RAW_THREAD | CLONE_CHILD_CLEARTID, task, NULL, NULL, word) >
		      0);
		/* A look at the word would bring it back: wait in the kernel, and for a bounded time. */
		struct timespec limit = {.tv_sec = 10};
		long woken = syscall(SYS_futex, word, FUTEX_WAIT, 1, &limit, NULL, 0);
		CHECK(woken == 0 || errno == EAGAIN);
		CHECK(*word == 0);
		verify(task->memory, MEBIBYTE, 117);
	}
}

static void *exec_from_thread(void *unused)
{
	execl("/bin/sh", "sh", "-c", "exit 8", (char *)NULL);
	_exit(127);
	return unused;
}

static void execve_from_thread(void)
{
	unsigned char *memory = map_filled(REGION, 118);
	for (int round = 0; round < 3; round++) {
		squeeze();
		pid_t child = fork();
		if (child == 0) {
			pressure_start();
			start_thread(exec_from_thread, NULL);
			for (;;)
				pause();
		}
		expect_exit(child, 8);
		verify(memory, REGION, 118);
	}
}

/* Memory under management has no huge pages; a program that is started from there begins with them. */
static void huge_pages_after_exec(void)
{
	unsigned char *memory = map_filled(REGION, 120);
	squeeze();
	pid_t child = fork();
	if (child == 0) {
		squeeze();
		execl("/bin/sh", "sh", "-c", "exec grep -q 'THP_enabled:.*1' /proc/self/status", (char *)NULL);
		_exit(127);
	}
	expect_exit(child, 0);
	verify(memory, REGION, 120);
}

static void *fault_forever(void *argument)
{
	unsigned char *memory = argument;
	for (;;)
		verify(memory, REGION, 119);
	return NULL;
}

/* A process that ends, or is ended, while its threads wait for pages. */
static void end_while_faulting(void)
{
	unsigned char *memory = map_filled(REGION, 119);
	for (int round = 0; round < 6; round++) {
		pid_t child = fork();
		if (child == 0) {
			squeeze();
			start_thread(fault_forever, memory);
			start_thread(fault_forever, memory);
			squeeze();
			if (round % 2)
				raise(SIGKILL);
			exit(9);
		}
		if (round % 2) {
			int how;
			CHECK(waitpid(child, &how, 0) == child && WIFSIGNALED(how) && WTERMSIG(how) == SIGKILL);
		} else {
			expect_exit(child, 9);
		}
		verify(memory, REGION, 119);
	}
}

static void fork_while_child_lives_on(void)
{
	/* Two forks of the same memory that is changed in between: three versions at the same time. */
	unsigned char *memory = map_filled(REGION, 120);
	int gate[2];
	CHECK(pipe(gate) == 0);
	pid_t children[2];
	for (int number = 0; number < 2; number++) {
		squeeze();
		children[number] = fork();
		if (children[number] == 0) {
			char end;
			close(gate[1]);
			CHECK(read(gate[0], &end, 1) == 0);
			verify(memory, REGION, 120 + (uint64_t)number);
			squeeze();
			verify(memory, REGION, 120 + (uint64_t)number);
			_exit(0);
		}
		fill(memory, REGION, 121 + (uint64_t)number);
	}
	squeeze();
	close(gate[1]);
	for (int number = 0; number < 2; number++)
		expect_exit(children[number], 0);
	verify(memory, REGION, 122);
}

static void drop_privileges(void)
{
	unsigned char *memory = map_filled(REGION, 123);
	squeeze();
	if (geteuid() != 0) {
		skip("only root can drop privileges");
		return;
	}
	CHECK(chroot("/proc/self/fdinfo") == 0 && chdir("/") == 0);
	CHECK(setgid(65534) == 0 && setuid(65534) == 0);
	verify(memory, REGION, 123);
	unsigned char *more = map_filled(REGION, 124);
	squeeze();
	verify(more, REGION, 124);
	pid_t child = fork();
	if (child == 0) {
		verify(memory, REGION, 123);
		squeeze();
		verify(more, REGION, 124);
		_exit(0);
	}
	expect_exit(child, 0);
	squeeze();
	verify(memory, REGION, 123);
}

const struct check process_checks[] = {
	{"fork_writes_both_sides", fork_writes_both_sides},
	{"fork_writes_one_side", fork_writes_one_side},
	{"fork_writes_everything", fork_writes_everything},
	{"fork_writes_scattered", fork_writes_scattered},
	{"fork_from_threads", fork_from_threads},
	{"fork_and_exec", fork_and_exec},
	{"fork_grandchildren", fork_grandchildren},
	{"fork_siblings", fork_siblings},
	{"fork_many_short", fork_many_short},
	{"fork_while_child_lives_on", fork_while_child_lives_on},
	{"parent_exits_first", parent_exits_first},
	{"child_outlives", child_outlives},
	{"vfork_and_exec", vfork_and_exec},
	{"spawn_and_friends", spawn_and_friends},
	{"raw_clone_process", raw_clone_process},
	{"fork_alone", fork_alone},
	{"clone_alone", clone_alone},
	{"raw_clone_thread", raw_clone_thread},
	{"raw_clone_cleared_word", raw_clone_cleared_word},
	{"execve_from_thread", execve_from_thread},
	{"huge_pages_after_exec", huge_pages_after_exec},
	{"end_while_faulting", end_while_faulting},
	{"drop_privileges", drop_privileges},
	{0},
};
