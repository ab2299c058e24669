// Takes memory all at once, as fast as it can: `fill MEBIBYTES`. It begins with the first line of standard input, and ends when that is closed.
#include <time.h>
#include <unistd.h>

#include "memory.h"

static double now(void)
{
	struct timespec time;
	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec + time.tv_nsec / 1e9;
}

int main(int count, char **words)
{
	char line[16];
	if (count != 2)
		return 2;
	size_t bytes = (size_t)atoi(words[1]) * MIB;
	if (fgets(line, sizeof line, stdin) == NULL)
		return 1;
	double began = now();
	fill(memory(bytes), bytes, 1);
	printf("%f\n", now() - began);
	fflush(stdout);
	while (fgets(line, sizeof line, stdin) != NULL)
		;
	return 0;
}
