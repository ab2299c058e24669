// SPDX-License-Identifier: MIT OR Apache-2.0
// Quicksort, for programs that are linked with nothing. Whoever includes it may say with SORT_PLACE into which section it goes.
#pragma once
#include <stdint.h>

#ifndef SORT_PLACE
#define SORT_PLACE
#endif

SORT_PLACE static void sort(uint32_t *a, long low, long high) {
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
        // The smaller part by recursion: the stack stays small.
        if (j - low < high - i) {
            sort(a, low, j);
            low = i;
        } else {
            sort(a, i, high);
            high = j;
        }
    }
}
