// SPDX-License-Identifier: MIT OR Apache-2.0
// The operating system's side of the accelerator, as small as the tests allow.
#pragma once
#include "machine.h"

enum { USER_BITS = PTE_V | PTE_R | PTE_W | PTE_X | PTE_U | PTE_A | PTE_D };

// All of the machine's memory.
#define MEMORY_BASE 0x80000000UL
#define MEMORY_BYTES 0x10000000UL

// Opens all of memory to the accelerator, and enables it. Fetches and evictions that the blade does not answer end after so many cycles.
void pfa_start(uint64_t timeout_cycles);
// Word number `word` of the page with this identifier. No two words of a test are the same.
static inline uint64_t pattern(uint64_t id, unsigned word) { return (id << 32 ^ word * 0x9e3779b97f4a7c15UL) + id * 0x1000193; }
void fill(uint64_t frame, uint64_t id);
// Evicts a frame under an identifier, and waits for the outcome. Returns whether it succeeded.
bool evict(uint64_t frame, uint64_t id);
// Begins the eviction of a user page, in the order that is safe with several harts: the entry names nothing until the eviction is
// in the queue, and only then the page that the accelerator may fetch. Whoever touches the page in between meets a fault, and tries again.
void send_away(unsigned page, uint64_t frame, uint64_t id, unsigned bits);
// The same for an entry of any process's tables.
void send_entry_away(uint64_t *entry, uint64_t address, uint64_t frame, uint64_t id, unsigned bits);
// Between two of its steps anything may happen. A test makes it longer.
void marking_pause(void);
// Flushes an address from the TLBs of all harts that use the tables. A program with several harts has its own.
void flush_harts(uint64_t address);
// Makes user page `page` remote, with the pattern of its identifier; uses and gives back a frame.
void make_remote(unsigned page, uint64_t id);
static inline void give_frame(uint64_t frame) { pfa_write(PFA_FREE_PUSH, frame); }
// Loads every byte of a user page and compares it.
void check_page(unsigned page, uint64_t id);
// Pops a NewQ entry that must be there, and returns its identifier.
uint64_t take_new(void);
// Nothing is left in a queue, nothing was refused by a register, nothing is under way.
void check_quiet(void);
