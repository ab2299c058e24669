// SPDX-License-Identifier: MIT OR Apache-2.0
// The benchmarks. Each returns whether its result was right.
#pragma once
#include <stddef.h>
#include <stdint.h>

int latency(uint8_t *data, size_t pages, uint64_t pause_us);
int quicksort(uint32_t *numbers, size_t count);
int gen(uint8_t *memory, size_t bytes);
int trouble(size_t pages, uint64_t which);
