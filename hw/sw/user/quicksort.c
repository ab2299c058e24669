// SPDX-License-Identifier: MIT OR Apache-2.0
// Quicksort of random numbers in user mode; says whether the result is sorted and has the same sum.
#include <stdint.h>

#define USER __attribute__((section(".user"), noinline))
#define SORT_PLACE USER
#include "sort.h"
#ifndef NUMBERS
#define NUMBERS 2048
#endif

USER void user_start(uint32_t *numbers) {
    // Small enough to be made by instructions: a constant in memory would lie outside of the image.
    uint64_t state = 88172645, sum = 0;
    for (long i = 0; i < NUMBERS; i++) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        numbers[i] = (uint32_t)state;
        sum += numbers[i];
    }
    sort(numbers, 0, NUMBERS - 1);
    uint64_t right = 1;
    for (long i = 0; i < NUMBERS; i++) {
        sum -= numbers[i];
        if (i && numbers[i - 1] > numbers[i]) right = 0;
    }
    if (sum) right = 0;
    register uint64_t result __asm__("a0") = right;
    __asm__ volatile("ecall" ::"r"(result));
}
