"""Keyed state that follows the partition: count, sum and last value of each key, and window, of a topic's partition.

    totals/
      settings.json
      topics/orders/0/beginning.json
      topics/orders/0/versions/00000000000000001200.json
      topics/orders/0/runs/00000000000000001200-….arrow

What is kept of a (topic, partition) is a pure function of its records below an offset. A *version* says: up to, and
without, `end`, the totals are in these *runs*. It is named by the `end` of the one before, and made by exclusive
creation: of all writers that want to go on from there, one can. A run holds the totals of some keys, sorted by a hash;
where a key is in several runs of a version, the newest counts. So a batch reads and writes the keys that it touches,
and not the state.

`settings` says what is counted, `totals` does it, `runs` are files of it, and `version` lists them; `store` keeps all
of that on the disk. `task` runs on the executors, with a `cache` beside it; `enricher` takes in one batch, and `query`
is the streaming query around it. `reading` shows the totals.
"""
