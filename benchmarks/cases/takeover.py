"""Loss of a member: a standby takes over without a rebalance. The control is a group without standbys."""

from __future__ import annotations

import itertools
import time
from typing import Final

from benchmarks.extension_members import AIOKAFKA, CONFLUENT, KAFKA_PYTHON, Settings
from benchmarks.extensions import configure, extensions_of, generations, leader_of, ledger
from benchmarks.fleet import PATIENCE_S, Fleet
from benchmarks.librdkafka import new_topic
from benchmarks.measure import HOLDFAST, KAFKA, Plan, Result, Row, alternating, spread
from benchmarks.member_events import consumed_again, revocations
from benchmarks.members import remove_all
from benchmarks.servers import Broker, both
from benchmarks.steady import records
from benchmarks.steady_producer import TICK_SECONDS, TICKS_AROUND
from benchmarks.tables import Target, Verdict, figure, paragraph, table

NAME: Final = "takeover"
STANDBY: Final = "holdfast, standby"
FOLLOWER: Final = "a follower is killed"
LEADER: Final = "the leader is killed"
STOPPED: Final = "a follower is stopped"
FAILURES: Final = (FOLLOWER, LEADER, STOPPED)
FAMILIES: Final = (CONFLUENT, KAFKA_PYTHON, AIOKAFKA)
ACTIVE: Final = ("a", "b", "c")
SPARE: Final = "spare"
PARTITIONS: Final = 6
HEARTBEAT_MS: Final = 500
TAKEOVER_MS: Final = 2_000
SESSION_MS: Final = 10_000
TIME_TARGET: Final = Target("at most", 4, " s")
REBALANCE_TARGET: Final = Target("at most", 0, " rebalances")
REVOCATION_TARGET: Final = Target("at most", 0, " revocations")
PATIENCE_TARGET: Final = Target("at least", SESSION_MS / 1000, " s")
_numbers: Final = itertools.count(1)


def run(plan: Plan) -> Result:
    families = FAMILIES[: plan.pick(full=len(FAMILIES), quick=1)]
    rounds = plan.pick(full=plan.rounds, quick=1)
    rows: list[Row] = []
    with both() as brokers:
        how = {STANDBY: brokers[HOLDFAST], HOLDFAST: brokers[HOLDFAST], KAFKA: brokers[KAFKA]}
        for number in range(1, rounds + 1):
            for family in families:
                for name in alternating(how, number):
                    with plan.attempt(family, name, number):
                        lost = _round(how[name], family, with_standby=name == STANDBY, with_ledger=name != KAFKA)
                        rows += [Row(series(family, loss), name, number, figures) for loss, figures in lost.items()]
    return Result(NAME, {"families": list(families)}, rows)


def series(family: str, loss: str) -> str:
    return f"{family}: {loss}"


def _round(broker: Broker, family: str, *, with_standby: bool, with_ledger: bool) -> dict[str, dict[str, float]]:
    group = f"takeover-{next(_numbers)}"
    names = [*ACTIVE, SPARE] if with_standby else list(ACTIVE)
    found: dict[str, dict[str, float]] = {}
    with new_topic(broker, PARTITIONS) as topic, records(broker.bootstrap, topic, PARTITIONS, PATIENCE_S):
        settings = Settings(family, broker.bootstrap, group, topic, HEARTBEAT_MS, SESSION_MS)
        with Fleet(settings, names, per_process=1) as fleet:
            if with_standby:
                configure(broker, group, target_group_size=len(ACTIVE), standby_takeover_ms=TAKEOVER_MS)
            fleet.start(*ACTIVE)
            fleet.await_settled(ACTIVE, PARTITIONS)
            for loss in FAILURES if with_standby else FAILURES[:1]:
                if with_standby:
                    _await_standby(fleet, broker, group)
                events_before = len(ledger(broker, group)) if with_ledger else 0
                figures = _lose(fleet, _victim(fleet, broker, group, loss, with_standby=with_standby), loss)
                # Kafka has no ledger, so its rebalances are those of the member with the most revocations.
                formed = generations(ledger(broker, group)[events_before:]) if with_ledger else 0
                found[loss] = {**figures, "rebalances": max(formed, figures["most_revocations"])}
        remove_all(broker, group)
    return found


def _await_standby(fleet: Fleet, broker: Broker, group: str) -> None:
    """There is a standby: the spare member, or one that was killed before and has returned."""
    started = {event.member for event in fleet.events}
    if SPARE not in started:
        fleet.start(SPARE)
    fleet.until(lambda: len(extensions_of(broker, group).standbys) == 1, "a standby waits")
    time.sleep(2 * HEARTBEAT_MS / 1000)  # it knows that, and the group is stable


def _victim(fleet: Fleet, broker: Broker, group: str, loss: str, *, with_standby: bool) -> str:
    if not with_standby:
        return ACTIVE[-1]
    leader = leader_of(broker, group)
    return leader if loss == LEADER else next(name for name in fleet.names if name != leader and fleet.assignment(name))


def _lose(fleet: Fleet, victim: str, loss: str) -> dict[str, float]:
    """Removes one member. Measures how long its partitions are idle, and the effects on the others."""
    lost = fleet.assignment(victim)
    others = [name for name in fleet.names if name != victim and fleet.assignment(name)]
    at = fleet.suspend(victim) if loss == STOPPED else fleet.kill(victim)

    def again() -> float | None:
        return consumed_again(fleet.events, lost, at, besides=victim)

    fleet.until(lambda: again() is not None, "the partitions of the lost member are consumed again")
    seconds = (again() or at) - at
    time.sleep(2 * HEARTBEAT_MS / 1000)  # all members have had time to notice
    heard = revocations(fleet.events, others, at)
    if loss == STOPPED:
        fleet.resume(victim)
    else:
        fleet.forget(victim)
        fleet.revive(victim)
    return {"idle_s": seconds, "revocations": sum(heard.values()), "most_revocations": max(heard.values())}


def section(result: Result) -> list[str]:
    every_ms = round(TICK_SECONDS * TICKS_AROUND * 1000)
    text = (
        f"Three members, each in its own process, consume {PARTITIONS} partitions. Each partition gets a record every"
        f" {every_ms} ms. A fourth member is a standby (`target.group.size` = 3, `standby.takeover.ms` ="
        f" {TAKEOVER_MS}). All members have a heartbeat interval of {HEARTBEAT_MS} ms and a session timeout of"
        f" {SESSION_MS // 1000} s. The benchmark kills one member (`kill -9`), or stops it while its connections stay"
        " open (SIGSTOP). The coordinator must not replace a stopped member before its session expires. The idle time"
        " is the time from the loss of the member until other members have received a record from each of its"
        " partitions. The number of rebalances is the number of new generations in Holdfast's ledger. If another member"
        " has more revocations than there are new generations, the number of its revocations counts instead. Apache"
        " Kafka has no ledger, so only the revocations count there. The revocations are counted at all other members"
        " that have partitions. In the control, the same group has no standby, and the coordinator detects the loss"
        " only when the session expires. The control includes only the case “a follower is killed”. Apache Kafka has no"
        " standbys."
    )
    shown = (("idle time, s", "idle_s"), ("rebalances", "rebalances"), ("revocations at other members", "revocations"))
    rows = [
        (
            f"{series(family, loss)}, {what}",
            *(figure(result.values(series(family, loss), name, value)) for name in (STANDBY, HOLDFAST, KAFKA)),
        )
        for family in result.settings["families"]
        for loss in FAILURES
        for what, value in shown
    ]
    return [
        paragraph(text),
        "",
        *table(("", "Holdfast, with a standby", "Holdfast, without a standby", "Apache Kafka"), rows),
    ]


def verdicts(result: Result) -> list[Verdict]:
    found: list[Verdict] = []
    for family in result.settings["families"]:
        for loss in FAILURES:
            name = series(family, loss)
            if not result.has(name, STANDBY):
                continue
            idle = result.values(name, STANDBY, "idle_s")
            if loss == STOPPED:
                found.append(Verdict(f"{name}, time until it is replaced", PATIENCE_TARGET, spread([min(idle)])))
                continue
            found.append(Verdict(f"{name}, idle time with a standby", TIME_TARGET, spread(idle)))
            rebalances = result.values(name, STANDBY, "rebalances")
            found.append(Verdict(f"{name}, rebalances", REBALANCE_TARGET, spread([max(rebalances)])))
            elsewhere = result.values(name, STANDBY, "revocations")
            found.append(Verdict(f"{name}, revocations at other members", REVOCATION_TARGET, spread([max(elsewhere)])))
    return found
