// Who a program is, and what it may do: it gives rights up before or after its pager comes, alone and with all its threads.
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <grp.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <unistd.h>

#include "../memory.h"
#include "checks.h"

enum { NOBODY = 65534 };

static void give_up_new_privileges(void)
{
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
		end("prctl");
}

static int no_new_privileges(void)
{
	give_up_new_privileges();
	struct memory memory = fresh(48);
	size_t wrong = press_until_far(memory, 1);
	wrong += prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) != 1;
	return report("no new privileges", wrong + wrong_pages(memory));
}

// All calls but these are allowed; these have that verdict.
static void filter(const int *calls, size_t count, unsigned verdict)
{
	struct sock_filter lines[64];
	size_t nth = 0;
	lines[nth++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
	for (size_t call = 0; call < count; call++) {
		lines[nth++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, calls[call], 0, 1);
		lines[nth++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, verdict);
	}
	lines[nth++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
	struct sock_fprog program = {nth, lines};
	if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0)
		end("seccomp");
}

static volatile sig_atomic_t calls_met;

static void meet(int signal)
{
	calls_met += signal == SIGSYS;
}

// A filter that tells the program of each call that it doesn't make by itself: it is told of none.
static int trapped_calls(void)
{
	static const int calls[] = {SYS_clone, SYS_clone3, SYS_fork, SYS_vfork, SYS_userfaultfd, SYS_ptrace, SYS_process_vm_readv,
		SYS_process_vm_writev, SYS_socket, SYS_connect, SYS_memfd_create, SYS_pidfd_open, SYS_seccomp, SYS_prctl, SYS_openat,
		SYS_close, SYS_dup, SYS_mremap, SYS_set_tid_address, SYS_exit, SYS_kill, SYS_tgkill};
	signal(SIGSYS, meet);
	give_up_new_privileges();
	filter(calls, sizeof calls / sizeof *calls, SECCOMP_RET_TRAP);
	struct memory memory = fresh(48);
	size_t wrong = press_until_far(memory, 1) + calls_met;
	wrong += wrong_pages(memory);
	return report("trapped calls", wrong + calls_met);
}

// It has given up a call that it doesn't make, for good, and works on for a second.
static int forbidden_call(const char *what, int call, uint32_t verdict)
{
	give_up_new_privileges();
	filter(&call, 1, verdict);
	return report(what, press(fresh(48), 1));
}

static int forbids_ioctl(void)
{
	return forbidden_call("forbids ioctl", SYS_ioctl, SECCOMP_RET_ERRNO | EPERM);
}

static int forbids_madvise(void)
{
	return forbidden_call("forbids madvise", SYS_madvise, SECCOMP_RET_KILL_PROCESS);
}

// A worker of a program that has given up that call when its pager had come: the worker's own puppet ends.
static int worker_forbids_ioctl(void)
{
	static const int calls[] = {SYS_ioctl};
	struct memory memory = fresh(24);
	size_t wrong = press_until_far(memory, 1);
	give_up_new_privileges();
	filter(calls, 1, SECCOMP_RET_KILL_PROCESS);
	int status = 0;
	pid_t child = fork();
	if (child < 0)
		end("fork");
	if (child == 0) {
		struct memory own = fresh(24);
		_exit(press(own, 3) + wrong_pages(memory) != 0);
	}
	if (waitpid(child, &status, 0) != child)
		end("waitpid");
	return report("a worker forbids ioctl", wrong + (status != 0) + wrong_pages(memory));
}

// What a program can see of its pager, by calls that hardly any makes.
static int sees_its_pager(void)
{
	enum { COLLAPSE = 25, HUGE = 2 * MIB, TIME = 0x80 };
	struct memory memory = fresh(48);
	size_t wrong = press_until_far(memory, 2000), absent = 0;
	struct rusage children;
	getrusage(RUSAGE_CHILDREN, &children);
	printf("a child: %s\n", children.ru_maxrss > 0 ? "counted" : "none");
	for (size_t page = 0; page < memory.pages; page++) {
		void *address = memory.words + page * WORDS;
		int status = 0;
		if (syscall(SYS_move_pages, 0, 1UL, &address, NULL, &status, 0) != 0)
			end("move_pages");
		absent += status == -ENOENT;
	}
	printf("pages: %s\n", absent > 0 ? "absent" : "there");
	char *huge = (char *)(((uintptr_t)memory.words + HUGE - 1) / HUGE * HUGE);
	printf("collapse: %s\n", madvise(huge, HUGE, COLLAPSE) == 0 ? "done" : strerror(errno));
	int own = open("/proc/self/ns/time", O_RDONLY | O_CLOEXEC);
	printf("time namespace: %s\n", setns(own, TIME) == 0 ? "entered" : strerror(errno));
	return report("sees its pager", wrong + wrong_pages(memory));
}

static size_t resident_mebibytes(void)
{
	unsigned long size = 0, resident = 0, shared = 0;
	FILE *file = fopen("/proc/self/statm", "r");
	if (file == NULL || fscanf(file, "%lu %lu %lu", &size, &resident, &shared) != 3)
		end("statm");
	fclose(file);
	return (resident - shared) * PAGE / MIB;
}

// A child that takes four times the budget for itself, which is brought back to it: that it has so much is what its parent's pager can't help.
static int works_alone(struct memory given)
{
	struct memory own = fresh(48);
	size_t wrong = press_until_far(own, own.pages / 2);
	time_t began = time(NULL);
	while (resident_mebibytes() > 20 && time(NULL) - began < 30)
		wrong += wrong_pages(own);
	wrong += resident_mebibytes() > 20;
	wrong += wrong_pages(given);
	refill(&own, 3);
	return wrong + wrong_pages(own) != 0;
}

static size_t worker(struct memory memory)
{
	int status = 0;
	fflush(stdout);
	pid_t child = fork();
	if (child < 0)
		end("fork");
	if (child == 0)
		_exit(works_alone(memory));
	if (waitpid(child, &status, 0) != child)
		end("waitpid");
	return (status != 0) + wrong_pages(memory);
}

// What containers forbid: such a call fails.
static int refused_calls(void)
{
	static const int calls[] = {SYS_userfaultfd, SYS_ptrace, SYS_process_vm_readv, SYS_process_vm_writev, SYS_bpf, SYS_keyctl,
		SYS_mount, SYS_unshare, SYS_setns, SYS_pidfd_getfd, SYS_kcmp, SYS_perf_event_open, SYS_memfd_create};
	give_up_new_privileges();
	filter(calls, sizeof calls / sizeof *calls, SECCOMP_RET_ERRNO | EPERM);
	struct memory memory = fresh(24);
	size_t wrong = press_until_far(memory, 1);
	return report("refused calls", wrong + worker(memory));
}

static void become_nobody(void)
{
	if (setgroups(0, NULL) != 0 || setresgid(NOBODY, NOBODY, NOBODY) != 0 || setresuid(NOBODY, NOBODY, NOBODY) != 0)
		end("another user");
}

// Root loads, another user works: of what the kernel says about such a process nothing is its own to read.
static int gives_root_up_and_forks(void)
{
	struct memory memory = fresh(24);
	become_nobody();
	size_t wrong = press_until_far(memory, 1);
	return report("gives root up and forks", wrong + worker(memory));
}

static int gives_root_up_when_attached(void)
{
	struct memory memory = fresh(24);
	size_t wrong = press_until_far(memory, 1);
	become_nobody();
	give_up_new_privileges();
	return report("gives root up when attached", wrong + worker(memory));
}

// As agents do that keep secrets.
static int is_not_to_be_read(void)
{
	if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) != 0)
		end("prctl");
	struct memory memory = fresh(24);
	size_t wrong = press_until_far(memory, 1);
	wrong += worker(memory) + (prctl(PR_GET_DUMPABLE, 0, 0, 0, 0) != 0);
	return report("is not to be read", wrong);
}

// --- all threads

enum { THREADS = 4, MOST = 256 };

static struct memory everyones;
static atomic_size_t threads_wrong;
static atomic_int is_over;

static void *verify_all_the_time(void *unused)
{
	while (!atomic_load(&is_over))
		threads_wrong += wrong_pages(everyones);
	return unused;
}

static void *wait_all_the_time(void *unused)
{
	while (!atomic_load(&is_over))
		usleep(1000);
	return unused;
}

// Two that work with memory that is far, and two that wait.
static void begin_threads(pthread_t *threads)
{
	for (int nth = 0; nth < THREADS; nth++)
		if (pthread_create(&threads[nth], NULL, nth % 2 ? verify_all_the_time : wait_all_the_time, NULL) != 0)
			end("pthread_create");
}

static size_t end_threads(pthread_t *threads)
{
	atomic_store(&is_over, 1);
	for (int nth = 0; nth < THREADS; nth++)
		pthread_join(threads[nth], NULL);
	return threads_wrong;
}

static size_t threads_of_this(int *threads)
{
	size_t count = 0;
	DIR *folder = opendir("/proc/self/task");
	if (folder == NULL)
		end("/proc/self/task");
	for (struct dirent *entry; (entry = readdir(folder)) != NULL;)
		if (atoi(entry->d_name) != 0 && count < MOST)
			threads[count++] = atoi(entry->d_name);
	closedir(folder);
	return count;
}

static atomic_int answers;

// On memory that may be far.
static void answer(int signal)
{
	size_t page = (size_t)(signal + atomic_load(&answers)) * 97 % everyones.pages;
	threads_wrong += everyones.words[page * WORDS + 5] != word(everyones.generation, page, 5);
	atomic_fetch_add(&answers, 1);
}

// As libraries do that change what belongs to threads: each that the kernel names is sent a signal, and all are waited for. A thread of somebody else's would
// never answer.
static int every_thread_answers(void)
{
	pthread_t threads[THREADS];
	int own = (int)syscall(SYS_gettid), found[MOST];
	struct sigaction action = {.sa_handler = answer, .sa_flags = SA_RESTART};
	sigaction(SIGRTMIN + 3, &action, NULL);
	everyones = fresh(32);
	begin_threads(threads);
	time_t began = time(NULL);
	size_t wrong = 0;
	int rounds = 0;
	for (; (rounds < 300 || far_pages(everyones) == 0) && time(NULL) - began < 60; rounds++) {
		int asked = 0;
		atomic_store(&answers, 0);
		size_t count = threads_of_this(found);
		wrong += count != THREADS + 1;
		for (size_t nth = 0; nth < count; nth++)
			if (found[nth] != own)
				asked += syscall(SYS_tgkill, getpid(), found[nth], SIGRTMIN + 3) == 0;
		while (atomic_load(&answers) < asked && time(NULL) - began < 60)
			sched_yield();
		wrong += atomic_load(&answers) != asked;
	}
	wrong += rounds < 300 || far_pages(everyones) == 0;
	return report("every thread answers", wrong + end_threads(threads));
}

// The C library has each of its threads change.
static int all_threads_become_another_user(void)
{
	pthread_t threads[THREADS];
	int found[MOST];
	everyones = fresh(32);
	begin_threads(threads);
	size_t wrong = press_until_far(everyones, 1);
	become_nobody();
	size_t count = threads_of_this(found);
	wrong += count != THREADS + 1;
	for (size_t nth = 0; nth < count; nth++) {
		char path[64], line[256];
		unsigned ids[4] = {0};
		snprintf(path, sizeof path, "/proc/self/task/%d/status", found[nth]);
		FILE *file = fopen(path, "r");
		while (file != NULL && fgets(line, sizeof line, file) != NULL)
			sscanf(line, "Uid: %u %u %u %u", &ids[0], &ids[1], &ids[2], &ids[3]);
		if (file != NULL)
			fclose(file);
		for (int id = 0; id < 4; id++)
			wrong += ids[id] != NOBODY;
	}
	wrong += setuid(0) == 0;
	return report("all threads become another user", wrong + wrong_pages(everyones) + end_threads(threads));
}

static void become(const char *check)
{
	execl("/proc/self/exe", "unaware", check, NULL);
	end("execl");
}

static size_t failed_of(size_t count)
{
	size_t failed = 0;
	int status;
	for (size_t nth = 0; nth < count; nth++)
		failed += wait(&status) < 0 || status != 0;
	return failed;
}

// Large enough for a pager, which is on its way when the program becomes another one.
static int is_about_to_become_another(void)
{
	fresh(2);
	usleep(getpid() % 16 * 1000);
	become("has_become_another");
	return 1;
}

static int has_become_another(void)
{
	enum { CHILDREN = 3 };
	struct memory memory = fresh(2);
	usleep(8000);
	for (int nth = 0; nth < CHILDREN; nth++)
		if (fork() == 0)
			_exit(press(memory, 0.05) != 0);
	return failed_of(CHILDREN) + wrong_pages(memory) != 0;
}

static int becomes_others_that_fork(void)
{
	enum { ROUNDS = 12, AT_ONCE = 4 };
	struct memory memory = fresh(32);
	size_t wrong = press_until_far(memory, 1);
	for (int round = 0; round < ROUNDS; round++) {
		for (int nth = 0; nth < AT_ONCE; nth++)
			if (fork() == 0)
				become("is_about_to_become_another");
		wrong += failed_of(AT_ONCE);
	}
	return report("becomes others that fork", wrong + wrong_pages(memory));
}

static void *goes_on_alone(void *unused)
{
	(void)unused;
	usleep(100000);
	struct memory memory = fresh(48);
	size_t wrong = press_until_far(memory, 1);
	exit(report("first thread has ended", wrong + wrong_pages(memory)));
}

static int first_thread_has_ended(void)
{
	pthread_t thread;
	if (pthread_create(&thread, NULL, goes_on_alone, NULL) != 0)
		end("pthread_create");
	pthread_exit(NULL);
}

const struct check identity_checks[] = {
	{"no_new_privileges", no_new_privileges},
	{"trapped_calls", trapped_calls},
	{"refused_calls", refused_calls},
	{"forbids_ioctl", forbids_ioctl},
	{"forbids_madvise", forbids_madvise},
	{"worker_forbids_ioctl", worker_forbids_ioctl},
	{"sees_its_pager", sees_its_pager},
	{"gives_root_up_and_forks", gives_root_up_and_forks},
	{"gives_root_up_when_attached", gives_root_up_when_attached},
	{"is_not_to_be_read", is_not_to_be_read},
	{"every_thread_answers", every_thread_answers},
	{"all_threads_become_another_user", all_threads_become_another_user},
	{"first_thread_has_ended", first_thread_has_ended},
	{"becomes_others_that_fork", becomes_others_that_fork},
	{"is_about_to_become_another", is_about_to_become_another},
	{"has_become_another", has_become_another},
	{0},
};
