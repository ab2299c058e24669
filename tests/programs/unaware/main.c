//   unaware CHECK      prints what it has found, and ends with 0 if that is as it should be
#include <stdio.h>
#include <string.h>

#include "checks.h"

static const struct check *const all[] = {identity_checks, page_table_checks, stack_checks, limit_checks, executable_checks,
	wait_checks, stop_checks};

int main(int count, char **words)
{
	for (size_t group = 0; count > 1 && group < sizeof all / sizeof *all; group++)
		for (const struct check *check = all[group]; check->name != NULL; check++)
			if (!strcmp(check->name, words[1]))
				return check->run();
	puts("usage: unaware CHECK");
	return 2;
}
