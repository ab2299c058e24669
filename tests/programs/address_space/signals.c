/* Signals: the program's own handlers for faults, and handlers that run on stacks which are far. */
#include "check.h"

#include <sched.h>
#include <setjmp.h>
#include <sys/signalfd.h>
#include <sys/time.h>
#include <time.h>

#define REGION (4 * MEBIBYTE)

static unsigned char *guarded;
static atomic_long guard_hits;
static unsigned char *handler_stack;

static void use_handler_stack(void)
{
	size_t bytes = 256 * 1024;
	handler_stack = map(bytes);
	stack_t stack = {.ss_sp = handler_stack, .ss_size = bytes};
	CHECK(sigaltstack(&stack, NULL) == 0);
}

static void handle(int signal, void (*handler)(int, siginfo_t *, void *), int flags)
{
	struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO | flags};
	CHECK(sigaction(signal, &action, NULL) == 0);
}

static void unguard(int signal, siginfo_t *information, void *context)
{
	(void)context;
	unsigned char *address = information->si_addr;
	CHECK(signal == SIGSEGV && information->si_code == SEGV_ACCERR);
	CHECK(address >= guarded && address < guarded + REGION);
	unsigned char *page = (unsigned char *)((uintptr_t)address & ~(PAGE - 1));
	CHECK(mprotect(page, PAGE, PROT_READ | PROT_WRITE) == 0);
	atomic_fetch_add(&guard_hits, 1);
}

/* As garbage collectors and databases do, to learn which pages are written. */
static void segv_write_barrier(void)
{
	use_handler_stack();
	handle(SIGSEGV, unguard, SA_ONSTACK);
	guarded = map_filled(REGION, 161);
	for (int round = 0; round < 4; round++) {
		squeeze();
		CHECK(mprotect(guarded, REGION, PROT_READ) == 0);
		if (round % 2)
			squeeze();
		atomic_store(&guard_hits, 0);
		for (size_t offset = 0; offset < REGION; offset += 2 * PAGE)
			fill(guarded + offset, PAGE, 162 + (uint64_t)round);
		CHECK(atomic_load(&guard_hits) == (long)(REGION / PAGE / 2));
		squeeze();
		for (size_t offset = 0; offset < REGION; offset += 2 * PAGE) {
			verify(guarded + offset, PAGE, 162 + (uint64_t)round);
			verify_from(guarded + offset + PAGE, PAGE, 161, offset + PAGE);
		}
		CHECK(mprotect(guarded, REGION, PROT_READ | PROT_WRITE) == 0);
	}
}

/* Read barriers: pages without any access, opened when touched. */
static void segv_read_barrier(void)
{
	use_handler_stack();
	handle(SIGSEGV, unguard, SA_ONSTACK | SA_NODEFER);
	guarded = map_filled(REGION, 163);
	for (int round = 0; round < 4; round++) {
		CHECK(mprotect(guarded, REGION, PROT_NONE) == 0);
		squeeze();
		atomic_store(&guard_hits, 0);
		verify(guarded, REGION, 163);
		CHECK(atomic_load(&guard_hits) == (long)(REGION / PAGE));
	}
}

static void *write_guarded(void *argument)
{
	size_t half = (uintptr_t)argument;
	use_handler_stack();
	for (int round = 0; round < 3; round++)
		for (size_t offset = half * REGION / 2; offset < (half + 1) * REGION / 2; offset += PAGE) {
			CHECK(mprotect(guarded + offset, PAGE, PROT_READ) == 0);
			fill(guarded + offset, PAGE, 164);
		}
	return NULL;
}

static void segv_barrier_threads(void)
{
	handle(SIGSEGV, unguard, SA_ONSTACK);
	guarded = map(REGION);
	pressure_start();
	pthread_t threads[2];
	for (size_t number = 0; number < 2; number++)
		threads[number] = start_thread(write_guarded, (void *)number);
	for (size_t number = 0; number < 2; number++)
		join_thread(threads[number]);
	pressure_stop();
	CHECK(atomic_load(&guard_hits) == (long)(3 * REGION / PAGE));
	for (size_t offset = 0; offset < REGION; offset += PAGE)
		verify(guarded + offset, PAGE, 164);
}

static sigjmp_buf back;
static volatile sig_atomic_t expected_signal;
static void *volatile expected_address;

static void jump_back(int signal, siginfo_t *information, void *context)
{
	(void)context;
	CHECK(signal == expected_signal);
	CHECK(information->si_addr == expected_address);
	siglongjmp(back, 1);
}

static int traps(int signal, volatile unsigned char *address)
{
	expected_signal = signal;
	expected_address = (void *)address;
	if (sigsetjmp(back, 1))
		return 1;
	*address = *address;
	return 0;
}

/* A file that became shorter than its mapping. */
static void sigbus_handler(void)
{
	use_handler_stack();
	handle(SIGBUS, jump_back, SA_ONSTACK);
	int file = memfd_create("short", 0);
	CHECK(file >= 0 && ftruncate(file, (off_t)REGION) == 0);
	unsigned char *memory = mmap(NULL, REGION, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	CHECK(memory != MAP_FAILED);
	unsigned char *own = map_filled(REGION, 165);
	fill(memory, REGION, 166);
	CHECK(ftruncate(file, (off_t)REGION / 2) == 0);
	for (int round = 0; round < 4; round++) {
		squeeze();
		for (size_t offset = REGION / 2; offset < REGION; offset += 64 * PAGE)
			CHECK(traps(SIGBUS, memory + offset));
		verify(own, REGION, 165);
		verify(memory, REGION / 2, 166);
	}
}

static void segv_handler_jumps(void)
{
	use_handler_stack();
	handle(SIGSEGV, jump_back, SA_ONSTACK);
	unsigned char *memory = map_filled(REGION, 167);
	unsigned char *hole = map(PAGE);
	unmap(hole, PAGE);
	for (int round = 0; round < 4; round++) {
		squeeze();
		CHECK(traps(SIGSEGV, NULL));
		CHECK(traps(SIGSEGV, hole));
		CHECK(mprotect(memory, PAGE, PROT_NONE) == 0);
		squeeze();
		CHECK(traps(SIGSEGV, memory + 8));
		CHECK(mprotect(memory, PAGE, PROT_READ | PROT_WRITE) == 0);
		verify(memory, REGION, 167);
	}
}

/* What ends a program natively ends it in the same way. */
static void fatal_signals(void)
{
	static const int signals[] = {SIGSEGV, SIGBUS, SIGABRT, SIGTERM, SIGFPE};
	for (size_t number = 0; number < sizeof signals / sizeof *signals; number++) {
		squeeze();
		pid_t child = fork();
		if (child == 0) {
			squeeze();
			if (signals[number] == SIGSEGV)
				*(volatile int *)16 = 1;
			raise(signals[number]);
			_exit(0);
		}
		int how;
		CHECK(waitpid(child, &how, 0) == child);
		CHECK(WIFSIGNALED(how) && WTERMSIG(how) == signals[number]);
	}
}

static atomic_int sleepers, woken;
static __thread unsigned char *own_memory;

static void touch_in_handler(int signal, siginfo_t *information, void *context)
{
	(void)signal, (void)information, (void)context;
	int error = errno;
	unsigned char memory[4 * 4096];
	fill(memory, sizeof memory, 168);
	verify(own_memory, MEBIBYTE / 2, 169);
	verify(memory, sizeof memory, 168);
	errno = error;
	atomic_fetch_add(&woken, 1);
}

static const int wakers[] = {SIGUSR1, SIGUSR2, SIGHUP};
enum { SLEEPERS = 6, WAKERS = sizeof wakers / sizeof *wakers };
static atomic_int sleep_over;

static void *sleep_for_signals(void *argument)
{
	if (argument)
		use_handler_stack();
	own_memory = map_filled(MEBIBYTE / 2, 169);
	/* Handlers run inside this call alone. */
	sigset_t none;
	sigemptyset(&none);
	atomic_fetch_add(&sleepers, 1);
	while (!atomic_load(&sleep_over))
		sigsuspend(&none);
	unmap(own_memory, MEBIBYTE / 2);
	return NULL;
}

static void wake_all(const pthread_t *threads)
{
	for (size_t number = 0; number < SLEEPERS; number++)
		for (size_t waker = 0; waker < WAKERS; waker++)
			CHECK(pthread_kill(threads[number], wakers[waker]) == 0);
}

/* The kernel writes a signal's frame to the stack: to far pages, here, and while other signals are pending. */
static void signals_on_evicted_stacks(void)
{
	sigset_t set;
	sigemptyset(&set);
	for (size_t waker = 0; waker < WAKERS; waker++) {
		handle(wakers[waker], touch_in_handler, SA_ONSTACK);
		sigaddset(&set, wakers[waker]);
	}
	CHECK(sigprocmask(SIG_BLOCK, &set, NULL) == 0);
	pthread_t threads[SLEEPERS];
	for (uintptr_t number = 0; number < SLEEPERS; number++)
		threads[number] = start_thread(sleep_for_signals, (void *)(number % 2));
	while (atomic_load(&sleepers) < SLEEPERS)
		sched_yield();
	for (int round = 0; round < 5; round++) {
		atomic_store(&woken, 0);
		squeeze();
		wake_all(threads);
		while (atomic_load(&woken) < SLEEPERS * WAKERS)
			sched_yield();
	}
	atomic_store(&sleep_over, 1);
	wake_all(threads);
	for (size_t number = 0; number < SLEEPERS; number++)
		join_thread(threads[number]);
}

static unsigned char *ticking_memory;
static volatile sig_atomic_t ticks;

static void tick(int signal, siginfo_t *information, void *context)
{
	(void)signal, (void)information, (void)context;
	int error = errno;
	size_t page = (size_t)ticks * 17 % (REGION / PAGE);
	verify_from(ticking_memory + page * PAGE, PAGE, 170, page * PAGE);
	ticks = ticks + 1;
	errno = error;
}

/* Faults inside handlers that interrupt faults. */
static void timer_signals(void)
{
	ticking_memory = map_filled(REGION, 170);
	handle(SIGALRM, tick, SA_RESTART);
	struct itimerval timer = {.it_interval.tv_usec = 2000, .it_value.tv_usec = 2000};
	CHECK(setitimer(ITIMER_REAL, &timer, NULL) == 0);
	int rounds = 0;
	while (ticks < 100 || rounds < 8) {
		squeeze();
		rounds++;
	}
	/* Calls that are interrupted without being taken up again say so. */
	handle(SIGALRM, tick, 0);
	int ends[2];
	CHECK(pipe(ends) == 0);
	char byte;
	CHECK(read(ends[0], &byte, 1) == -1 && errno == EINTR);
	memset(&timer, 0, sizeof timer);
	CHECK(setitimer(ITIMER_REAL, &timer, NULL) == 0);
	verify(ticking_memory, REGION, 170);
}

/* Nothing that the pager needs may hang on signals. */
static void signals_blocked_and_reset(void)
{
	unsigned char *memory = map_filled(REGION, 171);
	sigset_t all, before;
	sigfillset(&all);
	CHECK(sigprocmask(SIG_SETMASK, &all, &before) == 0);
	squeeze();
	verify(memory, REGION, 171);
	for (int signal = 1; signal < 65; signal++)
		if (signal != SIGKILL && signal != SIGSTOP && (signal < 32 || signal > 33))
			CHECK(syscall(SYS_rt_sigaction, signal, &(unsigned long[4]){(unsigned long)SIG_IGN}, NULL, 8) == 0);
	squeeze();
	verify(memory, REGION, 171);
	for (int signal = 1; signal < 65; signal++)
		if (signal != SIGKILL && signal != SIGSTOP && (signal < 32 || signal > 33))
			CHECK(syscall(SYS_rt_sigaction, signal, &(unsigned long[4]){(unsigned long)SIG_DFL}, NULL, 8) == 0);
	squeeze();
	pid_t child = fork();
	if (child == 0) {
		verify(memory, REGION, 171);
		squeeze();
		_exit(0);
	}
	expect_exit(child, 0);
	CHECK(sigprocmask(SIG_SETMASK, &before, NULL) == 0);
	squeeze();
	verify(memory, REGION, 171);
}

static void signal_descriptor_evicted(void)
{
	sigset_t set;
	sigemptyset(&set);
	sigaddset(&set, SIGUSR2);
	CHECK(sigprocmask(SIG_BLOCK, &set, NULL) == 0);
	int descriptor = signalfd(-1, &set, SFD_CLOEXEC);
	CHECK(descriptor >= 0);
	struct signalfd_siginfo *information = (struct signalfd_siginfo *)map(PAGE);
	siginfo_t *waited = (siginfo_t *)map(PAGE);
	for (int round = 0; round < 5; round++) {
		CHECK(sigqueue(getpid(), SIGUSR2, (union sigval){.sival_int = round}) == 0);
		squeeze();
		CHECK(read(descriptor, information, sizeof *information) == (ssize_t)sizeof *information);
		CHECK(information->ssi_signo == SIGUSR2 && information->ssi_int == round);
		CHECK(sigqueue(getpid(), SIGUSR2, (union sigval){.sival_int = -round}) == 0);
		squeeze();
		CHECK(sigwaitinfo(&set, waited) == SIGUSR2 && waited->si_value.sival_int == -round);
	}
}

const struct check signal_checks[] = {
	{"segv_write_barrier", segv_write_barrier},
	{"segv_read_barrier", segv_read_barrier},
	{"segv_barrier_threads", segv_barrier_threads},
	{"segv_handler_jumps", segv_handler_jumps},
	{"sigbus_handler", sigbus_handler},
	{"fatal_signals", fatal_signals},
	{"signals_on_evicted_stacks", signals_on_evicted_stacks},
	{"timer_signals", timer_signals},
	{"signals_blocked_and_reset", signals_blocked_and_reset},
	{"signal_descriptor_evicted", signal_descriptor_evicted},
	{0},
};
