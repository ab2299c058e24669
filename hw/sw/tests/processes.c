// SPDX-License-Identifier: MIT OR Apache-2.0
// Two harts, two processes that change places between them, and a blade that fails, is silent, stops in the middle of
// a page, is too late, or lies. Either hart is the system when it meets an empty FreeQ: it keeps the books, and sends
// pages of both processes away.
//
// Each hart counts in a word of its own in each page of each process, and knows what the word must be; the other words
// never change. FETCHES and SEED may be given: hw/scripts/test endurance makes a million of it.
#include "os.h"

#ifndef FETCHES
#define FETCHES 300
#endif
#ifndef SEED
#define SEED 1
#endif

enum { PROCESSES = 2, HARTS = 2, PAGES = 10, FRAMES = 8, TIMEOUT = 9000, AT_ONCE = 4, FIRST_ID = 500 };

struct page {
    uint64_t frame;
    uint64_t seen[HARTS];
};

static struct page pages[PROCESSES][PAGES];
// Tables of the second process; the first has the machine's own.
static uint64_t tables[3][512] __attribute__((section(".pages,\"aw\",@nobits#"), aligned(4096)));
static uint64_t roots[PROCESSES];
static unsigned resident[FRAMES], resident_count;
static uint64_t states[HARTS];
static volatile unsigned ready, stopping, ended[HARTS], flush_wanted[HARTS], flush_done[HARTS], system_busy;
static volatile unsigned failures, switches, handed_over, refused;

static unsigned hart(void) { return (unsigned)csr_read(mhartid); }
static uint64_t id_of(unsigned process, unsigned page) { return FIRST_ID + process * PAGES + page; }
static uint64_t *entry_of(unsigned process, unsigned page) { return process ? &tables[2][page] : user_entry(page); }

static uint64_t satp_root(void) { return (csr_read(satp) & 0xfffffffffffUL) << PAGE_SHIFT; }

static unsigned any(unsigned bound) {
    uint64_t *state = &states[hart()];
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return (unsigned)(*state >> 20) % bound;
}

// A hart flushes where it is asked to, between two accesses or while it waits.
static void serve_flush(void) {
    unsigned wanted = flush_wanted[hart()];
    if (wanted == flush_done[hart()]) return;
    flush_all();
    fence();
    flush_done[hart()] = wanted;
}

void flush_harts(uint64_t address) {
    unsigned other = !hart();
    flush(address);
    fence();
    flush_wanted[other] = flush_wanted[other] + 1;
    while (!ended[other] && flush_done[other] != flush_wanted[other]) {}
}

static void system_enter(void) {
    while (__atomic_exchange_n(&system_busy, 1, __ATOMIC_ACQUIRE)) serve_flush();
}

static void system_leave(void) { __atomic_store_n(&system_busy, 0, __ATOMIC_RELEASE); }

static void keep_books(void) {
    for (uint64_t context; word_valid(context = pfa_read(PFA_NEW_CONTEXT));) {
        uint64_t word = pfa_read(PFA_NEW_POP);
        unsigned number = (unsigned)(new_id(word) - FIRST_ID);
        check(word_valid(word) && number < PROCESSES * PAGES && resident_count < FRAMES);
        unsigned process = number / PAGES, page = number % PAGES;
        check(context_root(context) == roots[process] && new_address(word) == user_address(page));
        pages[process][page].frame = entry_frame(*entry_of(process, page));
        resident[resident_count++] = number;
        if (satp_root() != roots[process]) handed_over = handed_over + 1;
    }
}

static unsigned take_resident(unsigned which) {
    unsigned number = resident[which];
    resident[which] = resident[--resident_count];
    return number;
}

static void end_eviction(void) {
    uint64_t word;
    do word = pfa_read(PFA_EVICT_POP); while (!word_valid(word));
    unsigned number = (unsigned)(evicted_id(word) - FIRST_ID), process = number / PAGES, page = number % PAGES;
    if (!evicted_failed(word)) {
        give_frame(pages[process][page].frame);
        return;
    }
    failures = failures + 1;
    *entry_of(process, page) = local_entry(pages[process][page].frame, USER_BITS);
    fence();
    flush_harts(user_address(page));
    resident[resident_count++] = number;
    pfa_write(PFA_EVICT_POP, 0);
}

static void provoke(void) {
    static const unsigned faults[] = {SIM_FAIL, SIM_LOSE, SIM_CUT_SHORT, SIM_HOLD, SIM_LIE, SIM_EARLY, SIM_REFUSE};
    if (any(6) == 0) sim_write(faults[any(sizeof faults / sizeof *faults)], 1);
}

static void make_room(void) {
    keep_books();
    provoke();
    unsigned count = resident_count < AT_ONCE ? resident_count : AT_ONCE;
    for (unsigned i = 0; i < count; i++) {
        unsigned number = take_resident(any(resident_count)), process = number / PAGES, page = number % PAGES;
        send_entry_away(entry_of(process, page), user_address(page), pages[process][page].frame, id_of(process, page), USER_BITS);
    }
    for (unsigned i = 0; i < count; i++) end_eviction();
}

void handle_trap(struct trap_frame *trap, uint64_t cause, uint64_t value) {
    if (cause != CAUSE_LOAD_FAULT && cause != CAUSE_STORE_FAULT) panic("trap", cause << 56 ^ trap->x[0]);
    serve_flush();
    system_enter();
    if (!pfa_free_count()) make_room();
    else refused = refused + 1;
    system_leave();
    flush(value);
}

static void touch(unsigned process, unsigned page) {
    uint64_t *seen = &pages[process][page].seen[hart()];
    uint64_t address = user_address(page) + 8 * hart();
    uint64_t value = user_load(address);
    if (value != *seen) panic("an old copy was mapped; page", id_of(process, page));
    user_store(address, ++*seen);
    unsigned word = HARTS + any(512 - HARTS);
    if (user_load(user_address(page) + 8 * word) != pattern(id_of(process, page), word)) panic("a wrong word; page", id_of(process, page));
}

static void enter_process(unsigned process) {
    csr_write(satp, 8UL << 60 | roots[process] >> PAGE_SHIFT);
    flush_all();
}

static void work(void) {
    unsigned process = hart();
    enter_process(process);
    while (!stopping) {
        serve_flush();
        if (any(12) == 0) {
            process = !process;
            switches = switches + 1;
            enter_process(process);
        }
        touch(process, any(PAGES));
        if (hart() == 0 && pfa_read(PFA_FETCHES) >= FETCHES) stopping = 1;
    }
}

static void check_all(void) {
    for (unsigned process = 0; process < PROCESSES; process++) {
        enter_process(process);
        for (unsigned page = 0; page < PAGES; page++) {
            for (unsigned word = 0; word < 512; word++) {
                uint64_t right = word < HARTS ? pages[process][page].seen[word] : pattern(id_of(process, page), word);
                if (user_load(user_address(page) + 8 * word) != right) panic("a wrong word at the end; page", id_of(process, page));
            }
        }
    }
}

void main_second(void) {
    ready = 1;
    work();
    ended[1] = 1;
}

int main(void) {
    for (unsigned i = 0; i < HARTS; i++) states[i] = 88172645463325252UL + (SEED * HARTS + i) * 0x9e3779b97f4a7c15UL;
    paging_start();
    memset(tables, 0, sizeof tables);
    tables[0][USER_BASE >> 30 & 511] = local_entry((uint64_t)tables[1], PTE_V);
    tables[1][USER_BASE >> 21 & 511] = local_entry((uint64_t)tables[2], PTE_V);
    roots[0] = satp_root();
    roots[1] = (uint64_t)tables[0];
    pfa_start(TIMEOUT);
    sim_write(SIM_HOLD_CYCLES, TIMEOUT + 3000);
    uint64_t frame = frame_take();
    for (unsigned process = 0; process < PROCESSES; process++) {
        for (unsigned page = 0; page < PAGES; page++) {
            fill(frame, id_of(process, page));
            for (unsigned i = 0; i < HARTS; i++) pages[process][page].seen[i] = pattern(id_of(process, page), i);
            check(evict(frame, id_of(process, page)));
            *entry_of(process, page) = remote_entry(id_of(process, page), USER_BITS);
        }
    }
    give_frame(frame);
    for (unsigned i = 1; i < FRAMES; i++) give_frame(frame_take());
    fence();
    *(volatile uint32_t *)0x2000004 = 1; // wakes hart 1
    while (!ready) {}
    work();
    while (!ended[1]) {
        serve_flush();
    }
    check_all();
    print_number("fetches", pfa_read(PFA_FETCHES));
    print_number("evicted", pfa_read(PFA_EVICTED));
    print_number("evictions that failed", failures);
    print_number("refused, but for the FreeQ", refused);
    print_number("switches of processes", switches);
    print_number("pages of the other process", handed_over);
    check(handed_over && switches && failures && !word_valid(pfa_read(PFA_ERROR)));
    return 0;
}
