// SPDX-License-Identifier: MIT OR Apache-2.0
// One hart evicts pages that another one touches all the time: neither may ever see an older copy.
//
// Each hart counts in a word of its own in each page, and knows what the word must be. First one page goes and comes back while the
// other hart does nothing but touch it. Then pages are chosen at random, several leave at once, and the blade fails, is silent,
// stops in the middle of a page, is too late, or lies.
//
// Compiled with REMOTE_FIRST, the page is marked remote before its eviction is pushed. Then the other hart may fetch the blade's
// old copy in between, and this program must find that.
#include "os.h"

enum { PAGES = 12, FRAMES = 6, TIMEOUT = 9000, DIRECTED = 24, RANDOM = 240, HARTS = 2, AT_ONCE = 3 };

static volatile unsigned ready, phase, flush_wanted, flush_done, done;
static uint64_t table_root;
static uint64_t seen[HARTS][PAGES];
// What hart 0 knows as the system: which page is in which frame, and in which order they came.
static uint64_t frame_of[PAGES];
static unsigned resident[PAGES], resident_count;
static uint64_t states[HARTS] = {88172645463325252, 1442695040888963407};
static volatile unsigned retries, failures;
static bool hostile;

static uint64_t id_of(unsigned page) { return 300 + page; }

static unsigned any(unsigned hart, unsigned bound) {
    uint64_t *state = &states[hart];
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return (unsigned)(*state >> 20) % bound;
}

// Hart 1 flushes where it is asked to, between two accesses or while it waits for a page.
static void serve_flush(void) {
    unsigned wanted = flush_wanted;
    if (wanted == flush_done) return;
    flush_all();
    fence();
    flush_done = wanted;
}

void flush_harts(uint64_t address) {
    flush(address);
    fence();
    flush_wanted = flush_wanted + 1;
    while (!done && flush_done != flush_wanted) {}
}

void marking_pause(void) {
    uint64_t until = cycle() + any(0, 800);
    while (cycle() < until) {}
}

static void touch(unsigned hart, unsigned page) {
    uint64_t address = user_address(page) + 8 * hart;
    uint64_t value = user_load(address);
    if (value != seen[hart][page]) panic("an old copy was mapped; page", page);
    user_store(address, ++seen[hart][page]);
}

static void keep_books(void) {
    for (uint64_t word; word_valid(word = pfa_read(PFA_NEW_POP));) {
        unsigned page = (unsigned)(new_id(word) - id_of(0));
        check(page < PAGES && resident_count < FRAMES);
        frame_of[page] = entry_frame(*user_entry(page));
        resident[resident_count++] = page;
    }
}

static unsigned take_resident(unsigned which) {
    unsigned page = resident[which];
    for (resident_count--; which < resident_count; which++) resident[which] = resident[which + 1];
    return page;
}

static void begin_eviction(unsigned page) {
#ifdef REMOTE_FIRST
    *user_entry(page) = remote_entry(id_of(page), USER_BITS);
    fence();
    flush_harts(user_address(page));
    marking_pause();
    pfa_write(PFA_EVICT_PUSH, evict_word(frame_of[page], id_of(page)));
#else
    send_away(page, frame_of[page], id_of(page), USER_BITS);
#endif
}

static void end_eviction(void) {
    uint64_t word;
    do word = pfa_read(PFA_EVICT_POP); while (!word_valid(word));
    unsigned page = (unsigned)(evicted_id(word) - id_of(0));
    if (!evicted_failed(word)) {
        give_frame(frame_of[page]);
        return;
    }
    failures++;
    *user_entry(page) = local_entry(frame_of[page], USER_BITS);
    fence();
    flush_harts(user_address(page));
    resident[resident_count++] = page;
    pfa_write(PFA_EVICT_POP, 0);
}

static void provoke(void) {
    static const unsigned faults[] = {SIM_FAIL, SIM_LOSE, SIM_CUT_SHORT, SIM_HOLD, SIM_LIE, SIM_EARLY};
    if (any(0, 6) == 0) sim_write(faults[any(0, 6)], 1);
}

// Sends several pages away, in the order of their coming or any other.
static void make_room(void) {
    keep_books();
    if (hostile) provoke();
    unsigned count = resident_count < AT_ONCE ? resident_count : AT_ONCE;
    for (unsigned i = 0; i < count; i++) begin_eviction(take_resident(hostile ? any(0, resident_count) : 0));
    for (unsigned i = 0; i < count; i++) end_eviction();
}

void handle_trap(struct trap_frame *trap, uint64_t cause, uint64_t value) {
    if (cause != CAUSE_LOAD_FAULT && cause != CAUSE_STORE_FAULT) panic("trap", cause << 56 ^ trap->x[0]);
    if (csr_read(mhartid)) {
        serve_flush();
        retries = retries + 1;
    } else if (!pfa_free_count()) {
        make_room();
    }
    flush(value);
}

void main_second(void) {
    csr_write(satp, table_root);
    flush_all();
    ready = 1;
    while (!phase) {}
    while (phase != 3) {
        serve_flush();
        touch(1, phase == 1 ? 0 : any(1, PAGES));
    }
    done = 1;
}

int main(void) {
    paging_start();
    pfa_start(TIMEOUT);
    sim_write(SIM_HOLD_CYCLES, TIMEOUT + 3000);
    table_root = csr_read(satp);
    uint64_t frame = frame_take();
    for (unsigned page = 0; page < PAGES; page++) {
        memset((void *)frame, 0, PAGE_BYTES);
        check(evict(frame, id_of(page)));
        *user_entry(page) = remote_entry(id_of(page), USER_BITS);
    }
    fence();
    flush_all();
    give_frame(frame);
    for (unsigned i = 1; i < FRAMES; i++) give_frame(frame_take());
    *(volatile uint32_t *)0x2000004 = 1; // wakes hart 1
    while (!ready) {}

    phase = 1;
    for (unsigned i = 0; i < DIRECTED; i++) {
        while (!pfa_new_count()) {}
        keep_books();
        // The other hart writes to it meanwhile.
        for (unsigned j = 0; j < i * 7; j++) (void)pfa_read(PFA_STATUS);
        begin_eviction(take_resident(0));
        end_eviction();
    }
    phase = 2;
    hostile = true;
    for (unsigned i = 0; i < RANDOM; i++) {
        if (pfa_free_count() < 2) make_room();
        touch(0, any(0, PAGES));
    }
    phase = 3;
    while (!done) {
        if (!pfa_free_count()) make_room();
    }
    print_number("fetches", pfa_read(PFA_FETCHES));
    print_number("evicted", pfa_read(PFA_EVICTED));
    print_number("evictions that failed", failures);
    print_number("faults of the other hart", retries);
    check(!word_valid(pfa_read(PFA_ERROR)));
    return 0;
}
