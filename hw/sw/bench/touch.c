// SPDX-License-Identifier: MIT OR Apache-2.0
// What stands between a program and a page that is away, on an idle system: cycles of one load, divided among trap, processing,
// interface and blade. Compiled with MODE. Frames suffice for all pages: nothing is evicted.
#include "pager.h"

enum { PAGES = 24, WARM = 6 };

static uint64_t entered, left;

void handle_trap(struct trap_frame *trap, uint64_t cause, uint64_t value) {
    (void)trap;
    entered = cycle();
    check(pager_fault(cause, value));
    left = cycle();
}

int main(void) {
    const uint64_t latency = sim_read(SIM_LATENCY);
    uint64_t touches = 0, total = 0, handler = 0, transfers = 0, fetches = 0, travel = 0, longest = 0;
    paging_start();
    pfa_start(10000000);
    pager_start(MODE, PAGES, PAGES, 0, 0);
    for (unsigned page = 0; page < PAGES; page++) {
        uint64_t transfer_before = pager_figures.transfer_cycles;
        uint64_t fetch_before = pfa_read(PFA_FETCH_CYCLES), travel_before = pfa_read(PFA_TRAVEL_CYCLES);
        entered = left = 0;
        uint64_t begin = cycle();
        uint64_t value = user_load(user_address(page));
        uint64_t took = cycle() - begin;
        check(value == 0);
        // The first ones find cold caches; and where the queues need the system, it is not the page alone that is waited for.
        if (page < WARM || (MODE == PAGER_ACCELERATED && entered)) continue;
        touches++;
        total += took;
        if (took > longest) longest = took;
        handler += left - entered;
        transfers += pager_figures.transfer_cycles - transfer_before;
        fetches += pfa_read(PFA_FETCH_CYCLES) - fetch_before;
        travel += pfa_read(PFA_TRAVEL_CYCLES) - travel_before;
    }
    uint64_t inside = MODE == PAGER_ACCELERATED ? fetches : handler;
    uint64_t moving = MODE == PAGER_ACCELERATED ? travel : transfers;
    print_number("touches", touches);
    print_number("total", total / touches);
    print_number("trap", (total - inside) / touches);
    print_number("processing", (inside - moving) / touches);
    print_number("interface", moving / touches - latency);
    print_number("blade", latency);
    print_number("longest", longest);
    return 0;
}
