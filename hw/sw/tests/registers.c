// SPDX-License-Identifier: MIT OR Apache-2.0
// Accesses that are not legal read zero, change nothing and are noted; the first stays until it is cleared.
#include "os.h"

static void expect(unsigned cause, unsigned offset) {
    uint64_t word = pfa_read(PFA_ERROR);
    check(word_valid(word));
    check((word >> 16 & 15) == cause);
    check((word & 0xfff) == offset);
    pfa_write(PFA_ERROR, 0);
    check(!word_valid(pfa_read(PFA_ERROR)));
}

int main(void) {
    check(pfa_read(PFA_IDENTITY) >> 40 == 0x504641);
    check(pfa_read(PFA_CONTROL) == 0);
    check(!word_valid(pfa_read(PFA_ERROR)));

    pfa_write(PFA_FRAME_BASE, MEMORY_BASE);
    pfa_write(PFA_FRAME_LIMIT, MEMORY_BASE + MEMORY_BYTES);
    check(*(volatile uint32_t *)(PFA_BASE + PFA_IDENTITY) == 0);
    expect(PFA_ERROR_SIZE, PFA_IDENTITY);
    *(volatile uint32_t *)(PFA_BASE + PFA_CONTROL) = 1;
    expect(PFA_ERROR_SIZE, PFA_CONTROL);
    check(pfa_read(PFA_CONTROL) == 0);
    *(volatile uint8_t *)(PFA_BASE + PFA_FREE_PUSH + 1) = 1;
    expect(PFA_ERROR_SIZE, PFA_FREE_PUSH + 1);
    check(pfa_read(0xf8) == 0);
    expect(PFA_ERROR_NO_REGISTER, 0xf8);
    pfa_write(0xff8, 1);
    expect(PFA_ERROR_NO_REGISTER, 0xff8);
    pfa_write(PFA_STATUS, ~0UL);
    expect(PFA_ERROR_READ_ONLY, PFA_STATUS);
    check(pfa_read(PFA_EVICT_PUSH) == 0);
    expect(PFA_ERROR_WRITE_ONLY, PFA_EVICT_PUSH);
    pfa_write(PFA_FREE_PUSH, 0x80000123);
    expect(PFA_ERROR_VALUE, PFA_FREE_PUSH);
    pfa_write(PFA_FREE_PUSH, 1UL << 60);
    expect(PFA_ERROR_VALUE, PFA_FREE_PUSH);
    pfa_write(PFA_EVICT_POP, 0);
    expect(PFA_ERROR_VALUE, PFA_EVICT_POP);
    check(pfa_free_count() == 0);
    unsigned depth = pfa_free_depth();
    for (unsigned i = 0; i < depth; i++) give_frame(0x80400000 + i * PAGE_BYTES);
    check(!word_valid(pfa_read(PFA_ERROR)));
    give_frame(0x80300000);
    check(pfa_free_count() == depth);
    // The second error does not hide the first.
    pfa_write(PFA_STATUS, 0);
    expect(PFA_ERROR_FULL, PFA_FREE_PUSH);
    // Software's own way to the blade takes one order at a time.
    uint64_t frame = frame_take();
    fill(frame, 5);
    fence();
    pfa_write(PFA_TIMEOUT, 100000);
    pfa_write(PFA_REMOTE_FRAME, frame);
    pfa_write(PFA_REMOTE_START, 1UL << 63 | 5);
    pfa_write(PFA_REMOTE_START, 6);
    expect(PFA_ERROR_BUSY, PFA_REMOTE_START);
    while (pfa_remote_busy()) {}
    check(pfa_read(PFA_REMOTE_STATUS) == 2);
    pfa_write(PFA_REMOTE_START, 77); // nobody stored this page
    while (pfa_remote_busy()) {}
    check(pfa_read(PFA_REMOTE_STATUS) == 6);
    for (unsigned i = 0; i < 512; i++) check(((uint64_t *)frame)[i] == pattern(5, i));
    return 0;
}
