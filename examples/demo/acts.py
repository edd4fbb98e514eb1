"""What happens in the demo: a group of two Spark queries and a plain consumer is restarted one by one, then grows.

It is played twice: with seats (`group.instance.id`) and announced newcomers, and as the control without.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final, Self

from examples.demo.processes import PATIENCE_S, DemoFailed, Worker, now_ms, wait_for
from examples.demo.producer import EACH_TICK, PARTITIONS, TICK_S, Orders
from holdfast import Admin, HoldfastError
from holdfast.client.descriptions import GroupDescription

SEAT_SESSION_MS: Final = round(2_100 * PATIENCE_S)
"""Longer than the demo waits for a member to end and to come back: no restart that succeeds is missed by the group."""
SESSION_MS: Final = 20_000
"""Of members without a seat. One that was killed is missed that late, and everybody waits for it."""
NEWCOMERS: Final = 3
REST_S: Final = 2.5
"""A group at rest has had the same generation for so long: longer than members take to hear of a rebalance."""
_LAG_AT_REST: Final = round(10 * EACH_TICK / TICK_S)
"""Records of a partition, i.e. ten seconds: a query commits a batch when it plans the next but one."""
_UNKNOWN: Final = 1 << 30

Say = Callable[[str], None]


@dataclass
class Played:
    """What is left of one half of the demo, to be counted."""

    static: bool
    topic: str
    group: str
    state: Path
    workers: list[Worker] = field(default_factory=list)
    began_ms: int = 0
    restarted_ms: int = 0
    ended_ms: int = 0

    @property
    def kind(self) -> str:
        return "static" if self.static else "dynamic"


class Half:
    """As a context, it leaves nothing running."""

    def __init__(self, bootstrap: str, directory: Path, static: bool, say: Say) -> None:
        kind = "static" if static else "dynamic"
        self._bootstrap = bootstrap
        self._directory = directory / kind
        self._directory.mkdir(parents=True)
        self._say = say
        self._admin = Admin({"bootstrap.servers": bootstrap})
        self._session_ms = SEAT_SESSION_MS if static else SESSION_MS
        self._played = Played(static, f"orders-{kind}", f"billing-{kind}", self._directory / "state")
        self._queries = [self._worker("query", f"query-{number}") for number in (1, 2)]
        self._consumer = self._worker("consumer", "consumer-1")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self._played.workers:
            worker.kill()
        self._admin.close()

    def prepare(self) -> None:
        """Their processes begin, of which the Sparks take a while, and join when the half is played."""
        for worker in (*self._queries, self._consumer):
            worker.prepare()

    def play(self, meanwhile: Callable[[], None] = lambda: None) -> Played:
        """`meanwhile` is called when nothing is timed any more."""
        played = self._played
        orders = Orders(self._bootstrap, played.topic)
        orders.history()
        with orders.flowing():
            self._say("two Spark queries and a plain consumer join")
            self._start()
            played.began_ms = now_ms()
            self._restart_each()
            self._await_rest()
            played.restarted_ms = now_ms()
            meanwhile()
            self._grow()
            self._await_rest()
            played.ended_ms = now_ms()
        wait_for(lambda: self._lag() == 0, "the last records to be processed")
        self._stop()
        return played

    def _restart_each(self) -> None:
        first, second = self._queries
        self._say("the first query is restarted")
        first.restart(first.stop)
        missed = "" if self._played.static else "; the group waits for the dead one until its session ends"
        self._say(f"the second query is killed, with -9, and started again{missed}")
        second.restart(second.kill)
        self._say("the consumer is restarted")
        self._consumer.restart(self._consumer.stop)

    def _grow(self) -> None:
        names = [f"consumer-{number}" for number in range(2, 2 + NEWCOMERS)]
        announced = " are announced, and" if self._played.static else ", which nobody announced,"
        self._say(f"{NEWCOMERS} more consumers{announced} start one after the other")
        if self._played.static:
            for result in self._admin.add_members(self._played.group, names):
                if result.error is not None:
                    raise DemoFailed(str(result.error))
        for name in names:
            self._worker("consumer", name).start()
            self._await_arrival(name)

    def _await_arrival(self, name: str) -> None:
        """As a deployment does it that starts one after the other: of an announced one, until the group has it waiting;
        of another one, until it has its share."""
        if self._played.static:
            wait_for(lambda: self._has_arrived(name), f"{name} to arrive")
        else:
            wait_for(lambda: self._shared_out() is not None, f"a share for {name}")

    def _worker(self, module: str, name: str) -> Worker:
        options = {
            "bootstrap": self._bootstrap,
            "topic": self._played.topic,
            "group": self._played.group,
            "static": self._played.static,
            "session_ms": self._session_ms,
            "state": str(self._played.state),
        }
        worker = Worker(module, name, self._directory, options)
        self._played.workers.append(worker)
        return worker

    def _start(self) -> None:
        """They join together, so that none has to wait for the first batches of another."""
        self.prepare()
        for query in self._queries:
            wait_for(query.is_ready, f"the Spark of {query.name}")
        for query in self._queries:
            query.start()
        wait_for(lambda: self._have_joined(len(self._queries)), "the queries to join")
        self._consumer.start()
        for worker in self._played.workers:
            wait_for(worker.has_worked, f"records that {worker.name} processes")
        self._await_rest()
        self._await_loaded(now_ms())

    def _await_loaded(self, rest_ms: int) -> None:
        """A query loads the state of its partitions with its first batch since `rest_ms` at the latest, or with the
        second, as the first may have been planned before."""
        for query in self._queries:
            wait_for(partial(_has_worked_twice, query, rest_ms), f"{query.name} to have the state of its share")

    def _stop(self) -> None:
        for worker in self._played.workers:
            worker.tell_to_end()
        for worker in self._played.workers:
            worker.stop()

    def _await_rest(self) -> None:
        """Everybody has a share, nobody else is there, and none is behind."""
        seen, since = None, 0.0

        def is_at_rest() -> bool:
            nonlocal seen, since
            if (now := self._shared_out()) != seen:
                seen, since = now, time.monotonic()
            return seen is not None and time.monotonic() - since >= REST_S

        wait_for(is_at_rest, "the group to come to rest")
        wait_for(lambda: self._lag() <= _LAG_AT_REST, "everybody to catch up")

    def _described(self) -> GroupDescription | None:
        try:
            return self._admin.describe_group(self._played.group)
        except HoldfastError:  # there is no group before its first member
            return None

    def _have_joined(self, count: int) -> bool:
        group = self._described()
        return group is not None and len(group.members) == count

    def _has_arrived(self, name: str) -> bool:
        """One that was announced: it waits for the others, or all are there."""
        group = self._described()
        if group is None or group.extensions is None:
            return False
        return all(one.arrived for one in group.extensions.expected if one.instance_id == name)

    def _shared_out(self) -> int | None:
        """The generation, if everybody who was started has a share in it, and every partition somebody."""
        group = self._described()
        if group is None:
            return None
        shares = [len(member.partitions.get(self._played.topic, ())) for member in group.members]
        is_shared = len(shares) == len(self._played.workers) and all(shares) and sum(shares) == PARTITIONS
        return group.extensions.generation if is_shared and group.state == "Stable" and group.extensions else None

    def _lag(self) -> int:
        """Of the partition that is furthest behind."""
        try:
            lags = self._admin.lag(self._played.group)
        except HoldfastError:  # a busy broker answers the next time
            return _UNKNOWN
        if len(lags) < PARTITIONS:
            return _UNKNOWN
        return max(_UNKNOWN if one.lag is None else one.lag for one in lags)


def _has_worked_twice(worker: Worker, since_ms: int) -> bool:
    return worker.told("processed", since_ms) > 1
