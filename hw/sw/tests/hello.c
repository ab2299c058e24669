// SPDX-License-Identifier: MIT OR Apache-2.0
// The core comes up, loads, stores, multiplies, traps.
#include "machine.h"

static volatile unsigned traps;

void handle_trap(struct trap_frame *frame, uint64_t cause, uint64_t value) {
    (void)value;
    check(cause == 2); // an illegal instruction, of four bytes
    traps++;
    frame->x[0] += 4;
}

int main(void) {
    volatile uint64_t a = 6, b = 7;
    check(a * b == 42);
    check(a * b / b == 6);
    __asm__ volatile(".word 0xffffffff");
    check(traps == 1);
    print("hello\n");
    return 0;
}
