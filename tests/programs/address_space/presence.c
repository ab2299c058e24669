/* What a program can do although somebody else is in its process: end thread by thread, enter namespaces, start programs from
   small stacks and in strange places. */
#include "check.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <ucontext.h>

#define REGION (2 * MEBIBYTE)

static _Noreturn void end_thread(int status)
{
	for (;;)
		syscall(SYS_exit, status);
}

static void *end_later(void *memory)
{
	squeeze();
	verify(memory, REGION, 151);
	end_thread(8);
	return NULL;
}

/* The process ends with its last thread, whoever else has threads in it. */
static void ends_thread_by_thread(void)
{
	unsigned char *memory = map_filled(REGION, 151);
	squeeze();
	pid_t child = fork();
	if (child == 0) {
		squeeze();
		end_thread(7);
	}
	expect_exit(child, 7);
	child = fork();
	if (child == 0) {
		start_thread(end_later, memory);
		end_thread(8);
	}
	expect_exit(child, 8);
	/* Small, and so without a pager that manages anything, if its parent is. */
	child = fork();
	if (child == 0)
		end_thread(10);
	expect_exit(child, 10);
	verify(memory, REGION, 151);
}

/* In strict mode a process can't end in any other way. */
static void ends_in_strict_mode(void)
{
	unsigned char *memory = map_filled(REGION, 152);
	squeeze();
	pid_t child = fork();
	if (child == 0) {
		CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT) == 0);
		verify(memory, REGION, 152);
		end_thread(11);
	}
	expect_exit(child, 11);
}

/* A filter that ends the thread ends the process of one thread, by a signal. */
static void ends_by_a_filter(void)
{
	unsigned char *memory = map_filled(REGION, 153);
	squeeze();
	pid_t child = fork();
	if (child == 0) {
		struct sock_filter steps[] = {
			BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0),
			BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getppid, 0, 1),
			BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_THREAD),
			BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
		};
		struct sock_fprog program = {.len = 4, .filter = steps};
		CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
		CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
		verify(memory, REGION, 153);
		syscall(SYS_getppid);
		_exit(1);
	}
	int how;
	CHECK(waitpid(child, &how, 0) == child);
	CHECK(WIFSIGNALED(how) && WTERMSIG(how) == SIGSYS);
}

static pthread_t first_thread;

/* Says what is resident: the test knows the budget. */
static void *look_alone(void *unused)
{
	join_thread(first_thread);
	for (int round = 0; round < 3; round++)
		squeeze();
	unsigned long size, resident, shared;
	FILE *file = fopen("/proc/thread-self/statm", "r");
	CHECK(file && fscanf(file, "%lu %lu %lu", &size, &resident, &shared) == 3);
	printf("%lu\n", (resident - shared) * PAGE);
	exit(0);
	return unused;
}

static void first_thread_ends_at_once(void)
{
	first_thread = pthread_self();
	start_thread(look_alone, NULL);
	pthread_exit(NULL);
}

/* Only a process of one thread may enter a user namespace. */
static void enters_user_namespace(void)
{
	pid_t child = fork();
	if (child == 0) {
		if (unshare(CLONE_NEWUSER) != 0) {
			CHECK(errno == EPERM || errno == ENOSPC);
			skip("this machine has no user namespaces");
		}
		unsigned char *memory = map_filled(REGION, 154);
		pid_t grandchild = fork();
		if (grandchild == 0) {
			verify(memory, REGION, 154);
			_exit(12);
		}
		expect_exit(grandchild, 12);
		CHECK(system("exit 13") == 13 << 8);
		verify(memory, REGION, 154);
		_exit(14);
	}
	expect_exit(child, 14);
	/* To a process of one thread these are nothing. */
	CHECK(unshare(CLONE_VM | CLONE_SIGHAND) == 0);
	unsigned char *memory = map_filled(REGION, 155);
	squeeze();
	verify(memory, REGION, 155);
}

/* Only a process whose root and current folder are its own may enter another mount namespace. */
static void enters_mount_namespace(void)
{
	unsigned char *memory = map_filled(REGION, 156);
	squeeze();
	pid_t child = fork();
	if (child == 0) {
		int namespace = open("/proc/self/ns/mnt", O_RDONLY | O_CLOEXEC);
		CHECK(namespace >= 0);
		if (setns(namespace, CLONE_NEWNS) != 0) {
			CHECK(errno == EPERM);
			skip("only root can enter a mount namespace");
		}
		squeeze();
		verify(memory, REGION, 156);
		_exit(0);
	}
	expect_exit(child, 0);
}

static ucontext_t caller, coroutine;

static void exec_in_coroutine(void)
{
	execl("/bin/sh", "sh", "-c", "exit 15", NULL);
	_exit(1);
}

/* As from a signal's stack, or a coroutine's. */
static void exec_on_small_stack(void)
{
	size_t bytes = 2 * PAGE;
	unsigned char *stack = map(bytes + PAGE);
	CHECK(mprotect(stack, PAGE, PROT_NONE) == 0);
	squeeze();
	pid_t child = fork();
	if (child == 0) {
		CHECK(getcontext(&coroutine) == 0);
		coroutine.uc_stack.ss_sp = stack + PAGE;
		coroutine.uc_stack.ss_size = bytes;
		coroutine.uc_link = &caller;
		makecontext(&coroutine, exec_in_coroutine, 0);
		swapcontext(&caller, &coroutine);
	}
	expect_exit(child, 15);
}

#define TEN "1", "2", "3", "4", "5", "6", "7", "8", "9", "0"
#define HUNDRED TEN, TEN, TEN, TEN, TEN, TEN, TEN, TEN, TEN, TEN
#define THOUSAND HUNDRED, HUNDRED, HUNDRED, HUNDRED, HUNDRED, HUNDRED, HUNDRED, HUNDRED, HUNDRED, HUNDRED

static void exec_with_many_arguments(void)
{
	pid_t child = fork();
	if (child == 0) {
		/* Behind the first, which is its name. */
		execl("/bin/sh", "sh", "-c", "exit $(($# / 100))", "name", THOUSAND, THOUSAND, NULL);
		_exit(1);
	}
	expect_exit(child, 20);
	squeeze();
}

const struct check presence_checks[] = {
	{"ends_thread_by_thread", ends_thread_by_thread},
	{"ends_in_strict_mode", ends_in_strict_mode},
	{"ends_by_a_filter", ends_by_a_filter},
	{"first_thread_ends_at_once", first_thread_ends_at_once},
	{"enters_user_namespace", enters_user_namespace},
	{"enters_mount_namespace", enters_mount_namespace},
	{"exec_on_small_stack", exec_on_small_stack},
	{"exec_with_many_arguments", exec_with_many_arguments},
	{0},
};
