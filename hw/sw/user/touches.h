// SPDX-License-Identifier: MIT OR Apache-2.0
// How long touches of pages that were away took, in cycles. Whoever includes it brings print_number().
#pragma once
#include "sort.h"

// Prints how many there were and their percentiles; sorts them. `count` is at least 1.
static void print_touches(uint32_t *times, size_t count) {
    sort(times, 0, (long)count - 1);
    print_number("touched", count);
    print_number("touch_shortest", times[0]);
    print_number("touch_median", times[count / 2]);
    print_number("touch_90", times[count * 90 / 100]);
    print_number("touch_99", times[count * 99 / 100]);
    print_number("touch_longest", times[count - 1]);
}
