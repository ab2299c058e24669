// SPDX-License-Identifier: MIT OR Apache-2.0
#include "benchmarks.h"
#include "system.h"
#include "../../sw/user/gen.h"
#include "../../sw/user/touches.h"

enum { PAGE_BYTES = 4096, MOST_TOUCHES = 1024 };

static uint64_t next_random(uint64_t *state) {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    return *state ^= *state << 17;
}

// Writes all pages, then touches them once more from the first: with half of them here, each is away by then. The time of one touch is
// what stands between the program and its page.
int latency(uint8_t *data, size_t pages, uint64_t pause_us) {
    for (size_t i = 0; i < pages; i++) *(uint64_t *)(data + i * PAGE_BYTES) = i * 0x9e3779b97f4a7c15;
    put_file("/proc/pfa", "reset");
    const struct { long seconds, nanoseconds; } pause = {0, (long)pause_us * 1000};
    static uint32_t times[MOST_TOUCHES];
    size_t touched = 0;
    uint64_t total = 0;
    int right = 1;
    for (size_t i = 0; i < pages; i++) {
        uint64_t begin = cycle();
        uint64_t value = *(volatile uint64_t *)(data + i * PAGE_BYTES);
        uint64_t took = cycle() - begin;
        if (value != i * 0x9e3779b97f4a7c15) right = 0;
        if (pause_us) call(SYS_nanosleep, &pause, 0, 0);
        if (took < 2000 || touched == MOST_TOUCHES) continue; // was here
        times[touched++] = (uint32_t)took;
        total += took;
    }
    if (!touched) return right;
    print_touches(times, touched);
    print_number("touch_total", total);
    return right;
}

int quicksort(uint32_t *numbers, size_t count) {
    uint64_t state = 88172645463325252, sum = 0;
    for (size_t i = 0; i < count; i++) {
        numbers[i] = (uint32_t)next_random(&state);
        sum += numbers[i];
    }
    sort(numbers, 0, (long)count - 1);
    for (size_t i = 0; i < count; i++) {
        sum -= numbers[i];
        if (i && numbers[i - 1] > numbers[i]) return 0;
    }
    return sum == 0;
}

int gen(uint8_t *memory, size_t bytes) { return gen_assemble((uint64_t *)memory, bytes / sizeof(uint64_t)); }
