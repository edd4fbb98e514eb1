"""Random runs beside Apache Kafka, and the finder itself: what it finds, how small it makes it, what it lets pass."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import count
from typing import Any

import pytest

from holdfast.coordinator.classic import heartbeat as heartbeat_module
from holdfast.coordinator.classic import leave_group, rebalance
from holdfast.coordinator.classic.group import Group
from holdfast.coordinator.classic.member import Member
from holdfast.wire.apis.heartbeat import HeartbeatRequest, HeartbeatResponse
from holdfast.wire.apis.leave_group import MemberIdentity
from holdfast.wire.apis.sync_group import SyncGroupRequestAssignment
from holdfast.wire.error_codes import ErrorCode
from tests.conformance import member as conformance_member
from tests.conformance.faulty_broker import broker_in_this_process
from tests.conformance.generating import generated
from tests.conformance.known_differences import CHANCE, by_chance, of_empty_id, of_text
from tests.conformance.paired_run import Result
from tests.conformance.random_runs import RandomRuns, beside_kafka
from tests.conformance.recorder import Recorder
from tests.conformance.server import Server
from tests.conformance.servers import SETTINGS, prepared
from tests.conformance.shrinking import shrunk
from tests.conformance.side import Pace, Received
from tests.conformance.steps import Role, Run, Step, Verb
from tests.conformance.versions import ROWS
from tests.support.holdfast_broker import HoldfastBroker
from tests.support.kafka_distribution import KafkaDistribution

TIME_LIMIT_S = 60
FIRST_SEED = 20_000
IMPATIENT, PATIENT = Pace(patience_s=0.3), Pace(quiet_s=0.08, in_burst_s=0.03, patience_s=0.7)
"""For two servers of the same speed."""
FEW = 6
"""Steps: what a person reads at a glance."""


# -- beside Apache Kafka -----------------------------------------------------------------------------------------------


@pytest.mark.real
@pytest.mark.timeout(600)
def test_random_runs_are_answered_as_by_apache_kafka(apache_kafka_distribution: KafkaDistribution) -> None:
    with beside_kafka() as both:
        tally = both.run_all(map(generated, count(FIRST_SEED)), TIME_LIMIT_S)

        found = [both.scenario_of(both.shrink(result)) for result in tally.unlisted[:1]]

    print(tally)
    assert not tally.unlisted, "\n".join([str(tally), *tally.unlisted[0].difference, *found])
    assert tally.equal > tally.by_chance, f"hardly a run was run to its end: {tally}"


# -- the finder --------------------------------------------------------------------------------------------------------


def never(down_s: float, settings: Mapping[str, str]) -> None:
    raise AssertionError("no random run restarts a server")


@pytest.fixture(scope="module")
def two_holdfasts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RandomRuns]:
    """The first is sound; the second is in this process, for a test to spoil."""
    settings = SETTINGS | {"group.initial.rebalance.delay.ms": "150"}
    with (
        HoldfastBroker(settings) as sound,
        broker_in_this_process(settings, tmp_path_factory.mktemp("spoilt")) as address,
    ):
        yield RandomRuns(prepared(sound.address, never), prepared(address, never), IMPATIENT, PATIENT)


def first_difference(both: RandomRuns, seeds: range) -> Result | None:
    results = (both.run(run) for run in map(generated, seeds) if not run.hasty)
    return next((result for result in results if result.difference), None)


def transcript(server: Server, text: str, group: str) -> list[str]:
    """Of a scenario that is given as text."""
    names: dict[str, Any] = {"scenario": lambda **_: lambda script: script}
    words = {"MemberIdentity": MemberIdentity, "SyncGroupRequestAssignment": SyncGroupRequestAssignment}
    exec(
        text,
        names | words | {"Member": conformance_member.Member, "Recorder": Recorder, "ROWS": ROWS, "NEWEST": 9},
        names,
    )
    (script,) = [value for name, value in names.items() if name.startswith("found_by_seed")]
    with Recorder(server, ROWS[9], group) as recorder:
        script(recorder)
    return [line.replace(group, "GROUP") for line in recorder.transcript.lines]


def test_sound_servers_are_alike(two_holdfasts: RandomRuns) -> None:
    """The control of the two tests that follow."""
    assert first_difference(two_holdfasts, range(5, 9)) is None


def identified_by_id_alone(_ctx: object, group: Group, member_id: str, *_: object) -> Member | ErrorCode:
    return group.members.get(member_id) or ErrorCode.UNKNOWN_MEMBER_ID


def test_missing_fence_is_found_and_shrunk(two_holdfasts: RandomRuns, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeat_module, "validate_member", identified_by_id_alone)
    monkeypatch.setattr(leave_group, "validate_member", identified_by_id_alone)

    found = first_difference(two_holdfasts, range(6, 30))

    assert found is not None
    small = two_holdfasts.shrink(found)
    assert len(small.steps) <= FEW, small
    assert small.steps[-1].verb in (Verb.BEAT, Verb.LEAVE), "the only two that the bug is in"


@pytest.mark.real  # half a minute of silences that are waited for
def test_silence_is_found_shrunk_and_printed_as_a_scenario(
    two_holdfasts: RandomRuns, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Any member that waits for the assignment is not informed that there will be none."""
    monkeypatch.setattr(rebalance, "fail_pending_syncs", lambda *_: None)

    found = first_difference(two_holdfasts, range(5, 30))

    assert found is not None
    small = two_holdfasts.shrink(found)
    assert len(small.steps) <= FEW, small
    text = two_holdfasts.scenario_of(small)
    servers = (two_holdfasts.kafka, two_holdfasts.holdfast)
    sound, spoilt = (transcript(server, text, "with the bug") for server in servers)
    assert sound != spoilt
    monkeypatch.undo()
    sound, repaired = (transcript(server, text, "without it") for server in servers)
    assert sound == repaired


# -- its parts ---------------------------------------------------------------------------------------------------------


def test_seed_always_gives_the_same_run() -> None:
    assert [generated(seed) for seed in range(20)] == [generated(seed) for seed in range(20)]
    assert len({generated(seed).steps for seed in range(20)}) == 20


def test_every_verb_and_every_row_of_versions_comes_up() -> None:
    runs = [generated(seed) for seed in range(200)]

    assert {step.verb for run in runs for step in run.steps} == set(Verb)
    assert {role.row for run in runs for role in run.roles} == set(range(10))
    assert any(len({role.row for role in run.roles}) > 1 for run in runs)
    assert {run.hasty for run in runs} == {True, False}


ROLES = (Role("A", 3, offer="both"), Role("B", 9, "i"), Role("C", 9))
LONG_RUN = Run(
    1,
    ROLES,
    tuple(Step(verb, role.name, (("generation", 1),), at_once=True) for role in ROLES for verb in Verb),
    hasty=True,
)


def test_shrinking_leaves_what_is_needed_and_nothing_else() -> None:
    def differs(run: Run) -> bool:
        sent = [(step.verb, step.who) for step in run.steps]
        return (Verb.JOIN, "B") in sent and ("generation", 1) in [
            pair for step in run.steps if step.verb is Verb.SYNC for pair in step.said
        ]

    small = shrunk(LONG_RUN, differs)

    assert [step.verb for step in small.steps] == [Verb.JOIN, Verb.SYNC] or [step.verb for step in small.steps] == [
        Verb.SYNC,
        Verb.JOIN,
    ]
    assert [step.said for step in small.steps if step.verb is Verb.JOIN] == [()]
    assert [step.said for step in small.steps if step.verb is Verb.SYNC] == [(("generation", 1),)]
    assert not small.hasty
    assert not any(step.at_once for step in small.steps)
    assert {role.row for role in small.roles} == {9}
    assert {role.name for role in small.roles} == {step.who for step in small.steps}


def test_shrinking_keeps_a_run_of_which_all_is_needed() -> None:
    needed = replace(LONG_RUN, steps=LONG_RUN.steps[:2])

    assert shrunk(needed, lambda run: run == needed) == needed


def test_another_leader_is_chance_only_if_the_old_one_is_gone() -> None:
    kafka = [
        "A receives JoinGroup: {error_code=0, leader=A.1, members=[{member_id=A.1}]}",
        "B receives: {error_code=0, leader=A.1, x}",
    ]
    holdfast = [
        "A receives JoinGroup: {error_code=0, leader=B.1, members=[]}",
        "B receives: {error_code=0, leader=B.1, x}",
    ]

    assert by_chance("C.1", {"A.1", "B.1"}, kafka, holdfast) is CHANCE
    assert by_chance("A.1", {"A.1", "B.1"}, kafka, holdfast) is None, "the old leader is there"
    assert by_chance("C.1", {"A.1", "B.1"}, kafka, [holdfast[0], "B receives: {error_code=0, leader=B.1, y}"]) is None


def test_forgotten_member_is_the_only_excuse_for_another_assignment() -> None:
    assert of_text("assignment=x}", "assignment=x000000000000ffffffff}") is not None
    assert of_text("assignment=x01}", "assignment=x000000000000ffffffff}") is None
    assert of_text("assignment=x000000000000ffffffff}", "assignment=x}") is None


def heartbeat(member_id: str, instance_id: str | None, code: int) -> Received:
    nobody: Any = None
    return Received(nobody, HeartbeatRequest("g", 1, member_id, instance_id), HeartbeatResponse(error_code=code))


def test_only_a_sender_without_a_member_id_may_be_unknown_instead_of_fenced() -> None:
    assert of_empty_id(heartbeat("", "A", 82), heartbeat("", "A", 25)) is not None
    assert of_empty_id(heartbeat("other", "A", 82), heartbeat("other", "A", 25)) is None
    assert of_empty_id(heartbeat("", "A", 82), heartbeat("", "A", 27)) is None
    assert of_empty_id(heartbeat("", "A", 25), heartbeat("", "A", 82)) is None
