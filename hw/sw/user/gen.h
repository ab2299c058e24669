// SPDX-License-Identifier: MIT OR Apache-2.0
// De-novo assembly in small, for programs that are linked with nothing: a random sequence of bases is cut into overlapping pieces, each
// shifted by one base; the pieces go into a hash table, and the sequence is put together again by probing for each piece's
// successor. Every probe lands anywhere in the table. Whoever includes it may say with GEN_PLACE into which section it goes.
#pragma once
#include <stddef.h>
#include <stdint.h>

#ifndef GEN_PLACE
#define GEN_PLACE
#endif

// Few pieces for a table: each costs several probes, and so several pages.
enum { PIECE_BASES = 24, SLOTS_FOR_A_PIECE = 128 };

// Constants are small enough to be made by instructions: in memory they might lie outside of a program's image.
GEN_PLACE static uint64_t gen_random(uint64_t *state) {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    return *state ^= *state << 17;
}

// The slot of a piece, or the empty slot where it belongs.
GEN_PLACE static uint64_t *gen_slot(uint64_t *table, size_t slots, uint64_t piece) {
    size_t at = (uint64_t)(uint32_t)(piece * 0x9e3779b1 >> 24) * slots >> 32;
    while (table[at] && table[at] != piece)
        if (++at == slots) at = 0;
    return &table[at];
}

// `table` is all zeros. Returns whether the sequence was found again.
GEN_PLACE static int gen_assemble(uint64_t *table, size_t slots) {
    const uint64_t mask = (1UL << 2 * PIECE_BASES) - 1, used = 1UL << 63;
    const size_t pieces = slots / SLOTS_FOR_A_PIECE;
    uint64_t state = 88172645, first = gen_random(&state) & mask, piece = first, check = 0;
    // The sequence itself is not kept: only its pieces are.
    for (size_t i = 0; i < pieces; i++) {
        *gen_slot(table, slots, piece | used) = piece | used;
        check += piece;
        piece = (piece << 2 | (gen_random(&state) & 3)) & mask;
    }
    size_t found = 1;
    check -= first;
    for (piece = first; found < pieces; found++) {
        uint64_t candidate = piece << 2 & mask, last = candidate | 3;
        while (candidate <= last && !*gen_slot(table, slots, candidate | used)) candidate++;
        if (candidate > last) break;
        piece = candidate;
        check -= piece;
    }
    return found == pieces && check == 0;
}
