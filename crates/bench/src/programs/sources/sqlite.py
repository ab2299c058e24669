"""Fills a table of SQLite in memory, asks for rows, groups and changes them, and prints checksums: `sqlite.py ROWS`."""

import random
import sqlite3
import sys

rows = int(sys.argv[1])
generator = random.Random(1)
database = sqlite3.connect(":memory:")
database.execute("CREATE TABLE things (number INTEGER PRIMARY KEY, kind INTEGER, name TEXT)")
things = ((number, number * 7919 % 1009, f"name-{number * 104729}") for number in range(rows))
database.executemany("INSERT INTO things VALUES (?, ?, ?)", things)
database.execute("CREATE INDEX kinds ON things (kind)")
checksum = 0
for _ in range(rows // 8):
    number = generator.randrange(rows)
    (name,) = database.execute("SELECT name FROM things WHERE number = ?", (number,)).fetchone()
    checksum = (checksum * 31 + len(name) + number) % 2**48
database.execute("UPDATE things SET name = name || '!' WHERE number % 3 = 0")
sums = database.execute("SELECT sum(kind * length(name)), count(DISTINCT kind) FROM things").fetchone()
print("things", checksum, *sums)
