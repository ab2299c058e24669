/*
 * Joins two tables by a hash table of the first, of which four rows have the same key, such as the lines of an order: hash_join BYTES. The rows of the second
 * come in no order.
 */
#include "measured.h"

enum { ROWS_OF_A_KEY = 4 };

struct row {
	struct row *next;
	uint64_t key;
	uint64_t amount;
	char rest[40];
};

int main(int count, char **arguments)
{
	uint64_t bytes = count > 1 ? strtoull(arguments[1], NULL, 10) : 1 << 24;
	uint64_t rows = power_below(bytes / sizeof(struct row));
	uint64_t keys = rows / ROWS_OF_A_KEY;
	struct row *table = obtain(rows, sizeof *table);
	struct row **buckets = obtain(keys, sizeof *buckets);
	for (uint64_t each = 0; each < rows; each++) {
		struct row *row = &table[each];
		row->key = permuted(each, rows) / ROWS_OF_A_KEY;
		row->amount = scattered(each) & 0xffffff;
		struct row **bucket = &buckets[scattered(row->key) & (keys - 1)];
		row->next = *bucket;
		*bucket = row;
	}

	double began = now();
	uint64_t sum = 0;
	for (uint64_t probe = 0; probe < rows / 64; probe++) {
		uint64_t key = scattered(probe) & (keys - 1);
		for (struct row *row = buckets[scattered(key) & (keys - 1)]; row != NULL; row = row->next)
			if (row->key == key)
				sum += row->amount;
	}
	tell("sum", sum, began);
	return 0;
}
