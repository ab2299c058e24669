// SPDX-License-Identifier: MIT OR Apache-2.0
// De-novo assembly in user mode; says whether the sequence was found again. The table lies in pages that are zeros at first.
#include <stdint.h>

#define USER __attribute__((section(".user"), noinline))
#define GEN_PLACE USER
#include "gen.h"
#ifndef SLOTS
#define SLOTS 8192
#endif

USER void user_start(uint64_t *table) {
    register uint64_t result __asm__("a0") = (uint64_t)gen_assemble(table, SLOTS);
    __asm__ volatile("ecall" ::"r"(result));
}
