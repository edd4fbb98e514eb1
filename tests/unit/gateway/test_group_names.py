from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from holdfast.gateway import group_names, name_claims
from holdfast.gateway.group_names import INSTANCE_ID, PROTOCOL_TYPE, GroupNames, HeldMember, NameInUse
from holdfast.gateway.kafka.errors import KafkaRefused, KafkaUnreachable
from holdfast.wire.apis.heartbeat import HeartbeatRequest
from holdfast.wire.apis.join_group import JoinGroupRequest
from holdfast.wire.apis.leave_group import LeaveGroupRequest
from holdfast.wire.apis.sync_group import SyncGroupRequest
from holdfast.wire.error_codes import ErrorCode
from tests.unit.gateway.fake_coordinator import EMPTY, PREPARING, STABLE, FakeCoordinator

LONG_S = 3600.0
Story = Callable[[FakeCoordinator, GroupNames], Coroutine[Any, Any, None]]


def run(story: Story, *, delay_s: float = 0.05) -> FakeCoordinator:
    async def whole() -> FakeCoordinator:
        kafka = FakeCoordinator(delay_s)
        names = GroupNames(kafka.kafka)
        try:
            await story(kafka, names)
        finally:
            await names.stop()
        return kafka

    return asyncio.run(asyncio.wait_for(whole(), 30))


async def until(look: Callable[[], Any]) -> None:
    while not look():  # noqa: ASYNC110  # there is no event to wait for
        await asyncio.sleep(0.005)


@pytest.fixture(autouse=True)
def without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(name_claims, "_PAUSE_S", 0.001)
    monkeypatch.setattr(name_claims, "_USUAL_DELAY_S", 0.01)
    monkeypatch.setattr(name_claims, "_LOOKS_S", (0.001, 0.005))
    monkeypatch.setattr(group_names, "_FIRST_RETRY_S", 0.01)


@pytest.fixture
def short_session(monkeypatch: pytest.MonkeyPatch) -> None:
    """Heartbeats every few milliseconds."""
    monkeypatch.setattr(name_claims, "SESSION_TIMEOUTS_MS", (60,))


# -- holding -----------------------------------------------------------------------------------------------------------


def test_a_name_is_held_before_kafka_answers_the_join() -> None:
    async def story(kafka: FakeCoordinator, names: GroupNames) -> None:
        assert not names.is_held("g")
        await names.hold("g")
        assert names.is_held("g")
        assert names.held() == ["g"]
        group = kafka.groups["g"]
        assert (group.state, group.protocol_type, list(group.members)) == (PREPARING, PROTOCOL_TYPE, [INSTANCE_ID])

    run(story, delay_s=LONG_S)


def test_the_join_is_completed_in_the_background() -> None:
    async def story(kafka: FakeCoordinator, names: GroupNames) -> None:
        await names.hold("g")
        assert await names.member("g") == HeldMember("member-1", 1)
        assert kafka.groups["g"].state == STABLE

    kafka = run(story)
    (request,) = kafka.kafka.requests(JoinGroupRequest)
    assert (request.session_timeout_ms, request.group_instance_id) == (1_800_000, INSTANCE_ID)
    assert len(kafka.kafka.requests(SyncGroupRequest)) == 1


def test_callers_share_a_claim_and_a_held_name_needs_none() -> None:
    async def story(kafka: FakeCoordinator, names: GroupNames) -> None:
        await asyncio.gather(*(names.hold("g") for _ in range(10)))
        await names.hold("g")
        assert len(kafka.kafka.requests(JoinGroupRequest)) == 1

    run(story, delay_s=LONG_S)


def test_a_cancelled_caller_does_not_cancel_the_claim() -> None:
    async def story(kafka: FakeCoordinator, names: GroupNames) -> None:
        waiting = asyncio.create_task(names.hold("g"))
        await asyncio.sleep(0)
        waiting.cancel()
        await until(lambda: names.is_held("g"))

    run(story)


def test_a_group_with_members_is_in_use_until_they_leave() -> None:
    async def story(kafka: FakeCoordinator, names: GroupNames) -> None:
        kafka.with_consumers("g", *(f"consumer-{number}" for number in range(7)))
        with pytest.raises(
            NameInUse, match=r"'g' is in use in Kafka itself.*consumer-0 at 10.0.0.1.* and 2 more"
        ) as raised:
            await names.hold("g")
        assert raised.value.group_id == "g"
        assert len(raised.value.members) == 7
        assert names.held() == []

        kafka.empty("g")
        await names.hold("g")
        assert names.is_held("g")

    run(story)


@pytest.mark.parametrize("group_type", ["consumer", "share", "streams"])
def test_a_group_of_a_newer_protocol_is_in_use(group_type: str) -> None:
    async def story(kafka: FakeCoordinator, names: GroupNames) -> None:
        kafka.with_consumers("g", "consumer-1", group_type=group_type)
        with pytest.raises(NameInUse, match="of another group protocol"):
            await names.hold("g")

    run(story)


def test_members_that_leave_during_the_claim_do_not_matter() -> None:
    async def story(kafka: FakeCoordinator, names: GroupNames) -> None:
        kafka.errors[JoinGroupRequest] = [ErrorCode.INCONSISTENT_GROUP_PROTOCOL]
        await names.hold("g")

    run(story)


def test_after_a_restart_the_member_is_replaced_at_once() -> None:
    async def story(kafka: FakeCoordinator, names: GroupNames) -> None:
        kafka.with_consumers("g", INSTANCE_ID).protocol_type = PROTOCOL_TYPE
        kafka.groups["g"].generation = 4
        await names.hold("g")
        assert await names.member("g") == HeldMember("member-1", 4)

    run(story, delay_s=LONG_S)


def test_shorter_sessions_are_used_if_kafka_allows_no_longer_ones(caplog: pytest.LogCaptureFixture) -> None:
    async def story(kafka: FakeCoordinator, names: GroupNames) -> None:
        kafka.longest_session_ms = 50_000
        await asyncio.gather(*(names.hold(f"g-{number}") for number in range(4)))
        kafka.kafka.asked.clear()
        await names.hold("another")
        assert [one.session_timeout_ms for one in kafka.kafka.requests(JoinGroupRequest)] == [45_000]

    run(story)
    assert "raise group.max.session.timeout.ms" in caplog.text


def test_a_refusal_is_raised_and_the_name_forgotten() -> None:
    async def story(kafka: FakeCoordinator, names: GroupNames) -> None:
        kafka.errors[JoinGroupRequest] = [ErrorCode.GROUP_AUTHORIZATION_FAILED]
        with pytest.raises(KafkaRefused, match="GROUP_AUTHORIZATION_FAILED") as raised:
            await names.hold("g")
        assert raised.value.code is ErrorCode.GROUP_AUTHORIZATION_FAILED
        assert not names._names

    run(story)


def test_the_coordinator_is_followed() -> None:
    async def story(kafka: FakeCoordinator, names: GroupNames) -> None:
        moved = [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR]
        kafka.errors = {JoinGroupRequest: list(moved), SyncGroupRequest: list(moved)}
        await names.member("g")

    run(story)


def test_a_coordinator_that_does_not_answer_is_looked_up_again() -> None:
    async def story(kafka: FakeCoordinator, names: GroupNames) -> None:
        kafka.kafka.former_coordinator = 2
        kafka.kafka.unreachable = {2}
        await names.hold("g")
        kafka.kafka.former_coordinator = 2
        await names.release("g")
        assert kafka.groups["g"].state == EMPTY

    run(story)


def test_an_unreachable_kafka_is_reported() -> None:
    async def story(kafka: FakeCoordinator, names: GroupNames) -> None:
        kafka.kafka.unreachable = {1}
        with pytest.raises(KafkaUnreachable):
            await names.hold("g")
        assert not names._names

    run(story)


def test_a_join_that_is_lost_is_repeated() -> None:
    async def story(kafka: FakeCoordinator, names: GroupNames) -> None:
        await names.hold("g")
        kafka.kafka.connections[0].close()
        await names.member("g")
        assert kafka.groups["g"].state == STABLE

    run(story)


def test_hundreds_of_names_need_few_connections() -> None:
    async def story(kafka: FakeCoordinator, names: GroupNames) -> None:
        groups = [f"g-{number}" for number in range(300)]
        await asyncio.gather(*map(names.hold, groups))
        assert {kafka.groups[group].state for group in groups} == {PREPARING}  # Kafka has answered none of them
        for group in groups:
            kafka._complete(kafka.groups[group])
        await asyncio.gather(*map(names.member, groups))
        assert {kafka.groups[group].state for group in groups} == {STABLE}

    assert run(story, delay_s=LONG_S).kafka.most_connections == 16


def test_after_a_restart_all_names_are_held_in_the_background() -> None:
    async def story(kafka: FakeCoordinator, names: GroupNames) -> None:
        kafka.with_consumers("used", "consumer-1")
        conflicts: list[str] = []
        names.on_conflict = lambda group_id, _text: conflicts.append(group_id)
        names.hold_all(["used", *(f"g-{number}" for number in range(40))])
        await until(lambda: len(names.held()) == 40)
        kafka.empty("used")
        await until(lambda: names.is_held("used"))
        assert conflicts == ["used"]

    assert run(story).kafka.most_connections <= 16


def test_stopping_keeps_the_names() -> None:
    async def story(kafka: FakeCoordinator, names: GroupNames) -> None:
        await names.member("g")
        await names.hold("h")
        await names.stop()
        with pytest.raises(KafkaUnreachable, match="being stopped"):
            await names.hold("i")

    kafka = run(story)
    assert kafka.kafka.requests(LeaveGroupRequest) == []
    assert kafka.kafka.open_connections == 0


# -- heartbeats --------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("short_session")
def test_heartbeats_are_sent() -> None:
    async def story(kafka: FakeCoordinator, names: GroupNames) -> None:
        await names.member("g")
        await until(lambda: len(kafka.kafka.requests(HeartbeatRequest)) > 3)
        assert len(kafka.kafka.requests(JoinGroupRequest)) == 1

    run(story)


@pytest.mark.usefixtures("short_session")
@pytest.mark.parametrize("code", ["UNKNOWN_MEMBER_ID", "ILLEGAL_GENERATION", "REBALANCE_IN_PROGRESS"])
def test_a_member_that_kafka_does_not_know_joins_again(code: str) -> None:
    async def story(kafka: FakeCoordinator, names: GroupNames) -> None:
        first = await names.member("g")
        kafka.errors[HeartbeatRequest] = [ErrorCode[code]]
        await until(lambda: len(kafka.kafka.requests(JoinGroupRequest)) == 2)
        assert await names.member("g", instead_of=first) != first
        assert names.is_held("g")

    run(story)


@pytest.mark.usefixtures("short_session")
def test_a_lost_name_that_others_use_is_a_conflict_until_they_leave() -> None:
    async def story(kafka: FakeCoordinator, names: GroupNames) -> None:
        conflicts: list[tuple[str, str]] = []
        names.on_conflict = lambda *conflict: conflicts.append(conflict)
        await names.member("g")
        kafka.with_consumers("g", "consumer-1")
        await until(lambda: conflicts)
        assert not names.is_held("g")
        kafka.empty("g")
        await until(lambda: names.is_held("g"))
        ((group_id, text),) = conflicts
        assert group_id == "g"
        assert "consumer-1 at 10.0.0.1" in text

    run(story)


@pytest.mark.usefixtures("short_session")
def test_a_name_that_another_gateway_took_is_not_taken_back(caplog: pytest.LogCaptureFixture) -> None:
    async def story(kafka: FakeCoordinator, names: GroupNames) -> None:
        for group_id in ("g", "h"):
            await names.member(group_id)
            kafka.groups[group_id].members[INSTANCE_ID] = "of-another-gateway"
        await until(lambda: not names.held())
        joins = len(kafka.kafka.requests(JoinGroupRequest))
        await names.check()
        await asyncio.sleep(0.05)
        assert len(kafka.kafka.requests(JoinGroupRequest)) == joins

        # when the other gateway is gone, and its session over
        kafka.empty("g")
        await names.check()
        await until(lambda: names.is_held("g"))

    run(story)
    assert caplog.text.count("another gateway has taken the names of groups") == 1


@pytest.mark.usefixtures("short_session")
def test_heartbeats_go_on_after_kafka_was_unreachable(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(kafka: FakeCoordinator, names: GroupNames) -> None:
        await names.member("g")
        kafka.kafka.unreachable = {1}
        await asyncio.sleep(0.05)
        kafka.kafka.unreachable = set()
        kafka.kafka.asked.clear()
        await until(lambda: kafka.kafka.requests(HeartbeatRequest))
        assert names.is_held("g")

    run(story)


# -- releasing ---------------------------------------------------------------------------------------------------------


def test_a_released_name_is_free() -> None:
    async def story(kafka: FakeCoordinator, names: GroupNames) -> None:
        await names.member("g")
        await names.release("g")
        assert not names.is_held("g")
        assert kafka.groups["g"].state == EMPTY
        await names.release("g")  # again
        await names.release("never-held")
        await names.hold("g")
        assert names.is_held("g")

    run(story)


def test_a_release_waits_for_the_join_under_way() -> None:
    async def story(kafka: FakeCoordinator, names: GroupNames) -> None:
        await names.hold("g")
        await asyncio.gather(names.release("g"), names.release("g"))
        assert kafka.groups["g"].members == {}
        assert len(kafka.kafka.requests(LeaveGroupRequest)) == 1

    run(story)


def test_a_hold_during_a_release_joins_after_it() -> None:
    async def story(kafka: FakeCoordinator, names: GroupNames) -> None:
        await names.member("g")
        releasing = asyncio.create_task(names.release("g"))
        await asyncio.sleep(0)
        await names.hold("g")
        await releasing
        assert names.is_held("g")
        assert list(kafka.groups["g"].members) == [INSTANCE_ID]

    run(story)


def test_a_release_that_fails_keeps_the_name() -> None:
    async def story(kafka: FakeCoordinator, names: GroupNames) -> None:
        await names.member("g")
        kafka.errors[LeaveGroupRequest] = [ErrorCode.GROUP_AUTHORIZATION_FAILED]
        with pytest.raises(KafkaRefused, match="GROUP_AUTHORIZATION_FAILED"):
            await names.release("g")
        assert names.is_held("g")
        await names.release("g")
        assert not names.is_held("g")

    run(story)


# -- checks ------------------------------------------------------------------------------------------------------------


def test_a_group_that_is_used_on_both_sides_is_reported_once_until_it_ends() -> None:
    async def story(kafka: FakeCoordinator, names: GroupNames) -> None:
        conflicts: list[str] = []
        names.is_ours = lambda group_id: group_id.startswith("ours")
        names.on_conflict = lambda group_id, _text: conflicts.append(group_id)
        kafka.with_consumers("ours-1", "consumer-1")
        kafka.with_consumers("ours-2", "consumer-2", group_type="consumer")
        kafka.with_consumers("theirs", "consumer-3")
        kafka.empty("ours-3")
        for _ in range(3):
            await names.check()
        assert conflicts == ["ours-1", "ours-2"]

        kafka.empty("ours-1")
        await names.check()
        kafka.with_consumers("ours-1", "consumer-4")
        await names.check()
        assert conflicts == ["ours-1", "ours-2", "ours-1"]

    run(story)


def test_a_check_without_an_answer_ends_no_conflict() -> None:
    async def story(kafka: FakeCoordinator, names: GroupNames) -> None:
        conflicts: list[str] = []
        names.on_conflict = lambda group_id, _text: conflicts.append(group_id)
        kafka.with_consumers("g", "consumer-1")
        await names.check()
        kafka.kafka.unreachable = {1}
        await names.check()
        kafka.kafka.unreachable = set()
        await names.check()
        assert conflicts == ["g"]

    run(story)


def test_checks_run_from_time_to_time() -> None:
    async def story() -> None:
        kafka = FakeCoordinator()
        names = GroupNames(kafka.kafka, check_interval_s=0.01)
        found = asyncio.Event()

        def fail(_group_id: str, _text: str) -> None:
            found.set()
            raise RuntimeError("a test")

        names.on_conflict = fail
        names.start()
        kafka.with_consumers("g", "consumer-1")
        await found.wait()
        await names.stop()

    asyncio.run(asyncio.wait_for(story(), 30))


def test_a_check_finds_a_lost_name_before_its_heartbeat() -> None:
    async def story(kafka: FakeCoordinator, names: GroupNames) -> None:
        await names.member("g")
        kafka.empty("g")
        await names.check()
        await until(lambda: kafka.groups["g"].members)

    run(story)


def test_names_that_are_not_needed_are_released() -> None:
    async def story(kafka: FakeCoordinator, names: GroupNames) -> None:
        names.is_ours = lambda group_id: group_id == "ours"
        for group_id in ("ours", "orphan", "being-adopted", "of-two"):
            kafka.with_consumers(group_id, INSTANCE_ID).protocol_type = PROTOCOL_TYPE
        kafka.groups["of-two"].members["another"] = "another"
        kafka.with_consumers("theirs", INSTANCE_ID)
        await names.hold("being-adopted")
        assert await names.release_orphans() == ["orphan"]
        assert {group_id for group_id, group in kafka.groups.items() if group.state == EMPTY} == {"orphan"}

    run(story)


def test_a_name_whose_group_never_came_is_released() -> None:
    async def story(kafka: FakeCoordinator, names: GroupNames) -> None:
        ours = {"ours"}
        names.is_ours = ours.__contains__
        for group_id in ("ours", "never-came", "late"):
            await names.member(group_id)
        await names.check()
        await names.check()
        ours.add("late")
        await names.check()
        await until(lambda: not names.is_held("never-came"))
        assert names.held() == ["ours", "late"]
        await until(lambda: kafka.groups["never-came"].state == EMPTY)

    run(story)


def test_failures_are_logged_with_the_name_of_the_group(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)

    async def story(kafka: FakeCoordinator, names: GroupNames) -> None:
        kafka.errors[JoinGroupRequest] = [ErrorCode.GROUP_AUTHORIZATION_FAILED]
        names.hold_all(["g"])
        await until(lambda: names.is_held("g"))

    run(story)
    assert [record.message for record in caplog.records] == ["name of a group is not held"]
