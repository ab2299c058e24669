// SPDX-License-Identifier: MIT OR Apache-2.0
// Words of the link between a chip and a blade. doc/registers.md draws them.
#pragma once

#include <cstdint>

namespace farmem::packet {

enum Kind : uint64_t { kRead = 1, kWrite = 2, kReadDone = 3, kWriteDone = 4, kAbandon = 5 };

constexpr unsigned kKindShift = 60, kFailedShift = 59;
constexpr uint64_t kTagMask = (uint64_t{1} << 59) - 1;
// In a request the identifier is the flit after the head.

inline uint64_t kind(uint64_t head) { return head >> kKindShift; }
inline uint64_t tag(uint64_t head) { return head & kTagMask; }
inline uint64_t with_tag(uint64_t head, uint64_t tag) { return (head & ~kTagMask) | tag; }
inline uint64_t answer(uint64_t kind, bool failed, uint64_t tag) {
    return kind << kKindShift | uint64_t{failed} << kFailedShift | tag;
}

} // namespace farmem::packet
