// Quicksort of random numbers in user mode; says whether the result is sorted and has the same sum.
#include <stdint.h>

#define USER __attribute__((section(".user"), noinline))
#ifndef NUMBERS
#define NUMBERS 2048
#endif

USER static void sort(uint32_t *a, long low, long high) {
    while (low < high) {
        uint32_t pivot = a[low + (high - low) / 2];
        long i = low, j = high;
        while (i <= j) {
            while (a[i] < pivot) i++;
            while (a[j] > pivot) j--;
            if (i <= j) {
                uint32_t swap = a[i];
                a[i++] = a[j];
                a[j--] = swap;
            }
        }
        // The smaller part by recursion: the stack stays within a page.
        if (j - low < high - i) {
            sort(a, low, j);
            low = i;
        } else {
            sort(a, i, high);
            high = j;
        }
    }
}

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
