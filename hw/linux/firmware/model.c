// SPDX-License-Identifier: MIT OR Apache-2.0
// The accelerator as software would be it: what the registers and the walker do, done by the firmware on a core that has neither, at once
// and without a blade's latency. So the driver runs on spike, in seconds. The RTL says what anything costs; this only says what is right.
#include <stdbool.h>
#include <stdint.h>

#include "../../sw/lib/pfa.h"
#include "../../sw/lib/simulator.h"
#include "snapshot.h"

enum { DEPTH_LOG2 = 6, DEPTH = 1 << DEPTH_LOG2, BLADE_PAGES = 16384, PAGE_WORDS = PAGE_BYTES / 8, REMOTE_ENDED = 2, REMOTE_FAILED = 6 };
enum { CAUSE_LOAD_ACCESS = 5, CAUSE_STORE_ACCESS = 7 };
#define BLADE 0x88000000UL
#define SIMULATOR 0x60000000UL
#define ARGUMENTS (SIMULATOR + 0x80)
#define MEMORY_END 0x82000000UL
#define VALID (1UL << 63)
#define FAILED (1UL << 62)

// What the simulator would be told to run.
static const uint64_t arguments[8] = {RUN, PAGES, LIMIT, ACCELERATED, EVICTIONS, 0, DAEMON, PAUSE};

struct queue {
    uint64_t words[DEPTH];
    unsigned head, count;
};

static struct queue free_frames, new_pages, new_contexts, outcomes;
static uint64_t enabled, remote_frame, remote_status = REMOTE_ENDED, refusal, fetches, refused, bus_error_word;
// A page that memory does not take.
static uint64_t bad_page;
// Transfers that are still to fail: how a blade fails makes no difference here, where nothing takes time.
static uint64_t failing, refusing;

static bool fails(void) { return failing && failing--; }
static bool write_fails(void) { return fails() || (refusing && refusing--); }

static bool push(struct queue *queue, uint64_t word) {
    if (queue->count == DEPTH) return false;
    queue->words[(queue->head + queue->count++) % DEPTH] = word;
    return true;
}

static uint64_t pop(struct queue *queue) {
    if (!queue->count) return 0;
    uint64_t word = queue->words[queue->head];
    queue->head = (queue->head + 1) % DEPTH;
    queue->count--;
    return word;
}

static uint64_t oldest(const struct queue *queue) { return queue->count ? queue->words[queue->head] : 0; }

static void copy_page(uint64_t to, uint64_t from) {
    for (unsigned i = 0; i < PAGE_WORDS; i++) ((uint64_t *)to)[i] = ((const uint64_t *)from)[i];
}

static uint64_t blade_page(uint64_t id) { return BLADE + id % BLADE_PAGES * PAGE_BYTES; }

// The last entry of the walk for an address, or NULL; `page` gets the page's address when the entry is a valid leaf.
static uint64_t *walk(uint64_t address, uint64_t *page, int *level) {
    uint64_t satp;
    __asm__ volatile("csrr %0, satp" : "=r"(satp));
    if (!(satp >> 60)) return 0;
    uint64_t table = (satp & 0xfffffffffff) << PAGE_SHIFT;
    for (*level = (int)(satp >> 60) - 6; *level >= 0; --*level) {
        unsigned shift = PAGE_SHIFT + 9 * (unsigned)*level;
        uint64_t *entry = (uint64_t *)table + (address >> shift & 511);
        if (!(*entry & PTE_V)) return entry;
        if (*entry & (PTE_R | PTE_X)) {
            uint64_t mask = (1UL << shift) - 1;
            *page = (entry_frame(*entry) & ~mask) | (address & mask & ~(PAGE_BYTES - 1));
            return entry;
        }
        table = entry_frame(*entry);
    }
    return 0;
}

static uint64_t physical(uint64_t address) {
    uint64_t page = 0;
    int level;
    return walk(address, &page, &level) && page ? page | (address & (PAGE_BYTES - 1)) : address;
}

#ifdef SNAPSHOT
// Spike does system calls of the host for a program: the number and arguments lie in memory, the result replaces the number.
extern volatile uint64_t tohost, fromhost;
enum { HOST_OPENAT = 56, HOST_WRITE = 64, HOST_HERE = -100, HOST_CREATE = 0x241 };

static long host_call(uint64_t number, uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t e) {
    volatile uint64_t words[8] __attribute__((aligned(64))) = {number, a, b, c, d, e};
    __asm__ volatile("fence" ::: "memory");
    fromhost = 0;
    tohost = (uint64_t)words;
    while (!fromhost) {}
    fromhost = 0;
    __asm__ volatile("fence" ::: "memory");
    return (long)words[0];
}

static uint64_t word_at(uint64_t address) { return *(volatile uint32_t *)address; }

// Writes memory to a file, with what else this machine is, and ends. The access that was trapped is done where it goes on.
static _Noreturn void take_snapshot(const uint64_t *x) {
    uint64_t *state = (uint64_t *)SNAPSHOT_STATE;
    for (unsigned i = 0; i < 32; i++) state[STATE_REGISTERS / 8 + i] = x[i];
#define SAVE(name, place) __asm__ volatile("csrr %0, " #name : "=r"(state[(place) / 8]))
    SAVE(satp, STATE_SATP);
    SAVE(stvec, STATE_STVEC);
    SAVE(sscratch, STATE_SSCRATCH);
    SAVE(sepc, STATE_SEPC);
    SAVE(scause, STATE_SCAUSE);
    SAVE(stval, STATE_STVAL);
    SAVE(mstatus, STATE_MSTATUS);
    SAVE(mie, STATE_MIE);
    SAVE(mip, STATE_MIP);
#undef SAVE
    state[STATE_TIME / 8] = *(volatile uint64_t *)CLINT_TIME;
    state[STATE_TIME_COMPARE / 8] = *(volatile uint64_t *)CLINT_TIME_COMPARE;
    state[STATE_PLIC_PRIORITY / 8] = word_at(PLIC_PRIORITY);
    state[STATE_PLIC_ENABLE / 8] = word_at(PLIC_ENABLE);
    state[STATE_PLIC_THRESHOLD / 8] = word_at(PLIC_THRESHOLD);
    static const char name[] = "memory";
    long file = host_call(HOST_OPENAT, (uint64_t)HOST_HERE, (uint64_t)name, sizeof name, HOST_CREATE, 0644);
    uint64_t failed = file < 0;
    for (uint64_t at = SNAPSHOT_MEMORY, bytes = 1 << 20; !failed && at < MEMORY_END; at += bytes)
        failed = host_call(HOST_WRITE, (uint64_t)file, at, bytes, 0, 0) != (long)bytes;
    tohost = failed << 1 | 1;
    for (;;) {}
}
#endif

static uint64_t register_read(unsigned offset) {
    switch (offset) {
    case PFA_IDENTITY: return 0x504641UL << 40 | 1UL << 32 | 1UL << 24 | DEPTH_LOG2 * 0x010101;
    case PFA_STATUS: return (uint64_t)free_frames.count << 8 | (uint64_t)new_pages.count << 24 | (uint64_t)outcomes.count << 40;
    case PFA_NEW_CONTEXT: return oldest(&new_contexts);
    case PFA_NEW_POP: pop(&new_contexts); return pop(&new_pages);
    // A failure stays until it is written.
    case PFA_EVICT_POP: return oldest(&outcomes) & FAILED ? oldest(&outcomes) : pop(&outcomes);
    case PFA_FREE_POP: return enabled || !free_frames.count ? 0 : VALID | pop(&free_frames);
    case PFA_REMOTE_STATUS: return remote_status;
    case PFA_FETCHES: return fetches;
    case PFA_REFUSED: return refused;
    case PFA_REFUSAL: return refusal;
    case PFA_BUS_ERROR: return bus_error_word;
    default: return 0;
    }
}

static void register_write(unsigned offset, uint64_t value) {
    switch (offset) {
    case PFA_CONTROL: enabled = value & 1; break;
    case PFA_FREE_PUSH: push(&free_frames, value); break;
    case PFA_EVICT_PUSH:
        if (write_fails()) {
            push(&outcomes, VALID | FAILED | value >> 36);
            break;
        }
        copy_page(blade_page(value >> 36), (value & 0xfffffffff) << PAGE_SHIFT);
        push(&outcomes, VALID | value >> 36);
        break;
    case PFA_EVICT_POP: pop(&outcomes); break;
    case PFA_REMOTE_FRAME: remote_frame = value; break;
    case PFA_REMOTE_START:
        remote_status = (value >> 63 ? write_fails() : fails()) ? REMOTE_FAILED : REMOTE_ENDED;
        if (remote_status == REMOTE_FAILED) break;
        if (value >> 63) copy_page(blade_page(value & 0xfffffff), remote_frame);
        else copy_page(remote_frame, blade_page(value & 0xfffffff));
        break;
    case PFA_REFUSAL: refusal = 0; break;
    case PFA_BUS_ERROR: bus_error_word = 0; break;
    default: break;
    }
}

static void simulator_write(unsigned offset, uint64_t value) {
    if (offset == SIM_FAIL || offset == SIM_LOSE || offset == SIM_CUT_SHORT || offset == SIM_HOLD) failing = value;
    if (offset == SIM_REFUSE) refusing = value;
    if (offset == SIM_BAD_PAGE) bad_page = value;
}

// Does a load or store of eight bytes that nobody answered. The compiler makes no others for these registers.
static bool device_access(uint64_t *x, uint64_t address) {
    uint64_t at = physical(address);
    bool simulator = at >= SIMULATOR && at < SIMULATOR + PAGE_BYTES;
    bool arguments_page = at >= ARGUMENTS && at < ARGUMENTS + sizeof arguments;
    if (!simulator && (at < PFA_BASE || at >= PFA_BASE + PAGE_BYTES)) return false;
    const uint16_t *code = (const uint16_t *)physical(x[0]);
    uint32_t instruction = code[0];
    bool store, whole;
    unsigned which, length = 2;
    if ((instruction & 3) == 3) {
        instruction |= (uint32_t)code[1] << 16;
        length = 4;
        store = (instruction & 0x7f) == 0x23;
        whole = (store || (instruction & 0x7f) == 0x03) && (instruction >> 12 & 7) == 3;
        which = store ? instruction >> 20 & 31 : instruction >> 7 & 31;
    } else {
        store = instruction >> 13 == 7;
        whole = (instruction & 3) == 0 && (store || instruction >> 13 == 3);
        which = 8 + (instruction >> 2 & 7);
    }
    if (!whole) return false;
#ifdef SNAPSHOT
    if (arguments_page && !store) take_snapshot(x);
#endif
    if (store && simulator) simulator_write(at - SIMULATOR, which ? x[which] : 0);
    else if (store) register_write(at & (PAGE_BYTES - 1), which ? x[which] : 0);
    else if (which) x[which] = simulator ? (arguments_page ? arguments[(at - ARGUMENTS) / 8] : 0) : register_read(at & (PAGE_BYTES - 1));
    x[0] += length;
    return true;
}

// What walker hook and fetch unit do.
static bool fetch(uint64_t address) {
    uint64_t page;
    int level;
    uint64_t *entry = walk(address, &page, &level);
    if (!entry || level || !is_remote(*entry)) return false;
    uint64_t id = entry_id(*entry), about = (address >> PAGE_SHIFT & 0x7ffffff) << 28 | id;
    unsigned reason = !enabled ? PFA_REFUSED_DISABLED : new_pages.count == DEPTH ? PFA_REFUSED_NEW_FULL
                    : !free_frames.count ? PFA_REFUSED_NO_FRAME : fails() ? PFA_REFUSED_FETCH_FAILED
                    : bad_page && oldest(&free_frames) == bad_page ? PFA_REFUSED_BUS_ERROR : 0;
    if (reason == PFA_REFUSED_BUS_ERROR && !bus_error_word)
        bus_error_word = VALID | (uint64_t)PFA_BUS_FRAME_WRITE << 60 | bad_page;
    if (reason) {
        refusal = VALID | (uint64_t)reason << 60 | about;
        refused++;
        return false;
    }
    uint64_t frame = pop(&free_frames);
    copy_page(frame, blade_page(id));
    *entry = frame >> PAGE_SHIFT << 10 | (*entry >> 2 & 0x3fe) | PTE_V;
    push(&new_pages, VALID | about);
    uint64_t satp;
    __asm__ volatile("csrr %0, satp" : "=r"(satp));
    push(&new_contexts, VALID | (satp & 0xfffffffff));
    fetches++;
    __asm__ volatile("sfence.vma" ::: "memory");
    return true;
}

// A trap: x[0] is its pc. Returns whether it was the model's affair, and is done.
bool model_trap(uint64_t *x, uint64_t cause, uint64_t address) {
    if (cause == CAUSE_LOAD_ACCESS || cause == CAUSE_STORE_ACCESS) return device_access(x, address);
    return fetch(address);
}
