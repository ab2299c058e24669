/* Walks along a linked list whose nodes lie in memory in another order: list BYTES. */
#include "measured.h"

struct node {
	struct node *next;
	uint64_t value;
	char rest[48];
};

int main(int count, char **arguments)
{
	uint64_t bytes = count > 1 ? strtoull(arguments[1], NULL, 10) : 1 << 24;
	uint64_t nodes = power_below(bytes / sizeof(struct node));
	struct node *all = obtain(nodes, sizeof *all);
	for (uint64_t each = 0; each < nodes; each++) {
		all[each].next = &all[permuted(each, nodes)];
		all[each].value = scattered(each) & 0xffffff;
	}

	double began = now();
	uint64_t sum = 0;
	struct node *at = all;
	for (uint64_t steps = nodes / 16; steps > 0; steps--) {
		sum += at->value;
		at = at->next;
	}
	tell("sum", sum, began);
	return 0;
}
