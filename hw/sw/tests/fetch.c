// SPDX-License-Identifier: MIT OR Apache-2.0
// Pages are evicted, fetched by a touch, and hold every byte; entries, queues and counters say what happened; no trap occurs.
#include "os.h"

enum { PAGES = 5 };

int main(void) {
    paging_start();
    pfa_start(100000);
    for (unsigned p = 0; p < PAGES; p++) make_remote(p, 1000 + p);
    for (unsigned p = 0; p < PAGES; p++) {
        sim_write(SIM_PEEK_ID, 1000 + p);
        sim_write(SIM_PEEK_WORD, 511);
        check(sim_read(SIM_PEEK_DATA) == pattern(1000 + p, 511));
    }
    uint64_t frames[PAGES];
    for (unsigned p = 0; p < PAGES; p++) give_frame(frames[p] = frame_take());
    check(pfa_free_count() == PAGES);

    // Backwards, so that the order of frames and the order of pages differ.
    for (unsigned p = PAGES; p-- > 0;) {
        check(user_load(user_address(p) + 8 * p) == pattern(1000 + p, p));
        check_page(p, 1000 + p);
        check(*user_entry(p) == local_entry(frames[PAGES - 1 - p], USER_BITS));
    }
    check(pfa_read(PFA_FETCHES) == PAGES);
    check(pfa_read(PFA_REFUSED) == 0);
    check(pfa_read(PFA_EVICTED) == PAGES);
    for (unsigned p = PAGES; p-- > 0;) {
        uint64_t word = pfa_read(PFA_NEW_POP);
        check(word_valid(word) && new_id(word) == 1000 + p && new_address(word) == user_address(p) && new_hart(word) == 0);
    }
    check(!word_valid(pfa_read(PFA_NEW_POP)));

    // Evicted, changed and fetched again: the change survives. Software bits do too.
    user_store(user_address(2) + 16, 0xfeedface);
    uint64_t frame = entry_frame(*user_entry(2));
    *user_entry(2) = remote_entry(1002, USER_BITS) | 3 << 10;
    fence();
    flush(user_address(2));
    check(evict(frame, 1002));
    give_frame(frame);
    check(user_load(user_address(2) + 16) == 0xfeedface);
    check(user_load(user_address(2) + 24) == pattern(1002, 3));
    check(*user_entry(2) == (local_entry(frame, USER_BITS) | 3 << 8));
    check(take_new() == 1002);
    check_quiet();
    print_number("cycles of a fetch:", pfa_read(PFA_FETCH_CYCLES) / pfa_read(PFA_FETCHES));
    return 0;
}
