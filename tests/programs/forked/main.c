// A program that forks while nobody manages it. Linked statically.
//
//   forked MEBIBYTES CHILDREN OWN
//
// Its children share MEBIBYTES with it, which they read again and again. At the first line of its input it takes OWN mebibytes more. At the second one each child writes
// all that it shares anew, and checks that; so does the program itself, when they have ended.

#define _GNU_SOURCE
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../memory.h"

enum { PARTS = 10 };

static int run_child(struct memory memory, int writing, uint64_t generation)
{
	struct pollfd end = {writing, POLLIN, 0};
	size_t wrong = 0;
	for (size_t part = 0; poll(&end, 1, 10) == 0; part = (part + 1) % PARTS) {
		struct memory some = memory;
		// Words tell which page they are in, so pages are counted from the first on.
		some.pages = memory.pages * (part + 1) / PARTS;
		wrong += wrong_pages(some);
	}
	refill(&memory, generation);
	return wrong + wrong_pages(memory) == 0 ? 0 : 1;
}

static void wait_for_line(void)
{
	char line[16];
	if (fgets(line, sizeof line, stdin) == NULL)
		end("nobody tells what to do");
}

int main(int count, char **words)
{
	if (count != 4)
		return 2;
	struct memory shared = fresh(strtoul(words[1], NULL, 10));
	size_t children = strtoul(words[2], NULL, 10);
	int writing[2];
	if (pipe(writing) != 0)
		end("pipe");
	for (size_t child = 0; child < children; child++) {
		pid_t number = fork();
		if (number < 0)
			end("fork");
		if (number == 0) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			close(writing[1]);
			_exit(run_child(shared, writing[0], child + 1));
		}
	}
	puts("forked");
	fflush(stdout);
	wait_for_line();
	struct memory own = fresh(strtoul(words[3], NULL, 10));
	puts("grown");
	fflush(stdout);
	wait_for_line();
	close(writing[1]);
	int wrong = 0;
	for (size_t child = 0; child < children; child++) {
		int status = 0;
		if (wait(&status) < 0 || status != 0)
			wrong++;
	}
	if (wrong_pages(shared) + wrong_pages(own) != 0)
		wrong++;
	puts(wrong == 0 ? "right" : "wrong");
	return wrong;
}
