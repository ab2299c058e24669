// SPDX-License-Identifier: MIT OR Apache-2.0
// The accelerator as software sees it: registers, words, page-table entries. doc/registers.md explains them.
#pragma once
#include <stdbool.h>
#include <stdint.h>

#define PFA_BASE 0x10020000UL
#define PAGE_BYTES 4096UL
#define PAGE_SHIFT 12

enum {
    PFA_IDENTITY = 0x00,
    PFA_CONTROL = 0x08,
    PFA_STATUS = 0x10,
    PFA_INTERRUPT_ENABLE = 0x18,
    PFA_INTERRUPT_PENDING = 0x20,
    PFA_NEW_THRESHOLD = 0x28,
    PFA_TIMEOUT = 0x30,
    PFA_ERROR = 0x38,
    PFA_FREE_PUSH = 0x40,
    PFA_NEW_POP = 0x48,
    PFA_EVICT_PUSH = 0x50,
    PFA_EVICT_POP = 0x58,
    PFA_REMOTE_FRAME = 0x60,
    PFA_REMOTE_START = 0x68,
    PFA_REMOTE_STATUS = 0x70,
    PFA_FREE_POP = 0x78,
    PFA_FETCHES = 0x80,
    PFA_FETCH_CYCLES = 0x88,
    PFA_TRAVEL_CYCLES = 0x90,
    PFA_FETCH_LONGEST = 0x98,
    PFA_REFUSED = 0xa0,
    PFA_REPEATED = 0xa8,
    PFA_EVICTED = 0xb0,
    PFA_DROPPED = 0xb8,
    PFA_FRAME_BASE = 0xc0,
    PFA_FRAME_LIMIT = 0xc8,
    PFA_FRAME_LOCK = 0xd0,
    PFA_BUS_ERROR = 0xd8,
    PFA_NEW_CONTEXT = 0xe0,
    PFA_REFUSAL = 0x100, // one for each hart
};

enum { PFA_IRQ_NEW = 1, PFA_IRQ_FREE = 2, PFA_IRQ_EVICTED = 4, PFA_IRQ_REMOTE = 8, PFA_IRQ_ERROR = 16, PFA_IRQ_BUS = 32 };
enum { PFA_ERROR_SIZE = 1, PFA_ERROR_OFFSET, PFA_ERROR_READ_ONLY, PFA_ERROR_WRITE_ONLY, PFA_ERROR_FULL, PFA_ERROR_BUSY, PFA_ERROR_VALUE, PFA_ERROR_LOCKED };
enum { PFA_REFUSED_DISABLED = 1, PFA_REFUSED_NO_FRAME, PFA_REFUSED_NEW_FULL, PFA_REFUSED_FETCH_FAILED, PFA_REFUSED_EVICTION_FAILED, PFA_REFUSED_BUS_ERROR };
enum { PFA_BUS_FRAME_WRITE = 1, PFA_BUS_FRAME_READ, PFA_BUS_ENTRY_READ, PFA_BUS_ENTRY_WRITE };

static inline uint64_t pfa_read(unsigned offset) { return *(volatile uint64_t *)(PFA_BASE + offset); }
static inline void pfa_write(unsigned offset, uint64_t value) { *(volatile uint64_t *)(PFA_BASE + offset) = value; }

// Status.
static inline bool pfa_fetch_busy(void) { return pfa_read(PFA_STATUS) & 1; }
static inline bool pfa_remote_busy(void) { return pfa_read(PFA_STATUS) >> 2 & 1; }
static inline unsigned pfa_free_count(void) { return pfa_read(PFA_STATUS) >> 8 & 0xffff; }
static inline unsigned pfa_new_count(void) { return pfa_read(PFA_STATUS) >> 24 & 0xffff; }
static inline unsigned pfa_evict_count(void) { return pfa_read(PFA_STATUS) >> 40 & 0xff; }
static inline unsigned pfa_evict_unfinished(void) { return pfa_read(PFA_STATUS) >> 48 & 0xff; }
static inline unsigned pfa_free_depth(void) { return 1u << (pfa_read(PFA_IDENTITY) & 0xff); }
static inline unsigned pfa_new_depth(void) { return 1u << (pfa_read(PFA_IDENTITY) >> 8 & 0xff); }
static inline unsigned pfa_evict_depth(void) { return 1u << (pfa_read(PFA_IDENTITY) >> 16 & 0xff); }

// Words.
static inline bool word_valid(uint64_t word) { return word >> 63; }
static inline uint64_t new_id(uint64_t word) { return word & 0xfffffff; }
static inline uint64_t new_address(uint64_t word) { return (word >> 28 & 0x7ffffff) << PAGE_SHIFT; }
static inline unsigned new_hart(uint64_t word) { return word >> 55 & 0xff; }
static inline uint64_t evict_word(uint64_t frame_address, uint64_t id) { return frame_address >> PAGE_SHIFT | id << 36; }
static inline bool evicted_failed(uint64_t word) { return word >> 62 & 1; }
static inline uint64_t evicted_id(uint64_t word) { return word & 0xfffffff; }
static inline uint64_t free_address(uint64_t word) { return word & 0xfffffffff000; }
static inline uint64_t context_root(uint64_t word) { return (word & 0xfffffffff) << PAGE_SHIFT; }
static inline unsigned bus_access(uint64_t word) { return word >> 60 & 7; }
static inline uint64_t bus_address(uint64_t word) { return word & 0xffffffffffffff; }
static inline unsigned refusal_reason(uint64_t word) { return word >> 60 & 7; }
static inline uint64_t refusal_id(uint64_t word) { return word & 0xfffffff; }
static inline uint64_t refusal_address(uint64_t word) { return (word >> 28 & 0x7ffffff) << PAGE_SHIFT; }

// Entries.
enum { PTE_V = 1, PTE_R = 2, PTE_W = 4, PTE_X = 8, PTE_U = 16, PTE_G = 32, PTE_A = 64, PTE_D = 128 };
static inline uint64_t local_entry(uint64_t frame_address, unsigned bits) { return frame_address >> 2 | bits; }
static inline uint64_t remote_entry(uint64_t id, unsigned bits) { return id << 12 | (uint64_t)bits << 2 | 2; }
static inline bool is_remote(uint64_t entry) { return (entry & 3) == 2; }
static inline uint64_t entry_frame(uint64_t entry) { return (entry >> 10 & 0xfffffffffff) << PAGE_SHIFT; }
static inline uint64_t entry_id(uint64_t entry) { return entry >> 12 & 0xfffffff; }
