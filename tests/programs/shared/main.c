// Processes that share memory: each writes pages, and finds what the others have written. Exits with 0 when every byte was right.
//
// shared write PROCESSES MIB ROUNDS   processes write their own pages of one mapping, and read the others'
// shared calls MIB                    discards, holes, unmapping, moving, forks of forks, a mapper that is killed
// shared again MIB                    the same pages at two addresses of one process
// shared crowd PROCESSES MIB          so many processes at a time, each with a mapping in many pieces
// shared wait KIND MIB                fills, says "filled", and checks when a line comes: by the mapping, and by all other ways that there are to what has a name or
//                                     a descriptor. Kinds: private, both, anonymous, locked, memfd, sealed,
//                                     posix, system-v, tmpfs
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/shm.h>
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

// Writes all pages again and again until some are far, for half a minute at most.
static void press_until_far(uint64_t *memory, uint64_t pages)
{
    unsigned char *resident = malloc(pages);
    if (!resident)
        die("malloc");
    for (int round = 0; round < 300; round++) {
        for (uint64_t page = 0; page < pages; page++)
            write_page(memory, page, 0);
        if (mincore(memory, pages * PAGE, resident))
            die("mincore");
        for (uint64_t page = 0; page < pages; page++)
            if (!(resident[page] & 1)) {
                free(resident);
                return;
            }
        usleep(100000);
    }
    free(resident);
}

static void call(uint64_t pages)
{
    uint64_t *memory = map(pages);
    uint64_t part = pages / 8;
    press_until_far(memory, pages);
    press(memory, part * 4, pages);

    // A hole is empty, also of what is far. What is only not wanted stays.
    if (madvise(memory, part * PAGE / 2, MADV_REMOVE) || madvise(memory + part * WORDS, part * PAGE, MADV_DONTNEED))
        die("madvise");
    for (uint64_t page = 0; page < part / 2; page++)
        check_zero("a hole", memory, page);
    for (uint64_t page = part / 2; page < part * 2; page++)
        check_page("next to a hole", memory, page, 0);
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

// Those that lie from `memory` on.
static void check_pages(const char *what, const uint64_t *memory, uint64_t from, uint64_t to, uint64_t version)
{
    for (uint64_t page = from; page < to; page++)
        for (uint64_t word = 0; word < WORDS; word++)
            if (memory[(page - from) * WORDS + word] != content(page, version, word))
                fail(what, page, memory[(page - from) * WORDS + word], content(page, version, word));
}

// The same pages at two addresses, by a call that doesn't say how many of them.
static void map_again(uint64_t pages)
{
    uint64_t *memory = map(pages), part = pages / 8;
    press_until_far(memory, pages);
    press(memory, part * 4, pages);
    uint64_t *again = mremap(memory, 0, part * 3 * PAGE, MREMAP_MAYMOVE);
    if (again == MAP_FAILED)
        die("mremap");
    check_pages("mapped again", again, 0, part * 3, 0);
    for (uint64_t page = 0; page < part * 3; page++)
        write_page(again, page, 9);
    press(memory, part * 4, pages);
    check_pages("written where it is mapped again", memory, 0, part * 3, 9);
    for (uint64_t page = 0; page < part * 3; page++)
        write_page(memory, page, 10);
    press(memory, part * 4, pages);
    pid_t child = fork();
    if (child < 0)
        die("fork");
    if (!child) {
        check_pages("of its parent", again, 0, part * 3, 10);
        check_pages("of its parent", memory, 0, part * 3, 10);
        exit(0);
    }
    join(child);
    check_pages("written where it was mapped first", again, 0, part * 3, 10);

    // Of that a part is unmapped, and another is moved and stays where it was.
    if (munmap(again, part * PAGE))
        die("munmap");
    press(memory, part * 4, pages);
    check_pages("next to what is unmapped", again + part * WORDS, part, part * 3, 10);
    uint64_t *moved = mremap(again + part * WORDS, part * PAGE, part * PAGE, MREMAP_MAYMOVE | MREMAP_DONTUNMAP);
    if (moved == MAP_FAILED) {
        if (errno != EINVAL)
            die("mremap");
        return;
    }
    press(memory, part * 4, pages);
    check_pages("what has moved", moved, part, part * 2, 10);
    for (uint64_t page = part; page < part * 2; page++)
        write_page(again, page, 11);
    press(memory, part * 4, pages);
    check_pages("written where it has stayed", moved, part, part * 2, 11);
    check_pages("written where it has stayed", memory + part * WORDS, part, part * 2, 11);
}

// Memory of a kind, the descriptor by which it can be had, and the number of System V; -1 where there is none.
struct object {
    uint64_t *memory;
    int file;
    int number;
};

static struct object make(const char *kind, uint64_t pages)
{
    struct object object = {NULL, -1, -1};
    char name[64];
    snprintf(name, sizeof name, "/farmem-shared-%d", (int)getpid());
    if (!strcmp(kind, "private")) {
        object.memory = mmap(NULL, pages * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (object.memory == MAP_FAILED)
            die("mmap");
        for (uint64_t page = 0; page < pages; page++)
            write_page(object.memory, page, 9);
        return object;
    }
    if (!strcmp(kind, "both")) {
        // What is private is there long before what is shared, which is the last.
        make("private", pages);
        sleep(1);
        object.memory = map(pages);
        return object;
    }
    if (!strcmp(kind, "anonymous") || !strcmp(kind, "locked")) {
        object.memory = map(pages);
        if (!strcmp(kind, "locked") && mlock(object.memory, pages * PAGE))
            die("mlock");
        return object;
    }
    if (!strcmp(kind, "system-v")) {
        object.number = shmget(IPC_PRIVATE, pages * PAGE, IPC_CREAT | 0600);
        object.memory = shmat(object.number, NULL, 0);
        if (object.number < 0 || object.memory == (void *)-1)
            die("shmget");
        // It goes with the last process that has it attached.
        shmctl(object.number, IPC_RMID, NULL);
        return object;
    }
    if (!strcmp(kind, "memfd"))
        object.file = memfd_create("shared", MFD_CLOEXEC);
    else if (!strcmp(kind, "sealed"))
        object.file = memfd_create("shared", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    else if (!strcmp(kind, "posix")) {
        object.file = shm_open(name, O_RDWR | O_CREAT | O_EXCL, 0600);
        shm_unlink(name);
    } else if (!strcmp(kind, "tmpfs"))
        object.file = open("/dev/shm", O_TMPFILE | O_RDWR, 0600);
    else
        exit(2);
    if (object.file < 0 || ftruncate(object.file, pages * PAGE))
        die(kind);
    if (!strcmp(kind, "sealed") && fcntl(object.file, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW))
        die("seals");
    object.memory = mmap(NULL, pages * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, object.file, 0);
    if (object.memory == MAP_FAILED)
        die("mmap");
    return object;
}

static void same(const char *what, const uint64_t *found, uint64_t page)
{
    for (uint64_t word = 0; word < WORDS; word++)
        if (found[word] != content(page, 9, word))
            fail(what, page, found[word], content(page, 9, word));
}

// A process that has no mapping of it yet looks at it by each way.
static void look_anew(struct object object, uint64_t pages)
{
    uint64_t *buffer = malloc(PAGE), *again;
    int pipes[2];
    if (!buffer || pipe(pipes))
        die("pipe");
    if (object.number >= 0) {
        again = shmat(object.number, NULL, SHM_RDONLY);
        if (again == (void *)-1)
            die("shmat");
    } else {
        for (uint64_t page = 0; page < pages; page++) {
            off_t at = page * PAGE;
            if (pread(object.file, buffer, PAGE, at) != (ssize_t)PAGE)
                die("pread");
            same("by read", buffer, page);
            if (sendfile(pipes[1], object.file, &at, PAGE) != (ssize_t)PAGE || read(pipes[0], buffer, PAGE) != (ssize_t)PAGE)
                die("sendfile");
            same("by sendfile", buffer, page);
            loff_t from = page * PAGE;
            if (splice(object.file, &from, pipes[1], NULL, PAGE, 0) != (ssize_t)PAGE || read(pipes[0], buffer, PAGE) != (ssize_t)PAGE)
                die("splice");
            same("by splice", buffer, page);
        }
        again = mmap(NULL, pages * PAGE, PROT_READ, MAP_SHARED, object.file, 0);
        if (again == MAP_FAILED)
            die("mmap");
    }
    for (uint64_t page = 0; page < pages; page++)
        same("by another mapping", again + page * WORDS, page);
    exit(0);
}

static void wait_for_a_line(const char *kind, uint64_t pages)
{
    struct object object = make(kind, pages);
    for (uint64_t page = 0; page < pages; page++)
        write_page(object.memory, page, 9);
    char line[16];
    puts("filled");
    fflush(stdout);
    if (!fgets(line, sizeof line, stdin))
        exit(4);
    if (object.file >= 0 || object.number >= 0) {
        pid_t child = fork();
        if (child < 0)
            die("fork");
        if (!child) {
            if (munmap(object.memory, pages * PAGE))
                die("munmap");
            look_anew(object, pages);
        }
        join(child);
    }
    for (uint64_t page = 0; page < pages; page++)
        check_page("after a line", object.memory, page, 9);
}

// Whether a page stays mapped, of which many others don't.
static int is_kept(uint64_t page, uint64_t pages)
{
    return page < pages / 2 || page % 16;
}

// While there are many processes each page that leaves is protected in all of them: few are written then.
static uint64_t version_in_a_crowd(uint64_t page)
{
    return page % 128 == 1;
}

static void crowd(uint64_t processes, uint64_t pages)
{
    uint64_t *memory = map(pages);
    pid_t *children = calloc(processes, sizeof *children);
    int gate[2];
    if (!children || pipe(gate))
        die("pipe");
    press_until_far(memory, pages);
    for (uint64_t page = 0; page < pages; page++)
        if (!is_kept(page, pages) && munmap(memory + page * WORDS, PAGE))
            die("munmap");
    for (uint64_t own = 0; own < processes; own++) {
        children[own] = fork();
        if (children[own] < 0)
            die("fork");
        if (!children[own]) {
            char byte;
            if (close(gate[1]) || read(gate[0], &byte, 1))
                die("read");
            for (uint64_t page = own; page < pages; page += pages / 4)
                if (is_kept(page, pages))
                    check_page("of one of many", memory, page, version_in_a_crowd(page));
            exit(0);
        }
    }
    for (uint64_t page = 0; page < pages; page++)
        if (version_in_a_crowd(page) && is_kept(page, pages)) {
            check_page("of a mapping in pieces", memory, page, 0);
            write_page(memory, page, 1);
        }
    if (close(gate[1]))
        die("close");
    for (uint64_t own = 0; own < processes; own++)
        join(children[own]);
}

int main(int count, char **words)
{
    const char *what = count > 1 ? words[1] : "";
    uint64_t number = count > 2 ? strtoul(words[2], NULL, 10) : 0;
    if (!strcmp(what, "write") && count == 5 && number <= 64)
        write_together(number, strtoul(words[3], NULL, 10) << 8, strtoul(words[4], NULL, 10));
    else if (!strcmp(what, "calls") && number)
        call(number << 8);
    else if (!strcmp(what, "again") && number)
        map_again(number << 8);
    else if (!strcmp(what, "crowd") && count == 4 && number)
        crowd(number, strtoul(words[3], NULL, 10) << 8);
    else if (!strcmp(what, "wait") && count == 4)
        wait_for_a_line(words[2], strtoul(words[3], NULL, 10) << 8);
    else
        return 2;
    puts("right");
    return 0;
}
