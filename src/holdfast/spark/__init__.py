"""Spark queries that are members of a consumer group: `format("holdfast")`, as source and as sink.

`source` is the front door. On the driver, `stream_reader` is what Spark calls, `query` the running query behind it, and
`seats` its membership; on the executors, `fetching` reads the ranges that were planned and `producing` writes.
"""
