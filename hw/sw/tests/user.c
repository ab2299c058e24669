// SPDX-License-Identifier: MIT OR Apache-2.0
// Runs a user program (section .user) under a pager. Compiled with
//   MODE    the pager's mode
//   PAGES   pages of user memory: the program, its data, its stack
//   FRAMES  frames for them
// The program gets the address of its data, and passes its result, 1 for a right one, to an ecall.
#include "pager.h"

extern char user_image_begin[], user_image_end[], user_start[];

void handle_trap(struct trap_frame *trap, uint64_t cause, uint64_t value) {
    if (cause == CAUSE_USER_CALL) {
        leave_user(trap, trap->x[10]);
        return;
    }
    if (pager_fault(cause, value)) return;
    print_number("pc", trap->x[0]);
    print_number("address", value);
    panic("trap", cause);
}

int main(void) {
    size_t bytes = (size_t)(user_image_end - user_image_begin);
    paging_start();
    if (MODE != PAGER_LOCAL) pfa_start(10000000);
    pager_start(MODE, PAGES, FRAMES, user_image_begin, bytes);
    uint64_t begin = cycle();
    enter_user(USER_BASE + (uint64_t)(user_start - user_image_begin), user_address(PAGES) - 64, USER_BASE + bytes);
    uint64_t took = cycle() - begin;
    check(user_result() == 1);
#ifndef SPIKE
    print_number("cycles", took);
    print_number("faults", pager_figures.faults);
    print_number("evicted", pager_figures.evicted);
    print_number("fault_cycles", pager_figures.fault_cycles);
    print_number("transfer_cycles", pager_figures.transfer_cycles);
    if (MODE != PAGER_LOCAL) {
        print_number("fetched", MODE == PAGER_ACCELERATED ? pfa_read(PFA_FETCHES) : pager_figures.fetched);
        check(!word_valid(pfa_read(PFA_ERROR)));
    }
    if (MODE == PAGER_ACCELERATED) {
        print_number("fetch_cycles", pfa_read(PFA_FETCH_CYCLES));
        print_number("travel_cycles", pfa_read(PFA_TRAVEL_CYCLES));
        print_number("fetch_longest", pfa_read(PFA_FETCH_LONGEST));
    }
#else
    (void)took;
#endif
    return 0;
}
