"""Makes records, sorts them, and looks some up: `demo.py MEBIBYTES`. Prints digests of what came out."""

import hashlib
import sys

import numpy

size_bytes = int(sys.argv[1]) << 20
generator = numpy.random.default_rng(2024)
# Eight bytes, of which four are random: compresses about as well as real records do.
records = generator.integers(0, 1 << 32, size_bytes // 8, dtype=numpy.int64)
total = int(records.sum())

records.sort()
in_order = bool((records[1:] >= records[:-1]).all())
wanted = generator.integers(0, 1 << 32, 20_000, dtype=numpy.int64)
places = numpy.searchsorted(records, wanted)

print("records  ", len(records))
print("in order ", in_order)
print("same sum ", int(records.sum()) == total)
print("content  ", hashlib.sha256(memoryview(records)).hexdigest()[:32])
print("look-ups ", hashlib.sha256(memoryview(places)).hexdigest()[:32])
sys.exit(0 if in_order else 1)
