// What a program sleeps in while its pager comes, and what it waits for afterwards.
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/io_uring.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../memory.h"
#include "checks.h"

enum { CHILDREN = 2 };

// True in a new orphan, which is this program's: the child that had it ends at once.
static bool begin_orphan(void)
{
	pid_t child = fork();
	if (child < 0)
		end("fork");
	if (child != 0)
		return false;
	if (fork() != 0)
		_exit(0);
	return true;
}

// Its memory is far in part. Orphans of two children become its own, and it waits until it has no child.
// Whatever it adopts has ended well.
static size_t wait_for_all(void)
{
	struct memory memory = fresh(48);
	size_t wrong = press_until_far(memory, 1);
	for (int nth = 0; nth < CHILDREN; nth++) {
		if (begin_orphan())
			_exit(wrong_pages(memory) + press(memory, 0.3) != 0);
	}
	int status = 0, waited = 0;
	alarm(20);
	while (wait(&status) > 0) {
		wrong += status != 0;
		waited++;
	}
	alarm(0);
	if (errno != ECHILD)
		end("wait");
	wrong += waited < 2 * CHILDREN;
	return wrong + wrong_pages(memory);
}

static int adopts_orphans_and_waits(void)
{
	if (prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0)
		end("prctl");
	size_t wrong = wait_for_all();
	int adopts = 0;
	if (prctl(PR_GET_CHILD_SUBREAPER, &adopts, 0, 0, 0) != 0)
		end("prctl");
	return report("adopts orphans", wrong + !adopts);
}

// Orphans that end while their pagers come. What the program adopts is its own, and has ended well.
static int adopts_orphans_that_end_soon(void)
{
	enum { FAMILIES = 160, AT_ONCE = 8 };
	if (prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0)
		end("prctl");
	struct memory memory = fresh(48);
	size_t wrong = press_until_far(memory, 1), ended = 0, killed = 0;
	int status = 0;
	for (int begun = 0; begun < FAMILIES; begun++) {
		if (begin_orphan()) {
			struct memory own = fresh(1);
			usleep(begun * 997 % 30000);
			_exit(wrong_pages(own) != 0);
		}
		for (; begun >= AT_ONCE && ended < 2 * (size_t)(begun - AT_ONCE) && wait(&status) > 0; ended++)
			killed += status != 0;
	}
	alarm(60);
	for (; wait(&status) > 0; ended++)
		killed += status != 0;
	alarm(0);
	// Puppets of orphans may be among them.
	wrong += ended < 2 * FAMILIES;
	return report("adopts orphans that end soon", wrong + killed + wrong_pages(memory));
}

// More than a pager looks after at a time. They all live until the last one is there.
static int forks_hundreds_at_once(void)
{
	enum { CHILDREN_AT_ONCE = 300, KEPT_PAGES = 64 };
	struct memory memory = fresh(48);
	size_t wrong = press_until_far(memory, 1);
	// Each child counts what it shares as its own. So there is little of it.
	if (munmap(memory.words + KEPT_PAGES * WORDS, (memory.pages - KEPT_PAGES) * PAGE) != 0)
		end("munmap");
	memory.pages = KEPT_PAGES;
	int ends[2];
	if (pipe(ends) != 0)
		end("pipe");
	for (size_t nth = 0; nth < CHILDREN_AT_ONCE; nth++) {
		pid_t child = fork();
		if (child < 0)
			end("fork");
		if (child == 0) {
			char byte;
			close(ends[1]);
			size_t is_wrong = read(ends[0], &byte, 1) != 0;
			size_t page = nth * 7 % memory.pages;
			for (size_t at = 0; at < WORDS; at++)
				is_wrong |= memory.words[page * WORDS + at] != word(memory.generation, page, at);
			_exit((int)is_wrong);
		}
	}
	close(ends[1]);
	int status = 0;
	size_t count = 0;
	while (wait(&status) > 0) {
		wrong += status != 0;
		count++;
	}
	wrong += count != CHILDREN_AT_ONCE;
	return report("forks hundreds at once", wrong + wrong_pages(memory));
}

// As programs do that are the first of a container.
static int is_first_of_a_namespace_and_waits(void)
{
	if (unshare(CLONE_NEWPID) != 0)
		end("unshare");
	pid_t first = fork();
	if (first < 0)
		end("fork");
	if (first == 0)
		_exit(getpid() != 1 || wait_for_all() != 0);
	int status = 0;
	if (waitpid(first, &status, 0) != first)
		end("waitpid");
	return report("first of a namespace", status != 0);
}

// The reader reads slowly, and makes memory short meanwhile: the pager of the writer comes while that sleeps in
// the midst of its only write.
static int reads(int from, struct memory expected)
{
	struct memory own = {NULL, 0, 0};
	size_t wrong = 0;
	for (size_t page = 0; page < expected.pages; page++) {
		uint64_t words[WORDS];
		size_t length = 0;
		for (ssize_t count; length < sizeof words; length += count)
			if ((count = read(from, (char *)words + length, sizeof words - length)) <= 0)
				return 2;
		for (size_t nth = 0; nth < WORDS; nth++)
			wrong += words[nth] != word(expected.generation, page, nth);
		if (page % 16 == 0)
			usleep(20000);
		if (page == expected.pages / 8)
			own = fresh(48);
	}
	char more;
	wrong += read(from, &more, 1) != 0;
	return wrong + wrong_pages(own) != 0;
}

// How all of some memory is written by one call.
typedef ssize_t (*writer)(int to, struct memory memory);

static ssize_t as_bytes(int to, struct memory memory)
{
	return write(to, memory.words, memory.pages * PAGE);
}

// Parts of different lengths, which begin and end within pages.
enum { PARTS = 7 };

static void divide(struct memory memory, struct iovec parts[PARTS])
{
	char *start = (char *)memory.words;
	size_t left = memory.pages * PAGE;
	for (size_t nth = 0; nth < PARTS; nth++) {
		size_t length = nth + 1 < PARTS ? left / 3 + nth : left;
		parts[nth] = (struct iovec){start, length};
		start += length;
		left -= length;
	}
}

static ssize_t as_parts(int to, struct memory memory)
{
	struct iovec parts[PARTS];
	divide(memory, parts);
	return writev(to, parts, PARTS);
}

static ssize_t as_a_message(int to, struct memory memory)
{
	struct iovec parts[PARTS];
	divide(memory, parts);
	struct msghdr message = {.msg_iov = parts, .msg_iovlen = PARTS};
	return sendmsg(to, &message, MSG_NOSIGNAL);
}

static ssize_t as_a_file(int to, struct memory memory)
{
	int file = memfd_create("file", 0);
	ssize_t bytes = memory.pages * PAGE;
	if (file < 0 || write(file, memory.words, bytes) != bytes || lseek(file, 0, SEEK_SET) != 0)
		end("a file");
	ssize_t sent = sendfile(to, file, NULL, bytes);
	close(file);
	return sent;
}

static int writes_at_once(const char *what, const int ends[2], writer writes)
{
	enum { MEBIBYTES = 6 };
	struct memory expected = {NULL, (size_t)MEBIBYTES * MIB / PAGE, 0};
	pid_t reader = fork();
	if (reader < 0)
		end("fork");
	if (reader == 0) {
		close(ends[1]);
		_exit(reads(ends[0], expected));
	}
	close(ends[0]);
	struct memory memory = fresh(MEBIBYTES);
	size_t wrong = writes(ends[1], memory) != (ssize_t)memory.pages * PAGE;
	close(ends[1]);
	int status = 0;
	if (waitpid(reader, &status, 0) != reader)
		end("waitpid");
	return report(what, wrong + (status != 0) + wrong_pages(memory));
}

static int writes_to_pipe(const char *what, writer writes)
{
	int ends[2];
	if (pipe(ends) != 0)
		end("pipe");
	return writes_at_once(what, ends, writes);
}

static int writes_to_socket(const char *what, writer writes)
{
	int ends[2];
	if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0)
		end("socketpair");
	return writes_at_once(what, ends, writes);
}

static int writes_to_a_pipe_at_once(void)
{
	return writes_to_pipe("a pipe", as_bytes);
}

static int writes_parts_to_a_pipe_at_once(void)
{
	return writes_to_pipe("parts to a pipe", as_parts);
}

static int writes_to_a_socket_at_once(void)
{
	return writes_to_socket("a socket", as_bytes);
}

static int sends_a_message_at_once(void)
{
	return writes_to_socket("a message", as_a_message);
}

static int sends_a_file_at_once(void)
{
	return writes_to_socket("a file", as_a_file);
}

// The writer writes slowly, and makes memory short meanwhile.
static int writes_slowly(int to, size_t pages)
{
	struct memory own = {NULL, 0, 0};
	size_t wrong = 0;
	for (size_t page = 0; page < pages; page++) {
		uint64_t words[WORDS];
		for (size_t nth = 0; nth < WORDS; nth++)
			words[nth] = word(0, page, nth);
		wrong += write(to, words, sizeof words) != sizeof words;
		if (page % 16 == 0)
			usleep(20000);
		if (page == pages / 8)
			own = fresh(48);
	}
	return wrong + wrong_pages(own) != 0;
}

typedef ssize_t (*receiver)(int from, struct memory memory);

static ssize_t bytes_of(int from, struct memory memory)
{
	return recv(from, memory.words, memory.pages * PAGE, MSG_WAITALL);
}

static ssize_t message_of(int from, struct memory memory)
{
	struct iovec parts[PARTS];
	divide(memory, parts);
	struct msghdr message = {.msg_iov = parts, .msg_iovlen = PARTS};
	return recvmsg(from, &message, MSG_WAITALL);
}

static int receives(const char *what, receiver receives)
{
	int ends[2];
	if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0)
		end("socketpair");
	struct memory memory = fresh(6);
	refill(&memory, 1);
	pid_t writer = fork();
	if (writer < 0)
		end("fork");
	if (writer == 0) {
		close(ends[0]);
		_exit(writes_slowly(ends[1], memory.pages));
	}
	close(ends[1]);
	size_t wrong = receives(ends[0], memory) != (ssize_t)memory.pages * PAGE;
	// If it has received a part the writer isn't to wait for ever.
	close(ends[0]);
	memory.generation = 0;
	int status = 0;
	if (waitpid(writer, &status, 0) != writer)
		end("waitpid");
	return report(what, wrong + (status != 0) + wrong_pages(memory));
}

static int receives_all_at_once(void)
{
	return receives("receives all", bytes_of);
}

static int receives_a_message_at_once(void)
{
	return receives("receives a message", message_of);
}

// Memory that is filled by one call, long enough that its pager comes meanwhile. Whether it was, the last word of
// each page tells.
static int is_filled(const char *what, const char *device, uint64_t is_random)
{
	size_t bytes = (size_t)192 * MIB, wrong = 0;
	uint64_t *words = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int file = device ? open(device, O_RDONLY) : -1;
	if (words == MAP_FAILED || (device && file < 0))
		end("memory");
	ssize_t filled = device ? read(file, words, bytes) : getrandom(words, bytes, 0);
	wrong += filled != (ssize_t)bytes;
	for (size_t page = 0; page < bytes / PAGE; page++)
		wrong += (words[page * WORDS + WORDS - 1] != 0) != is_random;
	return report(what, wrong);
}

static int reads_zeros_at_once(void)
{
	return is_filled("zeros", "/dev/zero", 0);
}

static int reads_random_numbers_at_once(void)
{
	return is_filled("random numbers", "/dev/urandom", 1);
}

static int asks_for_random_numbers_at_once(void)
{
	return is_filled("random numbers", NULL, 1);
}

// A request to read a pipe is handed in and waited for by one call. Whoever writes to the pipe makes memory
// short before.
static int hands_in_and_waits(void)
{
	struct io_uring_params made = {0};
	int ends[2], ring = syscall(SYS_io_uring_setup, 1, &made);
	if (ring < 0 || pipe(ends) != 0)
		end("io_uring");
	size_t bytes = made.cq_off.cqes + made.cq_entries * sizeof(struct io_uring_cqe);
	int shared = MAP_SHARED | MAP_POPULATE, both = PROT_READ | PROT_WRITE;
	char *queues = mmap(NULL, bytes, both, shared, ring, IORING_OFF_SQ_RING);
	struct io_uring_sqe *request = mmap(NULL, sizeof *request, both, shared, ring, IORING_OFF_SQES);
	if (queues == MAP_FAILED || (void *)request == MAP_FAILED || !(made.features & IORING_FEAT_SINGLE_MMAP))
		end("mmap");
	struct memory memory = fresh(6);
	pid_t writer = fork();
	if (writer < 0)
		end("fork");
	if (writer == 0) {
		struct memory own = fresh(48);
		size_t wrong = press(own, 1);
		_exit(wrong + (write(ends[1], "x", 1) != 1) != 0);
	}
	char read = 0;
	*request = (struct io_uring_sqe){
		.opcode = IORING_OP_READ, .fd = ends[0], .addr = (uintptr_t)&read, .len = 1, .off = -1};
	((unsigned *)(queues + made.sq_off.array))[0] = 0;
	__atomic_store_n((unsigned *)(queues + made.sq_off.tail), 1, __ATOMIC_RELEASE);
	size_t wrong = syscall(SYS_io_uring_enter, ring, 1, 1, IORING_ENTER_GETEVENTS, NULL, 0) != 1;
	wrong += __atomic_load_n((unsigned *)(queues + made.cq_off.tail), __ATOMIC_ACQUIRE) != 1;
	wrong += read != 'x';
	int status = 0;
	if (waitpid(writer, &status, 0) != writer)
		end("waitpid");
	return report("hands in and waits", wrong + (status != 0) + wrong_pages(memory));
}

// A thread of the kernel's looks for the program's requests all the time, while the program itself waits.
static int is_polled_by_the_kernel(void)
{
	struct io_uring_params made = {.flags = IORING_SETUP_SQPOLL, .sq_thread_idle = 60000};
	int ring = syscall(SYS_io_uring_setup, 1, &made), events = epoll_create1(0);
	if (ring < 0 || events < 0)
		end("io_uring");
	struct memory memory = fresh(48);
	struct epoll_event event;
	for (int nth = 0; nth < 10; nth++)
		if (epoll_wait(events, &event, 1, 100) != 0)
			end("epoll_wait");
	return report("is polled by the kernel", wrong_pages(memory));
}

// A thread that locks all memory and unlocks it, again and again: that of a pager, too, at any moment.
static atomic_int is_pressed;

static void *locks_and_unlocks(void *unused)
{
	(void)unused;
	while (!is_pressed)
		if (mlockall(MCL_CURRENT | MCL_ONFAULT) != 0 || munlockall() != 0)
			end("mlockall");
	return NULL;
}

static int locks_all_again_and_again(void)
{
	pthread_t thread;
	struct memory memory = fresh(48);
	size_t wrong = press_until_far(memory, 1);
	if (pthread_create(&thread, NULL, locks_and_unlocks, NULL) != 0)
		end("pthread_create");
	wrong += press(memory, 3);
	is_pressed = 1;
	pthread_join(thread, NULL);
	return report("locks all", wrong + press_until_far(memory, 1));
}

const struct check wait_checks[] = {
	{"adopts_orphans_and_waits", adopts_orphans_and_waits},
	{"adopts_orphans_that_end_soon", adopts_orphans_that_end_soon},
	{"forks_hundreds_at_once", forks_hundreds_at_once},
	{"is_first_of_a_namespace_and_waits", is_first_of_a_namespace_and_waits},
	{"writes_to_a_pipe_at_once", writes_to_a_pipe_at_once},
	{"writes_parts_to_a_pipe_at_once", writes_parts_to_a_pipe_at_once},
	{"writes_to_a_socket_at_once", writes_to_a_socket_at_once},
	{"sends_a_message_at_once", sends_a_message_at_once},
	{"sends_a_file_at_once", sends_a_file_at_once},
	{"receives_all_at_once", receives_all_at_once},
	{"receives_a_message_at_once", receives_a_message_at_once},
	{"reads_zeros_at_once", reads_zeros_at_once},
	{"reads_random_numbers_at_once", reads_random_numbers_at_once},
	{"asks_for_random_numbers_at_once", asks_for_random_numbers_at_once},
	{"hands_in_and_waits", hands_in_and_waits},
	{"is_polled_by_the_kernel", is_polled_by_the_kernel},
	{"locks_all_again_and_again", locks_all_again_and_again},
	{0},
};
