"""Groups, sorts and joins a table with Polars, and prints checksums: `polars_frame.py ROWS`."""

import sys

import polars

rows = int(sys.argv[1])
numbers = polars.int_range(0, rows, eager=True)
frame = polars.DataFrame(
    {"key": numbers * 7919 % 100_003, "order": numbers * 104_729 % 1_000_003, "value": numbers % 1009}
)
grouped = frame.group_by("key").agg(polars.col("value").sum().alias("sum"), polars.len().alias("rows"))
ordered = frame.sort("order", "value", "key")
joined = frame.join(grouped, on="key")
places = (ordered["order"] * (numbers % 1013) + ordered["value"]).sum()
print("frame", joined.height, int(joined["sum"].sum()), int((joined["rows"] * joined["value"]).sum()), int(places))
