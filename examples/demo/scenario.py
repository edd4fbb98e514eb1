"""The scenario of the demo: the members of a group, two Spark queries and a plain consumer, are restarted one by one,
and then more members join.

It runs twice: with static members (`group.instance.id`) and registered new members, and without as the control.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final, Self

from examples.demo.processes import TIMEOUT_S, DemoFailed, Worker, now_ms, wait_for
from examples.demo.producer import EACH_TICK, PARTITIONS, TICK_S, Orders
from holdfast import Admin, HoldfastError
from holdfast.client.descriptions import GroupDescription

STATIC_SESSION_MS: Final = round(2_100 * TIMEOUT_S)
"""Longer than the demo waits for a member to stop and restart, so that the session never expires in a restart."""
SESSION_MS: Final = 20_000
"""For dynamic members. The session of one that was killed expires after this time, and the group waits for it."""
NEWCOMERS: Final = 3
SETTLED_S: Final = 2.5
"""A settled group has had the same generation for this long: longer than members take to learn of a rebalance."""
_MAX_SETTLED_LAG: Final = round(10 * EACH_TICK / TICK_S)
"""Records of a partition, i.e. ten seconds: a query commits a batch two batches later."""
_UNKNOWN: Final = 1 << 30

Log = Callable[[str], None]


@dataclass
class Outcome:
    """The result of one run, from which the figures are computed."""

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


class Scenario:
    """A context manager that leaves no process running."""

    def __init__(self, bootstrap: str, directory: Path, static: bool, say: Log) -> None:
        kind = "static" if static else "dynamic"
        self._bootstrap = bootstrap
        self._directory = directory / kind
        self._directory.mkdir(parents=True)
        self._log = say
        self._admin = Admin({"bootstrap.servers": bootstrap})
        self._session_ms = STATIC_SESSION_MS if static else SESSION_MS
        self._outcome = Outcome(static, f"orders-{kind}", f"billing-{kind}", self._directory / "state")
        self._queries = [self._worker("query", f"query-{number}") for number in (1, 2)]
        self._consumer = self._worker("consumer", "consumer-1")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self._outcome.workers:
            worker.kill()
        self._admin.close()

    def prepare(self) -> None:
        """Starts the processes, of which Spark takes a while; they join when the scenario runs."""
        for worker in (*self._queries, self._consumer):
            worker.prepare()

    def run(self, meanwhile: Callable[[], None] = lambda: None) -> Outcome:
        """`meanwhile` is called when no more time is measured."""
        played = self._outcome
        orders = Orders(self._bootstrap, played.topic)
        orders.history()
        with orders.flowing():
            self._log("two Spark queries and a plain consumer join")
            self._start()
            played.began_ms = now_ms()
            self._restart_each()
            self._await_settled()
            played.restarted_ms = now_ms()
            meanwhile()
            self._scale_up()
            self._await_settled()
            played.ended_ms = now_ms()
        wait_for(lambda: self._lag() == 0, "the last records to be processed")
        self._stop()
        return played

    def _restart_each(self) -> None:
        first, second = self._queries
        self._log("the first query is restarted")
        first.restart(first.stop)
        missed = "" if self._outcome.static else "; the group waits for it until its session expires"
        self._log(f"the second query is killed, with -9, and started again{missed}")
        second.restart(second.kill)
        self._log("the consumer is restarted")
        self._consumer.restart(self._consumer.stop)

    def _scale_up(self) -> None:
        names = [f"consumer-{number}" for number in range(2, 2 + NEWCOMERS)]
        how = " are registered, and" if self._outcome.static else ", without registration,"
        self._log(f"{NEWCOMERS} more consumers{how} start one after the other")
        if self._outcome.static:
            for result in self._admin.add_members(self._outcome.group, names):
                if result.error is not None:
                    raise DemoFailed(str(result.error))
        for name in names:
            self._worker("consumer", name).start()
            self._await_arrival(name)

    def _await_arrival(self, name: str) -> None:
        """As in a rolling deployment: waits until a registered member has arrived in the group, or until another one
        has its assignment."""
        if self._outcome.static:
            wait_for(lambda: self._has_arrived(name), f"{name} to arrive")
        else:
            wait_for(lambda: self._settled_generation() is not None, f"an assignment for {name}")

    def _worker(self, module: str, name: str) -> Worker:
        options = {
            "bootstrap": self._bootstrap,
            "topic": self._outcome.topic,
            "group": self._outcome.group,
            "static": self._outcome.static,
            "session_ms": self._session_ms,
            "state": str(self._outcome.state),
        }
        worker = Worker(module, name, self._directory, options)
        self._outcome.workers.append(worker)
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
        for worker in self._outcome.workers:
            wait_for(worker.has_worked, f"{worker.name} to process records")
        self._await_settled()
        self._await_loaded(now_ms())

    def _await_loaded(self, rest_ms: int) -> None:
        """A query loads the state of its partitions with its first batch after `rest_ms`, or with the second, because
        the first may have been planned before."""
        for query in self._queries:
            wait_for(partial(_has_worked_twice, query, rest_ms), f"{query.name} to load the state of its partitions")

    def _stop(self) -> None:
        for worker in self._outcome.workers:
            worker.terminate()
        for worker in self._outcome.workers:
            worker.await_exit()

    def _await_settled(self) -> None:
        """Every member has an assignment, there are no others, and none is behind."""
        seen, since = None, 0.0

        def is_at_rest() -> bool:
            nonlocal seen, since
            if (now := self._settled_generation()) != seen:
                seen, since = now, time.monotonic()
            return seen is not None and time.monotonic() - since >= SETTLED_S

        wait_for(is_at_rest, "the group to settle")
        wait_for(lambda: self._lag() <= _MAX_SETTLED_LAG, "all members to catch up")

    def _described(self) -> GroupDescription | None:
        try:
            return self._admin.describe_group(self._outcome.group)
        except HoldfastError:  # the group does not exist before its first member
            return None

    def _have_joined(self, count: int) -> bool:
        group = self._described()
        return group is not None and len(group.members) == count

    def _has_arrived(self, name: str) -> bool:
        """A registered member: it waits for the others, or all have arrived."""
        group = self._described()
        if group is None or group.extensions is None:
            return False
        return all(one.arrived for one in group.extensions.expected if one.instance_id == name)

    def _settled_generation(self) -> int | None:
        """The generation, if every member that was started has partitions, and every partition has an owner."""
        group = self._described()
        if group is None:
            return None
        counts = [len(member.partitions.get(self._outcome.topic, ())) for member in group.members]
        is_settled = len(counts) == len(self._outcome.workers) and all(counts) and sum(counts) == PARTITIONS
        return group.extensions.generation if is_settled and group.state == "Stable" and group.extensions else None

    def _lag(self) -> int:
        """The largest lag of a partition."""
        try:
            lags = self._admin.lag(self._outcome.group)
        except HoldfastError:  # a busy broker: try again
            return _UNKNOWN
        if len(lags) < PARTITIONS:
            return _UNKNOWN
        return max(_UNKNOWN if one.lag is None else one.lag for one in lags)


def _has_worked_twice(worker: Worker, since_ms: int) -> bool:
    return worker.count_events("processed", since_ms) > 1
