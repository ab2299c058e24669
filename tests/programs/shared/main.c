// Processes that share memory: each writes pages, and finds what the others have written. Exits with 0 when every byte was right.
//
// shared write PROCESSES MIB ROUNDS   processes write their own pages of one mapping, and read the others'
// shared calls MIB                    discards, holes, unmapping, moving, forks of forks, a mapper that is killed
// shared memfd MIB                    the same bytes by the mapping and by the descriptor
// shared wait MIB                     fills, says "filled", and checks when a line comes
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGE 4096UL
#define WORDS (PAGE / sizeof(uint64_t))

static void fail(const char *what, uint64_t page, uint64_t found, uint64_t wanted)
{
    fprintf(stderr, "shared: %s: page %llu holds %llx, not %llx (process %d)\n", what, (unsigned long long)page,
            (unsigned long long)found, (unsigned long long)wanted, (int)getpid());
    exit(1);
}

static void die(const char *what)
{
    perror(what);
    exit(3);
}

static uint64_t *map(uint64_t pages)
{
    void *memory = mmap(NULL, pages * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        die("mmap");
    return memory;
}

// What a page holds: half of it can't be compressed.
static uint64_t content(uint64_t page, uint64_t version, uint64_t word)
{
    uint64_t seed = page * 0x9e3779b97f4a7c15UL + version * 0xc2b2ae3d27d4eb4fUL + word * 0x165667b19e3779f9UL;
    seed ^= seed >> 29;
    seed *= 0xbf58476d1ce4e5b9UL;
    return word % 2 ? seed ^ seed >> 32 : page << 32 | version;
}

static void write_page(uint64_t *memory, uint64_t page, uint64_t version)
{
    for (uint64_t word = 0; word < WORDS; word++)
        memory[page * WORDS + word] = content(page, version, word);
}

static void check_page(const char *what, const uint64_t *memory, uint64_t page, uint64_t version)
{
    for (uint64_t word = 0; word < WORDS; word++)
        if (memory[page * WORDS + word] != content(page, version, word))
            fail(what, page, memory[page * WORDS + word], content(page, version, word));
}

static void check_zero(const char *what, const uint64_t *memory, uint64_t page)
{
    for (uint64_t word = 0; word < WORDS; word++)
        if (memory[page * WORDS + word] != 0)
            fail(what, page, memory[page * WORDS + word], 0);
}

static void join(pid_t child)
{
    int status;
    if (waitpid(child, &status, 0) != child || !WIFEXITED(status) || WEXITSTATUS(status) != 0) {
        fprintf(stderr, "shared: a child ended with status %x\n", status);
        exit(1);
    }
}

static uint64_t next(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

// One of several that share all pages. Its own are those whose number leaves its own number as a rest.
static void take_part(uint64_t *memory, uint64_t pages, uint64_t own, uint64_t processes, uint64_t rounds)
{
    uint64_t random = own + 1;
    uint64_t *versions = calloc(pages, sizeof *versions);
    if (!versions)
        die("calloc");
    for (uint64_t round = 0; round < rounds; round++)
        for (uint64_t step = 0; step < pages / processes; step++) {
            uint64_t page = next(&random) % pages;
            uint64_t mine = page / processes * processes + own;
            if (mine < pages) {
                check_page("its own", memory, mine, versions[mine]);
                write_page(memory, mine, ++versions[mine]);
            }
            // Another one's may be in the midst of a change, but for its number.
            if (memory[page * WORDS] >> 32 != page)
                fail("another's", page, memory[page * WORDS], page << 32);
        }
    for (uint64_t page = own; page < pages; page += processes) {
        check_page("its own in the end", memory, page, versions[page]);
        // What the one that has started it will look for.
        memory[page * WORDS + 1] = versions[page];
    }
    exit(0);
}

static void write_together(uint64_t processes, uint64_t pages, uint64_t rounds)
{
    uint64_t *memory = map(pages);
    for (uint64_t page = 0; page < pages; page++)
        write_page(memory, page, 0);
    pid_t children[64];
    for (uint64_t own = 0; own < processes; own++) {
        children[own] = fork();
        if (children[own] < 0)
            die("fork");
        if (!children[own])
            take_part(memory, pages, own, processes, rounds);
    }
    for (uint64_t own = 0; own < processes; own++)
        join(children[own]);
    for (uint64_t page = 0; page < pages; page++) {
        uint64_t version = memory[page * WORDS + 1];
        memory[page * WORDS + 1] = content(page, version, 1);
        check_page("in the end", memory, page, version);
    }
}

// Makes pages leave: what is used last stays.
static void press(uint64_t *memory, uint64_t from, uint64_t to)
{
    for (int round = 0; round < 3; round++)
        for (uint64_t page = from; page < to; page++)
            write_page(memory, page, 0);
}

static void call(uint64_t pages)
{
    uint64_t *memory = map(pages);
    uint64_t part = pages / 8;
    for (uint64_t page = 0; page < pages; page++)
        write_page(memory, page, 0);
    press(memory, part * 4, pages);

    // A hole is empty, also of what is far. What is only not wanted stays.
    if (madvise(memory, part * PAGE / 2, MADV_REMOVE) || madvise(memory + part * WORDS, part * PAGE, MADV_DONTNEED))
        die("madvise");
    for (uint64_t page = 0; page < part / 2; page++)
        check_zero("a hole", memory, page);
    for (uint64_t page = part / 2; page < part * 2; page++)
        check_page("beside a hole", memory, page, 0);
    for (uint64_t page = 0; page < part / 2; page++)
        write_page(memory, page, 7);
    press(memory, part * 4, pages);

    // What one process unmaps the others have.
    pid_t child = fork();
    if (child < 0)
        die("fork");
    if (!child) {
        if (munmap(memory + part * WORDS, part * PAGE))
            die("munmap");
        for (uint64_t page = part * 2; page < part * 3; page++)
            write_page(memory, page, 3);
        pid_t grandchild = fork();
        if (grandchild < 0)
            die("fork");
        if (!grandchild) {
            for (uint64_t page = part * 2; page < part * 3; page++)
                check_page("of its parent", memory, page, 3);
            for (uint64_t page = part * 3; page < part * 4; page++)
                write_page(memory, page, 4);
            raise(SIGKILL);
        }
        int status;
        waitpid(grandchild, &status, 0);
        exit(!WIFSIGNALED(status));
    }
    join(child);
    for (uint64_t page = 0; page < part / 2; page++)
        check_page("what was written in a hole", memory, page, 7);
    for (uint64_t page = part; page < part * 2; page++)
        check_page("what another one has unmapped", memory, page, 0);
    for (uint64_t page = part * 2; page < part * 3; page++)
        check_page("what a child has written", memory, page, 3);
    for (uint64_t page = part * 3; page < part * 4; page++)
        check_page("what was written by one that was killed", memory, page, 4);

    // Moved to another address.
    press(memory, part * 4, pages);
    void *place = mmap(NULL, part * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    uint64_t *moved = mremap(memory + part * WORDS, part * PAGE, part * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, place);
    if (moved == MAP_FAILED)
        die("mremap");
    for (uint64_t page = 0; page < part; page++)
        for (uint64_t word = 0; word < WORDS; word++)
            if (moved[page * WORDS + word] != content(part + page, 0, word))
                fail("moved", page, moved[page * WORDS + word], content(part + page, 0, word));

    // The kernel reads and writes them for the program.
    int pipes[2];
    if (pipe(pipes))
        die("pipe");
    for (uint64_t page = 0; page < part / 2; page++) {
        if (write(pipes[1], memory + page * WORDS, PAGE) != (ssize_t)PAGE)
            die("write");
        if (read(pipes[0], memory + (part * 2 + page) * WORDS, PAGE) != (ssize_t)PAGE)
            die("read");
    }
    for (uint64_t page = 0; page < part / 2; page++)
        for (uint64_t word = 0; word < WORDS; word++)
            if (memory[(part * 2 + page) * WORDS + word] != content(page, 7, word))
                fail("by a pipe", page, memory[(part * 2 + page) * WORDS + word], content(page, 7, word));
}

static void by_descriptor(uint64_t pages)
{
    int file = memfd_create("shared", MFD_CLOEXEC);
    if (file < 0 || ftruncate(file, pages * PAGE))
        die("memfd_create");
    uint64_t *memory = mmap(NULL, pages * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    uint64_t *buffer = malloc(PAGE);
    if (memory == MAP_FAILED || !buffer)
        die("mmap");
    for (uint64_t page = 0; page < pages; page++)
        write_page(memory, page, 5);
    usleep(500000);
    for (uint64_t page = 0; page < pages; page++) {
        if (pread(file, buffer, PAGE, page * PAGE) != (ssize_t)PAGE)
            die("pread");
        if (memcmp(buffer, memory + page * WORDS, PAGE))
            fail("by the descriptor", page, buffer[0], memory[page * WORDS]);
        check_page("by the mapping", memory, page, 5);
    }
}

static void wait_for_a_line(uint64_t pages)
{
    uint64_t *memory = map(pages);
    for (uint64_t page = 0; page < pages; page++)
        write_page(memory, page, 9);
    char line[16];
    puts("filled");
    fflush(stdout);
    if (!fgets(line, sizeof line, stdin))
        exit(4);
    for (uint64_t page = 0; page < pages; page++)
        check_page("after a line", memory, page, 9);
}

int main(int count, char **words)
{
    const char *what = count > 1 ? words[1] : "";
    uint64_t number = count > 2 ? strtoul(words[2], NULL, 10) : 0;
    if (!strcmp(what, "write") && count == 5 && number <= 64)
        write_together(number, strtoul(words[3], NULL, 10) << 8, strtoul(words[4], NULL, 10));
    else if (!strcmp(what, "calls") && number)
        call(number << 8);
    else if (!strcmp(what, "memfd") && number)
        by_descriptor(number << 8);
    else if (!strcmp(what, "wait") && number)
        wait_for_a_line(number << 8);
    else
        return 2;
    puts("right");
    return 0;
}
