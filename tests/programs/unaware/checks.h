// Programs that a pager comes to while they do what programs do that know nothing of it.
#ifndef CHECKS_H
#define CHECKS_H

struct check {
	const char *name;
	int (*run)(void);
};

extern const struct check identity_checks[], page_table_checks[], stack_checks[], limit_checks[], executable_checks[],
	wait_checks[], stop_checks[];

#endif
