// The operating system's side of the accelerator, as small as the tests allow.
#pragma once
#include "machine.h"

enum { USER_BITS = PTE_V | PTE_R | PTE_W | PTE_X | PTE_U | PTE_A | PTE_D };

// Enables the accelerator; fetches and evictions that the blade does not answer end after so many cycles.
void pfa_start(uint64_t timeout_cycles);
// Word number `word` of the page with this identifier. No two words of a test are the same.
static inline uint64_t pattern(uint64_t id, unsigned word) { return (id << 32 ^ word * 0x9e3779b97f4a7c15UL) + id * 0x1000193; }
void fill(uint64_t frame, uint64_t id);
// Evicts a frame under an identifier, and waits for the outcome. Returns whether it succeeded.
bool evict(uint64_t frame, uint64_t id);
// Makes user page `page` remote, with the pattern of its identifier; uses and gives back a frame.
void make_remote(unsigned page, uint64_t id);
static inline void give_frame(uint64_t frame) { pfa_write(PFA_FREE_PUSH, frame); }
// Loads every byte of a user page and compares it.
void check_page(unsigned page, uint64_t id);
// Pops a NewQ entry that must be there, and returns its identifier.
uint64_t take_new(void);
// Nothing is left in a queue, nothing was refused by a register, nothing is under way.
void check_quiet(void);
