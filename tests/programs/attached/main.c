// Programs that a pager comes to from outside, while they run. Linked statically: nothing can be loaded into them.
//
//   attached CHECK FOLDER      prints what it has found, and ends with 0 if that is as it should be

#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/sem.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <linux/filter.h>
#include <linux/futex.h>
#include <linux/seccomp.h>
#include <time.h>
#include <unistd.h>

#include "../memory.h"

// --- threads

static struct memory shared;
static size_t thread_wrong[4];

static void *work(void *argument)
{
	size_t own = (size_t)argument;
	for (int round = 0; round < 3; round++)
		for (size_t page = own; page < shared.pages; page += 4) {
			for (size_t nth = 0; nth < WORDS; nth++)
				thread_wrong[own] += shared.words[page * WORDS + nth] != word(round, page, nth);
			fill_page(shared, page, round + 1);
		}
	return NULL;
}

static int threads(void)
{
	pthread_t all[4];
	size_t wrong = 0;
	shared = fresh(48);
	for (size_t nth = 0; nth < 4; nth++)
		pthread_create(&all[nth], NULL, work, (void *)nth);
	for (size_t nth = 0; nth < 4; nth++) {
		pthread_join(all[nth], NULL);
		wrong += thread_wrong[nth];
	}
	return report("threads", wrong);
}

// --- forks

static int child_of(struct memory memory, uint64_t number)
{
	for (int round = 0; round < 2; round++) {
		if (wrong_pages(memory) != 0)
			return 1;
		refill(&memory, 1000 + number * 10 + round);
	}
	return wrong_pages(memory) != 0;
}

static pid_t bare_clone(void)
{
	return syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
}

static int forks(void)
{
	struct memory memory = fresh(24);
	size_t wrong = press(memory, 0.5);
	for (uint64_t number = 0; number < 6; number++) {
		pid_t child = number % 2 == 0 ? fork() : bare_clone();
		if (child < 0)
			end("fork");
		if (child == 0)
			_exit(child_of(memory, number));
		wrong += wrong_pages(memory);
		refill(&memory, number + 1);
		wrong += wrong_pages(memory);
		int status = 0;
		if (waitpid(child, &status, 0) != child)
			end("waitpid");
		wrong += status != 0;
	}
	return report("forks", wrong);
}

// 48 children at once, and grandchildren.
static int many(void)
{
	struct memory memory = fresh(16);
	size_t wrong = press(memory, 0.5);
	for (int number = 0; number < 48; number++) {
		pid_t child = bare_clone();
		if (child == 0) {
			pid_t grandchild = number % 8 == 0 ? bare_clone() : -1;
			int status = 0;
			if (grandchild == 0)
				_exit(wrong_pages(memory) != 0);
			if (grandchild > 0 && waitpid(grandchild, &status, 0) != grandchild)
				_exit(1);
			_exit(wrong_pages(memory) != 0 || status != 0);
		}
		wrong += child < 0;
	}
	wrong += wrong_pages(memory);
	int status;
	while (wait(&status) > 0)
		wrong += status != 0;
	return report("many", wrong);
}

static void result(const char *folder, size_t wrong)
{
	char name[4096], temporary[4096];
	snprintf(name, sizeof name, "%s/result", folder);
	snprintf(temporary, sizeof temporary, "%s/result.new", folder);
	FILE *file = fopen(temporary, "w");
	if (file == NULL)
		_exit(1);
	fprintf(file, "%zu wrong\n", wrong);
	fclose(file);
	rename(temporary, name);
}

// The one that was started ends, and its child goes on with what is far.
static int daemonises(const char *folder)
{
	struct memory memory = fresh(24);
	size_t wrong = press(memory, 0.5);
	pid_t parent = getpid();
	if (fork() != 0)
		return report("daemon's parent", wrong);
	while (getppid() == parent)
		usleep(1000);
	wrong += child_of(memory, 1);
	result(folder, wrong);
	return 0;
}

static void wait_for(const char *folder, const char *name)
{
	char path[4096];
	snprintf(path, sizeof path, "%s/%s", folder, name);
	while (access(path, F_OK) != 0)
		usleep(1000);
}

// A service as they begin: two forks, whose parents end at once, a session of its own, no terminal. It grows when nobody of those is left.
static int serves(const char *folder)
{
	if (fork() != 0)
		_exit(0);
	setsid();
	if (fork() != 0)
		_exit(0);
	int nowhere = open("/dev/null", O_RDWR);
	for (int number = 0; number < 3; number++)
		dup2(nowhere, number);
	usleep(300000);
	struct memory memory = fresh(24);
	size_t wrong = press(memory, 0.5);
	wrong += wrong_pages(memory);
	result(folder, wrong);
	wait_for(folder, "end");
	return 0;
}

// Two processes with one address space: the first of them ends.
static struct memory between;
static const char *between_folder;

static int partner(void *parent)
{
	while (getppid() == (pid_t)(intptr_t)parent)
		usleep(1000);
	size_t wrong = 0;
	for (int round = 0; round < 4; round++)
		wrong += wrong_pages(between);
	result(between_folder, wrong);
	_exit(0);
}

static int sharing(const char *folder)
{
	between = fresh(24);
	between_folder = folder;
	size_t wrong = press(between, 0.5);
	char *stack = mmap(NULL, MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (clone(partner, stack + MIB, CLONE_VM | SIGCHLD, (void *)(intptr_t)getpid()) < 0)
		end("clone");
	wrong += wrong_pages(between);
	printf("sharing: %zu wrong\n", wrong);
	fflush(stdout);
	_exit(wrong != 0);
}

// --- what a program sees of itself

static void append(char *text, size_t room, const char *format, ...)
{
	size_t length = strlen(text);
	va_list arguments;
	va_start(arguments, format);
	vsnprintf(text + length, room - length, format, arguments);
	va_end(arguments);
}

static void list(char *text, size_t room, const char *folder)
{
	struct dirent **entries;
	int count = scandir(folder, &entries, NULL, alphasort);
	append(text, room, "%s:", folder);
	for (int nth = 0; nth < count; nth++)
		append(text, room, " %s", entries[nth]->d_name);
	append(text, room, "\n");
}

static void copy_lines(char *text, size_t room, const char *file, const char *const *names)
{
	char line[4096];
	FILE *from = fopen(file, "r");
	if (from == NULL)
		return;
	while (fgets(line, sizeof line, from) != NULL)
		for (const char *const *name = names; *name != NULL; name++)
			if (strncmp(line, *name, strlen(*name)) == 0)
				append(text, room, "%s", line);
	fclose(from);
}

static void look(char *text, size_t room)
{
	static const char *const lines[] = {"Name:", "TracerPid:", "Uid:", "Gid:", "FDSize:", "Threads:", "SigBlk:", "SigIgn:",
		"SigCgt:", "CapEff:", "NoNewPrivs:", "Seccomp:", "PPid:", NULL};
	static const char *const limits[] = {"Max", NULL};
	char children[64];
	text[0] = 0;
	list(text, room, "/proc/self/task");
	list(text, room, "/proc/self/fd");
	copy_lines(text, room, "/proc/self/status", lines);
	copy_lines(text, room, "/proc/self/limits", limits);
	snprintf(children, sizeof children, "/proc/self/task/%d/children", getpid());
	copy_lines(text, room, children, (const char *const[]){"", NULL});
	append(text, room, "children by wait: %d, ", (int)waitpid(-1, NULL, WNOHANG | __WALL));
	append(text, room, "%s\n", errno == ECHILD ? "none" : "some");
	append(text, room, "session %d, group %d\n", getsid(0), getpgrp());
	append(text, room, "scheduled by policy %d, nice value %d\n", sched_getscheduler(0), getpriority(PRIO_PROCESS, 0));
	for (char **variable = environ; *variable != NULL; variable++)
		append(text, room, "%s\n", *variable);
}

static int unnoticed(void)
{
	static char before[1 << 16], after[1 << 16];
	look(before, sizeof before);
	struct memory memory = fresh(48);
	size_t wrong = press(memory, 1);
	look(after, sizeof after);
	if (strcmp(before, after) != 0) {
		printf("before:\n%s\nafter:\n%s\n", before, after);
		return 1;
	}
	return report("unnoticed", wrong);
}

// --- calls that wait

static int pipe_ends[2], sockets[2];
static uint32_t futex_word;

static void *wait_in(void *argument)
{
	intptr_t kind = (intptr_t)argument;
	struct timespec long_time = {60, 0};
	struct epoll_event event;
	struct pollfd nothing = {pipe_ends[0], POLLIN, 0};
	char byte;
	int epoll = epoll_create1(EPOLL_CLOEXEC);
	int semaphores = semget(IPC_PRIVATE, 1, 0600);
	struct sembuf lower = {0, -1, 0};
	sigset_t set;
	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	pthread_sigmask(SIG_BLOCK, &set, NULL);
	switch (kind) {
	case 0: epoll_wait(epoll, &event, 1, -1); break;
	case 1: epoll_wait(epoll, &event, 1, 60000); break;
	case 2: semop(semaphores, &lower, 1); break;
	case 3: semtimedop(semaphores, &lower, 1, &long_time); break;
	case 4: sigtimedwait(&set, NULL, &long_time); break;
	case 5: sigwaitinfo(&set, NULL); break;
	case 6: poll(&nothing, 1, 60000); break;
	case 7: nanosleep(&long_time, NULL); break;
	case 8: syscall(SYS_futex, &futex_word, FUTEX_WAIT, 0, &long_time, NULL, 0); break;
	case 9: epoll = read(pipe_ends[0], &byte, 1); break;
	case 10: recv(sockets[0], &byte, 1, 0); break;
	case 11: select(0, NULL, NULL, NULL, &(struct timeval){60, 0}); break;
	}
	semctl(semaphores, 0, IPC_RMID);
	return NULL;
}

// A forked child is in that call, which must not return.
static int calls(intptr_t kind)
{
	struct timeval most = {60, 0};
	if (pipe(pipe_ends) != 0 || socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) != 0)
		end("pipe");
	setsockopt(sockets[0], SOL_SOCKET, SO_RCVTIMEO, &most, sizeof most);
	struct memory memory = fresh(32);
	pid_t child = fork();
	if (child == 0) {
		// It gets a pager of its own while its only thread waits in the call.
		wait_in((void *)kind);
		_exit(9);
	}
	size_t wrong = press(memory, 1);
	int status;
	pid_t ended = waitpid(child, &status, WNOHANG);
	kill(child, SIGKILL);
	if (ended == 0)
		waitpid(child, &status, 0);
	return report("calls", wrong + (ended != 0));
}

static volatile sig_atomic_t is_told;

static void tell(int signal)
{
	(void)signal;
	is_told = 1;
}

// Waits for signals in a call that a stop ends early, and answers each.
static void answer_signals(int answers)
{
	struct epoll_event event;
	int epoll = epoll_create1(EPOLL_CLOEXEC);
	sigaction(SIGUSR1, &(struct sigaction){.sa_handler = tell}, NULL);
	for (char answer = 'r';; answer = is_told ? 's' : 'e', is_told = 0) {
		if (write(answers, &answer, 1) != 1)
			_exit(1);
		epoll_wait(epoll, &event, 1, -1);
	}
}

// Whether the process waits in that call: one that has yet to begin it would not be ended in it by a signal.
static int is_in(pid_t process, long call)
{
	char path[64];
	long now = -1;
	snprintf(path, sizeof path, "/proc/%d/syscall", process);
	FILE *file = fopen(path, "r");
	if (file == NULL)
		return 0;
	if (fscanf(file, "%ld", &now) != 1)
		now = -1;
	fclose(file);
	return now == call;
}

// A forked child gets a pager of its own while signals come all the time: each ends the call that it waits in, and nothing else does.
static int signals(void)
{
	struct memory memory = fresh(24);
	size_t wrong = press(memory, 0.5);
	int answers[2];
	if (pipe(answers) != 0)
		end("pipe");
	for (int round = 0; round < 12; round++) {
		pid_t child = fork();
		if (child < 0)
			end("fork");
		if (child == 0)
			answer_signals(answers[1]);
		char answer = 0;
		for (int sent = 0; sent < 300; sent++) {
			struct pollfd one = {answers[0], POLLIN, 0};
			char expected = sent == 0 ? 'r' : 's';
			if (poll(&one, 1, 5000) != 1 || read(answers[0], &answer, 1) != 1 || answer != expected) {
				wrong++;
				break;
			}
			for (int looks = 0; !is_in(child, SYS_epoll_wait) && looks < 50000; looks++)
				usleep(100);
			kill(child, SIGUSR1);
		}
		wrong += wrong_pages(memory);
		kill(child, SIGKILL);
		waitpid(child, NULL, 0);
		while (poll(&(struct pollfd){answers[0], POLLIN, 0}, 1, 0) == 1)
			(void)!read(answers[0], &answer, 1);
	}
	return report("signals", wrong);
}

// --- who the program is

static int another_user(void)
{
	if (setgid(65534) != 0 || setuid(65534) != 0)
		end("setuid");
	struct memory memory = fresh(48);
	size_t wrong = press(memory, 1);
	for (int number = 0; number < 3; number++) {
		pid_t child = fork();
		if (child == 0)
			_exit(child_of(memory, number));
		int status = 0;
		waitpid(child, &status, 0);
		wrong += status != 0;
	}
	return report("another user", wrong);
}

// A filter that ends the program for calls that it doesn't make.
static int filtered(void)
{
	static const int allowed[] = {SYS_read, SYS_write, SYS_mmap, SYS_munmap, SYS_exit, SYS_exit_group, SYS_clock_gettime, SYS_futex,
		SYS_ioctl, SYS_madvise, SYS_fstat, SYS_newfstatat, SYS_brk, SYS_rt_sigreturn, SYS_restart_syscall};
	enum { COUNT = sizeof allowed / sizeof *allowed };
	struct sock_filter filter[COUNT + 3];
	filter[0] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
	for (int nth = 0; nth < COUNT; nth++)
		filter[1 + nth] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, allowed[nth], COUNT - nth, 0);
	filter[COUNT + 1] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS);
	filter[COUNT + 2] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
	struct sock_fprog program = {COUNT + 3, filter};
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0)
		end("seccomp");
	struct memory memory = fresh(48);
	return report("filtered", press(memory, 1));
}

// Children that may only read, write and end: their puppets can't work, and what is far comes back all the same.
static int strict(void)
{
	struct memory memory = fresh(24);
	size_t wrong = press(memory, 0.5);
	for (int number = 0; number < 3; number++) {
		pid_t child = fork();
		if (child == 0) {
			if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT) != 0)
				_exit(2);
			for (int round = 0; round < 3; round++)
				wrong += wrong_pages(memory);
			refill(&memory, 7);
			syscall(SYS_exit, wrong_pages(memory) + wrong != 0);
		}
		int status = 0;
		waitpid(child, &status, 0);
		wrong += status != 0;
	}
	return report("strict", wrong);
}

// Children that run another program at once, while pagers come to them: none is held, and none runs anything but that program.
static int execs(void)
{
	struct memory memory = fresh(24);
	size_t wrong = press(memory, 0.5);
	for (int round = 0; round < 60; round++) {
		pid_t children[4];
		for (int number = 0; number < 4; number++) {
			children[number] = fork();
			if (children[number] == 0) {
				// Some have written by then, some have been forked for a while.
				for (int page = 0; page < 64 * number; page++)
					memory.words[(size_t)page * WORDS] = 1;
				execl("/proc/self/exe", "attached", "brief", ".", (char *)NULL);
				_exit(2);
			}
		}
		wrong += round % 8 == 0 ? wrong_pages(memory) : 0;
		for (int number = 0; number < 4; number++) {
			int status = 0;
			waitpid(children[number], &status, 0);
			wrong += status != 0;
		}
	}
	return report("execs", wrong + wrong_pages(memory));
}

// Children that are killed while pagers come to them: their parent hears of each end, whoever has stopped them at that moment.
static size_t read_all(const char *path, char *text, size_t room)
{
	int file = open(path, O_RDONLY);
	ssize_t bytes = file < 0 ? 0 : read(file, text, room);
	if (file >= 0)
		close(file);
	return bytes < 0 ? 0 : bytes;
}

// Processes that were called as this one was: it, its puppet, and its children and theirs.
static int alike(void)
{
	static char own[8192], other[8192];
	size_t bytes = read_all("/proc/self/cmdline", own, sizeof own);
	char path[300];
	int count = 0;
	DIR *processes = opendir("/proc");
	for (struct dirent *entry; processes != NULL && (entry = readdir(processes)) != NULL;) {
		if (atoi(entry->d_name) == 0)
			continue;
		snprintf(path, sizeof path, "/proc/%s/cmdline", entry->d_name);
		count += read_all(path, other, sizeof other) == bytes && memcmp(own, other, bytes) == 0;
	}
	if (processes != NULL)
		closedir(processes);
	return count;
}

static int killed(void)
{
	struct memory memory = fresh(24);
	size_t wrong = press(memory, 0.5);
	for (int round = 0; round < 500; round++) {
		pid_t child = fork();
		if (child == 0)
			for (size_t page = 0;; page = (page + 1) % memory.pages)
				memory.words[page * WORDS]++;
		// A pager comes after two milliseconds, or later.
		usleep(round * 997 % 3000);
		kill(child, SIGKILL);
		int status = 0, waited = 0;
		while (waitpid(child, &status, WNOHANG) == 0 && ++waited < 10000)
			usleep(1000);
		wrong += waited == 10000 || !WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL;
	}
	// Nor is anything left of them that has their memory.
	int looks = 0;
	while (alike() > 2 && ++looks < 1000)
		usleep(10000);
	return report("killed", wrong + (looks == 1000) + wrong_pages(memory));
}

static volatile sig_atomic_t traps_handled;

static void handle_trap(int signal)
{
	traps_handled += signal == SIGTRAP;
}

// Its handler of the signal that tracing uses stays, and so does one of these that waits.
static int traps(void)
{
	struct sigaction action = {.sa_handler = handle_trap}, found;
	sigset_t set;
	sigemptyset(&set);
	sigaddset(&set, SIGTRAP);
	sigaction(SIGTRAP, &action, NULL);
	sigprocmask(SIG_BLOCK, &set, NULL);
	kill(getpid(), SIGTRAP);
	struct memory memory = fresh(32);
	size_t wrong = press(memory, 1);
	wrong += traps_handled != 0;
	sigprocmask(SIG_UNBLOCK, &set, NULL);
	wrong += traps_handled != 1;
	sigaction(SIGTRAP, NULL, &found);
	wrong += found.sa_handler != handle_trap;
	raise(SIGTRAP);
	wrong += traps_handled != 2;
	return report("traps", wrong);
}

// What it has left free it finds free again, in the child too: allocators take again what they once had, and grow in place.
static size_t take_again(unsigned char *low, size_t each)
{
	struct memory found = {.pages = each / PAGE};
	size_t wrong = 0;
	wrong += mremap(low, each, 3 * each, 0) != low;
	for (int nth = 3; nth < 6; nth += 2) {
		void *wanted = low + nth * each;
		wrong += mmap(wanted, each, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) != wanted;
	}
	if (wrong)
		return wrong;
	for (int nth = 0; nth < 7; nth++) {
		found.words = (uint64_t *)(low + nth * each);
		refill(&found, nth);
		wrong += press(found, 0) + wrong_pages(found);
	}
	return wrong;
}

static int places(void)
{
	enum { EACH = 4 * MIB };
	struct memory memory = {.pages = 32 * MIB / PAGE};
	memory.words = mmap(NULL, 32 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	unsigned char *low = mmap(NULL, 7 * EACH, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (memory.words == MAP_FAILED || low == MAP_FAILED)
		end("mmap");
	munmap(low + EACH, 3 * EACH);
	munmap(low + 5 * EACH, EACH);
	refill(&memory, 1);
	size_t wrong = press(memory, 0.5);
	pid_t child = fork();
	wrong += press(memory, 0.3) + take_again(low, EACH);
	if (child == 0)
		_exit(wrong != 0);
	int status = 0;
	wrong += waitpid(child, &status, 0) != child || status != 0;
	return report("places", wrong + wrong_pages(memory));
}

static int brief(void)
{
	return wrong_pages(fresh(2)) != 0;
}

int main(int count, char **words)
{
	const char *check = count > 1 ? words[1] : "", *folder = count > 2 ? words[2] : ".";
	if (!strcmp(check, "threads"))
		return threads();
	if (!strcmp(check, "forks"))
		return forks();
	if (!strcmp(check, "many"))
		return many();
	if (!strcmp(check, "daemon"))
		return daemonises(folder);
	if (!strcmp(check, "service"))
		return serves(folder);
	if (!strcmp(check, "sharing"))
		return sharing(folder);
	if (!strcmp(check, "unnoticed"))
		return unnoticed();
	if (!strcmp(check, "signals"))
		return signals();
	if (!strcmp(check, "another_user"))
		return another_user();
	if (!strcmp(check, "filtered"))
		return filtered();
	if (!strcmp(check, "execs"))
		return execs();
	if (!strcmp(check, "killed"))
		return killed();
	if (!strcmp(check, "traps"))
		return traps();
	if (!strcmp(check, "places"))
		return places();
	if (!strcmp(check, "brief"))
		return brief();
	if (!strcmp(check, "strict"))
		return strict();
	if (!strncmp(check, "call-", 5))
		return calls(atoi(check + 5));
	puts("usage: attached CHECK FOLDER");
	return 2;
}
