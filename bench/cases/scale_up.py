"""A group doubles while it works: with its new members announced, one rebalance takes all of them in."""

from __future__ import annotations

import itertools
import time
from typing import Final

from bench.extension_members import AIOKAFKA, CONFLUENT, KAFKA_PYTHON, Settings
from bench.extensions import announce, generations, ledger
from bench.fleet import PER_PROCESS, Fleet
from bench.librdkafka import new_topic
from bench.measure import HOLDFAST, KAFKA, Plan, Result, Row, alternating, spread
from bench.member_events import revocations
from bench.members import remove_all
from bench.servers import Broker, both
from bench.tables import Target, Verdict, figure, paragraph, table

NAME: Final = "scale-up"
ANNOUNCED: Final = "holdfast, announced"
TARGET: Final = Target("at most", 1, " rebalances")
FAMILIES: Final = (CONFLUENT, KAFKA_PYTHON, AIOKAFKA)
HEARTBEAT_MS: Final = 3_000
SESSION_MS: Final = 45_000
_ROUNDS: Final = 3
_numbers: Final = itertools.count(1)


def run(plan: Plan) -> Result:
    sizes = [plan.pick(full=4, quick=2), plan.pick(full=50, quick=5)]
    seconds = plan.pick(full=20, quick=3)
    heartbeat_ms = plan.pick(full=HEARTBEAT_MS, quick=300)
    # Counts, not times: three rounds show whether they are always the same.
    rounds = min(plan.rounds, plan.pick(full=_ROUNDS, quick=1))
    rows: list[Row] = []
    with both() as brokers:
        how = {ANNOUNCED: brokers[HOLDFAST], HOLDFAST: brokers[HOLDFAST], KAFKA: brokers[KAFKA]}
        for number in range(1, rounds + 1):
            for size in sizes:
                for family in FAMILIES:
                    for name in alternating(how, number):
                        figures = _round(how[name], family, size, seconds, heartbeat_ms, name)
                        rows.append(Row(series(family, size), name, number, figures))
    settings = {"sizes": sizes, "seconds": seconds, "heartbeat_ms": heartbeat_ms, "session_ms": SESSION_MS}
    return Result(NAME, settings, rows)


def series(family: str, size: int) -> str:
    return f"{family}, {size} → {2 * size}"


def _round(broker: Broker, family: str, size: int, seconds: float, heartbeat_ms: int, name: str) -> dict[str, float]:
    group, partitions = f"scale-up-{next(_numbers)}", 4 * size
    old = [f"old-{number:03}" for number in range(size)]
    new = [f"new-{number:03}" for number in range(size)]
    with new_topic(broker, partitions) as topic:
        settings = Settings(family, broker.bootstrap, group, topic, heartbeat_ms, SESSION_MS)
        with Fleet(settings, [*old, *new]) as fleet:
            fleet.start(*old)
            fleet.await_settled(old, partitions)
            told = len(ledger(broker, group)) if name != KAFKA else 0
            if name == ANNOUNCED:
                announce(broker, group, new)
            began = time.monotonic()
            fleet.start_over(seconds, new)
            last_started = time.monotonic()
            fleet.await_settled([*old, *new], partitions)
            heard = revocations(fleet.events, old, began)
            shared_at = max(event.at for event in fleet.events if event.event == "assigned")
        events = ledger(broker, group)[told:] if name != KAFKA else []
        remove_all(broker, group)
    most = max(heard.values())
    return {
        # Kafka keeps no ledger: there a rebalance is what the member with the most revocations heard of.
        "rebalances": max(most, generations(events)),
        "revocations": sum(heard.values()),
        "stood_still_s": sum(event.get("stood_still_ms", 0) for event in events) / 1000,
        "shared_s": shared_at - last_started,
    }


_SHOWN: Final = (
    ("rebalances", "rebalances"),
    ("revocations at the members that were there", "revocations"),
    ("from the last start until all have a share, s", "shared_s"),
)


def section(result: Result) -> list[str]:
    settings = result.settings
    text = (
        "A group of static members that work is doubled: the new ones are started one after the other over"
        f" {settings['seconds']} s, in the first column after they were announced (AddMembersToGroup). Nothing"
        " else is different; the members are unmodified clients with their range assignor, heartbeats every"
        f" {settings['heartbeat_ms']} ms, sessions of {settings['session_ms'] // 1000} s and two partitions for"
        f" each in the end; {PER_PROCESS} of them share a process, each with a thread of its own, because a"
        " hundred processes are too many for this machine. A rebalance is a generation in Holdfast's ledger, or a"
        " revocation at the member that had the most of them, whichever is more; in Apache Kafka, which keeps no"
        " ledger, the latter. Without an announcement how many it takes depends on how many members arrive while"
        " one is under way."
    )
    rows = [
        (
            f"{series(family, size)}: {what}",
            *(figure(result.values(series(family, size), name, value)) for name in (ANNOUNCED, HOLDFAST, KAFKA)),
        )
        for size in settings["sizes"]
        for family in FAMILIES
        for what, value in _SHOWN
    ]
    return [paragraph(text), "", *table(("", "Holdfast, announced", "Holdfast", "Apache Kafka"), rows)]


def verdicts(result: Result) -> list[Verdict]:
    measured = (
        (series(family, size), result.values(series(family, size), ANNOUNCED, "rebalances"))
        for size in result.settings["sizes"]
        for family in FAMILIES
    )
    # The most of any round, not the median: "exactly one" is a promise.
    return [
        Verdict(f"announced scale-up, {what}: rebalances", TARGET, spread([max(values)]))
        for what, values in measured
        if values
    ]
