// SPDX-License-Identifier: MIT OR Apache-2.0
// What the bare-metal programs stand on: traps, page tables, user mode, a console.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "pfa.h"
#include "simulator.h"

#define csr_read(name) ({ uint64_t value_; __asm__ volatile("csrr %0, " #name : "=r"(value_)); value_; })
#define csr_write(name, value) __asm__ volatile("csrw " #name ", %0" ::"r"(value))
#define csr_set(name, value) __asm__ volatile("csrs " #name ", %0" ::"r"(value))
#define csr_clear(name, value) __asm__ volatile("csrc " #name ", %0" ::"r"(value))

enum { CAUSE_FETCH_FAULT = 12, CAUSE_LOAD_FAULT = 13, CAUSE_STORE_FAULT = 15, CAUSE_USER_CALL = 8 };
enum { MSTATUS_MIE = 8, MSTATUS_MPRV = 1 << 17, MSTATUS_SUM = 1 << 18 };
enum { MIE_SOFTWARE = 8, MIE_TIMER = 128, MIE_EXTERNAL = 2048 };
#define INTERRUPT (1UL << 63)

// Registers at a trap, in the order in which entry.S saves them.
struct trap_frame {
    uint64_t x[32]; // x[0] holds pc
};

// A program's trap handler. It may change the frame; execution goes on with it.
void handle_trap(struct trap_frame *frame, uint64_t cause, uint64_t value);
// The program. Its result is the exit status. Hart 1 runs main_second, if there is one.
int main(void);
void main_second(void);

_Noreturn void machine_exit(int status);
void print(const char *text);
void print_number(const char *label, uint64_t value);
_Noreturn void panic(const char *text, uint64_t value);
#define check(condition) do { if (!(condition)) panic(__FILE__ ": not so: " #condition, __LINE__); } while (0)

// Page tables of one address space: identity for the machine (mode M does not translate), user pages from USER_BASE.
#define USER_BASE 0x40000000UL
#define USER_PAGES 512
extern uint64_t user_table[USER_PAGES];
void paging_start(void);
static inline uint64_t user_address(unsigned page) { return USER_BASE + page * PAGE_BYTES; }
static inline uint64_t *user_entry(unsigned page) { return &user_table[page]; }
static inline void flush(uint64_t address) { __asm__ volatile("sfence.vma %0, x0" ::"r"(address) : "memory"); }
static inline void flush_all(void) { __asm__ volatile("sfence.vma" ::: "memory"); }
static inline void fence(void) { __asm__ volatile("fence" ::: "memory"); }
static inline uint64_t cycle(void) { return csr_read(mcycle); }

// Accesses user memory as supervisor would, through the tables, from machine mode.
uint64_t user_load(uint64_t address);
void user_store(uint64_t address, uint64_t value);
uint8_t user_load_byte(uint64_t address);

// Enters user mode at pc with a stack; comes back when the handler calls leave_user.
void enter_user(uint64_t pc, uint64_t stack, uint64_t argument);
void leave_user(struct trap_frame *frame, uint64_t result);
uint64_t user_result(void);

void *memset(void *to, int byte, size_t bytes);
void *memcpy(void *to, const void *from, size_t bytes);

// Frames for pages, page aligned, from a pool of static memory.
uint64_t frame_take(void);
#define FRAME_POOL 256
