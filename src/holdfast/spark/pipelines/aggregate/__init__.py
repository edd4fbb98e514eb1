"""Keyed state that belongs to the partition: count, sum and last value of each key, and window, of a topic's partition.

    totals/
      settings.json
      topics/orders/0/beginning.json
      topics/orders/0/versions/00000000000000001200.json
      topics/orders/0/runs/00000000000000001200-….arrow

The state of a (topic, partition) is a pure function of its records below an offset. A *version* lists the *runs* that
have the totals up to, but excluding, `end`. It is named after the `end` of the previous one and created exclusively: of
all writers that continue from there, only one succeeds. A run contains the totals of some keys, sorted by a hash; if a
key is in several runs of a version, the newest one is valid. A batch therefore reads and writes only the keys that it
changes, not the whole state.

`aggregate_settings` are the expressions, `totals` computes, `run_files` are the files, and `version` lists them;
`state_store` stores all of that in a directory or in S3. `task` runs on the executors, with a `run_cache`; `writer`
processes one batch, and `aggregate_query` is the streaming query around it. `totals_reader` reads the totals.
"""
