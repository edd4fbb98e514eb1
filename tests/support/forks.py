"""Processes that are there in milliseconds: a server that has everything imported forks them.

There is one such server in a run, and of several lists of what it is to import only the last would count. So this is
the only one.
"""

import multiprocessing
from typing import Final

IMPORTED: Final = [
    "tests.broker.group_broker",
    "tests.broker.crash_at_write",
    "tests.holdfast_client.consumer_process",
    "tests.support.spark_engine",
]
FORKS: Final = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(IMPORTED)
