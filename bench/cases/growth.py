"""A topic gains partitions while a group reads it: a leader of ours adds them to the shares without a rebalance."""

from __future__ import annotations

import itertools
import time
from typing import Final

from confluent_kafka.admin import AdminClient, NewPartitions  # type: ignore[attr-defined]  # public, but not in __all__

from bench.extension_members import AIOKAFKA, CONFLUENT, HOLDFAST_CLIENT, JAVA, KAFKA_PYTHON, ROUND_ROBIN, Settings
from bench.extensions import generations, leader_of, ledger
from bench.fleet import PATIENCE_S, Fleet
from bench.librdkafka import new_topic
from bench.measure import HOLDFAST, Plan, Result, Row, alternating, spread
from bench.member_events import MemberEvent, are_shared, revocations
from bench.members import remove_all
from bench.servers import Broker
from bench.tables import Target, Verdict, figure, paragraph, table
from holdfast.coordinator.ledger import EventKind
from tests.support.holdfast_broker import HoldfastBroker

NAME: Final = "growth"
TARGET: Final = Target("at most", 0, " rebalances")
QUIET: Final = (HOLDFAST_CLIENT, JAVA, KAFKA_PYTHON, AIOKAFKA)
"""Followers that leave a topic that grew to their leader."""
REPORTED: Final = (CONFLUENT,)
"""librdkafka's members all rejoin by themselves."""
FAMILIES: Final = (*QUIET, *REPORTED)
LEADER: Final = "leader"
ADDED: Final = 100
PARTITIONS: Final = 40
HEARTBEAT_MS: Final = 1_000
SESSION_MS: Final = 45_000
METADATA_MAX_AGE_MS: Final = 2_000
_ROUNDS: Final = 3
_numbers: Final = itertools.count(1)


def run(plan: Plan) -> Result:
    members = plan.pick(full=20, quick=4)
    rounds = min(plan.rounds, plan.pick(full=_ROUNDS, quick=1))
    rows: list[Row] = []
    with HoldfastBroker() as broker:
        for number in range(1, rounds + 1):
            for family in FAMILIES:
                for leader in (
                    alternating((HOLDFAST_CLIENT, family), number) if family != HOLDFAST_CLIENT else (family,)
                ):
                    rows.append(Row(series(family, leader), HOLDFAST, number, _round(broker, family, leader, members)))
    return Result(NAME, {"members": members}, rows)


def series(family: str, leader: str) -> str:
    return f"{family}, led by {leader}"


def _round(broker: Broker, family: str, leader: str, members: int) -> dict[str, float]:
    group = f"growth-{next(_numbers)}"
    followers = [f"follower-{number:02}" for number in range(1, members)]
    everybody, partitions = [LEADER, *followers], PARTITIONS + ADDED
    with new_topic(broker, PARTITIONS) as topic:
        common = (broker.bootstrap, group, topic, HEARTBEAT_MS, SESSION_MS, METADATA_MAX_AGE_MS, ROUND_ROBIN)
        with Fleet(Settings(leader, *common), [LEADER]) as first, Fleet(Settings(family, *common), followers) as others:

            def events() -> list[MemberEvent]:
                return first.events + others.events

            first.start(LEADER)
            first.await_shared([LEADER], PARTITIONS)
            others.start(*followers)
            others.until(lambda: are_shared(events(), everybody, PARTITIONS), "all have a share")
            time.sleep(2 * HEARTBEAT_MS / 1000)
            if leader_of(broker, group) != LEADER:
                raise RuntimeError("the group is led by another member than the one that came first")
            told, began = len(ledger(broker, group)), time.monotonic()
            _grow(broker, topic, partitions)
            others.until(lambda: are_shared(events(), everybody, partitions), "all partitions are shared")
            shared_at = max(event.at for event in events() if event.event == "assigned")
            time.sleep(METADATA_MAX_AGE_MS / 1000 + 2 * HEARTBEAT_MS / 1000)  # who rejoins by itself has done so
            happened = ledger(broker, group)[told:]
            called = {event["instance_id"] for event in happened if event["kind"] == EventKind.CALLED}
            uncalled = [name for name in followers if name not in called]
            heard = revocations(events(), uncalled, began)
        remove_all(broker, group)
    return {
        "rebalances": generations(happened),
        "calls": len(called),
        "revocations": sum(heard.values()),
        "shared_s": shared_at - began,
    }


def _grow(broker: Broker, topic: str, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    admin.create_partitions([NewPartitions(topic, partitions)])[topic].result(PATIENCE_S)


def section(result: Result) -> list[str]:
    text = (
        f"A group of {result.settings['members']} static members, of which one leads, reads a topic of"
        f" {PARTITIONS} partitions that gains {ADDED}. Members look at their topics every"
        f" {METADATA_MAX_AGE_MS // 1000} s and send heartbeats every {HEARTBEAT_MS} ms. All have the round-robin"
        " assignor, which gives partitions that are new to somebody and takes none from anybody; with range,"
        " which moves them, such a growth is a rebalance under every leader. Where Holdfast's client leads, it"
        " adds the new partitions to the shares, and only those who get some are called; where another client"
        " leads, as the control, it rejoins, and that is a rebalance for all. Rebalances"
        " are generations in the ledger; revocations are those of members that were not called. librdkafka's"
        " members rejoin by themselves when a topic grows: an eager one with what it had, which is a pause of its"
        " own and no rebalance, a cooperative one as with another subscription, which is one."
    )
    shown = (
        ("rebalances", "rebalances"),
        ("members called", "calls"),
        ("revocations at members not called", "revocations"),
        ("until all partitions are shared, s", "shared_s"),
    )
    rows = [
        (
            f"{family}: {what}",
            figure(result.values(series(family, HOLDFAST_CLIENT), HOLDFAST, value)),
            figure(result.values(series(family, family), HOLDFAST, value)) if family != HOLDFAST_CLIENT else "",
        )
        for family in FAMILIES
        for what, value in shown
    ]
    return [paragraph(text), "", *table(("followers", "led by Holdfast's client", "led by one of their own"), rows)]


def verdicts(result: Result) -> list[Verdict]:
    measured = ((family, result.values(series(family, HOLDFAST_CLIENT), HOLDFAST, "rebalances")) for family in QUIET)
    return [
        Verdict(f"{ADDED} partitions added, {family} led by ours: rebalances", TARGET, spread([max(values)]))
        for family, values in measured
        if values
    ]
