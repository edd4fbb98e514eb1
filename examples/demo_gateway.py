"""The demo of `make demo-gateway`: `python -m examples.demo_gateway [--out build/demo-gateway]`.

A cluster of three Apache Kafka brokers, a gateway in front of it, a topic under steady load, and plain Kafka consumers.
Three more consumers join a group, without and with registration. Then the gateway is killed and started again while the
consumers read. It takes two minutes, and longer on a busy machine.
"""

from __future__ import annotations

import argparse
import itertools
import json
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, Self

from confluent_kafka import KafkaException

from examples.demo.processes import DemoFailed, Worker, now_ms, read_event_log, wait_for
from examples.demo.producer import PARTITIONS, Orders
from holdfast import Admin, HoldfastError
from holdfast.client.descriptions import GroupDescription, PartitionLag
from holdfast.coordinator.events.group_event import EventKind

# Also used by the tests and benchmarks: processes that are started and stopped as a user would.
from tests.support.apache_kafka import ApacheKafkaFailed
from tests.support.gateway_process import GatewayProcess
from tests.support.holdfast_broker import HoldfastFailed
from tests.support.kafka_cluster import KafkaCluster
from tests.support.kafka_distribution import KafkaUnavailable

TOPIC: Final = "orders"
GROUPS: Final = {False: "billing-unregistered", True: "billing"}
"""The names of the groups, by whether their new members are registered."""
FIRST: Final = ("consumer-1", "consumer-2")
NEWCOMERS: Final = ("consumer-3", "consumer-4", "consumer-5")
SESSION_MS: Final = 45_000
"""Kafka's default. A member whose session is longer than a restart of the gateway keeps its partitions."""
SETTLED_S: Final = 2.5
"""A settled group has had the same generation for this long: longer than members take to learn of a rebalance."""
_COMMAND_TIMEOUT_S: Final = 120
_MAX_SETTLED_LAG: Final = 500
"""Records of a partition, i.e. ten seconds."""
_UNKNOWN: Final = 1 << 30

Log = Callable[[str], None]
Event = Mapping[str, Any]
"""A line of the event log of a consumer."""


@dataclass(frozen=True)
class Figures:
    """The report."""

    rebalances_without_registration: int
    """By the three new members."""
    rebalances_with_registration: int
    gateway_away_ms: int
    """From `kill -9` until the gateway listens again."""
    longest_pause_ms: int
    """The longest time in which a consumer processed nothing, around the restart."""
    rebalances_by_restart: int
    partitions_moved_by_restart: int
    records: int
    records_lost: int
    records_duplicated: int
    """By the group with registration."""


def unexpected(figures: Figures) -> list[str]:
    """Unexpected figures. Without registration, there must be the rebalances that registration avoids."""
    expected = {
        "rebalances_without_registration": figures.rebalances_without_registration > 1,
        "rebalances_with_registration": figures.rebalances_with_registration == 1,
        "rebalances_by_restart": figures.rebalances_by_restart == 0,
        "partitions_moved_by_restart": figures.partitions_moved_by_restart == 0,
        "records_lost": figures.records_lost == 0,
        "records_duplicated": figures.records_duplicated == 0,
    }
    return [f"{name} is {getattr(figures, name)}" for name, holds in expected.items() if not holds]


# -- a group of consumers ----------------------------------------------------------------------------------------------


class Group:
    """Static consumers that read the topic through the gateway. A context manager that leaves no process running."""

    def __init__(self, bootstrap: str, name: str, directory: Path) -> None:
        directory.mkdir(parents=True)
        self.name = name
        self.workers: list[Worker] = []
        self._directory = directory
        self._options = {
            "bootstrap": bootstrap,
            "topic": TOPIC,
            "group": name,
            "static": True,
            "session_ms": SESSION_MS,
        }
        self._admin = Admin({"bootstrap.servers": bootstrap})

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self.workers:
            worker.kill()
        self._admin.close()

    def start(self, name: str) -> None:
        worker = Worker("consumer", name, self._directory, self._options)
        self.workers.append(worker)
        worker.start()

    def stop(self) -> None:
        for worker in self.workers:
            worker.terminate()
        for worker in self.workers:
            worker.await_exit()

    def await_settled(self) -> None:
        """Every consumer has partitions, every partition has an owner, and no consumer is behind."""
        seen, since = None, 0.0

        def is_settled() -> bool:
            nonlocal seen, since
            if (now := self.generation()) != seen:
                seen, since = now, time.monotonic()
            return seen is not None and time.monotonic() - since >= SETTLED_S

        wait_for(is_settled, f"group {self.name} to settle")
        wait_for(lambda: self.lag() <= _MAX_SETTLED_LAG, f"all members of {self.name} to catch up")

    def generation(self) -> int | None:
        """None unless all consumers that were started share all partitions."""
        group = self._described()
        if group is None or group.state != "Stable" or group.extensions is None:
            return None
        counts = [len(member.partitions.get(TOPIC, ())) for member in group.members]
        is_complete = len(counts) == len(self.workers) and all(counts) and sum(counts) == PARTITIONS
        return group.extensions.generation if is_complete else None

    def owners(self) -> dict[int, str]:
        group = self._described()
        return {
            partition: member.member_id
            for member in (group.members if group is not None else ())
            for partition in member.partitions.get(TOPIC, ())
        }

    def has_arrived(self, name: str) -> bool:
        """Of a registered consumer: it waits for the others, or all have arrived."""
        group = self._described()
        if group is None or group.extensions is None:
            return False
        return all(one.arrived for one in group.extensions.expected if one.instance_id == name)

    def rebalances_since(self, since_ms: int) -> int:
        """By the ledger."""
        events = self._admin.history([self.name], since_ms=since_ms)
        return sum(one.kind == EventKind.REBALANCE_STARTED and one.at_ms >= since_ms for one in events)

    def lag(self) -> int:
        """The largest lag of a partition."""
        lags = self._lags()
        if len(lags) < PARTITIONS:
            return _UNKNOWN
        return max(_UNKNOWN if one.lag is None else one.lag for one in lags)

    def ends(self) -> dict[int, int]:
        """The number of records in each partition."""
        return {one.partition: one.end or 0 for one in self._lags()}

    def events(self) -> dict[str, list[Event]]:
        """What each consumer has processed, and when."""
        return {
            worker.name: [one for one in read_event_log(worker.event_log) if "ranges" in one] for worker in self.workers
        }

    def _lags(self) -> Sequence[PartitionLag]:
        try:
            return self._admin.lag(self.name)
        except HoldfastError:  # as below
            return ()

    def _described(self) -> GroupDescription | None:
        try:
            return self._admin.describe_group(self.name)
        except HoldfastError:  # the group does not exist before its first member, and the gateway may be down
            return None


# -- figures -----------------------------------------------------------------------------------------------------------


def longest_pause_ms(events: Mapping[str, Sequence[Event]], from_ms: int, to_ms: int) -> int:
    """The longest time between two events of a consumer that includes a part of the window."""
    pauses = [
        later["at_ms"] - earlier["at_ms"]
        for of_one in events.values()
        for earlier, later in itertools.pairwise(of_one)
        if earlier["at_ms"] < to_ms and later["at_ms"] > from_ms
    ]
    return max(pauses, default=0)


def count_records(events: Mapping[str, Sequence[Event]], ends: Mapping[int, int]) -> tuple[int, int]:
    """The records that no consumer has processed, and those that were processed more than once."""
    ranges = sorted(tuple(one) for of_one in events.values() for event in of_one for one in event["ranges"])
    lost = duplicated = 0
    for partition, end in ends.items():
        covered = 0
        for _, first, after in (one for one in ranges if one[0] == partition):
            lost += max(0, first - covered)
            duplicated += max(0, min(covered, after) - first)
            covered = max(covered, after)
        lost += max(0, end - covered)
    return lost, duplicated


# -- the story ---------------------------------------------------------------------------------------------------------


def play(kafka: KafkaCluster, work: Path, say: Log) -> Figures:
    """Runs all steps on a cluster that has no gateway."""
    orders = Orders(kafka.bootstrap, TOPIC)  # before the gateway starts, which then knows the topic
    with GatewayProcess(kafka, options=("--log-level", "warning")) as gateway:
        say(f"a gateway on {gateway.bootstrap} was ready after {gateway.started_in_seconds:.1f} s")
        try:
            _run(["gateway", "doctor", "--bootstrap-server", gateway.bootstrap, "--kafka", kafka.bootstrap])
            return _play_with(gateway, orders, work, say)
        finally:
            (work / "gateway.log").write_text(gateway.log_text())


def _play_with(gateway: GatewayProcess, orders: Orders, work: Path, say: Log) -> Figures:
    with Group(gateway.bootstrap, GROUPS[True], work / "registered") as group:
        with orders.flowing():
            print("\nthe control: a scale-up without registration")
            with Group(gateway.bootstrap, GROUPS[False], work / "unregistered") as control:
                control_rebalances = _scale_up(control, gateway.bootstrap, False, say)
                control.stop()
            print("\na scale-up with registration")
            rebalances = _scale_up(group, gateway.bootstrap, True, say)
            print("\nthe gateway is killed while the consumers read")
            restart = _restart(gateway, group, say)
        wait_for(lambda: group.lag() == 0, "the last records to be processed")
        group.stop()
        return _figures(group, control_rebalances, rebalances, restart)


def _scale_up(group: Group, bootstrap: str, registered: bool, say: Log) -> int:
    """The number of rebalances by which the new consumers have joined."""
    say(f"{len(FIRST)} consumers of group {group.name} share {PARTITIONS} partitions")
    for name in FIRST:
        group.start(name)
    group.await_settled()
    began_ms = now_ms()
    if registered:
        names = ",".join(NEWCOMERS)
        _run(["groups", "add-members", "--group", group.name, "--instance-ids", names, "--bootstrap-server", bootstrap])
    say(f"{len(NEWCOMERS)} more consumers start one after the other")
    for name in NEWCOMERS:
        group.start(name)
        if registered:
            wait_for(partial(group.has_arrived, name), f"{name} to arrive")
        else:
            wait_for(lambda: group.generation() is not None, f"an assignment for {name}")
    group.await_settled()
    count = group.rebalances_since(began_ms)
    say(f"the ledger has {count} {'rebalance' if count == 1 else 'rebalances'} for {len(NEWCOMERS)} new members")
    return count


@dataclass(frozen=True)
class Restart:
    began_ms: int
    ended_ms: int
    away_ms: int
    rebalances: int
    moved: int


def _restart(gateway: GatewayProcess, group: Group, say: Log) -> Restart:
    owners, began_ms = group.owners(), now_ms()
    say(f"kill -9 of the gateway; its {len(group.workers)} consumers go on running")
    gateway.kill()
    gateway.start()
    away_ms = now_ms() - began_ms
    say(f"the gateway was started at once, and listens again after {away_ms / 1000:.1f} s")
    for worker in group.workers:
        has_gone_on = partial(worker.count_events, "processed", began_ms + away_ms)
        wait_for(has_gone_on, f"{worker.name} to process records again")
    group.await_settled()
    after = group.owners()
    moved = sum(after.get(partition) != owner for partition, owner in owners.items())
    restart = Restart(began_ms, now_ms(), away_ms, group.rebalances_since(began_ms), moved)
    say(f"the ledger has {restart.rebalances} rebalances since, and {moved} partitions have another owner")
    return restart


def _figures(group: Group, control_rebalances: int, rebalances: int, restart: Restart) -> Figures:
    events, ends = group.events(), group.ends()
    lost, duplicated = count_records(events, ends)
    return Figures(
        rebalances_without_registration=control_rebalances,
        rebalances_with_registration=rebalances,
        gateway_away_ms=restart.away_ms,
        longest_pause_ms=longest_pause_ms(events, restart.began_ms, restart.ended_ms),
        rebalances_by_restart=restart.rebalances,
        partitions_moved_by_restart=restart.moved,
        records=sum(ends.values()),
        records_lost=lost,
        records_duplicated=duplicated,
    )


def _run(arguments: Sequence[str]) -> None:
    """Runs a command of the CLI, and prints it with its output as in a terminal."""
    print(f"\n$ {shlex.join(['holdfast', *arguments])}")
    done = subprocess.run(
        [sys.executable, "-m", "holdfast", *arguments],
        capture_output=True,
        text=True,
        timeout=_COMMAND_TIMEOUT_S,
        check=False,
    )
    print(done.stdout, flush=True)
    if done.returncode != 0:
        raise DemoFailed(done.stderr.strip() or f"the command ended with exit code {done.returncode}")


# -- the program -------------------------------------------------------------------------------------------------------


def main() -> int:
    parser = argparse.ArgumentParser(prog="make demo-gateway", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("build/demo-gateway"), help="directory for the report")
    out: Path = parser.parse_args().out
    signal.signal(signal.SIGTERM, _interrupt)
    began = time.monotonic()
    work = Path(tempfile.mkdtemp(prefix="holdfast-demo-gateway-"))
    try:
        figures = _play_on_own_cluster(work, began)
    except (DemoFailed, HoldfastError, HoldfastFailed, ApacheKafkaFailed, KafkaException, KafkaUnavailable) as failure:
        print(f"\nthe demo failed: {failure}\nthe output of its processes is in {work}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        shutil.rmtree(work, ignore_errors=True)
        return 130
    wrong = unexpected(figures)
    write_report(out, figures, time.monotonic() - began, wrong)
    print()
    print_table(figures)
    print(f"\n{time.monotonic() - began:.0f} s. All figures: {out / 'report.json'}")
    for one in wrong:
        print(f"not as expected: {one}", file=sys.stderr)
    if not wrong:
        shutil.rmtree(work, ignore_errors=True)
    return 1 if wrong else 0


def _play_on_own_cluster(work: Path, began: float) -> Figures:
    def say(what: str) -> None:
        print(f"{time.monotonic() - began:5.0f} s  {what}", flush=True)

    say("an Apache Kafka cluster of three brokers starts")
    with KafkaCluster() as kafka:
        say(f"Kafka is ready at {kafka.bootstrap}")
        return play(kafka, work, say)


def print_table(figures: Figures) -> None:
    rows = (
        ("rebalances for 3 new members, without registration", f"{figures.rebalances_without_registration}"),
        ("rebalances for 3 new members, with registration", f"{figures.rebalances_with_registration}"),
        ("kill -9 of the gateway: away for", f"{figures.gateway_away_ms / 1000:.1f} s"),
        ("  longest pause of a consumer", f"{figures.longest_pause_ms / 1000:.1f} s"),
        ("  rebalances", f"{figures.rebalances_by_restart}"),
        ("  partitions with another owner", f"{figures.partitions_moved_by_restart}"),
        ("records read", f"{figures.records:,}"),
        ("  lost", f"{figures.records_lost}"),
        ("  processed twice", f"{figures.records_duplicated}"),
    )
    widest = max(len(what) for what, _ in rows)
    for what, value in rows:
        print(f"{what:<{widest}} {value:>10}")
    print("The state of the groups is in Kafka, in the topic __holdfast_groups, with three replicas.")


def write_report(out: Path, figures: Figures, seconds: float, wrong: Sequence[str]) -> None:
    out.mkdir(parents=True, exist_ok=True)
    report = {"seconds": round(seconds, 1), "as_expected": not wrong, "complaints": list(wrong), **asdict(figures)}
    (out / "report.json").write_text(json.dumps(report, indent=2) + "\n")


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
