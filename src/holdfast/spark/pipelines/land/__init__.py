"""Topics to Parquet, each record once, whoever owns its partition.

    orders-lake/
      topic=orders/date=2026-11-16/0-00000000000000001200-….parquet
      _manifests/orders/0/entries/00000000000000001200.json
      _manifests/orders/0/snapshots/00000000000000000001.json

Each (topic, partition) has a chain of manifest entries. An entry says: these files hold the records from `first` up to,
and without, `end`. It is named by `first`, which is the `end` of the one before, and made by exclusive creation: of all
writers that want to go on from there, one can. Files that no entry lists are not in the table. So what a batch wrote
before its writer was killed, or before another was faster, does no harm.

`manifest` is the format, `chain` the rules, `store` keeps both on the disk. `lander` lands one batch; `writing` runs on
the executors; `query` is the streaming query around them. `compaction` puts small files together: a snapshot then
stands for the entries that it has read.
"""
