"""Fills a dict, looks entries up and changes them at random, and prints a checksum: `dict.py ENTRIES`."""

import random
import sys

entries = int(sys.argv[1])
generator = random.Random(1)
table = {f"key-{number:08d}": [number, f"value-{number * 7919}"] for number in range(entries)}
checksum = 0
for _ in range(entries):
    entry = table[f"key-{generator.randrange(entries):08d}"]
    entry[0] += 1
    checksum = (checksum * 31 + entry[0] + len(entry[1])) % 2**48
print("dict", len(table), checksum)
