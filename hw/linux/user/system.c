// SPDX-License-Identifier: MIT OR Apache-2.0
#include "system.h"

enum { CURRENT_DIRECTORY = -100 };

size_t text_length(const char *text) {
    size_t length = 0;
    while (text[length]) length++;
    return length;
}

void print(const char *text) { call(SYS_write, 1, text, text_length(text)); }

void print_number(const char *label, uint64_t value) {
    char digits[22];
    int at = 21;
    digits[at] = 0;
    digits[--at] = '\n';
    do digits[--at] = (char)('0' + value % 10); while (value /= 10);
    print(label);
    print(" ");
    print(&digits[at]);
}

_Noreturn void stop(const char *why, long result) {
    print(why);
    print_number(": failed", (uint64_t)-result);
    for (;;) call(SYS_exit, 1, 0, 0);
}

void put_file(const char *path, const char *text) {
    long file = call(SYS_openat, CURRENT_DIRECTORY, path, 1);
    if (file < 0) stop(path, file);
    long result = call(SYS_write, file, text, text_length(text));
    if (result != (long)text_length(text)) stop(path, result);
    call(SYS_close, file, 0, 0);
}

void show_file(const char *path) {
    char text[2048];
    long file = call(SYS_openat, CURRENT_DIRECTORY, path, 0), bytes;
    if (file < 0) stop(path, file);
    while ((bytes = call(SYS_read, file, text, sizeof text)) > 0) call(SYS_write, 1, text, bytes);
    call(SYS_close, file, 0, 0);
}

char *number_text(char *to, const char *before, uint64_t value) {
    char digits[21];
    int at = 20;
    digits[at] = 0;
    do digits[--at] = (char)('0' + value % 10); while (value /= 10);
    while (*before) *to++ = *before++;
    memcpy(to, digits + at, (size_t)(21 - at));
    return to + 20 - at;
}

void number_file(const char *path, const char *before, uint64_t value) {
    char text[64];
    number_text(text, before, value);
    put_file(path, text);
}

uint64_t figure(const char *path, const char *label) {
    char text[2048];
    long file = call(SYS_openat, CURRENT_DIRECTORY, path, 0);
    if (file < 0) stop(path, file);
    long bytes = call(SYS_read, file, text, sizeof text - 1);
    call(SYS_close, file, 0, 0);
    text[bytes > 0 ? bytes : 0] = 0;
    for (const char *line = text; *line; line++) {
        size_t same = 0;
        while (label[same] && line[same] == label[same]) same++;
        if (!label[same]) {
            uint64_t value = 0;
            for (line += same; *line >= '0' && *line <= '9'; line++) value = value * 10 + (uint64_t)(*line - '0');
            return value;
        }
        while (line[1] && *line != '\n') line++;
    }
    return 0;
}

// The compiler calls these, too.
void *memset(void *to, int byte, size_t bytes) {
    for (uint8_t *at = to; bytes; bytes--) *at++ = (uint8_t)byte;
    return to;
}

void *memcpy(void *to, const void *from, size_t bytes) {
    const uint8_t *in = from;
    for (uint8_t *at = to; bytes; bytes--) *at++ = *in++;
    return to;
}

int main(void);
void __attribute__((naked, section(".text.start"))) _start(void) {
    __asm__("call main\n"
            "li a7, 93\n"
            "ecall");
}
