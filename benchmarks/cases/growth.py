"""A topic gains partitions while a group reads it: Holdfast's client as leader assigns them without a rebalance."""

from __future__ import annotations

import itertools
import time
from typing import Any, Final

from confluent_kafka.admin import AdminClient, NewPartitions  # type: ignore[attr-defined]  # public, but not in __all__

from benchmarks.extension_members import AIOKAFKA, CONFLUENT, HOLDFAST_CLIENT, JAVA, KAFKA_PYTHON, ROUND_ROBIN, Settings
from benchmarks.extensions import generations, leader_of, ledger
from benchmarks.fleet import PATIENCE_S, Fleet
from benchmarks.librdkafka import new_topic
from benchmarks.measure import HOLDFAST, KAFKA, Plan, Result, Row, alternating, spread
from benchmarks.member_events import MemberEvent, are_assigned, revocations
from benchmarks.members import remove_all
from benchmarks.servers import Broker, both
from benchmarks.tables import Target, Verdict, figure, paragraph, table
from holdfast.coordinator.events.group_event import EventKind

NAME: Final = "growth"
TARGET: Final = Target("at most", 0, " rebalances")
RESYNC: Final = (HOLDFAST_CLIENT, JAVA, KAFKA_PYTHON, AIOKAFKA)
"""Followers that leave it to their leader to handle the growth of a topic."""
REPORTED: Final = (CONFLUENT,)
"""All members of librdkafka rejoin by themselves."""
FAMILIES: Final = (*RESYNC, *REPORTED)
LEADER: Final = "leader"
MANY, FEW = 100, 10
"""The number of added partitions: some for every one of twenty members, or for only half of them."""
PARTITIONS: Final = 40
HEARTBEAT_MS: Final = 1_000
SESSION_MS: Final = 45_000
METADATA_MAX_AGE_MS: Final = 2_000
OURS: Final = "led by Holdfast's client"
OWN: Final = "led by one of their own"
ON_KAFKA: Final = "on Apache Kafka, led by Holdfast's client"
_numbers: Final = itertools.count(1)


def run(plan: Plan) -> Result:
    members = plan.pick(full=20, quick=4)
    few = plan.pick(full=FEW, quick=2)
    rounds = plan.pick(full=plan.rounds, quick=1)
    rows: list[Row] = []
    with both() as brokers:
        for number in range(1, rounds + 1):
            for family in FAMILIES:
                for added, ways in ((MANY, ways_of(family)), (few, (OURS,))):
                    for how in alternating(ways, number):
                        with plan.attempt(series(family, added), how, number):
                            figures = _round(
                                brokers[KAFKA if how == ON_KAFKA else HOLDFAST], family, how, members, added
                            )
                            rows.append(Row(series(family, added), how, number, figures))
    return Result(NAME, {"members": members, "few": few}, rows)


def ways_of(family: str) -> tuple[str, ...]:
    """Includes the controls. Holdfast's own followers have no control, because only Holdfast's client can lead them."""
    return (OURS, ON_KAFKA) if family == HOLDFAST_CLIENT else (OURS, OWN, ON_KAFKA)


def series(family: str, added: int) -> str:
    return f"{family}, {added} partitions"


def _round(broker: Broker, family: str, how: str, members: int, added: int) -> dict[str, float]:
    group = f"growth-{next(_numbers)}"
    followers = [f"follower-{number:02}" for number in range(1, members)]
    everyone, partitions = [LEADER, *followers], PARTITIONS + added
    with new_topic(broker, PARTITIONS) as topic:
        common = (broker.bootstrap, group, topic, HEARTBEAT_MS, SESSION_MS, METADATA_MAX_AGE_MS, ROUND_ROBIN)
        leading = Settings(family if how == OWN else HOLDFAST_CLIENT, *common)
        with Fleet(leading, [LEADER]) as first, Fleet(Settings(family, *common), followers) as others:

            def events() -> list[MemberEvent]:
                return first.events + others.events

            first.start(LEADER)
            first.await_assigned([LEADER], PARTITIONS)
            others.start(*followers)
            others.until(lambda: are_assigned(events(), everyone, PARTITIONS), "all have an assignment")
            time.sleep(2 * HEARTBEAT_MS / 1000)
            if how != ON_KAFKA and leader_of(broker, group) != LEADER:
                raise RuntimeError("the group is led by another member than the one that came first")
            events_before, began = len(_reported(broker, group, how)), time.monotonic()
            _grow(broker, topic, partitions)
            others.until(lambda: are_assigned(events(), everyone, partitions), "all partitions are assigned")
            shared_at = max(event.at for event in events() if event.event == "assigned")
            time.sleep(METADATA_MAX_AGE_MS / 1000 + 2 * HEARTBEAT_MS / 1000)  # lets members rejoin by themselves
            happened = _reported(broker, group, how)[events_before:]
            asked = {event["instance_id"] for event in happened if event["kind"] == EventKind.REJOIN_REQUESTED}
            not_asked = [name for name in followers if name not in asked]
            heard = revocations(events(), not_asked, began)
        remove_all(broker, group)
    return {
        # Kafka has no ledger, so its rebalances are those of the member with the most revocations.
        "rebalances": max(generations(happened), *heard.values(), 0),
        "calls": len(asked),
        "uncalled": len(not_asked),
        "revocations": sum(heard.values()),
        "shared_s": shared_at - began,
    }


def _reported(broker: Broker, group: str, how: str) -> list[dict[str, Any]]:
    return [] if how == ON_KAFKA else ledger(broker, group)


def _grow(broker: Broker, topic: str, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    admin.create_partitions([NewPartitions(topic, partitions)])[topic].result(PATIENCE_S)


def section(result: Result) -> list[str]:
    few = result.settings["few"]
    text = (
        f"A group of {result.settings['members']} static members reads a topic of {PARTITIONS} partitions. One of the"
        f" members is the leader. The topic grows by {MANY} partitions or by {few} partitions. If it grows by {few},"
        f" some members get no new partition. Members refresh their metadata every {METADATA_MAX_AGE_MS // 1000} s and"
        f" send heartbeats every {HEARTBEAT_MS} ms. All members use the round-robin assignor, which assigns the new"
        " partitions without revoking others. The range assignor moves partitions. With that assignor, the growth of a"
        " topic causes a rebalance under every leader. If Holdfast's client is the leader, it extends the assignments."
        " The coordinator then asks only the members that get new partitions to rejoin. In the first control, the"
        " leader uses the same client as the followers. This leader rejoins, and its JoinGroup causes a rebalance for"
        " all members. In the second control, the group is on Apache Kafka. There, Holdfast's client also has to rejoin"
        " as the leader. Holdfast's client collects topic changes for five seconds before it acts, so it takes longer"
        " until all partitions are assigned. The number of rebalances is the number of new generations in Holdfast's"
        " ledger. If a follower that was not asked to rejoin has more revocations than there are new generations, the"
        " number of its revocations counts instead. Apache Kafka has no ledger, so only the revocations count there."
        " Members that use librdkafka rejoin on their own when a topic grows. An eager member rejoins and gets its"
        " partitions back. Only this member pauses. The pause counts as a revocation here. A cooperative member rejoins"
        " as if its subscription had changed, and all members rebalance."
    )
    shown = (
        ("rebalances", "rebalances"),
        ("followers asked to rejoin", "calls"),
        ("followers not asked to rejoin", "uncalled"),
        ("revocations at followers not asked to rejoin", "revocations"),
        ("time until all partitions are assigned, s", "shared_s"),
    )
    rows = [
        (
            f"{series(family, added)}: {what}",
            *(_cell(result, series(family, added), how, value) for how in (OURS, OWN, ON_KAFKA)),
        )
        for family in FAMILIES
        for added in (MANY, few)
        for what, value in shown
    ]
    return [paragraph(text), "", *table(("client of the followers, and added partitions", OURS, OWN, ON_KAFKA), rows)]


def _cell(result: Result, of: str, how: str, value: str) -> str:
    values = result.values(of, how, value)
    return figure(values) if values else ""


def verdicts(result: Result) -> list[Verdict]:
    measured = (
        (family, added, result.values(series(family, added), OURS, "rebalances"))
        for family in RESYNC
        for added in (MANY, result.settings["few"])
    )
    return [
        Verdict(
            f"{added} partitions added, {family} followers, Holdfast's client leads: rebalances",
            TARGET,
            spread([max(values)]),
        )
        for family, added, values in measured
        if values
    ]
