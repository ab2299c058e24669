/*
 * Random operations on a process's own address space, every byte checked.
 *
 *   churn SEED OPERATIONS THREADS KINDS
 *
 * Each thread owns a stripe of one arena and does operations on it; what each page must hold is kept in shared memory, which no
 * pager manages. KINDS is a string of letters that says which operations may happen:
 *   w write, v verify, d MADV_DONTNEED, f MADV_FREE, m map again over itself, u unmap and map, p mprotect, r mremap,
 *   k fork with writes on both sides, s system calls that read and write the pages.
 * Exit status 0 and "ok" when every byte was right; otherwise a line that names the page, and status 1.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGE = 4096, WORDS = PAGE / 8, STRIPE = 6144, MOST_THREADS = 8, LONGEST = 64 };

/* What a page must hold: 0 is zeros; the tag FREED is either what `freed` says or zeros. */
struct stripe {
    uint64_t tag[STRIPE];
    uint64_t freed[STRIPE];
    uint8_t is_gone[STRIPE];
};

struct worker {
    int number;
    uint64_t state;
    uint64_t next_tag;
    unsigned char *base;
    struct stripe *now;    /* shared memory: what the stripe holds */
    struct stripe *then;   /* shared memory: what it held at the last fork, for the child */
    pid_t child;
    int file;
};

static unsigned char *arena;
static const char *kinds;
static long operations;
static const uint64_t FREED = ~0ULL;

static uint64_t mix(uint64_t value) {
    value ^= value >> 30;
    value *= 0xbf58476d1ce4e5b9ULL;
    value ^= value >> 27;
    value *= 0x94d049bb133111ebULL;
    return value ^ value >> 31;
}

static uint64_t chance(struct worker *w, uint64_t below) {
    w->state += 0x9e3779b97f4a7c15ULL;
    return mix(w->state) % below;
}

/* The word at a place of a page: pages of a tag compress well, badly, or to one pattern, as the tag says. */
static uint64_t word_of(uint64_t tag, unsigned at) {
    if (tag == 0)
        return 0;
    switch (tag & 3) {
    case 0:
        return mix(tag);
    case 1:
        return at % 2 ? mix(tag + at) : tag;
    case 2:
        return mix(tag * 512 + at);
    default:
        return at % 64 ? tag : mix(tag + at);
    }
}

static void fill(unsigned char *page, uint64_t tag) {
    for (unsigned at = 0; at < WORDS; at++)
        ((volatile uint64_t *)page)[at] = word_of(tag, at);
}

static int holds(const unsigned char *page, uint64_t tag) {
    for (unsigned at = 0; at < WORDS; at++)
        if (((const volatile uint64_t *)page)[at] != word_of(tag, at))
            return 0;
    return 1;
}

static void fail(struct worker *w, const char *what, unsigned page, uint64_t expected) {
    const volatile uint64_t *words = (const volatile uint64_t *)(w->base + (size_t)page * PAGE);
    dprintf(2, "churn: %s: process %d thread %d page %u (%p): tag %llx wants %016llx, found %016llx %016llx\n", what, getpid(),
            w->number, page, (void *)words, (unsigned long long)expected, (unsigned long long)word_of(expected, 0),
            (unsigned long long)words[0], (unsigned long long)words[1]);
    _exit(1);
}

static void die(const char *what) {
    perror(what);
    _exit(3);
}

static unsigned char *at(struct worker *w, unsigned page) {
    return w->base + (size_t)page * PAGE;
}

static void check(struct worker *w, struct stripe *wanted, unsigned page, const char *what) {
    if (wanted->is_gone[page])
        return;
    if (wanted->tag[page] == FREED) {
        if (!holds(at(w, page), 0) && !holds(at(w, page), wanted->freed[page]))
            fail(w, what, page, wanted->freed[page]);
    } else if (!holds(at(w, page), wanted->tag[page])) {
        fail(w, what, page, wanted->tag[page]);
    }
}

static int is_whole(struct stripe *stripe, unsigned first, unsigned count) {
    for (unsigned page = first; page < first + count; page++)
        if (stripe->is_gone[page])
            return 0;
    return 1;
}

static void set(struct worker *w, unsigned page) {
    w->next_tag += MOST_THREADS;
    fill(at(w, page), w->next_tag);
    w->now->tag[page] = w->next_tag;
}

static void zero(struct worker *w, unsigned first, unsigned count) {
    memset(&w->now->tag[first], 0, count * sizeof w->now->tag[0]);
}

static void renew(struct worker *w, unsigned first, unsigned count) {
    size_t length = (size_t)count * PAGE;
    if (mmap(at(w, first), length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != at(w, first))
        die("mmap");
    zero(w, first, count);
}

static void mapped_back(struct worker *w, unsigned first, unsigned count) {
    void *back = mmap(at(w, first), (size_t)count * PAGE, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    if (back == MAP_FAILED) /* Somebody else has the addresses now: they are nobody's of ours any more. */
        memset(&w->now->is_gone[first], 1, count);
    else
        zero(w, first, count);
}

/* Nothing is left behind when whoever started this process is killed. */
static void die_with_parent(void) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
}

static void in_child(struct worker *w) {
    die_with_parent();
    struct stripe *then = w->then;
    for (unsigned step = 0; step < 24; step++) {
        unsigned count = 1 + chance(w, LONGEST), first = chance(w, STRIPE - count);
        if (!is_whole(then, first, count))
            continue;
        switch (chance(w, 4)) {
        case 0:
            if (madvise(at(w, first), (size_t)count * PAGE, MADV_DONTNEED))
                die("madvise in the child");
            for (unsigned page = first; page < first + count; page++)
                then->tag[page] = 0;
            break;
        case 1:
            for (unsigned page = first; page < first + count; page++) {
                then->tag[page] = mix(w->state + page) | 1;
                fill(at(w, page), then->tag[page]);
            }
            break;
        default:
            for (unsigned page = first; page < first + count; page++)
                check(w, then, page, "child");
        }
    }
    for (unsigned page = 0; page < STRIPE; page++)
        check(w, then, page, "child, at its end");
    _exit(0);
}

static void reap(struct worker *w) {
    int status;
    if (w->child == 0)
        return;
    if (waitpid(w->child, &status, 0) != w->child)
        die("waitpid");
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
        dprintf(2, "churn: the child of thread %d ended with status %x\n", w->number, status);
        _exit(1);
    }
    w->child = 0;
}

static void forked(struct worker *w) {
    reap(w);
    memcpy(w->then, w->now, sizeof *w->then);
    w->child = fork();
    if (w->child < 0)
        die("fork");
    if (w->child == 0)
        in_child(w);
}

static void moved(struct worker *w, unsigned first, unsigned count) {
    unsigned to = chance(w, STRIPE - count);
    size_t length = (size_t)count * PAGE;
    if ((to < first + count && first < to + count) || !is_whole(w->now, to, count))
        return;
    int keeps = chance(w, 2);
    int flags = MREMAP_MAYMOVE | MREMAP_FIXED | (keeps ? MREMAP_DONTUNMAP : 0);
    if (mremap(at(w, first), length, length, flags, at(w, to)) == MAP_FAILED) {
        /* The range spans mappings that the kernel doesn't move together; it may have moved a part of them. */
        renew(w, first, count);
        renew(w, to, count);
        return;
    }
    memcpy(&w->now->tag[to], &w->now->tag[first], count * sizeof w->now->tag[0]);
    memcpy(&w->now->freed[to], &w->now->freed[first], count * sizeof w->now->freed[0]);
    if (keeps)
        zero(w, first, count);
    else
        mapped_back(w, first, count);
}

static void one(struct worker *w, char kind) {
    unsigned count = 1 + chance(w, chance(w, 4) ? 8 : LONGEST), first = chance(w, STRIPE - count);
    unsigned char *start = at(w, first);
    size_t length = (size_t)count * PAGE;
    if (!is_whole(w->now, first, count))
        return;
    switch (kind) {
    case 'w': { /* upwards or downwards, each page or every other */
        int down = chance(w, 2), stride = 1 + chance(w, 2);
        for (unsigned step = 0; step < count; step += stride)
            set(w, down ? first + count - 1 - step : first + step);
        break;
    }
    case 'v': {
        int down = chance(w, 2), stride = 1 + chance(w, 3);
        for (unsigned step = 0; step < count; step += stride)
            check(w, w->now, down ? first + count - 1 - step : first + step, "read");
        break;
    }
    case 'd': {
        unsigned large = chance(w, 64) ? count : STRIPE / 2;
        if (first + large > STRIPE || !is_whole(w->now, first, large))
            break;
        if (madvise(start, (size_t)large * PAGE, MADV_DONTNEED))
            die("madvise");
        zero(w, first, large);
        for (unsigned page = first; page < first + large; page += 1 + chance(w, 16))
            check(w, w->now, page, "after MADV_DONTNEED");
        break;
    }
    case 'f':
        if (madvise(start, length, MADV_FREE))
            die("madvise");
        for (unsigned page = first; page < first + count; page++) {
            if (w->now->tag[page] != FREED)
                w->now->freed[page] = w->now->tag[page];
            w->now->tag[page] = FREED;
        }
        set(w, first + chance(w, count));
        break;
    case 'm':
        renew(w, first, count);
        check(w, w->now, first + chance(w, count), "after mmap");
        break;
    case 'u':
        if (munmap(start, length))
            die("munmap");
        mapped_back(w, first, count);
        break;
    case 'p':
        if (mprotect(start, length, chance(w, 2) ? PROT_READ : PROT_NONE))
            die("mprotect");
        if (mprotect(start, length, PROT_READ | PROT_WRITE))
            die("mprotect");
        check(w, w->now, first, "after mprotect");
        break;
    case 'r':
        moved(w, first, count);
        break;
    case 'k':
        forked(w);
        break;
    case 's': {
        unsigned source = first + chance(w, count);
        if (source == first || w->now->tag[source] == FREED)
            break;
        if (pwrite(w->file, at(w, source), PAGE, 0) != PAGE || pread(w->file, start, PAGE, 0) != PAGE)
            die("a page in a system call");
        w->now->tag[first] = w->now->tag[source];
        check(w, w->now, first, "after a system call");
        break;
    }
    default:
        break;
    }
}

static void *work(void *argument) {
    struct worker *w = argument;
    size_t most = strlen(kinds);
    for (unsigned page = 0; page < STRIPE; page++)
        set(w, page);
    for (long done = 0; done < operations; done++) {
        char kind = kinds[chance(w, most)];
        /* Forks are expensive; a few are enough. */
        if (kind == 'k' && chance(w, 24))
            kind = 'v';
        one(w, kind);
    }
    reap(w);
    for (unsigned page = 0; page < STRIPE; page++)
        check(w, w->now, page, "at the end");
    return NULL;
}

static void *shared(size_t length) {
    void *memory = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        die("mmap of shared memory");
    return memory;
}

int main(int count, char **arguments) {
    if (count != 5)
        return 2;
    die_with_parent();
    uint64_t seed = strtoull(arguments[1], NULL, 0);
    operations = atol(arguments[2]);
    int threads = atoi(arguments[3]);
    kinds = arguments[4];
    if (threads < 1 || threads > MOST_THREADS)
        return 2;
    arena = mmap(NULL, (size_t)threads * STRIPE * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (arena == MAP_FAILED)
        die("mmap");
    static struct worker workers[MOST_THREADS];
    pthread_t handles[MOST_THREADS];
    for (int number = 0; number < threads; number++) {
        struct worker *w = &workers[number];
        w->number = number;
        w->state = mix(seed * MOST_THREADS + number);
        w->next_tag = MOST_THREADS + number;
        w->base = arena + (size_t)number * STRIPE * PAGE;
        w->now = shared(sizeof *w->now);
        w->then = shared(sizeof *w->then);
        w->file = memfd_create("churn", MFD_CLOEXEC);
        if (w->file < 0)
            die("memfd_create");
        if (pthread_create(&handles[number], NULL, work, w))
            die("pthread_create");
    }
    for (int number = 0; number < threads; number++)
        pthread_join(handles[number], NULL);
    puts("ok");
    return 0;
}
