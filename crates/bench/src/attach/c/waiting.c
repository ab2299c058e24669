// A process for each of the calls of the kernel that wait: none of them may return, for nothing comes that they wait for. `waiting`; each line of standard
// input is answered by one that has, for each call, its name, how often it has returned, and with what error at last.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/aio_abi.h>
#include <linux/futex.h>
#include <mqueue.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/msg.h>
#include <sys/prctl.h>
#include <sys/select.h>
#include <sys/sem.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "memory.h"

enum { HOUR_SECONDS = 3600, OWN_BYTES = 3 * MIB / 2 };

static const struct timespec hour = {HOUR_SECONDS, 0};
static const struct timeval hour_of_sockets = {HOUR_SECONDS, 0};
static int ends[2], full[2], pair[2], listener, locked;
static char byte;

static void limit(int socket, int option)
{
	if (setsockopt(socket, SOL_SOCKET, option, &hour_of_sockets, sizeof hour_of_sockets) != 0)
		fail("setsockopt");
}

static struct timespec in_an_hour(clockid_t clock)
{
	struct timespec time;
	clock_gettime(clock, &time);
	time.tv_sec += HOUR_SECONDS;
	return time;
}

static sigset_t one_signal(void)
{
	sigset_t set;
	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	sigprocmask(SIG_BLOCK, &set, NULL);
	return set;
}

static int queue_of_semaphores(void)
{
	int number = semget(IPC_PRIVATE, 1, 0600);
	if (number < 0)
		fail("semget");
	return number;
}

static struct msghdr message(struct iovec *part)
{
	*part = (struct iovec){&byte, 1};
	return (struct msghdr){.msg_iov = part, .msg_iovlen = 1};
}

static void read_pipe(void) { (void)!read(ends[0], &byte, 1); }
static void readv_pipe(void) { struct iovec part = {&byte, 1}; (void)!readv(ends[0], &part, 1); }
static void write_pipe(void) { (void)!write(full[1], &byte, 1); }
static void splice_pipe(void) { splice(ends[0], NULL, full[1], NULL, 1, 0); }
static void poll_forever(void) { poll(&(struct pollfd){ends[0], POLLIN, 0}, 1, -1); }
static void poll_limited(void) { poll(&(struct pollfd){ends[0], POLLIN, 0}, 1, HOUR_SECONDS * 1000); }
static void ppoll_forever(void) { ppoll(&(struct pollfd){ends[0], POLLIN, 0}, 1, NULL, NULL); }
static void ppoll_limited(void) { ppoll(&(struct pollfd){ends[0], POLLIN, 0}, 1, &hour, NULL); }

static void select_on(struct timeval *time)
{
	fd_set set;
	FD_ZERO(&set);
	FD_SET(ends[0], &set);
	select(ends[0] + 1, &set, NULL, NULL, time);
}

static void select_forever(void) { select_on(NULL); }
static void select_limited(void) { select_on(&(struct timeval){HOUR_SECONDS, 0}); }

static void pselect_limited(void)
{
	sigset_t set;
	sigemptyset(&set);
	pselect(0, NULL, NULL, NULL, &hour, &set);
}

static int epoll_on(void)
{
	static int epoll = -1;
	struct epoll_event event = {.events = EPOLLIN};
	if (epoll < 0) {
		epoll = epoll_create1(EPOLL_CLOEXEC);
		epoll_ctl(epoll, EPOLL_CTL_ADD, ends[0], &event);
	}
	return epoll;
}

static void epoll_wait_forever(void) { epoll_wait(epoll_on(), &(struct epoll_event){0}, 1, -1); }
static void epoll_wait_limited(void) { epoll_wait(epoll_on(), &(struct epoll_event){0}, 1, HOUR_SECONDS * 1000); }

static void epoll_pwait_limited(void)
{
	sigset_t set;
	sigemptyset(&set);
	epoll_pwait(epoll_on(), &(struct epoll_event){0}, 1, HOUR_SECONDS * 1000, &set);
}

static void epoll_pwait2_limited(void)
{
	syscall(SYS_epoll_pwait2, epoll_on(), &(struct epoll_event){0}, 1, &hour, NULL, 0);
}

static uint32_t word;

static void futex_forever(void) { syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 0, NULL, NULL, 0); }
static void futex_limited(void) { syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 0, &hour, NULL, 0); }

static void futex_until(void)
{
	struct timespec until = in_an_hour(CLOCK_MONOTONIC);
	syscall(SYS_futex, &word, FUTEX_WAIT_BITSET_PRIVATE, 0, &until, NULL, FUTEX_BITSET_MATCH_ANY);
}

static void futex_waitv(void)
{
	struct futex_waitv one = {.uaddr = (uintptr_t)&word, .flags = FUTEX_32 | FUTEX_PRIVATE_FLAG};
	syscall(SYS_futex_waitv, &one, 1, 0, NULL, 0);
}

static void nanosleep_hour(void) { nanosleep(&hour, NULL); }
static void clock_nanosleep_hour(void) { clock_nanosleep(CLOCK_MONOTONIC, 0, &hour, NULL); }

static void clock_nanosleep_until(void)
{
	struct timespec until = in_an_hour(CLOCK_MONOTONIC);
	clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL);
}

static void accept_forever(void) { accept(listener, NULL, NULL); }
static void accept_limited(void) { limit(listener, SO_RCVTIMEO); accept(listener, NULL, NULL); }

static void connect_to_full(int is_limited)
{
	// One connection that nobody accepts fills the queue of a listener that has room for none.
	struct sockaddr_un own = {.sun_family = AF_UNIX};
	socklen_t length = sizeof own;
	int full_listener = socket(AF_UNIX, SOCK_STREAM, 0);
	if (bind(full_listener, (struct sockaddr *)&own, sizeof own.sun_family) != 0 || listen(full_listener, 0) != 0 ||
	    getsockname(full_listener, (struct sockaddr *)&own, &length) != 0)
		fail("listen");
	if (connect(socket(AF_UNIX, SOCK_STREAM, 0), (struct sockaddr *)&own, length) != 0)
		fail("connect");
	int last = socket(AF_UNIX, SOCK_STREAM, 0);
	if (is_limited)
		limit(last, SO_SNDTIMEO);
	connect(last, (struct sockaddr *)&own, length);
}

static void connect_forever(void) { connect_to_full(0); }
static void connect_limited(void) { connect_to_full(1); }
static void recv_forever(void) { recv(pair[0], &byte, 1, 0); }
static void recv_limited(void) { limit(pair[0], SO_RCVTIMEO); recv(pair[0], &byte, 1, 0); }
static void recvfrom_limited(void) { limit(pair[0], SO_RCVTIMEO); recvfrom(pair[0], &byte, 1, 0, NULL, NULL); }
static void read_socket_limited(void) { limit(pair[0], SO_RCVTIMEO); (void)!read(pair[0], &byte, 1); }

static void recvmsg_limited(void)
{
	struct iovec part;
	struct msghdr one = message(&part);
	limit(pair[0], SO_RCVTIMEO);
	recvmsg(pair[0], &one, 0);
}

static void recvmmsg_limited(void)
{
	struct iovec part;
	struct mmsghdr one = {.msg_hdr = message(&part)};
	limit(pair[0], SO_RCVTIMEO);
	recvmmsg(pair[0], &one, 1, 0, NULL);
}

static void fill_socket(void)
{
	static char much[1 << 16];
	while (send(pair[1], much, sizeof much, MSG_DONTWAIT) > 0)
		;
}

static void send_forever(void) { fill_socket(); send(pair[1], &byte, 1, 0); }
static void send_limited(void) { fill_socket(); limit(pair[1], SO_SNDTIMEO); send(pair[1], &byte, 1, 0); }

static void sendmsg_limited(void)
{
	struct iovec part;
	struct msghdr one = message(&part);
	fill_socket();
	limit(pair[1], SO_SNDTIMEO);
	sendmsg(pair[1], &one, 0);
}

// One that lives as long as whoever waits for it.
static pid_t child(void)
{
	static pid_t number;
	if (number == 0 && (number = fork()) == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (;;)
			pause();
	}
	return number;
}

static void wait4_child(void) { int status; wait4(child(), &status, 0, NULL); }
static void waitid_child(void) { siginfo_t about; waitid(P_PID, child(), &about, WEXITED); }
static void sigtimedwait_hour(void) { sigset_t set = one_signal(); sigtimedwait(&set, NULL, &hour); }
static void sigwaitinfo_forever(void) { sigset_t set = one_signal(); sigwaitinfo(&set, NULL); }
static void pause_forever(void) { pause(); }
static void sigsuspend_forever(void) { sigset_t set; sigemptyset(&set); sigsuspend(&set); }

static void msgrcv_forever(void)
{
	struct { long kind; char text[8]; } room;
	msgrcv(msgget(IPC_PRIVATE, 0600), &room, sizeof room.text, 0, 0);
}

static void semop_forever(void) { semop(queue_of_semaphores(), &(struct sembuf){0, -1, 0}, 1); }
static void semtimedop_hour(void) { semtimedop(queue_of_semaphores(), &(struct sembuf){0, -1, 0}, 1, &hour); }

static void getevents(const struct timespec *time)
{
	aio_context_t context = 0;
	struct io_event event;
	if (syscall(SYS_io_setup, 1, &context) != 0)
		fail("io_setup");
	syscall(SYS_io_getevents, context, 1, 1, &event, time);
}

static void io_getevents_forever(void) { getevents(NULL); }
static void io_getevents_hour(void) { getevents(&hour); }
static void flock_locked(void) { flock(open("/proc/self/exe", O_RDONLY), LOCK_EX); }

static void fcntl_locked(void)
{
	char path[64];
	snprintf(path, sizeof path, "/proc/self/fd/%d", locked);
	fcntl(open(path, O_RDWR), F_SETLKW, &(struct flock){.l_type = F_WRLCK});
}

static void mq_receive_hour(void)
{
	char name[64], text[8];
	snprintf(name, sizeof name, "/waiting-%d", (int)getpid());
	struct mq_attr room = {.mq_maxmsg = 1, .mq_msgsize = sizeof text};
	mqd_t queue = mq_open(name, O_RDWR | O_CREAT | O_EXCL, 0600, &room);
	mq_unlink(name);
	struct timespec until = in_an_hour(CLOCK_REALTIME);
	mq_timedreceive(queue, text, sizeof text, NULL, &until);
}

static void read_inotify(void) { char text[512]; (void)!read(inotify_init1(IN_CLOEXEC), text, sizeof text); }
static void read_eventfd(void) { uint64_t count; (void)!read(eventfd(0, EFD_CLOEXEC), &count, sizeof count); }

static void read_timerfd(void)
{
	uint64_t count;
	int timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC);
	timerfd_settime(timer, 0, &(struct itimerspec){.it_value = hour}, NULL);
	(void)!read(timer, &count, sizeof count);
}

static void read_signalfd(void)
{
	struct signalfd_siginfo about;
	sigset_t set = one_signal();
	(void)!read(signalfd(-1, &set, SFD_CLOEXEC), &about, sizeof about);
}

static const struct kind {
	const char *name;
	void (*wait)(void);
} kinds[] = {
	{"read", read_pipe}, {"readv", readv_pipe}, {"write", write_pipe}, {"splice", splice_pipe},
	{"poll", poll_forever}, {"poll-limited", poll_limited}, {"ppoll", ppoll_forever}, {"ppoll-limited", ppoll_limited},
	{"select", select_forever}, {"select-limited", select_limited}, {"pselect-limited", pselect_limited},
	{"epoll_wait", epoll_wait_forever}, {"epoll_wait-limited", epoll_wait_limited},
	{"epoll_pwait-limited", epoll_pwait_limited}, {"epoll_pwait2-limited", epoll_pwait2_limited},
	{"futex", futex_forever}, {"futex-limited", futex_limited}, {"futex-until", futex_until}, {"futex_waitv", futex_waitv},
	{"nanosleep", nanosleep_hour}, {"clock_nanosleep", clock_nanosleep_hour}, {"clock_nanosleep-until", clock_nanosleep_until},
	{"accept", accept_forever}, {"accept-limited", accept_limited},
	{"connect", connect_forever}, {"connect-limited", connect_limited},
	{"recv", recv_forever}, {"recv-limited", recv_limited}, {"recvfrom-limited", recvfrom_limited},
	{"recvmsg-limited", recvmsg_limited}, {"recvmmsg-limited", recvmmsg_limited}, {"read-socket-limited", read_socket_limited},
	{"send", send_forever}, {"send-limited", send_limited}, {"sendmsg-limited", sendmsg_limited},
	{"wait4", wait4_child}, {"waitid", waitid_child}, {"sigtimedwait", sigtimedwait_hour}, {"sigwaitinfo", sigwaitinfo_forever},
	{"pause", pause_forever}, {"sigsuspend", sigsuspend_forever}, {"msgrcv", msgrcv_forever},
	{"semop", semop_forever}, {"semtimedop", semtimedop_hour},
	{"io_getevents", io_getevents_forever}, {"io_getevents-limited", io_getevents_hour},
	{"flock", flock_locked}, {"fcntl", fcntl_locked}, {"mq_timedreceive", mq_receive_hour},
	{"read-inotify", read_inotify}, {"read-eventfd", read_eventfd}, {"read-timerfd", read_timerfd}, {"read-signalfd", read_signalfd},
};

enum { KINDS = sizeof kinds / sizeof *kinds };

static struct tally {
	_Atomic int returned, error;
} *tallies;

static void waits(size_t kind)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (pipe(ends) != 0 || pipe2(full, O_NONBLOCK) != 0 || socketpair(AF_UNIX, SOCK_STREAM, 0, pair) != 0)
		fail("pipe");
	while (write(full[1], &byte, 1) == 1)
		;
	fcntl(full[1], F_SETFL, 0);
	struct sockaddr_un own = {.sun_family = AF_UNIX};
	listener = socket(AF_UNIX, SOCK_STREAM, 0);
	if (bind(listener, (struct sockaddr *)&own, sizeof own.sun_family) != 0 || listen(listener, 1) != 0)
		fail("listen");
	fill(memory(OWN_BYTES), OWN_BYTES, kind + 1);
	for (;;) {
		errno = 0;
		kinds[kind].wait();
		atomic_store(&tallies[kind].error, errno);
		atomic_fetch_add(&tallies[kind].returned, 1);
		// One that returns at once is seen, and needn't do so a million times.
		usleep(1000);
	}
}

int main(void)
{
	char line[16];
	// What is made to wait for outlives processes; not so their namespace.
	if (unshare(CLONE_NEWIPC) != 0)
		fail("a namespace of its own");
	tallies = mmap(NULL, sizeof *tallies * KINDS, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	locked = memfd_create("locked", MFD_CLOEXEC);
	if (tallies == MAP_FAILED || locked < 0)
		fail("mmap");
	// Locks that are never given back, for those who wait for them.
	if (flock(open("/proc/self/exe", O_RDONLY | O_CLOEXEC), LOCK_EX) != 0)
		fail("flock");
	if (fcntl(locked, F_SETLK, &(struct flock){.l_type = F_WRLCK}) != 0)
		fail("fcntl");
	for (size_t kind = 0; kind < KINDS; kind++) {
		pid_t made = fork();
		if (made < 0)
			fail("fork");
		if (made == 0)
			waits(kind);
	}
	while (fgets(line, sizeof line, stdin) != NULL) {
		for (size_t kind = 0; kind < KINDS; kind++)
			printf("%s %d %d ", kinds[kind].name, tallies[kind].returned, tallies[kind].error);
		puts("");
		fflush(stdout);
	}
	return 0;
}
