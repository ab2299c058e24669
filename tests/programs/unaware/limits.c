// Programs that have as much as their limits allow.
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../memory.h"
#include "checks.h"

static void limit(int what, rlim_t most)
{
	struct rlimit both = {most, most};
	if (setrlimit(what, &both) != 0)
		end("setrlimit");
}

static size_t child_is_wrong(struct memory memory)
{
	int status = 0;
	fflush(stdout);
	pid_t child = fork();
	if (child == 0) {
		refill(&memory, 4);
		_exit(press(memory, 0.5) + wrong_pages(memory) != 0);
	}
	if (child < 0 || waitpid(child, &status, 0) != child)
		end("a child");
	return status != 0;
}

// Before a pager comes, and again next to it, a program opens all that it may.
static int all_descriptors(void)
{
	enum { MOST = 24 };
	limit(RLIMIT_NOFILE, MOST);
	size_t wrong = 0, pages = 0;
	struct memory memory = {0};
	for (int round = 0; round < 2; round++) {
		int last = -1, next;
		while ((next = open("/dev/null", O_RDONLY)) >= 0)
			last = next;
		wrong += errno != EMFILE || last != MOST - 1;
		if (round == 0)
			memory = fresh(48);
		wrong += press_until_far(memory, 1) + child_is_wrong(memory);
		pages = memory.pages;
		for (int descriptor = 3; descriptor < MOST; descriptor++)
			wrong += close(descriptor) != 0;
		wrong += press(memory, 0.3);
	}
	return report("all descriptors", wrong + wrong_pages(memory) + (pages == 0));
}

// A worker that may have the three descriptors that it has, and no other, not even for a pager of its own.
static int three_descriptors(void)
{
	struct memory memory = fresh(48);
	size_t wrong = press_until_far(memory, 1);
	limit(RLIMIT_NOFILE, 3);
	wrong += child_is_wrong(memory);
	return report("three descriptors", wrong + wrong_pages(memory));
}

static void *rest(void *unused)
{
	pause();
	return unused;
}

static int threads_until_refused(void)
{
	pthread_attr_t small;
	pthread_attr_init(&small);
	pthread_attr_setstacksize(&small, 64 << 10);
	for (int count = 0; count < 1000; count++) {
		pthread_t thread;
		if (pthread_create(&thread, &small, rest, NULL) != 0)
			return errno = EAGAIN, count;
	}
	return -1;
}

// A user nobody else is: the limit counts all processes of a user.
static void become_a_user_of_its_own(void)
{
	if (setgid(61235) != 0 || setuid(61235) != 0)
		end("another user");
}

static int as_many_threads_as_allowed(void)
{
	become_a_user_of_its_own();
	limit(RLIMIT_NPROC, 40);
	int count = threads_until_refused();
	struct memory memory = fresh(48);
	size_t wrong = press(memory, 0.5) + (count != 39);
	return report("as many threads as allowed", wrong + wrong_pages(memory));
}

static int as_many_threads_as_allowed_beside_a_pager(void)
{
	become_a_user_of_its_own();
	limit(RLIMIT_NPROC, 40);
	struct memory memory = fresh(48);
	size_t wrong = press_until_far(memory, 1);
	printf("%d threads, ", threads_until_refused());
	return report("as many threads as allowed beside a pager", wrong + wrong_pages(memory));
}

static int files_of_a_bounded_size(void)
{
	enum { MOST = 3 * PAGE };
	signal(SIGXFSZ, SIG_IGN);
	limit(RLIMIT_FSIZE, MOST);
	struct memory memory = fresh(48);
	size_t wrong = press_until_far(memory, 1);
	FILE *file = tmpfile();
	if (file == NULL)
		end("tmpfile");
	wrong += write(fileno(file), memory.words, 2 * MOST) != MOST;
	wrong += write(fileno(file), memory.words, MOST) != -1 || errno != EFBIG;
	return report("files of a bounded size", wrong + child_is_wrong(memory) + wrong_pages(memory));
}

static size_t kibibytes(const char *what)
{
	char line[256], name[64];
	size_t value = 0;
	snprintf(name, sizeof name, "%s: %%zu", what);
	FILE *file = fopen("/proc/self/status", "r");
	while (file != NULL && fgets(line, sizeof line, file) != NULL && sscanf(line, name, &value) != 1)
		;
	if (file != NULL)
		fclose(file);
	return value;
}

// All that it will ever touch is mapped, and so much more it may have. All but what a pager takes it finds.
static int room_for(const char *what, int resource, const char *figure, size_t more)
{
	enum { OF_A_PAGER = 4 * MIB, OF_A_CHILD = MIB };
	size_t rest_bytes = more > OF_A_PAGER + OF_A_CHILD ? more - OF_A_PAGER - OF_A_CHILD : 0;
	struct memory memory = {NULL, 48 * MIB / PAGE, 2};
	memory.words = mmap(NULL, 48 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (memory.words == MAP_FAILED)
		end("mmap");
	limit(resource, (kibibytes(figure) << 10) + more);
	for (size_t page = 0; page < memory.pages; page++)
		fill_page(memory, page, memory.generation);
	size_t wrong = press(memory, 1);
	void *rest = rest_bytes == 0 ? NULL : mmap(NULL, rest_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (rest == MAP_FAILED)
		wrong++;
	else if (rest != NULL)
		memset(rest, 1, rest_bytes);
	wrong += press(memory, 0.5);
	return report(what, wrong + child_is_wrong(memory) + wrong_pages(memory));
}

static int little_address_space(void)
{
	return room_for("little address space", RLIMIT_AS, "VmSize", MIB);
}

static int enough_address_space(void)
{
	return room_for("enough address space", RLIMIT_AS, "VmSize", 16 * MIB);
}

static int little_data(void)
{
	return room_for("little data", RLIMIT_DATA, "VmData", MIB);
}

static int enough_data(void)
{
	return room_for("enough data", RLIMIT_DATA, "VmData", 16 * MIB);
}

// Whatever the addresses are like that it was given.
static int works(void)
{
	struct memory memory = fresh(32);
	size_t wrong = press_until_far(memory, 1);
	return report("works", wrong + child_is_wrong(memory) + wrong_pages(memory));
}

static int end_with_a_core_file(size_t far)
{
	limit(RLIMIT_CORE, 300 * MIB);
	struct memory memory = fresh(64);
	size_t wrong = press_until_far(memory, far);
	printf("%#lx: %zu wrong\n", (unsigned long)memory.words, wrong);
	fflush(stdout);
	abort();
}

static int aborts(void)
{
	return end_with_a_core_file(0);
}

// Its core file is written while most of it is far.
static int aborts_when_far(void)
{
	return end_with_a_core_file(32 * MIB / PAGE);
}

// Memory that grows slowly next to memory that is managed, where there are many other mappings. What the
// kernel doesn't join costs a mapping, of which a program may have only so many.
static int grows_slowly(void)
{
	enum { OTHERS = 12000, OTHER = 64 << 10, STEPS = 96, STEP = 256 << 10, MOST_PIECES = 16 };
	char *others = mmap(NULL, (size_t)OTHERS * 2 * OTHER, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	char *heap = mmap(NULL, (size_t)STEPS * STEP, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (others == MAP_FAILED || heap == MAP_FAILED)
		end("mmap");
	for (size_t nth = 0; nth < OTHERS; nth++)
		if (mprotect(others + nth * 2 * OTHER, OTHER, PROT_READ | PROT_WRITE) != 0)
			end("mprotect");
	struct memory memory = fresh(48);
	size_t wrong = press_until_far(memory, 1);
	for (size_t step = 0; step < STEPS; step++) {
		if (mprotect(heap + step * STEP, STEP, PROT_READ | PROT_WRITE) != 0)
			end("mprotect");
		memset(heap + step * STEP, (int)step + 1, STEP);
		usleep(50000);
	}
	FILE *maps = fopen("/proc/self/maps", "r");
	if (maps == NULL)
		end("/proc/self/maps");
	size_t pieces = 0;
	unsigned long from, to;
	while (fscanf(maps, "%lx-%lx%*[^\n]", &from, &to) == 2)
		pieces += from >= (unsigned long)heap && to <= (unsigned long)heap + (size_t)STEPS * STEP;
	fclose(maps);
	for (size_t at = 0; at < (size_t)STEPS * STEP; at += PAGE)
		wrong += heap[at] != (char)(at / STEP + 1);
	printf("%zu pieces, ", pieces);
	return report("grows slowly", wrong + (pieces == 0 || pieces > MOST_PIECES));
}

const struct check limit_checks[] = {
	{"grows_slowly", grows_slowly},
	{"all_descriptors", all_descriptors},
	{"three_descriptors", three_descriptors},
	{"as_many_threads_as_allowed", as_many_threads_as_allowed},
	{"as_many_threads_as_allowed_beside_a_pager", as_many_threads_as_allowed_beside_a_pager},
	{"files_of_a_bounded_size", files_of_a_bounded_size},
	{"little_address_space", little_address_space},
	{"enough_address_space", enough_address_space},
	{"little_data", little_data},
	{"enough_data", enough_data},
	{"aborts", aborts},
	{"aborts_when_far", aborts_when_far},
	{"works", works},
	{0},
};
