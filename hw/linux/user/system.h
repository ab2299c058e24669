// SPDX-License-Identifier: MIT OR Apache-2.0
// System calls and the little else that the programs below the kernel need: they are linked with nothing.
#pragma once
#include <stddef.h>
#include <stdint.h>

static inline long call6(long n, long a, long b, long c, long d, long e, long f) {
    register long a0 __asm__("a0") = a, a1 __asm__("a1") = b, a2 __asm__("a2") = c, a3 __asm__("a3") = d, a4 __asm__("a4") = e,
                  a5 __asm__("a5") = f, a7 __asm__("a7") = n;
    __asm__ volatile("ecall" : "+r"(a0) : "r"(a1), "r"(a2), "r"(a3), "r"(a4), "r"(a5), "r"(a7) : "memory");
    return a0;
}
#define call(n, a, b, c) call6(n, (long)(a), (long)(b), (long)(c), 0, 0, 0)

enum { SYS_mkdirat = 34, SYS_mknodat = 33, SYS_mount = 40, SYS_openat = 56, SYS_close = 57, SYS_lseek = 62, SYS_read = 63,
       SYS_write = 64, SYS_pread64 = 67, SYS_exit = 93, SYS_nanosleep = 101, SYS_sched_yield = 124, SYS_reboot = 142, SYS_getpid = 172, SYS_clone = 220, SYS_mmap = 222, SYS_swapon = 224, SYS_mlock = 228, SYS_munlock = 229,
       SYS_wait4 = 260 };

static inline uint64_t cycle(void) {
    uint64_t value;
    __asm__ volatile("rdcycle %0" : "=r"(value) :: "memory");
    return value;
}

void *memset(void *to, int byte, size_t bytes);
void *memcpy(void *to, const void *from, size_t bytes);
size_t text_length(const char *text);
void print(const char *text);
void print_number(const char *label, uint64_t value);
_Noreturn void stop(const char *why, long result);
// Writes a text to a file that exists, all of it; reads a file to the console.
void put_file(const char *path, const char *text);
void show_file(const char *path);
// Writes a text and a number behind it; returns where the text ends.
char *number_text(char *to, const char *before, uint64_t value);
void number_file(const char *path, const char *before, uint64_t value);
// The number that follows these words in a file, or 0.
uint64_t figure(const char *path, const char *label);
