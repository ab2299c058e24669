// SPDX-License-Identifier: MIT OR Apache-2.0
// What the accelerator can't serve becomes an ordinary page fault, with its reason; the system mends it and the access goes on.
#include "os.h"

static unsigned faults;
static unsigned expected_reason;
static uint64_t frame;

void handle_trap(struct trap_frame *trap, uint64_t cause, uint64_t value) {
    (void)trap;
    check(cause == CAUSE_LOAD_FAULT);
    uint64_t word = pfa_read(PFA_REFUSAL);
    check(word_valid(word) && refusal_reason(word) == expected_reason);
    check(refusal_address(word) == value && refusal_id(word) == entry_id(*user_entry((value - USER_BASE) / PAGE_BYTES)));
    pfa_write(PFA_REFUSAL, 0);
    faults++;
    // Bookkeeping before refilling: the NewQ is drained first.
    while (word_valid(pfa_read(PFA_NEW_POP))) {}
    if (expected_reason == PFA_REFUSED_NO_FRAME) give_frame(frame);
    if (expected_reason == PFA_REFUSED_DISABLED) pfa_write(PFA_CONTROL, 1);
    // The TLB remembers that the entry was not valid.
    flush(value);
}

int main(void) {
    paging_start();
    pfa_start(100000);
    unsigned depth = pfa_new_depth();
    unsigned pages = depth + 4;
    for (unsigned p = 0; p < pages; p++) make_remote(p, 50 + p);

    frame = frame_take();
    expected_reason = PFA_REFUSED_NO_FRAME;
    check_page(0, 50);
    check(faults == 1);

    expected_reason = PFA_REFUSED_DISABLED;
    give_frame(frame_take());
    pfa_write(PFA_CONTROL, 0);
    check_page(1, 51);
    check(faults == 2);

    // One more than the NewQ holds; frames are there.
    check(take_new() == 51);
    check(pfa_new_count() == 0);
    expected_reason = PFA_REFUSED_NEW_FULL;
    for (unsigned p = 0; p <= depth; p++) {
        if (pfa_free_count() == 0) give_frame(frame_take());
        check(user_load(user_address(2 + p)) == pattern(52 + p, 0));
        check(faults == (p < depth ? 2u : 3u));
    }
    check(take_new() == 52 + depth);
    check(pfa_read(PFA_REFUSED) == 3);
    for (unsigned p = 0; p <= depth; p++) check_page(2 + p, 52 + p);
    check_quiet();
    return 0;
}
