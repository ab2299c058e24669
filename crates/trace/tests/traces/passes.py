"""Goes over a matrix, and prints the sum: `passes.py rows|columns ROWS TIMES`: all rows, or a column, so many times. A row takes three pages of memory."""

import os
import sys

import numpy

COLUMNS = 3 * 4096 // 8

order, rows, passes = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
matrix = numpy.arange(rows * COLUMNS, dtype=numpy.float64).reshape(rows, COLUMNS)
total = 0.0
if order == "rows":
    for _ in range(passes):
        total += sum(row.sum() for row in matrix)
else:
    # Each column lies on other pages than the one before.
    for step in range(passes):
        total += matrix[:, step % 3 * 512 + step // 3].sum()
print(total, flush=True)
# At once: what the interpreter does at its end would be half of a trace.
os._exit(0)
