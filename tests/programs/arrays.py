"""Works on arrays, and prints digests of the results: `arrays.py sort|multiply|fork_workers ELEMENTS`."""

import hashlib
import multiprocessing
import sys

import numpy

shared = None


def digest(array):
    return hashlib.sha256(memoryview(numpy.ascontiguousarray(array)).cast("B")).hexdigest()


def sort(elements):
    values = numpy.random.default_rng(1).random(elements)
    order = numpy.argsort(values, kind="stable")
    ordered = values[order]
    assert (ordered[1:] >= ordered[:-1]).all()
    values.sort()
    assert (values == ordered).all()
    print("sorted", digest(values), digest(order))


def multiply(elements):
    # Small whole numbers: the sums are exact in whichever order they are made.
    side = int(elements**0.5)
    generator = numpy.random.default_rng(2)
    left = generator.integers(0, 100, (side, side)).astype(numpy.float64)
    right = generator.integers(0, 100, (side, side)).astype(numpy.float64)
    product = left @ right
    row, column = side // 3, side // 2
    assert product[row, column] == sum(int(a) * int(b) for a, b in zip(left[row], right[:, column]))
    print("product", digest(product), digest(left.T @ right))


def work(part):
    global shared
    first, last = part
    before = digest(shared[first:last])
    # Its own copy, from here on: the others must not see this.
    shared[first:last] *= 2.0
    return before, digest(shared[first:last])


def fork_workers(elements):
    global shared
    shared = numpy.random.default_rng(3).random(elements)
    whole = digest(shared)
    step = elements // 8
    parts = [(first, first + step) for first in range(0, step * 8, step)]
    with multiprocessing.get_context("fork").Pool(2) as pool:
        results = pool.map(work, parts, chunksize=1)
    for part, (before, after) in zip(parts, results):
        assert before == digest(shared[part[0] : part[1]])
        assert after == digest(shared[part[0] : part[1]] * 2.0)
    assert whole == digest(shared)
    print("workers", whole, hashlib.sha256(repr(results).encode()).hexdigest())


if __name__ == "__main__":
    {"sort": sort, "multiply": multiply, "fork_workers": fork_workers}[sys.argv[1]](int(sys.argv[2]))
