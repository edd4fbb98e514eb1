"""Topics to Parquet, each record once, across changes of the partition's owner.

    orders-lake/
      topic=orders/date=2026-11-16/0-00000000000000001200-….parquet
      _manifests/orders/0/entries/00000000000000001200.json
      _manifests/orders/0/snapshots/00000000000000000001.json

Each (topic, partition) has a chain of manifest entries. An entry says that these files contain the records from `first`
up to, but excluding, `end`. It is named after `first`, which is the `end` of the previous one, and created exclusively:
of all writers that continue from there, only one succeeds. Files that no entry lists are not in the table, so files of
a writer that was killed, or was slower than another, are harmless.

`manifest` is the format, `manifest_chain` the rules, `manifest_store` the files. `writer` lands one batch;
`parquet_writer` runs on the executors; `land_query` is the streaming query around them. `table_compaction` merges small
files: a snapshot then replaces the entries that it has read.
"""
