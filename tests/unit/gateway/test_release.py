from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from holdfast.gateway import name_claims
from holdfast.gateway.group_names import INSTANCE_ID, GroupNames, NameInUse
from holdfast.gateway.kafka.errors import KafkaRefused
from holdfast.gateway.release import write_back
from holdfast.wire.apis.join_group import JoinGroupRequest
from holdfast.wire.apis.offset_commit import OffsetCommitRequest
from holdfast.wire.error_codes import ErrorCode
from holdfast.wire.group_records import OffsetCommitValue
from tests.unit.gateway.fake_coordinator import STABLE, FakeCoordinator

Story = Callable[[FakeCoordinator, GroupNames], Coroutine[Any, Any, None]]
OFFSETS = {
    ("orders", 0): OffsetCommitValue(5, 2, "a note", 1),
    ("orders", 1): OffsetCommitValue(7, -1, "", 1),
    ("users", 0): OffsetCommitValue(0, 0, "", 1),
}


def run(story: Story) -> FakeCoordinator:
    async def whole() -> FakeCoordinator:
        kafka = FakeCoordinator(delay_s=0.02)
        names = GroupNames(kafka.kafka)
        try:
            await story(kafka, names)
        finally:
            await names.stop()
        return kafka

    return asyncio.run(asyncio.wait_for(whole(), 30))


@pytest.fixture(autouse=True)
def without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(name_claims, "_PAUSE_S", 0.001)
    monkeypatch.setattr(name_claims, "_LOOKS_S", (0.001,))


def test_the_offsets_are_committed_as_the_member_that_holds_the_name() -> None:
    async def story(kafka: FakeCoordinator, names: GroupNames) -> None:
        await names.hold("g")
        await write_back(kafka.kafka, names, "g", OFFSETS)
        group = kafka.groups["g"]
        assert group.state == STABLE
        assert group.offsets == {("orders", 0): (5, 2, "a note"), ("orders", 1): (7, -1, ""), ("users", 0): (0, 0, "")}
        await write_back(kafka.kafka, names, "g", OFFSETS)  # again, after a failure of the caller

    kafka = run(story)
    assert {one.group_instance_id for one in kafka.kafka.requests(OffsetCommitRequest)} == {INSTANCE_ID}


def test_other_offsets_of_the_group_are_removed() -> None:
    async def story(kafka: FakeCoordinator, names: GroupNames) -> None:
        kafka.empty("g")
        kafka.groups["g"].offsets = {("orders", 0): (1, 1, "old"), ("orders", 9): (4, 1, "old")}
        await write_back(kafka.kafka, names, "g", OFFSETS)
        assert kafka.groups["g"].offsets["orders", 9] == (-1, -1, "")
        assert kafka.groups["g"].offsets["orders", 0] == (5, 2, "a note")

    run(story)


def test_a_member_that_kafka_has_lost_joins_again() -> None:
    async def story(kafka: FakeCoordinator, names: GroupNames) -> None:
        await names.member("g")
        kafka.errors[OffsetCommitRequest] = [ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID]
        await write_back(kafka.kafka, names, "g", OFFSETS)
        assert len(kafka.kafka.requests(JoinGroupRequest)) == 3

    run(story)


def test_an_offset_that_kafka_does_not_take_is_reported() -> None:
    async def story(kafka: FakeCoordinator, names: GroupNames) -> None:
        kafka.refused_partitions = {("orders", 1): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
        with pytest.raises(
            KafkaRefused, match="answers UNKNOWN_TOPIC_OR_PARTITION to the offset of group 'g' for orders-1"
        ):
            await write_back(kafka.kafka, names, "g", OFFSETS)

    run(story)


def test_an_offset_that_is_not_the_one_that_was_committed_is_reported() -> None:
    async def story(kafka: FakeCoordinator, names: GroupNames) -> None:
        commit = kafka.kafka.handlers[OffsetCommitRequest]

        def lossy(node_id: int, request: Any) -> Any:
            answer = commit(node_id, request)
            kafka.groups["g"].offsets["orders", 1] = (6, -1, "")
            return answer

        kafka.kafka.handlers[OffsetCommitRequest] = lossy
        with pytest.raises(KafkaRefused, match="has the offset 6 of group 'g' for orders-1 after 7 was committed"):
            await write_back(kafka.kafka, names, "g", OFFSETS)

    run(story)


def test_a_group_with_other_members_is_refused() -> None:
    async def story(kafka: FakeCoordinator, names: GroupNames) -> None:
        kafka.with_consumers("g", "consumer-1")
        with pytest.raises(NameInUse):
            await write_back(kafka.kafka, names, "g", OFFSETS)

    assert run(story).kafka.requests(OffsetCommitRequest) == []


@pytest.mark.parametrize(("count", "metadata", "requests"), [(2_500, "", 3), (200, "x" * 4096, 5)])
def test_many_offsets_are_committed_in_several_requests(count: int, metadata: str, requests: int) -> None:
    async def story(kafka: FakeCoordinator, names: GroupNames) -> None:
        offsets = {("orders", number): OffsetCommitValue(number, 0, metadata, 1) for number in range(count)}
        await write_back(kafka.kafka, names, "g", offsets)
        assert len(kafka.groups["g"].offsets) == count

    assert len(run(story).kafka.requests(OffsetCommitRequest)) == requests


def test_a_group_without_offsets_can_be_released() -> None:
    async def story(kafka: FakeCoordinator, names: GroupNames) -> None:
        await write_back(kafka.kafka, names, "g", {})

    assert run(story).kafka.requests(OffsetCommitRequest) == []
