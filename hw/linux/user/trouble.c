// SPDX-License-Identifier: MIT OR Apache-2.0
// What may go wrong, each in a process of its own that has half of its pages on the blade: a blade that fails, is silent, stops in the
// middle or lies; a page that is lost; a kernel that reads pages without touching them; several processes at once; a frame that memory
// does not take. What watches them is in no memory group: it must not need the blade itself.
#include "benchmarks.h"
#include "system.h"

enum { PAGE_BYTES = 4096, SIGBUS = 7, TIMEOUT_CYCLES = 40000, FOR_EVER = 100000000 };
// Registers of the simulator: hw/sw/lib/simulator.h.
enum { BLADE_FAIL = 0x28, BLADE_LOSE = 0x30, BLADE_CUT_SHORT = 0x38, BLADE_HOLD = 0x40, BLADE_HOLD_CYCLES = 0x48, BLADE_LIE = 0xc8, BLADE_REFUSE = 0xd8, BAD_PAGE = 0xc0 };

enum { READ_WRITE = 3, PRIVATE_ANONYMOUS = 0x22 };

static uint8_t *data;
static size_t pages;

static uint64_t word_of(size_t page) { return (page + 1) * 0x9e3779b97f4a7c15 ^ (uint64_t)call(SYS_getpid, 0, 0, 0); }
static volatile uint64_t *at(size_t page) { return (volatile uint64_t *)(data + page * PAGE_BYTES); }

static int touch(size_t page) { return *at(page) == word_of(page); }

static int touch_all(void) {
    for (size_t page = 0; page < pages; page++)
        if (!touch(page)) return 0;
    return 1;
}

static void blade(unsigned what, uint64_t value) {
    char text[48];
    number_text(number_text(text, "", what), " ", value);
    put_file("/proc/pfa_settings", text);
}

// Each way in which a fetch fails once: the program goes on with the right page.
static int once(unsigned what) {
    uint64_t before = figure("/proc/pfa", "degraded "), after = before;
    // An eviction may be what meets it: then the next page.
    for (size_t page = 0; page < pages && after == before; page++) {
        blade(what, 1);
        if (!touch(page)) return 0;
        after = figure("/proc/pfa", "degraded ");
    }
    return after > before && touch_all();
}

static int fails_once(void) { return once(BLADE_FAIL); }
static int is_silent_once(void) { return once(BLADE_LOSE); }
static int is_cut_short_once(void) { return once(BLADE_CUT_SHORT); }

static int is_late(void) {
    blade(BLADE_HOLD_CYCLES, TIMEOUT_CYCLES + 20000);
    return once(BLADE_HOLD);
}

static int lies(void) {
    blade(BLADE_LIE, FOR_EVER);
    return touch_all() && touch_all();
}

// The last pages that were written are here. They are sent away while the blade takes nothing, and none may be lost.
static int takes_nothing(void) {
    blade(BLADE_REFUSE, FOR_EVER);
    return touch_all() && touch_all();
}

// The page can't be had, ever: the process is killed by SIGBUS.
static int is_lost(void) {
    blade(BLADE_FAIL, FOR_EVER);
    (void)touch(0);
    return 0;
}

// Memory does not take a frame that waits for a page: that frame is used no more, and the page comes into another.
static int has_a_bad_frame(void) {
    uint64_t before = figure("/proc/pfa", "frames_retired ");
    for (size_t page = 0; page < pages && !figure("/proc/pfa", "queued "); page++)
        if (!touch(page)) return 0;
    put_file("/proc/pfa", "spoil");
    return touch_all() && figure("/proc/pfa", "frames_retired ") == before + 1;
}

// The kernel brings pages by itself.
static int is_locked(void) {
    return call(SYS_mlock, at(0), PAGE_BYTES, 0) == 0 && touch(0) && call(SYS_munlock, at(0), PAGE_BYTES, 0) == 0 && touch_all();
}

static int is_read_by_kernel(void) {
    long file = call(SYS_openat, -100, "/proc/self/mem", 0);
    uint64_t word = 0;
    for (size_t page = 0; page < pages; page++)
        if (call6(SYS_pread64, file, (long)&word, 8, (long)at(page), 0, 0) != 8 || word != word_of(page)) return 0;
    return touch_all();
}

// Two processes, each with pages away, and a queue of fetched pages that both are in.
static int are_two(void) {
    long child = call6(SYS_clone, 17, 0, 0, 0, 0, 0);
    if (child == 0) put_file("/proc/pfa", "attach");
    // Each has pages of its own from now on.
    for (size_t page = 0; page < pages; page++) *at(page) = word_of(page);
    for (int i = 0; i < 3; i++) {
        if (!touch_all()) call(SYS_exit, 1, 0, 0);
        call(SYS_sched_yield, 0, 0, 0);
    }
    if (child == 0) call(SYS_exit, 0, 0, 0);
    int status = 1;
    call6(SYS_wait4, child, (long)&status, 0, 0, 0, 0);
    return status == 0 && touch_all() && figure("/proc/pfa", "handed_over ") > 0;
}

static const struct {
    const char *name;
    int (*act)(void);
    int signal;
} cases[] = {
    {"trouble_fails", fails_once, 0},
    {"trouble_silent", is_silent_once, 0},
    {"trouble_cut_short", is_cut_short_once, 0},
    {"trouble_late", is_late, 0},
    {"trouble_lies", lies, 0},
    {"trouble_takes_nothing", takes_nothing, 0},
    {"trouble_lost", is_lost, SIGBUS},
    {"trouble_locked", is_locked, 0},
    {"trouble_read_by_kernel", is_read_by_kernel, 0},
    {"trouble_two", are_two, 0},
    {"trouble_bad_frame", has_a_bad_frame, 0},
};

static int run_case(unsigned number) {
    long child = call6(SYS_clone, 17, 0, 0, 0, 0, 0);
    if (child == 0) {
        data = (uint8_t *)call6(SYS_mmap, 0, (long)(pages * PAGE_BYTES), READ_WRITE, PRIVATE_ANONYMOUS, -1, 0);
        put_file("/group/one/cgroup.procs", "0");
        put_file("/proc/pfa", "attach");
        number_file("/proc/pfa", "timeout ", TIMEOUT_CYCLES);
        for (size_t page = 0; page < pages; page++) *at(page) = word_of(page);
        call(SYS_exit, cases[number].act() ? 0 : 1, 0, 0);
    }
    int status = 1;
    call6(SYS_wait4, child, (long)&status, 0, 0, 0, 0);
    static const unsigned faults[] = {BLADE_FAIL, BLADE_LOSE, BLADE_CUT_SHORT, BLADE_HOLD, BLADE_LIE, BLADE_REFUSE, BAD_PAGE};
    for (unsigned i = 0; i < sizeof faults / sizeof *faults; i++) blade(faults[i], 0);
    int right = cases[number].signal ? (status & 0x7f) == cases[number].signal : status == 0;
    // What it had in the FreeQ is the memory group's again.
    if (figure("/proc/pfa", "queued ")) right = 0;
    if (!right) print_number("ended_with", (uint64_t)status);
    print_number(cases[number].name, (uint64_t)right);
    return right;
}

// With `which` only that one, counted from 1.
int trouble(size_t count, uint64_t which) {
    pages = count;
    int right = 1;
    for (unsigned number = 0; number < sizeof cases / sizeof *cases; number++)
        if (!which || which == number + 1) right &= run_case(number);
    return right;
}
