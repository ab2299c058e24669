"""Memory whose every byte is known: checked.py MIB SECONDS SEED

Writes, reads, discards, maps and unmaps pages at random for so long, in children that it forks as well, and checks all that it reads: what a page holds
follows from seed, mapping, page, and how often it was written. In the end everything is checked. Prints how many pages were checked; the first wrong one is an error.
"""

import hashlib
import mmap
import os
import random
import sys
import time

PAGE = mmap.PAGESIZE
MAPPINGS = 4


def content(seed, mapping, page, version):
    """Half of it doesn't compress. What was never written, or discarded, is zeros."""
    if version == 0:
        return bytes(PAGE)
    noise = hashlib.shake_128(f"{seed} {mapping} {page} {version}".encode()).digest(PAGE // 2)
    return noise + noise[:8] * (PAGE // 16)


class Mapping:
    def __init__(self, seed, number, pages):
        self.seed, self.number, self.pages = seed, number, pages
        self.memory = mmap.mmap(-1, pages * PAGE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self.versions = [0] * pages
        self.writes = 0

    def write(self, page):
        # Never a version that it has had before.
        self.writes += 1
        self.versions[page] = self.writes
        self.memory[page * PAGE : (page + 1) * PAGE] = content(self.seed, self.number, page, self.writes)

    def discard(self, page, count):
        count = min(count, self.pages - page)
        self.memory.madvise(mmap.MADV_DONTNEED, page * PAGE, count * PAGE)
        self.versions[page : page + count] = [0] * count

    def check(self, page):
        found = self.memory[page * PAGE : (page + 1) * PAGE]
        if found != content(self.seed, self.number, page, self.versions[page]):
            wrong = sum(a != b for a, b in zip(found, content(self.seed, self.number, page, self.versions[page])))
            sys.exit(f"mapping {self.number}, page {page}, version {self.versions[page]}: {wrong} bytes are wrong")


def child_checks(draw, mappings, count):
    """A child checks and changes what is its own since the fork."""
    child = os.fork()
    if child == 0:
        for _ in range(count):
            mapping = draw.choice(mappings)
            page = draw.randrange(mapping.pages)
            mapping.check(page)
            mapping.write(page)
            mapping.check(page)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    if status != 0:
        sys.exit(f"a child ended with status {status}")


def main():
    mebibytes, seconds, seed = int(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3])
    draw = random.Random(seed)
    pages = mebibytes * (1 << 20) // PAGE // MAPPINGS
    mappings = [Mapping(seed, number, pages) for number in range(MAPPINGS)]
    checked, made, end = 0, MAPPINGS, time.monotonic() + seconds
    for mapping in mappings:
        for page in range(pages):
            mapping.write(page)
    while time.monotonic() < end:
        mapping = draw.choice(mappings)
        page, kind = draw.randrange(pages), draw.random()
        if kind < 0.4:
            for at in range(page, min(page + 64, pages)):
                mapping.check(at)
                checked += 1
        elif kind < 0.7:
            for at in draw.sample(range(pages), 32):
                mapping.check(at)
                checked += 1
        elif kind < 0.96:
            for at in draw.sample(range(pages), 32):
                mapping.write(at)
        elif kind < 0.98:
            mapping.discard(page, 16)
        elif kind < 0.99:
            child_checks(draw, mappings, 100)
        else:
            mapping.memory.close()
            mappings[mappings.index(mapping)] = new = Mapping(seed, made, pages)
            made += 1
            for at in range(pages):
                new.write(at)
    for mapping in mappings:
        for page in range(pages):
            mapping.check(page)
            checked += 1
    print(checked)


if __name__ == "__main__":
    main()
