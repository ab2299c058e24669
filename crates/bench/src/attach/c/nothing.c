// Does nothing, or says how many threads and descriptors it has: `nothing [count]`.
#include <dirent.h>
#include <stdio.h>

static int entries(const char *folder)
{
	int count = 0;
	DIR *open = opendir(folder);
	if (open == NULL)
		return -1;
	while (readdir(open) != NULL)
		count++;
	closedir(open);
	return count;
}

int main(int count, char **words)
{
	(void)words;
	if (count > 1)
		printf("%d %d\n", entries("/proc/self/task"), entries("/proc/self/fd"));
	return 0;
}
