"""Works with memory that doesn't compress while its storage pauses: `reads` goes over what it has, `fills` takes more all the time."""

import random
import sys
import time

MIB = 1 << 20


def block(seed):
    return random.Random(seed).randbytes(MIB)


def main(work, seconds):
    most = 80 if work == "reads" else 140
    blocks = [block(seed) for seed in range(40 if work == "fills" else most)]
    print("ready", flush=True)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if work == "fills":
            if len(blocks) < most:
                blocks.append(block(len(blocks)))
            time.sleep(0.03)
        else:
            assert all(blocks[seed] == block(seed) for seed in range(0, most, 7))
    while len(blocks) < most:
        blocks.append(block(len(blocks)))
    assert all(one == block(seed) for seed, one in enumerate(blocks))
    print(f"{len(blocks)} blocks right", flush=True)


main(sys.argv[1], float(sys.argv[2]))
