// SPDX-License-Identifier: MIT OR Apache-2.0
// Several evictions at once; a page is touched while it is on its way out; outcomes come in order.
#include "os.h"

int main(void) {
    paging_start();
    pfa_start(1000000);
    unsigned depth = pfa_evict_depth();
    uint64_t frames[64];
    for (unsigned p = 0; p < depth; p++) {
        frames[p] = frame_take();
        fill(frames[p], 700 + p);
    }
    uint64_t begin = cycle();
    for (unsigned p = 0; p < depth; p++) send_away(p, frames[p], 700 + p, USER_BITS);
    check(pfa_evict_unfinished() == depth);
    // The last of them is touched at once, with frames that were never used.
    give_frame(frame_take());
    give_frame(frame_take());
    unsigned last = depth - 1;
    check(user_load(user_address(last)) == pattern(700 + last, 0));
    check(sim_read(SIM_BLADE_WRITES) == depth);
    check_page(last, 700 + last);
    for (unsigned p = 0; p < depth; p++) {
        uint64_t word;
        do word = pfa_read(PFA_EVICT_POP); while (!word_valid(word));
        check(evicted_id(word) == 700 + p && !evicted_failed(word));
    }
    uint64_t took = cycle() - begin;
    print_number("cycles for that many evictions and a fetch:", took);
    check(!word_valid(pfa_read(PFA_EVICT_POP)));
    check_page(0, 700);
    check(take_new() == 700 + last);
    check(take_new() == 700);
    check_quiet();
    return 0;
}
