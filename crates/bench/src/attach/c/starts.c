// Starts a program again and again, as a shell does, and says how long each took, in nanoseconds: `starts PROGRAM`. Each line of
// standard input says how often; `count` runs it so that it says how many threads and descriptors it has.
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static int64_t now(void)
{
	struct timespec time;
	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec * 1000000000 + time.tv_nsec;
}

static void start(char *program, char *word)
{
	char *words[] = {program, word, NULL};
	fflush(stdout);
	pid_t child = fork();
	if (child == 0) {
		execv(program, words);
		_exit(127);
	}
	int status;
	if (child < 0 || waitpid(child, &status, 0) != child || status != 0)
		exit(1);
}

int main(int count, char **words)
{
	char line[64];
	if (count != 2)
		return 2;
	while (fgets(line, sizeof line, stdin) != NULL) {
		if (!strcmp(line, "count\n")) {
			start(words[1], "count");
			continue;
		}
		for (int runs = atoi(line); runs > 0; runs--) {
			int64_t began = now();
			start(words[1], NULL);
			printf("%ld ", (long)(now() - began));
		}
		puts("");
		fflush(stdout);
	}
	return 0;
}
