// SPDX-License-Identifier: MIT OR Apache-2.0
#include "machine.h"

// Without contents in the program file.
#define WHOLE_PAGES __attribute__((section(".pages,\"aw\",@nobits#"), aligned(4096)))

static uint64_t root_table[512] WHOLE_PAGES;
static uint64_t middle_table[512] WHOLE_PAGES;
uint64_t user_table[USER_PAGES] WHOLE_PAGES;
static uint8_t frames[FRAME_POOL][PAGE_BYTES] WHOLE_PAGES;
static unsigned frames_taken;
static uint64_t user_results[2];

extern char user_return[];

#ifdef SPIKE
// The functional model has neither console nor accelerator: only its exit.
volatile uint64_t tohost __attribute__((section(".tohost"), aligned(64)));
volatile uint64_t fromhost __attribute__((section(".tohost"), aligned(64)));

_Noreturn void machine_exit(int status) {
    tohost = (uint64_t)status << 1 | 1;
    for (;;) {}
}

void print(const char *text) { (void)text; }
#else
_Noreturn void machine_exit(int status) {
    sim_write(SIM_EXIT, (uint64_t)status);
    for (;;) {}
}

void print(const char *text) {
    while (*text) sim_write(SIM_CONSOLE, (uint8_t)*text++);
}
#endif

void print_number(const char *label, uint64_t value) {
    char digits[21];
    int at = 20;
    digits[at] = 0;
    do digits[--at] = (char)('0' + value % 10); while (value /= 10);
    print(label);
    print(" ");
    print(&digits[at]);
    print("\n");
}

_Noreturn void panic(const char *text, uint64_t value) {
    print_number(text, value);
    machine_exit(1);
}

__attribute__((weak)) void main_second(void) {}

__attribute__((weak)) void handle_trap(struct trap_frame *frame, uint64_t cause, uint64_t value) {
    print_number("trap: pc", frame->x[0]);
    print_number("trap: value", value);
    panic("trap: cause", cause);
}

void paging_start(void) {
    memset(root_table, 0, sizeof root_table);
    memset(middle_table, 0, sizeof middle_table);
    memset(user_table, 0, sizeof user_table);
    root_table[USER_BASE >> 30 & 511] = local_entry((uint64_t)middle_table, PTE_V);
    middle_table[USER_BASE >> 21 & 511] = local_entry((uint64_t)user_table, PTE_V);
    csr_write(satp, 8UL << 60 | (uint64_t)root_table >> PAGE_SHIFT);
    flush_all();
}

uint64_t frame_take(void) {
    check(frames_taken < FRAME_POOL);
    return (uint64_t)frames[frames_taken++];
}

void leave_user(struct trap_frame *frame, uint64_t result) {
    user_results[csr_read(mhartid)] = result;
    frame->x[0] = (uint64_t)user_return;
    csr_set(mstatus, 3UL << 11);
}

uint64_t user_result(void) { return user_results[csr_read(mhartid)]; }

// What the compiler may call. Words where both sides allow it: simulated cycles are dear.
static bool whole_words(const void *to, const void *from, size_t bytes) {
    return (((uintptr_t)to | (uintptr_t)from | bytes) & 7) == 0;
}

void *memset(void *to, int byte, size_t bytes) {
    if (whole_words(to, to, bytes)) {
        uint64_t word = (uint8_t)byte * 0x0101010101010101UL;
        for (uint64_t *at = to; bytes; bytes -= 8) *at++ = word;
        return to;
    }
    for (uint8_t *at = to; bytes; bytes--) *at++ = (uint8_t)byte;
    return to;
}

void *memcpy(void *to, const void *from, size_t bytes) {
    if (whole_words(to, from, bytes)) {
        const uint64_t *in = from;
        for (uint64_t *at = to; bytes; bytes -= 8) *at++ = *in++;
        return to;
    }
    const uint8_t *in = from;
    for (uint8_t *at = to; bytes; bytes--) *at++ = *in++;
    return to;
}
