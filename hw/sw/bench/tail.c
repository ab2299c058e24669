// SPDX-License-Identifier: MIT OR Apache-2.0
// How long a program waits for a page when pages are evicted all the time and others use the blade, too: random touches under the pager.
// Compiled with MODE, PAGES and FRAMES. Prints how long touches of pages that were away took: percentiles, and with them the queues' visits
// to the system.
#include "pager.h"
#include "../user/touches.h"

enum { TOUCHES = 100, AWAY_CYCLES = 2000 };

static uint32_t times[TOUCHES];

void handle_trap(struct trap_frame *trap, uint64_t cause, uint64_t value) {
    (void)trap;
    check(pager_fault(cause, value));
}

int main(void) {
    // Clients begin at other pages: their identifiers are their own anyway.
    uint64_t state = 88172645463325252;
    unsigned away = 0;
    paging_start();
    pfa_start(10000000);
    pager_start(MODE, PAGES, FRAMES, 0, 0);
    uint64_t start = cycle();
    for (unsigned touch = 0; touch < TOUCHES; touch++) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        unsigned page = (unsigned)(state >> 20) % PAGES;
        uint64_t begin = cycle();
        uint64_t value = user_load(user_address(page));
        uint64_t took = cycle() - begin;
        check(value == 0);
        if (took >= AWAY_CYCLES) times[away++] = (uint32_t)took;
    }
    uint64_t took = cycle() - start;
    check(away > 0);
    print_touches(times, away);
    print_number("cycles", took);
    return 0;
}
