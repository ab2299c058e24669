// Processes that have memory and sleep: `sleepers COUNT MEBIBYTES`. They end when standard input is closed.
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "memory.h"

static void sleeps(size_t bytes, uint64_t seed, int ready)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	fill(memory(bytes), bytes, seed);
	if (write(ready, "", 1) != 1)
		_exit(1);
	for (;;)
		pause();
}

int main(int count, char **words)
{
	int ready[2];
	char byte;
	if (count != 3 || pipe(ready) != 0)
		return 2;
	int sleepers = atoi(words[1]);
	for (int number = 0; number < sleepers; number++) {
		pid_t child = fork();
		if (child < 0)
			fail("fork");
		if (child == 0)
			sleeps((size_t)atoi(words[2]) * MIB, number + 1, ready[1]);
	}
	for (int number = 0; number < sleepers; number++)
		if (read(ready[0], &byte, 1) != 1)
			fail("read");
	puts("ready");
	fflush(stdout);
	while (read(0, &byte, 1) > 0)
		;
	return 0;
}
