/* System calls that read and write memory which is far. */
#include "check.h"

#include <arpa/inet.h>
#include <linux/io_uring.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/timerfd.h>
#include <sys/uio.h>
#include <time.h>

#define REGION (2 * MEBIBYTE)

struct transfer {
	int descriptor;
	unsigned char *memory;
	size_t bytes;
	int with_recv;
};

static void *receive_all(void *argument)
{
	struct transfer *transfer = argument;
	for (size_t done = 0; done < transfer->bytes;) {
		ssize_t got = transfer->with_recv
				      ? recv(transfer->descriptor, transfer->memory + done, transfer->bytes - done, 0)
				      : read(transfer->descriptor, transfer->memory + done, transfer->bytes - done);
		if (got < 0 && errno == EINTR)
			continue;
		CHECK(got > 0);
		done += (size_t)got;
	}
	return NULL;
}

static void send_all(int descriptor, const unsigned char *memory, size_t bytes, int with_send)
{
	for (size_t done = 0; done < bytes;) {
		ssize_t put = with_send ? send(descriptor, memory + done, bytes - done, 0)
					: write(descriptor, memory + done, bytes - done);
		if (put < 0 && errno == EINTR)
			continue;
		CHECK(put > 0);
		done += (size_t)put;
	}
}

static void through(int to, int from, int with_send)
{
	unsigned char *source = map_filled(REGION, 141);
	unsigned char *target = map_filled(REGION, 142);
	squeeze();
	struct transfer transfer = {.descriptor = from, .memory = target, .bytes = REGION, .with_recv = with_send};
	pthread_t thread = start_thread(receive_all, &transfer);
	send_all(to, source, REGION, with_send);
	join_thread(thread);
	verify(target, REGION, 141);
	squeeze();
	verify(target, REGION, 141);
	verify(source, REGION, 141);
	unmap(source, REGION);
	unmap(target, REGION);
}

static void pipe_evicted(void)
{
	int ends[2];
	CHECK(pipe(ends) == 0);
	for (int round = 0; round < 3; round++)
		through(ends[1], ends[0], 0);
}

static void socket_evicted(void)
{
	int ends[2];
	CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
	through(ends[0], ends[1], 1);
	int listener = socket(AF_INET, SOCK_STREAM, 0);
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t length = sizeof address;
	CHECK(listener >= 0 && bind(listener, (struct sockaddr *)&address, sizeof address) == 0);
	CHECK(listen(listener, 1) == 0 && getsockname(listener, (struct sockaddr *)&address, &length) == 0);
	int client = socket(AF_INET, SOCK_STREAM, 0);
	CHECK(client >= 0 && connect(client, (struct sockaddr *)&address, sizeof address) == 0);
	int server = accept(listener, NULL, NULL);
	CHECK(server >= 0);
	through(client, server, 1);
	through(server, client, 0);
}

/* A datagram is lost when its reader fails half-way: a call that faults must not be tried again. */
static void datagrams_evicted(void)
{
	int ends[2];
	CHECK(socketpair(AF_UNIX, SOCK_DGRAM, 0, ends) == 0);
	unsigned char *source = map_filled(MEBIBYTE / 2, 143);
	unsigned char *target = map_filled(MEBIBYTE / 2, 144);
	struct msghdr *header = (struct msghdr *)map(PAGE);
	struct iovec *parts = (struct iovec *)map(PAGE);
	for (size_t number = 0; number < 16; number++) {
		size_t bytes = 8 * PAGE, offset = number * bytes;
		squeeze();
		CHECK(send(ends[0], source + offset, bytes, 0) == (ssize_t)bytes);
		parts[0] = (struct iovec){target + offset, 3 * PAGE};
		parts[1] = (struct iovec){target + offset + 3 * PAGE, 5 * PAGE};
		*header = (struct msghdr){.msg_iov = parts, .msg_iovlen = 2};
		squeeze();
		CHECK(recvmsg(ends[1], header, 0) == (ssize_t)bytes);
		verify_from(target + offset, bytes, 143, offset);
	}
}

static int open_unnamed(int flags)
{
	char name[] = "evicted.XXXXXX";
	int file = mkostemp(name, flags);
	CHECK(file >= 0 && unlink(name) == 0);
	return file;
}

static void file_evicted(void)
{
	int file = open_unnamed(0);
	unsigned char *source = map_filled(REGION, 145);
	unsigned char *target = map_filled(REGION, 146);
	struct iovec *parts = (struct iovec *)map(PAGE);
	for (size_t number = 0; number < 4; number++)
		parts[number] = (struct iovec){source + number * REGION / 4, REGION / 4};
	squeeze();
	CHECK(write(file, source, REGION) == (ssize_t)REGION);
	squeeze();
	CHECK(pwrite(file, source, REGION, (off_t)REGION) == (ssize_t)REGION);
	squeeze();
	CHECK(pwritev(file, parts, 4, 2 * (off_t)REGION) == (ssize_t)REGION);
	for (int round = 0; round < 3; round++) {
		memset(target, 0xee, REGION);
		squeeze();
		CHECK(pread(file, target, REGION, round * (off_t)REGION) == (ssize_t)REGION);
		verify(target, REGION, 145);
	}
	for (size_t number = 0; number < 4; number++)
		parts[number] = (struct iovec){target + number * REGION / 4, REGION / 4};
	memset(target, 0, REGION);
	squeeze();
	CHECK(preadv(file, parts, 4, (off_t)REGION) == (ssize_t)REGION);
	verify(target, REGION, 145);
	close(file);
}

/* Direct input and output goes past the page cache, into the pages of the program themselves. */
static void direct_file_evicted(void)
{
	char name[] = "direct.XXXXXX";
	int file = mkostemp(name, O_DIRECT);
	if (file < 0) {
		CHECK(errno == EINVAL);
		unlink(name);
		skip("this file system has no direct access");
		return;
	}
	CHECK(unlink(name) == 0);
	unsigned char *source = map_filled(REGION, 147);
	unsigned char *target = map_filled(REGION, 148);
	for (int round = 0; round < 3; round++) {
		squeeze();
		ssize_t put = pwrite(file, source, REGION, 0);
		if (put < 0 && errno == EINVAL) {
			skip("this file system has no direct access");
			return;
		}
		CHECK(put == (ssize_t)REGION);
		squeeze();
		CHECK(pread(file, target, REGION, 0) == (ssize_t)REGION);
		squeeze();
		verify(target, REGION, 147);
		fill(target, REGION, 148);
	}
	close(file);
}

/* Small results of calls, each to a page of its own that is far. */
static void results_evicted(void)
{
	enum { PAGES = 16 };
	unsigned char *memory = map_filled(PAGES * PAGE, 149);
#define AT(type, page) ((type *)(memory + (page) * PAGE + 128))
	for (int round = 0; round < 3; round++) {
		squeeze();
		CHECK(clock_gettime(CLOCK_REALTIME, AT(struct timespec, 0)) == 0);
		CHECK(AT(struct timespec, 0)->tv_sec > 1000000000);
		CHECK(stat("/", AT(struct stat, 1)) == 0 && S_ISDIR(AT(struct stat, 1)->st_mode));
		CHECK(getcwd(AT(char, 2), 2048) == AT(char, 2) && *AT(char, 2) == '/');
		CHECK(pipe2(AT(int, 3), O_CLOEXEC) == 0);
		int *ends = AT(int, 3);
		CHECK(write(ends[1], "x", 1) == 1);
		*AT(struct pollfd, 4) = (struct pollfd){.fd = ends[0], .events = POLLIN};
		int epoll = epoll_create1(EPOLL_CLOEXEC);
		*AT(struct epoll_event, 5) = (struct epoll_event){.events = EPOLLIN, .data.u64 = 77};
		FD_ZERO(AT(fd_set, 6));
		FD_SET(ends[0], AT(fd_set, 6));
		squeeze();
		CHECK(poll(AT(struct pollfd, 4), 1, 1000) == 1 && AT(struct pollfd, 4)->revents == POLLIN);
		CHECK(epoll_ctl(epoll, EPOLL_CTL_ADD, ends[0], AT(struct epoll_event, 5)) == 0);
		CHECK(epoll_wait(epoll, AT(struct epoll_event, 7), 1, 1000) == 1);
		CHECK(AT(struct epoll_event, 7)->data.u64 == 77);
		CHECK(select(ends[0] + 1, AT(fd_set, 6), NULL, NULL, NULL) == 1 && FD_ISSET(ends[0], AT(fd_set, 6)));
		int counter = eventfd(5, EFD_CLOEXEC), timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC);
		*AT(struct itimerspec, 8) = (struct itimerspec){.it_value.tv_nsec = 1000};
		squeeze();
		CHECK(timerfd_settime(timer, 0, AT(struct itimerspec, 8), NULL) == 0);
		/* Both counters are reset by being read: a second try would find nothing. */
		CHECK(read(counter, AT(uint64_t, 9), 8) == 8 && *AT(uint64_t, 9) == 5);
		CHECK(read(timer, AT(uint64_t, 10), 8) == 8 && *AT(uint64_t, 10) == 1);
		CHECK(getrandom(memory + 11 * PAGE, PAGE, 0) == (ssize_t)PAGE && !is_zero(memory + 11 * PAGE, PAGE));
		pid_t child = fork();
		if (child == 0)
			_exit(42);
		squeeze();
		CHECK(wait4(child, AT(int, 12), 0, AT(struct rusage, 13)) == child);
		CHECK(WEXITSTATUS(*AT(int, 12)) == 42);
		CHECK(sigaltstack(NULL, AT(stack_t, 14)) == 0);
		CHECK(syscall(SYS_getcpu, AT(unsigned, 15), NULL, NULL) == 0);
		close(ends[0]);
		close(ends[1]);
		close(epoll);
		close(counter);
		close(timer);
		verify(memory, 128, 149);
		verify_from(memory + PAGE, 128, 149, PAGE);
		fill(memory, PAGES * PAGE, 149);
	}
#undef AT
}

/* The pipe holds the pages themselves: what is read from it later is what was there when it was spliced. */
static void vmsplice_evicted(void)
{
	int ends[2];
	CHECK(pipe(ends) == 0);
	size_t bytes = 8 * PAGE;
	unsigned char *source = map_filled(64 * bytes, 151);
	unsigned char *target = map_filled(bytes, 152);
	for (size_t number = 0; number < 64; number += 4) {
		size_t offset = number * bytes;
		struct iovec part = {source + offset, bytes};
		squeeze();
		CHECK(vmsplice(ends[1], &part, 1, 0) == (ssize_t)bytes);
		squeeze();
		struct transfer transfer = {.descriptor = ends[0], .memory = target, .bytes = bytes};
		receive_all(&transfer);
		verify_from(target, bytes, 151, offset);
		verify_from(source + offset, bytes, 151, offset);
	}
	/* Spliced, thrown away by the program, its place used for something else: the pipe still has the bytes. */
	struct iovec part = {source, bytes};
	CHECK(vmsplice(ends[1], &part, 1, 0) == (ssize_t)bytes);
	CHECK(madvise(source, bytes, MADV_DONTNEED) == 0);
	fill(source, bytes, 153);
	squeeze();
	struct transfer transfer = {.descriptor = ends[0], .memory = target, .bytes = bytes};
	receive_all(&transfer);
	verify(target, bytes, 151);
	verify(source, bytes, 153);
}

struct ring {
	int descriptor;
	unsigned *submission_tail, *submission_mask, *submission_array;
	unsigned *completion_head, *completion_tail, *completion_mask;
	struct io_uring_sqe *entries;
	struct io_uring_cqe *completions;
};

static int ring_open(struct ring *ring)
{
	struct io_uring_params parameters = {0};
	ring->descriptor = (int)syscall(SYS_io_uring_setup, 8, &parameters);
	if (ring->descriptor < 0)
		return 0;
	size_t submission_bytes = parameters.sq_off.array + parameters.sq_entries * sizeof(unsigned);
	size_t completion_bytes = parameters.cq_off.cqes + parameters.cq_entries * sizeof(struct io_uring_cqe);
	unsigned char *submission = mmap(NULL, submission_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE,
					 ring->descriptor, IORING_OFF_SQ_RING);
	unsigned char *completion = mmap(NULL, completion_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE,
					 ring->descriptor, IORING_OFF_CQ_RING);
	ring->entries = mmap(NULL, parameters.sq_entries * sizeof(struct io_uring_sqe), PROT_READ | PROT_WRITE,
			     MAP_SHARED | MAP_POPULATE, ring->descriptor, IORING_OFF_SQES);
	CHECK(submission != MAP_FAILED && completion != MAP_FAILED && ring->entries != MAP_FAILED);
	ring->submission_tail = (unsigned *)(submission + parameters.sq_off.tail);
	ring->submission_mask = (unsigned *)(submission + parameters.sq_off.ring_mask);
	ring->submission_array = (unsigned *)(submission + parameters.sq_off.array);
	ring->completion_head = (unsigned *)(completion + parameters.cq_off.head);
	ring->completion_tail = (unsigned *)(completion + parameters.cq_off.tail);
	ring->completion_mask = (unsigned *)(completion + parameters.cq_off.ring_mask);
	ring->completions = (struct io_uring_cqe *)(completion + parameters.cq_off.cqes);
	return 1;
}

static void ring_submit(struct ring *ring, const struct io_uring_sqe *entry, unsigned wait)
{
	unsigned tail = *ring->submission_tail, slot = tail & *ring->submission_mask;
	ring->entries[slot] = *entry;
	ring->submission_array[slot] = slot;
	__atomic_store_n(ring->submission_tail, tail + 1, __ATOMIC_RELEASE);
	CHECK(syscall(SYS_io_uring_enter, ring->descriptor, 1, wait, wait ? IORING_ENTER_GETEVENTS : 0, NULL, 0) == 1);
}

static int ring_result(struct ring *ring)
{
	unsigned head = *ring->completion_head;
	while (head == __atomic_load_n(ring->completion_tail, __ATOMIC_ACQUIRE)) {
		long done = syscall(SYS_io_uring_enter, ring->descriptor, 0, 1, IORING_ENTER_GETEVENTS, NULL, 0);
		CHECK(done >= 0 || errno == EINTR);
	}
	int result = ring->completions[head & *ring->completion_mask].res;
	__atomic_store_n(ring->completion_head, head + 1, __ATOMIC_RELEASE);
	return result;
}

static void io_uring_evicted(void)
{
	struct ring ring;
	if (!ring_open(&ring)) {
		skip("this user may not use io_uring");
		return;
	}
	int file = open_unnamed(0);
	unsigned char *source = map_filled(REGION, 154);
	unsigned char *target = map_filled(REGION, 155);
	for (int round = 0; round < 4; round++) {
		/* Every second time the kernel's own threads do it, which aren't the program's. */
		unsigned char flags = round % 2 ? IOSQE_ASYNC : 0;
		struct io_uring_sqe entry = {.opcode = IORING_OP_WRITE, .flags = flags, .fd = file,
					     .addr = (uintptr_t)source, .len = REGION};
		squeeze();
		ring_submit(&ring, &entry, 0);
		squeeze();
		CHECK(ring_result(&ring) == (int)REGION);
		entry.opcode = IORING_OP_READ;
		entry.addr = (uintptr_t)target;
		squeeze();
		ring_submit(&ring, &entry, 0);
		squeeze();
		CHECK(ring_result(&ring) == (int)REGION);
		verify(target, REGION, 154);
		fill(target, REGION, 155);
	}
	/* Registered buffers are pinned: input goes to the frames that were there at that time. */
	struct iovec buffer = {target, REGION};
	squeeze();
	if (syscall(SYS_io_uring_register, ring.descriptor, IORING_REGISTER_BUFFERS, &buffer, 1) != 0) {
		skip("this user may not pin memory for io_uring");
		return;
	}
	for (int round = 0; round < 3; round++) {
		squeeze();
		struct io_uring_sqe entry = {.opcode = IORING_OP_READ_FIXED, .fd = file, .addr = (uintptr_t)target,
					     .len = REGION};
		ring_submit(&ring, &entry, 1);
		CHECK(ring_result(&ring) == (int)REGION);
		verify(target, REGION, 154);
		squeeze();
		verify(target, REGION, 154);
		fill(target, REGION, 156);
		squeeze();
		entry.opcode = IORING_OP_WRITE_FIXED;
		entry.off = REGION;
		ring_submit(&ring, &entry, 1);
		CHECK(ring_result(&ring) == (int)REGION);
		unsigned char *copy = map(REGION);
		CHECK(pread(file, copy, REGION, (off_t)REGION) == (ssize_t)REGION);
		verify(copy, REGION, 156);
		unmap(copy, REGION);
	}
}

static void after_closing(unsigned char *memory)
{
	squeeze();
	verify(memory, REGION, 157);
	/* What the program opens now must be its own. */
	int file = open("/dev/null", O_RDWR);
	CHECK(file == 3);
	pid_t child = fork();
	if (child == 0) {
		verify(memory, REGION, 157);
		fill(memory, REGION, 158);
		squeeze();
		verify(memory, REGION, 158);
		_exit(0);
	}
	expect_exit(child, 0);
	squeeze();
	verify(memory, REGION, 157);
	close(file);
}

/* As every daemon does. */
static void close_every_descriptor(void)
{
	unsigned char *memory = map_filled(REGION, 157);
	squeeze();
	for (int number = 3; number < 4096; number++)
		close(number);
	after_closing(memory);
	if (syscall(SYS_close_range, 3, ~0U, 0) == 0)
		after_closing(memory);
	closefrom(3);
	after_closing(memory);
	for (int number = 3; number < 300; number++)
		CHECK(dup2(2, number) == number);
	squeeze();
	verify(memory, REGION, 157);
	closefrom(3);
	after_closing(memory);
}

static void few_descriptors_allowed(void)
{
	unsigned char *memory = map_filled(REGION, 157);
	struct rlimit limit = {.rlim_cur = 4, .rlim_max = 4};
	squeeze();
	closefrom(3);
	CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
	after_closing(memory);
	pthread_t thread;
	for (int round = 0; round < 3; round++) {
		struct transfer transfer = {.bytes = 0};
		thread = start_thread(receive_all, &transfer);
		join_thread(thread);
		squeeze();
	}
	verify(memory, REGION, 157);
}

const struct check call_checks[] = {
	{"pipe_evicted", pipe_evicted},
	{"socket_evicted", socket_evicted},
	{"datagrams_evicted", datagrams_evicted},
	{"file_evicted", file_evicted},
	{"direct_file_evicted", direct_file_evicted},
	{"results_evicted", results_evicted},
	{"vmsplice_evicted", vmsplice_evicted},
	{"io_uring_evicted", io_uring_evicted},
	{"close_every_descriptor", close_every_descriptor},
	{"few_descriptors_allowed", few_descriptors_allowed},
	{0},
};
