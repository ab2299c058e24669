"""Groups and joins tables of DuckDB in memory, and prints checksums: `duckdb_tables.py ROWS`."""

import sys

import duckdb

rows = int(sys.argv[1])
# It would look at the limit of its control group otherwise, and keep less in memory.
database = duckdb.connect(":memory:", config={"memory_limit": "64GB", "threads": 2, "temp_directory": ""})
database.execute(
    f"CREATE TABLE things AS SELECT n AS number, n * 7919 % 1000003 AS kind, 'name-' || n AS name FROM range({rows}) r(n)"
)
database.execute("CREATE TABLE kinds AS SELECT kind, count(*) AS things, sum(number) AS sum FROM things GROUP BY kind")
joined = database.execute(
    "SELECT count(*), sum(kinds.things), sum(kinds.sum % 1009 * length(name))::BIGINT FROM things JOIN kinds USING (kind)"
).fetchone()
print("kinds", *joined)
