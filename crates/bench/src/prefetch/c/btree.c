/*
 * A B-tree whose keys came in some order, then read: btree scan|search BYTES. A scan reads all in the order of the keys, from leaf to leaf; a search goes
 * down from the root for a key, again and again.
 */
#include <string.h>

#include "measured.h"

enum {
	/* Nodes of half a kilobyte. */
	LEAF_ENTRIES = 31,
	CHILDREN = 32,
	/* Keys that come together, in order. */
	TOGETHER = 16,
	DEPTH_MOST = 16,
};

struct leaf {
	struct leaf *next;
	uint64_t count;
	struct {
		uint64_t key, value;
	} entries[LEAF_ENTRIES];
};

/* `keys[i]` is the least key under `children[i + 1]`. */
struct inner {
	uint64_t count;
	uint64_t keys[CHILDREN - 1];
	void *children[CHILDREN];
};

struct tree {
	void *root;
	unsigned depth;
};

static unsigned child_of(const struct inner *inner, uint64_t key)
{
	unsigned low = 0, high = inner->count - 1;
	while (low < high) {
		unsigned middle = (low + high) / 2;
		if (key < inner->keys[middle])
			high = middle;
		else
			low = middle + 1;
	}
	return low;
}

static unsigned place_in(const struct leaf *leaf, uint64_t key)
{
	unsigned low = 0, high = leaf->count;
	while (low < high) {
		unsigned middle = (low + high) / 2;
		if (leaf->entries[middle].key < key)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

/* The leaf for a key, and the way there. */
static struct leaf *descend(const struct tree *tree, uint64_t key, struct inner **way, unsigned *turns)
{
	void *node = tree->root;
	for (unsigned level = 0; level < tree->depth; level++) {
		struct inner *inner = node;
		unsigned turn = child_of(inner, key);
		if (way != NULL) {
			way[level] = inner;
			turns[level] = turn;
		}
		node = inner->children[turn];
	}
	return node;
}

static void put_child(struct inner *inner, unsigned behind, uint64_t key, void *child)
{
	memmove(&inner->keys[behind + 1], &inner->keys[behind], (inner->count - 1 - behind) * sizeof *inner->keys);
	memmove(&inner->children[behind + 2], &inner->children[behind + 1], (inner->count - 1 - behind) * sizeof(void *));
	inner->keys[behind] = key;
	inner->children[behind + 1] = child;
	inner->count++;
}

/* `right` was split off at `key` from what is below turn `turns[level - 1]` of `way[level - 1]`. */
static void grow(struct tree *tree, struct inner **way, unsigned *turns, unsigned level, uint64_t key, void *right)
{
	while (level > 0) {
		struct inner *parent = way[--level];
		if (parent->count < CHILDREN) {
			put_child(parent, turns[level], key, right);
			return;
		}
		struct inner *half = obtain(1, sizeof *half);
		unsigned kept = CHILDREN / 2;
		uint64_t between = parent->keys[kept - 1];
		half->count = CHILDREN - kept;
		memcpy(half->keys, &parent->keys[kept], (half->count - 1) * sizeof *half->keys);
		memcpy(half->children, &parent->children[kept], half->count * sizeof(void *));
		parent->count = kept;
		if (turns[level] < kept)
			put_child(parent, turns[level], key, right);
		else
			put_child(half, turns[level] - kept, key, right);
		key = between;
		right = half;
	}
	struct inner *root = obtain(1, sizeof *root);
	root->count = 2;
	root->keys[0] = key;
	root->children[0] = tree->root;
	root->children[1] = right;
	tree->root = root;
	tree->depth++;
}

static void insert(struct tree *tree, uint64_t key, uint64_t value)
{
	struct inner *way[DEPTH_MOST];
	unsigned turns[DEPTH_MOST];
	struct leaf *leaf = descend(tree, key, way, turns);
	if (leaf->count == LEAF_ENTRIES) {
		struct leaf *right = obtain(1, sizeof *right);
		/* Keys that come in order leave full leaves behind. */
		unsigned kept = leaf->entries[LEAF_ENTRIES - 1].key < key ? LEAF_ENTRIES - 1 : LEAF_ENTRIES / 2;
		right->count = LEAF_ENTRIES - kept;
		memcpy(right->entries, &leaf->entries[kept], right->count * sizeof *right->entries);
		right->next = leaf->next;
		leaf->next = right;
		leaf->count = kept;
		uint64_t least = right->entries[0].key;
		grow(tree, way, turns, tree->depth, least, right);
		if (key >= least)
			leaf = right;
	}
	unsigned place = place_in(leaf, key);
	memmove(&leaf->entries[place + 1], &leaf->entries[place], (leaf->count - place) * sizeof *leaf->entries);
	leaf->entries[place].key = key;
	leaf->entries[place].value = value;
	leaf->count++;
}

int main(int count, char **arguments)
{
	int is_scan = count > 1 && strcmp(arguments[1], "scan") == 0;
	uint64_t bytes = count > 2 ? strtoull(arguments[2], NULL, 10) : 1 << 24;
	/* Leaves are two thirds full, or so. */
	uint64_t groups = power_below(bytes / (TOGETHER * 24));
	struct tree tree = { obtain(1, sizeof(struct leaf)), 0 };
	struct leaf *first = tree.root;
	for (uint64_t group = 0, at = 0; group < groups; group++, at = permuted(at, groups))
		for (uint64_t each = 0; each < TOGETHER; each++)
			insert(&tree, at * TOGETHER + each, scattered(group + each) & 0xffffff);

	double began = now();
	uint64_t sum = 0;
	if (is_scan) {
		for (struct leaf *leaf = first; leaf != NULL; leaf = leaf->next)
			for (unsigned each = 0; each < leaf->count; each++)
				sum += leaf->entries[each].value;
	} else {
		for (uint64_t search = 0; search < groups / 2; search++) {
			uint64_t key = scattered(search) % (groups * TOGETHER);
			struct leaf *leaf = descend(&tree, key, NULL, NULL);
			unsigned place = place_in(leaf, key);
			if (place == leaf->count || leaf->entries[place].key != key) {
				fputs("a key is missing\n", stderr);
				return 1;
			}
			sum += leaf->entries[place].value;
		}
	}
	tell("sum", sum, began);
	return 0;
}
