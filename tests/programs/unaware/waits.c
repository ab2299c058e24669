// What a program sleeps in while its pager comes, and what it waits for afterwards.
#define _GNU_SOURCE
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../memory.h"
#include "checks.h"

enum { CHILDREN = 2 };

// Its memory is far in part. Orphans of two children become its own, and it waits until it has no child.
// Whatever it adopts has ended well.
static size_t wait_for_all(void)
{
	struct memory memory = fresh(48);
	size_t wrong = press_until_far(memory, 1);
	for (int nth = 0; nth < CHILDREN; nth++) {
		pid_t child = fork();
		if (child < 0)
			end("fork");
		if (child == 0) {
			// An orphan, which is this program's.
			if (fork() != 0)
				_exit(0);
			_exit(wrong_pages(memory) + press(memory, 0.3) != 0);
		}
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

static int writes_at_once(const char *what, int to, int from)
{
	enum { MEBIBYTES = 6 };
	struct memory expected = {NULL, (size_t)MEBIBYTES * MIB / PAGE, 0};
	pid_t reader = fork();
	if (reader < 0)
		end("fork");
	if (reader == 0) {
		close(to);
		_exit(reads(from, expected));
	}
	close(from);
	struct memory memory = fresh(MEBIBYTES);
	ssize_t bytes = (ssize_t)memory.pages * PAGE;
	size_t wrong = write(to, memory.words, bytes) != bytes;
	close(to);
	int status = 0;
	if (waitpid(reader, &status, 0) != reader)
		end("waitpid");
	return report(what, wrong + (status != 0) + wrong_pages(memory));
}

static int writes_to_a_pipe_at_once(void)
{
	int ends[2];
	if (pipe(ends) != 0)
		end("pipe");
	return writes_at_once("a pipe", ends[1], ends[0]);
}

static int writes_to_a_socket_at_once(void)
{
	int ends[2];
	if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0)
		end("socketpair");
	return writes_at_once("a socket", ends[1], ends[0]);
}

const struct check wait_checks[] = {
	{"adopts_orphans_and_waits", adopts_orphans_and_waits},
	{"is_first_of_a_namespace_and_waits", is_first_of_a_namespace_and_waits},
	{"writes_to_a_pipe_at_once", writes_to_a_pipe_at_once},
	{"writes_to_a_socket_at_once", writes_to_a_socket_at_once},
	{0},
};
