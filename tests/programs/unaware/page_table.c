// A program that asks the kernel for its own page table, as runtimes do that clear the memory of one guest for the next.
#define _GNU_SOURCE
#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <linux/userfaultfd.h>
#include <unistd.h>

#include "../memory.h"
#include "checks.h"

// By hand: the compiler's headers may be older than the interface (Linux 6.7).
struct region {
	uint64_t start, end, categories;
};
struct scan {
	uint64_t size, flags, start, end, walk_end, regions, region_count, most_pages;
	uint64_t inverted, all_of, any_of, returned;
};
#define SCAN _IOWR('f', 16, struct scan)
enum { IS_WRITTEN = 1 << 1, IS_FILE = 1 << 2, IS_PRESENT = 1 << 3, IS_SWAPPED = 1 << 4, IS_ZERO = 1 << 5 };
enum { PROTECT_FOUND = 1 << 0, ASYNCHRONOUS_ALONE = 1 << 1 };
enum { SLOT = 16 };

static int page_table(void)
{
	int file = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
	if (file < 0)
		end("/proc/self/pagemap");
	return file;
}

// Clears what a guest has touched, as far as the page table says.
static void clear(int file, struct memory slot, struct scan wanted)
{
	struct region found[32];
	uint64_t end_of_slot = (uintptr_t)(slot.words + slot.pages * WORDS);
	wanted.size = sizeof wanted;
	wanted.regions = (uintptr_t)found;
	wanted.region_count = sizeof found / sizeof *found;
	wanted.end = end_of_slot;
	for (wanted.start = (uintptr_t)slot.words; wanted.start < end_of_slot; wanted.start = wanted.walk_end) {
		int count = ioctl(file, SCAN, &wanted);
		if (count < 0)
			end("PAGEMAP_SCAN");
		for (int nth = 0; nth < count; nth++)
			memset((void *)(uintptr_t)found[nth].start, 0, found[nth].end - found[nth].start);
	}
}

static size_t pages_with_something(struct memory slot)
{
	size_t count = 0;
	for (size_t page = 0; page < slot.pages; page++)
		for (size_t nth = 0; nth < WORDS; nth++)
			if (slot.words[page * WORDS + nth] != 0) {
				count++;
				break;
			}
	return count;
}

static struct memory empty(size_t mebibytes)
{
	struct memory memory = {NULL, mebibytes * MIB / PAGE, 0};
	memory.words = mmap(NULL, mebibytes * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (memory.words == MAP_FAILED)
		end("mmap");
	return memory;
}

// Guests follow each other in a slot, while the program has other things to do with so much memory that what a guest has left would be far.
static size_t guests(int file, struct scan wanted, struct memory other)
{
	struct memory slot = empty(SLOT);
	size_t wrong = 0;
	for (uint64_t guest = 1; guest < 6; guest++) {
		refill(&slot, guest);
		wrong += press(other, 0.4) + wrong_pages(slot);
		if (guest % 2)
			wrong += press(other, 0.2);
		clear(file, slot, wanted);
		wrong += pages_with_something(slot);
	}
	return wrong + wrong_pages(other);
}

static const struct scan present_or_swapped = {.any_of = IS_PRESENT | IS_SWAPPED};
static const struct scan written_and_present = {
	.inverted = IS_ZERO | IS_FILE,
	.all_of = IS_WRITTEN | IS_PRESENT | IS_ZERO | IS_FILE,
};
static const struct scan written = {.inverted = IS_ZERO | IS_FILE, .all_of = IS_WRITTEN | IS_ZERO | IS_FILE};

static int clears_what_is_present_or_swapped(void)
{
	int file = page_table();
	return report("present or swapped", guests(file, present_or_swapped, fresh(48)));
}

// It looks for the first time when its pager has long been there.
static int clears_what_is_present_or_swapped_beside_a_pager(void)
{
	struct memory other = fresh(48);
	size_t wrong = press_until_far(other, 1);
	return report("present or swapped beside a pager", wrong + guests(page_table(), present_or_swapped, other));
}

static int clears_what_is_written_and_present(void)
{
	int file = page_table();
	return report("written and present", guests(file, written_and_present, fresh(48)));
}

static int clears_what_is_written(void)
{
	int file = page_table();
	return report("written", guests(file, written, fresh(48)));
}

// The kernel notes what is written, without any message, and is asked for that and to begin again at once.
static int clears_what_is_written_since_it_was_asked(void)
{
	int file = page_table(), descriptor = (int)syscall(SYS_userfaultfd, O_CLOEXEC | UFFD_USER_MODE_ONLY);
	struct uffdio_api interface = {.api = UFFD_API, .features = 1 << 13 /* unpopulated pages, too */ | 1 << 15 /* no messages */};
	struct memory slot = empty(SLOT);
	struct uffdio_register whole = {.range = {(uintptr_t)slot.words, SLOT * MIB}, .mode = UFFDIO_REGISTER_MODE_WP};
	if (descriptor < 0 || ioctl(descriptor, UFFDIO_API, &interface) != 0 || ioctl(descriptor, UFFDIO_REGISTER, &whole) != 0)
		end("userfaultfd");
	struct uffdio_writeprotect protected = {.range = whole.range, .mode = UFFDIO_WRITEPROTECT_MODE_WP};
	if (ioctl(descriptor, UFFDIO_WRITEPROTECT, &protected) != 0)
		end("userfaultfd");
	struct memory other = fresh(48);
	size_t wrong = 0;
	const struct scan since = {
		.flags = PROTECT_FOUND | ASYNCHRONOUS_ALONE,
		.all_of = IS_WRITTEN,
		.returned = IS_WRITTEN,
	};
	for (uint64_t guest = 1; guest < 4; guest++) {
		refill(&slot, guest);
		wrong += press(other, 0.4) + wrong_pages(slot);
		clear(file, slot, since);
		wrong += pages_with_something(slot);
	}
	return report("written since it was asked", wrong + wrong_pages(other));
}

// What is far counts as swapped out, and not as written. All the rest is as without a pager.
static int tells_of_each_page(void)
{
	struct memory memory = fresh(48);
	size_t wrong = press_until_far(memory, memory.pages / 4), present = 0, swapped = 0;
	int file = page_table();
	for (size_t page = 0; page < memory.pages; page++) {
		struct region found = {0};
		struct scan scan = {
			.size = sizeof scan,
			.start = (uintptr_t)(memory.words + page * WORDS),
			.end = (uintptr_t)(memory.words + (page + 1) * WORDS),
			.regions = (uintptr_t)&found,
			.region_count = 1,
			.any_of = IS_PRESENT | IS_SWAPPED,
			.returned = IS_PRESENT | IS_SWAPPED | IS_WRITTEN | IS_FILE | IS_ZERO,
		};
		wrong += ioctl(file, SCAN, &scan) != 1;
		present += found.categories == (IS_PRESENT | IS_WRITTEN);
		swapped += found.categories == IS_SWAPPED;
	}
	printf("%zu present, %zu swapped out, ", present, swapped);
	wrong += present + swapped != memory.pages || swapped < memory.pages / 4;
	return report("each page", wrong + wrong_pages(memory));
}

const struct check page_table_checks[] = {
	{"clears_what_is_present_or_swapped", clears_what_is_present_or_swapped},
	{"clears_what_is_present_or_swapped_beside_a_pager", clears_what_is_present_or_swapped_beside_a_pager},
	{"tells_of_each_page", tells_of_each_page},
	{"clears_what_is_written_and_present", clears_what_is_written_and_present},
	{"clears_what_is_written", clears_what_is_written},
	{"clears_what_is_written_since_it_was_asked", clears_what_is_written_since_it_was_asked},
	{0},
};
