// SPDX-License-Identifier: MIT OR Apache-2.0
// Frames that software may name lie in a range, which is empty after a reset and can't be changed once it is locked.
#include "os.h"

static void expect(unsigned cause, unsigned offset) {
    uint64_t word = pfa_read(PFA_ERROR);
    check(word_valid(word));
    check((word >> 16 & 15) == cause);
    check((word & 0xfff) == offset);
    pfa_write(PFA_ERROR, 0);
}

static void refused(uint64_t frame) {
    pfa_write(PFA_FREE_PUSH, frame);
    expect(PFA_ERROR_VALUE, PFA_FREE_PUSH);
    pfa_write(PFA_REMOTE_FRAME, frame);
    expect(PFA_ERROR_VALUE, PFA_REMOTE_FRAME);
    pfa_write(PFA_EVICT_PUSH, evict_word(frame, 3));
    expect(PFA_ERROR_VALUE, PFA_EVICT_PUSH);
    check(pfa_free_count() == 0 && pfa_evict_count() == 0 && pfa_read(PFA_REMOTE_FRAME) != frame);
}

int main(void) {
    const uint64_t base = MEMORY_BASE + 0x400000, limit = base + 4 * PAGE_BYTES;
    check(pfa_read(PFA_FRAME_BASE) == 0 && pfa_read(PFA_FRAME_LIMIT) == 0 && pfa_read(PFA_FRAME_LOCK) == 0);
    refused(base);
    pfa_write(PFA_FRAME_BASE, base + 8);
    expect(PFA_ERROR_VALUE, PFA_FRAME_BASE);
    // A frame that was named while the range was wider.
    pfa_write(PFA_FRAME_BASE, MEMORY_BASE);
    pfa_write(PFA_FRAME_LIMIT, MEMORY_BASE + MEMORY_BYTES);
    pfa_write(PFA_REMOTE_FRAME, MEMORY_BASE);
    pfa_write(PFA_FRAME_BASE, base);
    check(pfa_read(PFA_REMOTE_FRAME) == MEMORY_BASE);
    pfa_write(PFA_REMOTE_START, 5);
    expect(PFA_ERROR_VALUE, PFA_REMOTE_START);
    check(pfa_read(PFA_REMOTE_STATUS) == 0);
    pfa_write(PFA_FRAME_LIMIT, limit);
    pfa_write(PFA_FRAME_LOCK, 0);
    check(pfa_read(PFA_FRAME_LOCK) == 0);
    pfa_write(PFA_FRAME_LOCK, 1);
    pfa_write(PFA_FRAME_LOCK, 0);
    check(pfa_read(PFA_FRAME_LOCK) == 1);
    pfa_write(PFA_FRAME_BASE, MEMORY_BASE);
    expect(PFA_ERROR_LOCKED, PFA_FRAME_BASE);
    pfa_write(PFA_FRAME_LIMIT, limit + PAGE_BYTES);
    expect(PFA_ERROR_LOCKED, PFA_FRAME_LIMIT);
    check(pfa_read(PFA_FRAME_BASE) == base && pfa_read(PFA_FRAME_LIMIT) == limit);

    refused(base - PAGE_BYTES);
    refused(limit);
    refused(PFA_BASE);
    for (uint64_t frame = base; frame < limit; frame += PAGE_BYTES) give_frame(frame);
    check(pfa_free_count() == 4);
    // Taken back in the order in which they were given.
    for (uint64_t frame = base; frame < limit; frame += PAGE_BYTES) {
        uint64_t word = pfa_read(PFA_FREE_POP);
        check(word_valid(word) && free_address(word) == frame);
    }
    check(pfa_read(PFA_FREE_POP) == 0);
    pfa_write(PFA_REMOTE_FRAME, base);
    check(pfa_read(PFA_REMOTE_FRAME) == base);
    check_quiet();
    return 0;
}
