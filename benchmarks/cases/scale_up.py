"""A group doubles while it works: if the new members are registered, one rebalance adds all of them."""

from __future__ import annotations

import itertools
import time
from typing import Final

from benchmarks.extension_members import AIOKAFKA, CONFLUENT, KAFKA_PYTHON, Settings
from benchmarks.extensions import generations, ledger, register
from benchmarks.fleet import PER_PROCESS, Fleet
from benchmarks.librdkafka import new_topic
from benchmarks.measure import HOLDFAST, KAFKA, Plan, Result, Row, alternating, spread
from benchmarks.member_events import revocations
from benchmarks.members import remove_all
from benchmarks.servers import Broker, both
from benchmarks.tables import Target, Verdict, figure, paragraph, table

NAME: Final = "scale-up"
REGISTERED: Final = "holdfast, registered"
TARGET: Final = Target("at most", 1, " rebalance")
FAMILIES: Final = (CONFLUENT, KAFKA_PYTHON, AIOKAFKA)
HEARTBEAT_MS: Final = 1_000
SESSION_MS: Final = 45_000
_numbers: Final = itertools.count(1)


def run(plan: Plan) -> Result:
    sizes = [plan.pick(full=4, quick=2), plan.pick(full=50, quick=5)]
    seconds = plan.pick(full=6, quick=3)
    heartbeat_ms = plan.pick(full=HEARTBEAT_MS, quick=300)
    rounds = plan.pick(full=plan.rounds, quick=1)
    rows: list[Row] = []
    with both() as brokers:
        how = {REGISTERED: brokers[HOLDFAST], HOLDFAST: brokers[HOLDFAST], KAFKA: brokers[KAFKA]}
        for number in range(1, rounds + 1):
            for size in sizes:
                for family in FAMILIES:
                    for name in alternating(how, number):
                        with plan.attempt(series(family, size), name, number):
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
            events_before = len(ledger(broker, group)) if name != KAFKA else 0
            if name == REGISTERED:
                register(broker, group, new)
            began = time.monotonic()
            fleet.start_over(seconds, new)
            last_started = time.monotonic()
            fleet.await_settled([*old, *new], partitions)
            heard = revocations(fleet.events, old, began)
            shared_at = max(event.at for event in fleet.events if event.event == "assigned")
        events = ledger(broker, group)[events_before:] if name != KAFKA else []
        remove_all(broker, group)
    most = max(heard.values())
    return {
        # Kafka has no ledger, so its rebalances are those of the member with the most revocations.
        "rebalances": max(most, generations(events)),
        "revocations": sum(heard.values()),
        "unassigned_s": sum(event.get("unassigned_ms", 0) for event in events) / 1000,
        "shared_s": shared_at - last_started,
    }


_SHOWN: Final = (
    ("rebalances", "rebalances"),
    ("revocations at the existing members", "revocations"),
    ("time from the last start until all members have an assignment, s", "shared_s"),
)


def section(result: Result) -> list[str]:
    settings = result.settings
    text = (
        "A running group of static members doubles in size. The new members start one after the other within"
        f" {settings['seconds']} s. In the first column of figures, the new members are registered in advance"
        " (AddMembersToGroup). All other conditions are the same in all columns. The members are unmodified clients"
        f" with their range assignor. They have a heartbeat interval of {settings['heartbeat_ms']} ms and a session"
        f" timeout of {settings['session_ms'] // 1000} s. At the end, each member has two partitions. Each process runs"
        f" {PER_PROCESS} members, each in its own thread, because a hundred processes are too many for this machine."
        " The number of rebalances is the number of new generations in Holdfast's ledger. If an existing member has"
        " more revocations than there are new generations, the number of its revocations counts instead. Apache Kafka"
        " has no ledger, so only the revocations count there. Without registration, the number of rebalances depends on"
        " how many members join during a rebalance."
    )
    rows = [
        (
            f"{series(family, size)}: {what}",
            *(figure(result.values(series(family, size), name, value)) for name in (REGISTERED, HOLDFAST, KAFKA)),
        )
        for size in settings["sizes"]
        for family in FAMILIES
        for what, value in _SHOWN
    ]
    return [paragraph(text), "", *table(("", "Holdfast, registered", "Holdfast", "Apache Kafka"), rows)]


def verdicts(result: Result) -> list[Verdict]:
    measured = (
        (series(family, size), result.values(series(family, size), REGISTERED, "rebalances"))
        for size in result.settings["sizes"]
        for family in FAMILIES
    )
    # The maximum of all rounds, not the median, because the target is exactly one.
    return [
        Verdict(f"registered scale-up, {what}: rebalances", TARGET, spread([max(values)]))
        for what, values in measured
        if values
    ]
