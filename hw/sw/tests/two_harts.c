// SPDX-License-Identifier: MIT OR Apache-2.0
// Two harts touch the same pages at the same time. Each page is fetched once, and both see its bytes.
#include "os.h"

enum { PAGES = 8 };
static volatile unsigned ready, done, turn;
static uint64_t table_root;

static void meet(unsigned number) {
    __atomic_fetch_add(&turn, 1, __ATOMIC_SEQ_CST);
    while (turn < 2 * number) {}
}

static void visit(unsigned hart) {
    for (unsigned p = 0; p < PAGES; p++) {
        if (p % 4 == 0) meet(p / 4 + 1);
        // Alternating: the same page, or each a page of its own first.
        unsigned page = p % 4 < 2 ? p : (hart ? p ^ 1 : p);
        check(user_load(user_address(page) + 8 * hart) == pattern(400 + page, hart));
    }
    for (unsigned p = hart; p < PAGES; p += 3) check_page(p, 400 + p);
}

void main_second(void) {
    csr_write(satp, table_root);
    flush_all();
    ready = 1;
    visit(1);
    done = 1;
}

int main(void) {
    paging_start();
    pfa_start(1000000);
    table_root = csr_read(satp);
    for (unsigned p = 0; p < PAGES; p++) make_remote(p, 400 + p);
    check(pfa_free_depth() >= PAGES);
    for (unsigned i = 0; i < PAGES; i++) give_frame(frame_take());
    *(volatile uint32_t *)0x2000004 = 1; // wakes hart 1
    while (!ready) {}
    visit(0);
    while (!done) {}
    check(pfa_read(PFA_FETCHES) == PAGES);
    uint64_t seen = 0;
    for (;;) {
        uint64_t word = pfa_read(PFA_NEW_POP);
        if (!word_valid(word)) break;
        uint64_t page = new_id(word) - 400;
        check(page < PAGES && !(seen >> page & 1));
        seen |= 1UL << page;
    }
    check(seen == (1UL << PAGES) - 1);
    print_number("walks repeated because the other hart was first:", pfa_read(PFA_REPEATED));
    check_quiet();
    return 0;
}
