"""Topics to a Delta table, each record once, across changes of the partition's owner.

    orders-lake/
      topic=orders/date=2026-11-16/0-00000000000000001200-….parquet
      _delta_log/00000000000000000017.json

The executors write Parquet files, and the driver commits all files of a batch in one entry of the table's log. Each
(topic, partition) is an application of the Delta protocol, and the version of its last transaction is the offset up to
which it is in the table. An entry has the next number as its name and is created exclusively: of all writers that
continue from there, only one succeeds. The others read its entry, leave out the records that it has landed, and try
again. Files that no entry lists are not in the table, so files of a writer that was killed, or was slower than another,
are harmless.

`delta_entry` is the format of an entry, `delta_log` reads and creates entries, and `delta_table` is the table through
delta-rs, which checks it and writes checkpoints. `writer` lands one batch; `parquet_writer` runs on the executors, with
`data_file` and `table_files`; `land_query` is the streaming query around them. `table_compaction` merges small files,
and `table_reader` reads the table.
"""
