"""A short random run; `python -m tests.support.spark_random` makes longer ones."""

from __future__ import annotations

from tests.support.holdfast_broker import HoldfastBroker
from tests.support.quick_brokers import QUICK
from tests.support.spark_random import RandomRun

CHAOS_S = 15.0


def test_nothing_is_lost_whatever_is_killed() -> None:
    with HoldfastBroker(QUICK) as broker:
        run = RandomRun(broker, seed=1)
        run.run(CHAOS_S, broker_kills=1)

        assert sum(query.starts for query in run.queries) > len(run.queries), run.story()
        assert {who for who, *_ in run.processed.events} & {query.name for query in run.queries}, run.story()


def test_queries_that_begin_again_together_read_everything_whatever_is_killed() -> None:
    with HoldfastBroker(QUICK) as broker:
        run = RandomRun(broker, seed=2, refresh=True)
        run.run(CHAOS_S, broker_kills=1)

        assert sum(query.starts for query in run.queries) > len(run.queries), run.story()
