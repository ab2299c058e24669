// SPDX-License-Identifier: MIT OR Apache-2.0
#include "os.h"

void pfa_start(uint64_t timeout_cycles) {
    pfa_write(PFA_FRAME_BASE, MEMORY_BASE);
    pfa_write(PFA_FRAME_LIMIT, MEMORY_BASE + MEMORY_BYTES);
    pfa_write(PFA_FRAME_LOCK, 1);
    pfa_write(PFA_TIMEOUT, timeout_cycles);
    pfa_write(PFA_CONTROL, 1);
}

void fill(uint64_t frame, uint64_t id) {
    uint64_t *at = (uint64_t *)frame;
    for (unsigned i = 0; i < PAGE_BYTES / 8; i++) at[i] = pattern(id, i);
}

bool evict(uint64_t frame, uint64_t id) {
    fence(); // what was written to the frame comes before the order to send it
    pfa_write(PFA_EVICT_PUSH, evict_word(frame, id));
    uint64_t word;
    do word = pfa_read(PFA_EVICT_POP); while (!word_valid(word));
    check(evicted_id(word) == id);
    if (evicted_failed(word)) pfa_write(PFA_EVICT_POP, 0);
    return !evicted_failed(word);
}

__attribute__((weak)) void flush_harts(uint64_t address) { flush(address); }
__attribute__((weak)) void marking_pause(void) {}

void send_entry_away(uint64_t *entry, uint64_t address, uint64_t frame, uint64_t id, unsigned bits) {
    *entry = 0;
    fence();
    flush_harts(address);
    marking_pause();
    pfa_write(PFA_EVICT_PUSH, evict_word(frame, id));
    marking_pause();
    fence(); // the eviction is in the queue before anybody can ask for the page
    *entry = remote_entry(id, bits);
}

void send_away(unsigned page, uint64_t frame, uint64_t id, unsigned bits) {
    send_entry_away(user_entry(page), user_address(page), frame, id, bits);
}

static uint64_t spare;

void make_remote(unsigned page, uint64_t id) {
    if (!spare) spare = frame_take();
    fill(spare, id);
    check(evict(spare, id));
    *user_entry(page) = remote_entry(id, USER_BITS);
    fence();
    flush(user_address(page));
}

void check_page(unsigned page, uint64_t id) {
    for (unsigned i = 0; i < PAGE_BYTES / 8; i++) {
        if (user_load(user_address(page) + 8 * i) != pattern(id, i)) panic("a page holds wrong bytes", id << 16 | i);
    }
}

uint64_t take_new(void) {
    uint64_t word = pfa_read(PFA_NEW_POP);
    check(word_valid(word));
    return new_id(word);
}

void check_quiet(void) {
    check(pfa_new_count() == 0);
    check(pfa_free_count() == 0);
    check(pfa_evict_count() == 0);
    check(!pfa_fetch_busy() && !pfa_remote_busy());
    check(!word_valid(pfa_read(PFA_ERROR)));
}
