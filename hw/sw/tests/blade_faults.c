// SPDX-License-Identifier: MIT OR Apache-2.0
// The blade fails, is silent, stops in the middle of a page, or is too late: a fault to the system, never a hang, never wrong
// bytes, and no frame is lost.
#include "os.h"

enum { TIMEOUT = 8000 };
static unsigned faults;
static unsigned expected_reason = PFA_REFUSED_FETCH_FAILED;

void handle_trap(struct trap_frame *trap, uint64_t cause, uint64_t value) {
    (void)trap;
    check(cause == CAUSE_LOAD_FAULT);
    check(refusal_reason(pfa_read(PFA_REFUSAL)) == expected_reason);
    check(pfa_free_count() == 1); // the frame is still there
    check(pfa_new_count() == 0);
    faults++;
    flush(value); // and try again
}

static void fails_once(unsigned page, unsigned fault, uint64_t id) {
    make_remote(page, id);
    give_frame(frame_take());
    sim_write(fault, 1);
    unsigned before = faults;
    check_page(page, id);
    check(faults == before + 1);
    check(take_new() == id);
}

int main(void) {
    paging_start();
    pfa_start(TIMEOUT);
    fails_once(0, SIM_FAIL, 10);
    fails_once(1, SIM_LOSE, 11);
    fails_once(2, SIM_CUT_SHORT, 12);
    // The answer comes after the time-out, when the frame may be in use: it must be dropped.
    sim_write(SIM_HOLD_CYCLES, TIMEOUT + 4000);
    fails_once(3, SIM_HOLD, 13);
    uint64_t until = cycle() + 2 * TIMEOUT;
    while (cycle() < until) {}
    for (unsigned p = 0; p < 4; p++) check_page(p, 10 + p);

    // A page that the blade never had.
    *user_entry(4) = remote_entry(99, USER_BITS);
    fence();
    flush(user_address(4));
    give_frame(frame_take());
    // Evictions fail too: the page stays where it is, and may not be fetched meanwhile.
    uint64_t frame = frame_take();
    fill(frame, 99);
    sim_write(SIM_FAIL, 1);
    fence();
    pfa_write(PFA_EVICT_PUSH, evict_word(frame, 99));
    uint64_t word;
    do word = pfa_read(PFA_EVICT_POP); while (!word_valid(word));
    check(evicted_failed(word) && evicted_id(word) == 99);
    check(pfa_read(PFA_EVICT_POP) == word); // it stays until the system says so
    *user_entry(4) = local_entry(frame, USER_BITS);
    fence();
    flush(user_address(4));
    pfa_write(PFA_EVICT_POP, 0);
    check(!word_valid(pfa_read(PFA_EVICT_POP)));
    check_page(4, 99);
    check(faults == 4);
    // Lost, then done.
    *user_entry(4) = remote_entry(99, USER_BITS);
    fence();
    flush(user_address(4));
    sim_write(SIM_LOSE, 1);
    check(!evict(frame, 99));
    check(evict(frame, 99));
    check_page(4, 99);
    check(take_new() == 99);
    check_quiet();
    return 0;
}
