// SPDX-License-Identifier: MIT OR Apache-2.0
// Memory answers with errors: what could not be written is never mapped, what could not be read is never stored, the system hears
// of it with the address, and can take the frame back.
#include "os.h"

static uint64_t bad, good;
static unsigned faults;

static void expect_bus_error(unsigned access, uint64_t address) {
    uint64_t word = pfa_read(PFA_BUS_ERROR);
    check(word_valid(word));
    check(bus_access(word) == access);
    check(bus_address(word) == address);
    check(pfa_read(PFA_INTERRUPT_PENDING) & PFA_IRQ_BUS);
    pfa_write(PFA_BUS_ERROR, 0);
    check(!word_valid(pfa_read(PFA_BUS_ERROR)));
}

// A frame that memory does not take: it is taken back, and the next one serves.
void handle_trap(struct trap_frame *trap, uint64_t cause, uint64_t value) {
    (void)trap;
    check(cause == CAUSE_LOAD_FAULT);
    check(refusal_reason(pfa_read(PFA_REFUSAL)) == PFA_REFUSED_BUS_ERROR);
    check(*user_entry(0) == remote_entry(21, USER_BITS));
    check(pfa_new_count() == 0 && pfa_free_count() == 2);
    expect_bus_error(PFA_BUS_FRAME_WRITE, bad);
    // While fetches may begin, frames are the accelerator's.
    check(pfa_read(PFA_FREE_POP) == 0);
    check((pfa_read(PFA_ERROR) >> 16 & 15) == PFA_ERROR_BUSY);
    pfa_write(PFA_ERROR, 0);
    pfa_write(PFA_CONTROL, 0);
    while (pfa_fetch_busy()) {}
    uint64_t word = pfa_read(PFA_FREE_POP);
    check(word_valid(word) && free_address(word) == bad);
    pfa_write(PFA_CONTROL, 1);
    faults++;
    flush(value);
}

// Its lines leave the cache, so that memory is what is read.
static void forget_lines(void) {
    static volatile uint64_t other[8192];
    for (unsigned i = 0; i < 8192; i += 8) (void)other[i];
}

int main(void) {
    paging_start();
    pfa_start(100000);
    bad = frame_take();
    good = frame_take();
    make_remote(0, 21);
    sim_write(SIM_BAD_PAGE, bad);
    give_frame(bad);
    give_frame(good);
    check_page(0, 21);
    check(faults == 1);
    check(take_new() == 21);
    check(entry_frame(*user_entry(0)) == good);

    // Software's own transfer into it.
    pfa_write(PFA_REMOTE_FRAME, bad);
    pfa_write(PFA_REMOTE_START, 21);
    while (pfa_remote_busy()) {}
    check(pfa_read(PFA_REMOTE_STATUS) == 14);
    expect_bus_error(PFA_BUS_FRAME_WRITE, bad);

    // An eviction from it: the blade keeps what it had.
    sim_write(SIM_BAD_PAGE, 0);
    fill(bad, 22);
    check(evict(bad, 22));
    fill(bad, 23);
    forget_lines();
    sim_write(SIM_BAD_PAGE, bad);
    check(!evict(bad, 22));
    expect_bus_error(PFA_BUS_FRAME_READ, bad);
    sim_write(SIM_BAD_PAGE, 0);
    sim_write(SIM_PEEK_ID, 22);
    for (unsigned i = 0; i < 512; i += 37) {
        sim_write(SIM_PEEK_WORD, i);
        check(sim_read(SIM_PEEK_DATA) == pattern(22, i));
    }
    // And everything goes on.
    check(evict(good, 24));
    check(evict(bad, 22));
    sim_write(SIM_PEEK_WORD, 5);
    check(sim_read(SIM_PEEK_DATA) == pattern(23, 5));
    check_quiet();
    return 0;
}
