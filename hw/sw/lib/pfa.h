// SPDX-License-Identifier: MIT OR Apache-2.0
// The accelerator as software sees it: registers, words, page-table entries. doc/registers.md explains them.
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "pfa_registers.h"

#define PAGE_BYTES 4096UL
#define PAGE_SHIFT 12

static inline uint64_t pfa_read(unsigned offset) { return *(volatile uint64_t *)(PFA_BASE + offset); }
static inline void pfa_write(unsigned offset, uint64_t value) { *(volatile uint64_t *)(PFA_BASE + offset) = value; }

// Status.
static inline bool pfa_fetch_busy(void) { return PFA_STATUS_FETCHING(pfa_read(PFA_STATUS)); }
static inline bool pfa_remote_busy(void) { return PFA_STATUS_TRANSFERRING(pfa_read(PFA_STATUS)); }
static inline unsigned pfa_free_count(void) { return PFA_STATUS_FREE_COUNT(pfa_read(PFA_STATUS)); }
static inline unsigned pfa_new_count(void) { return PFA_STATUS_NEW_COUNT(pfa_read(PFA_STATUS)); }
static inline unsigned pfa_evict_count(void) { return PFA_STATUS_EVICT_COUNT(pfa_read(PFA_STATUS)); }
static inline unsigned pfa_evict_unfinished(void) { return PFA_STATUS_EVICT_UNFINISHED(pfa_read(PFA_STATUS)); }
static inline unsigned pfa_free_depth(void) { return 1u << PFA_IDENTITY_FREE_DEPTH(pfa_read(PFA_IDENTITY)); }
static inline unsigned pfa_new_depth(void) { return 1u << PFA_IDENTITY_NEW_DEPTH(pfa_read(PFA_IDENTITY)); }
static inline unsigned pfa_evict_depth(void) { return 1u << PFA_IDENTITY_EVICT_DEPTH(pfa_read(PFA_IDENTITY)); }

// Words.
static inline bool word_valid(uint64_t word) { return word >> 63; }
static inline uint64_t new_id(uint64_t word) { return PFA_NEW_POP_ID(word); }
static inline uint64_t new_address(uint64_t word) { return PFA_NEW_POP_VPN(word) << PAGE_SHIFT; }
static inline unsigned new_hart(uint64_t word) { return PFA_NEW_POP_HART(word); }
static inline uint64_t evict_word(uint64_t frame_address, uint64_t id) { return frame_address >> PAGE_SHIFT | id << 36; }
static inline bool evicted_failed(uint64_t word) { return PFA_EVICT_POP_FAILED(word); }
static inline uint64_t evicted_id(uint64_t word) { return PFA_EVICT_POP_ID(word); }
static inline uint64_t free_address(uint64_t word) { return PFA_FREE_POP_FRAME(word) << PAGE_SHIFT; }
static inline uint64_t context_root(uint64_t word) { return PFA_NEW_CONTEXT_ROOT(word) << PAGE_SHIFT; }
static inline unsigned bus_access(uint64_t word) { return PFA_BUS_ERROR_ACCESS(word); }
static inline uint64_t bus_address(uint64_t word) { return PFA_BUS_ERROR_ADDRESS(word); }
static inline unsigned refusal_reason(uint64_t word) { return PFA_REFUSAL_REASON(word); }
static inline uint64_t refusal_id(uint64_t word) { return PFA_REFUSAL_ID(word); }
static inline uint64_t refusal_address(uint64_t word) { return PFA_REFUSAL_VPN(word) << PAGE_SHIFT; }

// Entries.
enum { PTE_V = 1, PTE_R = 2, PTE_W = 4, PTE_X = 8, PTE_U = 16, PTE_G = 32, PTE_A = 64, PTE_D = 128 };
static inline uint64_t local_entry(uint64_t frame_address, unsigned bits) { return frame_address >> 2 | bits; }
static inline uint64_t remote_entry(uint64_t id, unsigned bits) { return id << 12 | (uint64_t)bits << 2 | 2; }
static inline bool is_remote(uint64_t entry) { return (entry & 3) == 2; }
static inline uint64_t entry_frame(uint64_t entry) { return (entry >> 10 & 0xfffffffffff) << PAGE_SHIFT; }
static inline uint64_t entry_id(uint64_t entry) { return entry >> 12 & 0xfffffff; }
