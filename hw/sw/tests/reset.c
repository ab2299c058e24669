// SPDX-License-Identifier: MIT OR Apache-2.0
// The reset line is pulled while a page and an eviction are under way. Afterwards the accelerator is as new, answers to requests
// from before are dropped, and everything works.
#include "os.h"

static uint64_t boots __attribute__((section(".pages,\"aw\",@nobits#")));

int main(void) {
    paging_start();
    check(pfa_read(PFA_CONTROL) == 0);
    check_quiet();
    check(pfa_read(PFA_FETCHES) == 0);
    pfa_start(100000);
    if (++boots <= 3) {
        sim_write(SIM_LATENCY, 20000);
        // Three moments: while the entry is checked, while the blade works, while the page arrives and is written.
        static const uint64_t moments[] = {0, 60, 8000, 19700};
        make_remote(0, 40 + boots);
        give_frame(frame_take());
        uint64_t frame = frame_take();
        fill(frame, 60);
        fence();
        if (boots == 2) pfa_write(PFA_EVICT_PUSH, evict_word(frame, 60));
        pfa_write(PFA_REMOTE_FRAME, frame);
        pfa_write(PFA_REMOTE_START, 40 + boots);
        uint64_t until = cycle() + moments[boots];
        while (cycle() < until) {}
        fence();
        sim_write(SIM_RESET, 1);
        for (;;) {}
    }
    sim_write(SIM_LATENCY, 1000);
    for (unsigned p = 0; p < 4; p++) {
        make_remote(p, 80 + p);
        give_frame(frame_take());
        check_page(p, 80 + p);
        check(take_new() == 80 + p);
    }
    check_quiet();
    return 0;
}
