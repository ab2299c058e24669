"""Says things of numpy arrays with the package of python/, and looks at what becomes of them: hints.py native | hints.py managed."""

import array
import ctypes
import sys
import time

import numpy as np

import farmem

PAGE = 4096
MEBIBYTE = 1 << 20
library = ctypes.CDLL(None, use_errno=True)
library.mincore.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p)


def resident(values):
    """The share of an array's pages that are local."""
    start, length = farmem._span(values)
    first, last = start // PAGE, -(-(start + length) // PAGE)
    states = ctypes.create_string_buffer(last - first)
    assert library.mincore(first * PAGE, (last - first) * PAGE, states) == 0
    return sum(state & 1 for state in states.raw) / (last - first)


squeezed = 0


def squeeze():
    global squeezed
    big[:] += 1
    squeezed += 1


def spans():
    table = np.arange(60, dtype=np.int16).reshape(3, 4, 5)
    for view in (table, table[1], table[:, 2], table[::-1, ::2, 3:1:-1], table.T, table[0, 0, 0:1]):
        low, high = np.lib.array_utils.byte_bounds(view)
        assert farmem._span(view) == (low, high - low), view
    assert farmem._span(table[0:0])[1] == 0
    assert farmem._span(np.array(7.0))[1] == 8
    assert farmem._span(b"four")[1] == 4
    assert farmem._span(memoryview(b"fourfour")[::2])[1] == 7
    assert farmem._span(array.array("d", range(10)))[1] == 80
    read_only = np.zeros(10)
    read_only.flags.writeable = False
    assert farmem.prefetch(read_only) and farmem.cold(read_only)
    for wrong in (7, "text", None, [1, 2]):
        try:
            farmem.prefetch(wrong)
        except TypeError:
            continue
        raise AssertionError(f"{wrong!r} has no memory to speak of")
    grows = bytearray(10)
    farmem.prefetch(grows)
    grows.extend(b"more")


is_managed = sys.argv[1] == "managed"
spans()

values = np.arange(MEBIBYTE // 2, dtype=np.float64)
big = np.random.default_rng(1).integers(0, 1 << 30, 15 * MEBIBYTE)
expected = values.sum()
# A pager comes to the program when memory gets short, and finds what the program has left for it a little later.
for _ in range(1000):
    if farmem.is_present() == is_managed:
        break
    squeeze()
    time.sleep(0.01)
assert farmem.is_present() == is_managed

with farmem.pin(values) as pinned:
    assert pinned is values
    for _ in range(3):
        squeeze()
        assert not is_managed or resident(values) == 1.0
    try:
        farmem.pin(big)
        assert not is_managed
        farmem.unpin(big)
    except MemoryError:
        assert is_managed
for _ in range(30):
    squeeze()
    if not is_managed or resident(values) < 0.5:
        break
assert not is_managed or resident(values) < 0.5

assert farmem.prefetch(values)
for _ in range(20000):
    if not is_managed or resident(values) > 0.7:
        break
    time.sleep(0.001)
assert not is_managed or resident(values) > 0.7
assert farmem.cold(values)
kept = farmem.pin(values[::2])
kept.unpin()
kept.unpin()
assert values.sum() == expected
# How often that took is for the pager to say.
big[:] -= squeezed
print("ok", int(expected), int(big.sum()))
