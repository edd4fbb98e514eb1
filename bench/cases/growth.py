"""A topic gains partitions while a group reads it: a leader of ours adds them to the shares without a rebalance."""

from __future__ import annotations

import itertools
import time
from typing import Any, Final

from confluent_kafka.admin import AdminClient, NewPartitions  # type: ignore[attr-defined]  # public, but not in __all__

from bench.extension_members import AIOKAFKA, CONFLUENT, HOLDFAST_CLIENT, JAVA, KAFKA_PYTHON, ROUND_ROBIN, Settings
from bench.extensions import generations, leader_of, ledger
from bench.fleet import PATIENCE_S, Fleet
from bench.librdkafka import new_topic
from bench.measure import HOLDFAST, KAFKA, Plan, Result, Row, alternating, spread
from bench.member_events import MemberEvent, are_shared, revocations
from bench.members import remove_all
from bench.servers import Broker, both
from bench.tables import Target, Verdict, figure, paragraph, table
from holdfast.coordinator.ledger import EventKind

NAME: Final = "growth"
TARGET: Final = Target("at most", 0, " rebalances")
QUIET: Final = (HOLDFAST_CLIENT, JAVA, KAFKA_PYTHON, AIOKAFKA)
"""Followers that leave a topic that grew to their leader."""
REPORTED: Final = (CONFLUENT,)
"""librdkafka's members all rejoin by themselves."""
FAMILIES: Final = (*QUIET, *REPORTED)
LEADER: Final = "leader"
MANY, FEW = 100, 10
"""Partitions that are added: some for every member of twenty, or for half of them only."""
PARTITIONS: Final = 40
HEARTBEAT_MS: Final = 1_000
SESSION_MS: Final = 45_000
METADATA_MAX_AGE_MS: Final = 2_000
OURS: Final = "led by Holdfast's client"
OWN: Final = "led by one of their own"
ON_KAFKA: Final = "on Apache Kafka, led by Holdfast's client"
_ROUNDS: Final = 3
_numbers: Final = itertools.count(1)


def run(plan: Plan) -> Result:
    members = plan.pick(full=20, quick=4)
    few = plan.pick(full=FEW, quick=2)
    rounds = min(plan.rounds, plan.pick(full=_ROUNDS, quick=1))
    rows: list[Row] = []
    with both() as brokers:
        for number in range(1, rounds + 1):
            for family in FAMILIES:
                for added, ways in ((MANY, ways_of(family)), (few, (OURS,))):
                    for how in alternating(ways, number):
                        figures = _round(brokers[KAFKA if how == ON_KAFKA else HOLDFAST], family, how, members, added)
                        rows.append(Row(series(family, added), how, number, figures))
    return Result(NAME, {"members": members, "few": few}, rows)


def ways_of(family: str) -> tuple[str, ...]:
    """With the controls: for Holdfast's own followers there is no other leader of their own."""
    return (OURS, ON_KAFKA) if family == HOLDFAST_CLIENT else (OURS, OWN, ON_KAFKA)


def series(family: str, added: int) -> str:
    return f"{family}, {added} partitions"


def _round(broker: Broker, family: str, how: str, members: int, added: int) -> dict[str, float]:
    group = f"growth-{next(_numbers)}"
    followers = [f"follower-{number:02}" for number in range(1, members)]
    everybody, partitions = [LEADER, *followers], PARTITIONS + added
    with new_topic(broker, PARTITIONS) as topic:
        common = (broker.bootstrap, group, topic, HEARTBEAT_MS, SESSION_MS, METADATA_MAX_AGE_MS, ROUND_ROBIN)
        leading = Settings(family if how == OWN else HOLDFAST_CLIENT, *common)
        with Fleet(leading, [LEADER]) as first, Fleet(Settings(family, *common), followers) as others:

            def events() -> list[MemberEvent]:
                return first.events + others.events

            first.start(LEADER)
            first.await_shared([LEADER], PARTITIONS)
            others.start(*followers)
            others.until(lambda: are_shared(events(), everybody, PARTITIONS), "all have a share")
            time.sleep(2 * HEARTBEAT_MS / 1000)
            if how != ON_KAFKA and leader_of(broker, group) != LEADER:
                raise RuntimeError("the group is led by another member than the one that came first")
            told, began = len(_told(broker, group, how)), time.monotonic()
            _grow(broker, topic, partitions)
            others.until(lambda: are_shared(events(), everybody, partitions), "all partitions are shared")
            shared_at = max(event.at for event in events() if event.event == "assigned")
            time.sleep(METADATA_MAX_AGE_MS / 1000 + 2 * HEARTBEAT_MS / 1000)  # who rejoins by itself has done so
            happened = _told(broker, group, how)[told:]
            called = {event["instance_id"] for event in happened if event["kind"] == EventKind.CALLED}
            uncalled = [name for name in followers if name not in called]
            heard = revocations(events(), uncalled, began)
        remove_all(broker, group)
    return {
        # Kafka keeps no ledger: there a rebalance is what the member with the most revocations heard of.
        "rebalances": max(generations(happened), *heard.values(), 0),
        "calls": len(called),
        "uncalled": len(uncalled),
        "revocations": sum(heard.values()),
        "shared_s": shared_at - began,
    }


def _told(broker: Broker, group: str, how: str) -> list[dict[str, Any]]:
    return [] if how == ON_KAFKA else ledger(broker, group)


def _grow(broker: Broker, topic: str, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    admin.create_partitions([NewPartitions(topic, partitions)])[topic].result(PATIENCE_S)


def section(result: Result) -> list[str]:
    few = result.settings["few"]
    text = (
        f"A group of {result.settings['members']} static members, of which one leads, reads a topic of"
        f" {PARTITIONS} partitions that gains {MANY}, or {few}: too few for all to get one. Members look at their"
        f" topics every {METADATA_MAX_AGE_MS // 1000} s and send heartbeats every {HEARTBEAT_MS} ms. All have the"
        " round-robin assignor, which gives partitions that are new to somebody and takes none from anybody; with"
        " range, which moves them, such a growth is a rebalance under every leader. Where Holdfast's client leads, it"
        " adds the new partitions to the shares, and only those who get some are called. The controls: another client"
        " leads, and rejoins, which is a rebalance for all; and Holdfast's client leads on Apache Kafka, where it"
        " can do no more than that. It collects changes of topics for five seconds before it acts, and so takes longer"
        " until all are shared. A rebalance is a generation in the ledger, or a revocation at the follower that had"
        " the most of them and was not called, whichever is more; on Apache Kafka, which keeps no ledger, the latter."
        " librdkafka's members rejoin by themselves when a topic grows: an eager one with what it had, which is a"
        " pause of its own, counted here as a revocation; a cooperative one as with another subscription, which is a"
        " rebalance for all."
    )
    shown = (
        ("rebalances", "rebalances"),
        ("followers called", "calls"),
        ("followers not called", "uncalled"),
        ("revocations at those not called", "revocations"),
        ("until all partitions are shared, s", "shared_s"),
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
    return [paragraph(text), "", *table(("followers, and what is added", OURS, OWN, ON_KAFKA), rows)]


def _cell(result: Result, of: str, how: str, value: str) -> str:
    values = result.values(of, how, value)
    return figure(values) if values else ""


def verdicts(result: Result) -> list[Verdict]:
    measured = (
        (family, added, result.values(series(family, added), OURS, "rebalances"))
        for family in QUIET
        for added in (MANY, result.settings["few"])
    )
    return [
        Verdict(f"{added} partitions added, {family} led by ours: rebalances", TARGET, spread([max(values)]))
        for family, added, values in measured
        if values
    ]
