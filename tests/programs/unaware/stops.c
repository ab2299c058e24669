// What a thread is, and where it is, when it is stopped for a pager.
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/fuse.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../memory.h"
#include "checks.h"

// A child makes memory short until it is ended, or for half a minute.
static pid_t presser(void)
{
	pid_t child = fork();
	if (child < 0)
		end("fork");
	if (child == 0) {
		struct memory memory = fresh(48);
		_exit(press(memory, 30) != 0);
	}
	return child;
}

static void end_child(pid_t child)
{
	if (kill(child, SIGKILL) != 0 || waitpid(child, NULL, 0) != child)
		end("a child");
}

// Rounds of half a second at most.
enum { ROUNDS = 60 };

static size_t sleep_until_far(struct memory memory)
{
	size_t wrong = 0;
	for (int round = 0; round < ROUNDS && far_pages(memory) == 0; round++) {
		struct timespec duration = {0, 500000000}, before, after;
		clock_gettime(CLOCK_MONOTONIC, &before);
		wrong += nanosleep(&duration, NULL) != 0;
		clock_gettime(CLOCK_MONOTONIC, &after);
		wrong += (after.tv_sec - before.tv_sec) * 1000000000 + after.tv_nsec - before.tv_nsec < duration.tv_nsec;
	}
	return wrong + (far_pages(memory) == 0);
}

static void forbid_restarts(uint32_t verdict)
{
	struct sock_filter instructions[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_restart_syscall, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, verdict),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog filter = {sizeof instructions / sizeof *instructions, instructions};
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) != 0)
		end("a filter");
}

// A filter that forbids the call by which sleeps go on that were interrupted.
static int sleeps_in_a_filter(void)
{
	struct memory memory = fresh(6);
	pid_t child = presser();
	forbid_restarts(SECCOMP_RET_KILL_PROCESS);
	size_t wrong = sleep_until_far(memory);
	end_child(child);
	return report("sleeps in a filter", wrong + wrong_pages(memory));
}

static void note_signal(int number)
{
	(void)number;
}

// The same while signals come, of which one is ignored and one has a handler.
static int is_signalled_in_a_filter(void)
{
	struct memory memory = fresh(6);
	pid_t child = presser(), own = getpid(), sender = fork();
	if (sender == 0) {
		for (;;) {
			usleep(30000);
			kill(own, SIGWINCH);
			usleep(30000);
			kill(own, SIGUSR1);
		}
	}
	struct sigaction heard = {.sa_handler = note_signal};
	if (sender < 0 || sigaction(SIGUSR1, &heard, NULL) != 0)
		end("signals");
	forbid_restarts(SECCOMP_RET_KILL_PROCESS);
	size_t wrong = 0;
	for (int round = 0; round < ROUNDS * 10 && far_pages(memory) == 0; round++) {
		struct timespec duration = {0, 50000000};
		wrong += nanosleep(&duration, NULL) != 0 && errno != EINTR;
	}
	end_child(sender);
	end_child(child);
	return report("is signalled in a filter", wrong + (far_pages(memory) == 0) + wrong_pages(memory));
}

static int compare(const char *one, const char *other)
{
	char first[PATH_MAX] = {0}, second[PATH_MAX] = {0};
	return readlink(one, first, sizeof first - 1) > 0 && readlink(other, second, sizeof second - 1) > 0
		&& !strcmp(first, second);
}

// The number of a process of Farmem's in this program, or in another one of the same file; 0 when there is none.
static pid_t puppet(void)
{
	DIR *processes = opendir("/proc");
	pid_t found = 0;
	for (struct dirent *entry; processes && !found && (entry = readdir(processes));) {
		char path[PATH_MAX], name[16] = {0};
		snprintf(path, sizeof path, "/proc/%s/comm", entry->d_name);
		int file = open(path, O_RDONLY);
		if (file < 0)
			continue;
		if (read(file, name, sizeof name - 1) > 0 && !strcmp(name, "farmem-puppet\n")) {
			snprintf(path, sizeof path, "/proc/%s/exe", entry->d_name);
			if (compare(path, "/proc/self/exe"))
				found = atoi(entry->d_name);
		}
		close(file);
	}
	if (processes)
		closedir(processes);
	return found;
}

// A thread that gives way to all others, and a program that may use few seconds. What works for it does neither.
static int gives_way_and_has_little_time(void)
{
	struct rlimit few = {60, 3600};
	if (setrlimit(RLIMIT_CPU, &few) != 0 || setpriority(PRIO_PROCESS, 0, 19) != 0)
		end("limits");
	struct sched_param none = {0};
	if (sched_setscheduler(0, SCHED_BATCH, &none) != 0)
		end("sched_setscheduler");
	struct memory memory = fresh(48);
	size_t wrong = press_until_far(memory, 1);
	pid_t number = puppet();
	struct rlimit time;
	if (number == 0 || prlimit(number, RLIMIT_CPU, NULL, &time) != 0)
		end("a puppet");
	// Not everybody may raise the other limit.
	wrong += time.rlim_cur != time.rlim_max;
	wrong += getpriority(PRIO_PROCESS, number) > 0 || sched_getscheduler(number) != SCHED_OTHER;
	wrong += getpriority(PRIO_PROCESS, 0) != 19 || sched_getscheduler(0) != SCHED_BATCH;
	return report("gives way", wrong + wrong_pages(memory));
}

struct attributes {
	uint32_t bytes, policy;
	uint64_t flags;
	int32_t nice;
	uint32_t priority;
	uint64_t runtime, deadline, period;
};

// Where it may have a deadline. Such a thread can make no other.
static int has_a_deadline(void)
{
	enum { MILLISECOND = 1000000 };
	struct attributes own = {sizeof own, 6, 0, 0, 0, 5 * MILLISECOND, 100 * MILLISECOND, 100 * MILLISECOND};
	struct memory memory = fresh(6);
	pid_t child = presser();
	if (syscall(SYS_sched_setattr, 0, &own, 0) != 0) {
		end_child(child);
		return report("has a deadline", 0);
	}
	size_t wrong = sleep_until_far(memory);
	struct attributes now = {0};
	if (syscall(SYS_sched_getattr, 0, &now, sizeof now, 0) != 0)
		end("sched_getattr");
	wrong += now.policy != own.policy || now.flags != 0 || now.deadline != own.deadline;
	end_child(child);
	return report("has a deadline", wrong + wrong_pages(memory));
}

// What the next child begins in is another namespace, whose first process it is.
static int makes_children_elsewhere(void)
{
	struct memory memory = fresh(6);
	pid_t child = presser();
	if (unshare(CLONE_NEWPID) != 0)
		end("unshare");
	size_t wrong = 0;
	for (int round = 0; round < 6; round++)
		usleep(500000);
	int ends[2];
	if (pipe(ends) != 0)
		end("pipe");
	pid_t first = fork();
	if (first == 0) {
		char byte;
		close(ends[1]);
		_exit(getpid() != 1 || read(ends[0], &byte, 1) != 0);
	}
	pid_t second = fork();
	if (second == 0)
		_exit(getpid() != 2);
	close(ends[0]);
	int status = 0;
	wrong += first < 0 || second < 0 || waitpid(second, &status, 0) != second || status != 0;
	close(ends[1]);
	wrong += waitpid(first, &status, 0) != first || status != 0;
	end_child(child);
	return report("makes children elsewhere", wrong + wrong_pages(memory));
}

// Code of 32 bits, at an address of 32 bits, that counts down and returns to where it was called from.
static const unsigned char narrow_code[] = {
	0xb9, 0x00, 0x00, 0x00, 0x08, // mov ecx, 0x8000000
	0x49,                         // dec ecx
	0x75, 0xfd,                   // jnz -3
	0xcb,                         // retf
};

static void run_narrow(void *code)
{
	struct {
		uint32_t place;
		uint16_t segment;
	} __attribute__((packed)) target = {(uint32_t)(uintptr_t)code, 0x23};
	// The return address has to be one of 32 bits, and so has the stack.
	static unsigned char *low;
	if (!low) {
		low = mmap(NULL, 4 * PAGE, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS | MAP_32BIT, -1, 0);
		if (low == MAP_FAILED)
			end("mmap");
	}
	// lcall [rdi]; mov rsp, rbx; pop rbx; ret
	static const unsigned char call[] = {0x53, 0x48, 0x89, 0xe3, 0x48, 0x89, 0xf4, 0xff, 0x1f, 0x48, 0x89, 0xdc, 0x5b, 0xc3};
	memcpy(low, call, sizeof call);
	((void (*)(void *, void *))(uintptr_t)low)(&target, low + 4 * PAGE - 64);
}

// A program of 64 bits whose only thread runs code of 32, as emulators do, for most of the time.
static int runs_narrow_code(void)
{
	struct memory memory = fresh(6);
	unsigned char *code =
		mmap(NULL, PAGE, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS | MAP_32BIT, -1, 0);
	if (code == MAP_FAILED)
		end("mmap");
	memcpy(code, narrow_code, sizeof narrow_code);
	pid_t child = presser();
	for (int round = 0; round < ROUNDS * 4 && far_pages(memory) == 0; round++) {
		run_narrow(code);
		usleep(20000);
	}
	end_child(child);
	return report("runs narrow code", (far_pages(memory) == 0) + wrong_pages(memory));
}

// A file system in user space that this program serves itself, with one file, `file`, of one byte.
static int fuse = -1;
static int answer_time_ms;
static bool ignores_closing;

static void answer(uint64_t unique, int error, const void *what, size_t bytes)
{
	struct {
		struct fuse_out_header head;
		char body[PAGE];
	} out = {{sizeof out.head + bytes, error, unique}, {0}};
	if (bytes)
		memcpy(out.body, what, bytes);
	if (write(fuse, &out, out.head.len) < 0 && errno != ENOENT)
		end("an answer");
}

static struct fuse_attr attributes_of(uint64_t node)
{
	int is_folder = node == FUSE_ROOT_ID;
	return (struct fuse_attr){.ino = node, .mode = is_folder ? S_IFDIR | 0700 : S_IFREG | 0600, .nlink = 1, .size = 1};
}

enum { REQUEST_BYTES = 1 << 18 };
static void serve(const void *request);

// As file systems do whose servers are far away: a caller that is interrupted meanwhile gets nothing.
static void answer_slowly(uint64_t unique)
{
	static char next[REQUEST_BYTES];
	struct pollfd asked = {fuse, POLLIN, 0};
	bool is_asked = poll(&asked, 1, answer_time_ms) == 1 && read(fuse, next, sizeof next) > 0;
	if (is_asked && ((struct fuse_in_header *)next)->opcode == FUSE_INTERRUPT)
		return answer(unique, -EINTR, NULL, 0);
	answer(unique, 0, "x", 1);
	if (is_asked)
		serve(next);
}

static void serve(const void *request)
{
	const struct fuse_in_header *head = request;
	switch (head->opcode) {
	case FUSE_INIT: {
		struct fuse_init_out init = {.major = FUSE_KERNEL_VERSION, .minor = FUSE_KERNEL_MINOR_VERSION, .max_write = PAGE};
		return answer(head->unique, 0, &init, sizeof init);
	}
	case FUSE_LOOKUP: {
		struct fuse_entry_out entry = {.nodeid = 2, .attr = attributes_of(2)};
		return answer(head->unique, 0, &entry, sizeof entry);
	}
	case FUSE_GETATTR: {
		struct fuse_attr_out attributes = {.attr = attributes_of(head->nodeid)};
		return answer(head->unique, 0, &attributes, sizeof attributes);
	}
	case FUSE_OPEN: {
		struct fuse_open_out opened = {.open_flags = FOPEN_DIRECT_IO};
		return answer(head->unique, 0, &opened, sizeof opened);
	}
	case FUSE_READ:
		return answer_slowly(head->unique);
	case FUSE_INTERRUPT:
	case FUSE_FORGET:
		return;
	case FUSE_FLUSH:
		if (!ignores_closing)
			answer(head->unique, 0, NULL, 0);
		return;
	default:
		return answer(head->unique, head->opcode == FUSE_RELEASE ? 0 : -ENOSYS, NULL, 0);
	}
}

static void serve_one(void)
{
	static char request[REQUEST_BYTES];
	if (read(fuse, request, sizeof request) > 0)
		serve(request);
	else if (errno == ENODEV)
		_exit(0);
}

// In a mount namespace of its own; the folder's path.
static const char *mount_own(void)
{
	static char folder[] = "/tmp/farmem-fuse-XXXXXX";
	char options[128];
	fuse = open("/dev/fuse", O_RDWR | O_CLOEXEC);
	if (fuse < 0 || unshare(CLONE_NEWNS) != 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0)
		return NULL;
	snprintf(options, sizeof options, "fd=%d,rootmode=40000,user_id=0,group_id=0", fuse);
	if (!mkdtemp(folder) || mount("farmem-test", folder, "fuse", 0, options) != 0)
		return NULL;
	return folder;
}

static int opened_file;
static const char *own_folder;

static void *opens(void *unused)
{
	char path[PATH_MAX];
	snprintf(path, sizeof path, "%s/file", own_folder);
	opened_file = open(path, O_RDONLY);
	return unused;
}

// The only thread serves the file system, and the program itself has one of its files open. Whoever closes that
// file, or a copy of it, waits for the thread.
static int serves_its_own_file(void)
{
	struct memory memory = fresh(6);
	// Before the file is open, which it would close when it is ended.
	pid_t child = presser();
	if ((own_folder = mount_own()) == NULL) {
		end_child(child);
		return report("serves its own file", 0);
	}
	pthread_t opener;
	opened_file = -1;
	if (pthread_create(&opener, NULL, opens, NULL) != 0)
		end("pthread_create");
	fcntl(fuse, F_SETFL, O_NONBLOCK);
	while (opened_file < 0) {
		serve_one();
		usleep(1000);
	}
	pthread_join(opener, NULL);
	for (int round = 0; round < ROUNDS * 10 && far_pages(memory) == 0; round++) {
		serve_one();
		usleep(50000);
	}
	size_t wrong = far_pages(memory) == 0;
	end_child(child);
	umount2(own_folder, MNT_FORCE | MNT_DETACH);
	rmdir(own_folder);
	return report("serves its own file", wrong + wrong_pages(memory));
}

static void *rests(void *unused)
{
	pause();
	return unused;
}

// Threads that wait for the file system are never interrupted there, as long as there is another one.
static int waits_for_a_file_system(void)
{
	struct memory memory = fresh(6);
	pid_t child = presser();
	if ((own_folder = mount_own()) == NULL) {
		end_child(child);
		return report("waits for a file system", 0);
	}
	pid_t server = fork();
	if (server == 0) {
		// It isn't to be ended with the program, which waits for it.
		answer_time_ms = 50;
		for (;;)
			serve_one();
	}
	opens(NULL);
	pthread_t other;
	if (pthread_create(&other, NULL, rests, NULL) != 0)
		end("pthread_create");
	size_t wrong = server < 0 || opened_file < 0;
	for (int round = 0; round < ROUNDS * 10 && far_pages(memory) == 0; round++) {
		char byte = 0;
		wrong += pread(opened_file, &byte, 1, 0) != 1 || byte != 'x';
	}
	wrong += far_pages(memory) == 0;
	end_child(child);
	umount2(own_folder, MNT_FORCE | MNT_DETACH);
	end_child(server);
	rmdir(own_folder);
	return report("waits for a file system", wrong + wrong_pages(memory));
}

// Whatever closes the file, or a copy of it, waits until the file system has been taken away.
static int has_a_file_that_is_never_closed(void)
{
	enum { SECONDS = 8 };
	if ((own_folder = mount_own()) == NULL)
		return report("has a file that is never closed", 0);
	pid_t server = fork();
	if (server == 0) {
		ignores_closing = true;
		for (;;)
			serve_one();
	}
	opens(NULL);
	size_t wrong = server < 0 || opened_file < 0;
	// Memory is short only from now on: no pager comes before the file is open.
	struct memory memory = fresh(6);
	pid_t child = presser();
	for (int second = 0; second < SECONDS; second++)
		sleep(1);
	wrong += wrong_pages(memory);
	umount2(own_folder, MNT_FORCE | MNT_DETACH);
	for (int round = 0; round < ROUNDS * 5 && far_pages(memory) == 0; round++)
		usleep(50000);
	wrong += far_pages(memory) == 0;
	end_child(child);
	end_child(server);
	rmdir(own_folder);
	return report("has a file that is never closed", wrong + wrong_pages(memory));
}

const struct check stop_checks[] = {
	{"sleeps_in_a_filter", sleeps_in_a_filter},
	{"is_signalled_in_a_filter", is_signalled_in_a_filter},
	{"gives_way_and_has_little_time", gives_way_and_has_little_time},
	{"has_a_deadline", has_a_deadline},
	{"makes_children_elsewhere", makes_children_elsewhere},
	{"runs_narrow_code", runs_narrow_code},
	{"serves_its_own_file", serves_its_own_file},
	{"waits_for_a_file_system", waits_for_a_file_system},
	{"has_a_file_that_is_never_closed", has_a_file_that_is_never_closed},
	{0},
};
