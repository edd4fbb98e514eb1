from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from holdfast.gateway import kafka_offsets, name_claims
from holdfast.gateway.adoption import Adoption
from holdfast.gateway.group_names import GroupNames, NameInUse
from holdfast.gateway.kafka.errors import KafkaRefused, KafkaUnreachable
from holdfast.wire.apis.join_group import JoinGroupRequest
from holdfast.wire.apis.list_offsets import ListOffsetsRequest
from holdfast.wire.apis.metadata import MetadataRequest
from holdfast.wire.apis.offset_fetch import OffsetFetchRequest
from holdfast.wire.error_codes import ErrorCode
from holdfast.wire.group_records import OffsetCommitValue
from tests.unit.gateway.fake_coordinator import FakeCoordinator

NOW_MS = 1_700_000_000_000
Story = Callable[[FakeCoordinator, Adoption], Coroutine[Any, Any, None]]


def run(story: Story) -> FakeCoordinator:
    async def whole() -> FakeCoordinator:
        kafka = FakeCoordinator(delay_s=3600)
        names = GroupNames(kafka.kafka)
        try:
            await story(kafka, Adoption(kafka.kafka, names, now_ms=lambda: NOW_MS))
        finally:
            await names.stop()
        return kafka

    return asyncio.run(asyncio.wait_for(whole(), 30))


@pytest.fixture(autouse=True)
def without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(name_claims, "_PAUSE_S", 0.001)
    monkeypatch.setattr(name_claims, "_LOOKS_S", (0.001,))
    monkeypatch.setattr(kafka_offsets, "_FIRST_PAUSE_S", 0.001)


def test_a_new_group_has_no_offsets_and_waits_for_no_transaction() -> None:
    async def story(kafka: FakeCoordinator, adoption: Adoption) -> None:
        assert await adoption.adopt("g") == {}

    kafka = run(story)
    assert len(kafka.kafka.requests(JoinGroupRequest)) == 1
    assert kafka.kafka.requests(ListOffsetsRequest) == []


def test_the_offsets_are_read_after_the_name_is_held() -> None:
    async def story(kafka: FakeCoordinator, adoption: Adoption) -> None:
        kafka.empty("g")
        kafka.groups["g"].offsets = {
            ("orders", 0): (5, 2, "a note"),
            ("orders", 1): (7, -1, ""),
            ("gone", 0): (-1, -1, ""),
        }
        assert await adoption.adopt("g") == {
            ("orders", 0): OffsetCommitValue(5, 2, "a note", NOW_MS),
            ("orders", 1): OffsetCommitValue(7, -1, "", NOW_MS),
        }

    kafka = run(story)
    order = [type(request) for _, request in kafka.kafka.asked]
    assert order.index(JoinGroupRequest) < order.index(ListOffsetsRequest) < order.index(OffsetFetchRequest)


def test_a_group_with_members_is_refused() -> None:
    async def story(kafka: FakeCoordinator, adoption: Adoption) -> None:
        kafka.with_consumers("g", "consumer-1").offsets = {("orders", 0): (5, 2, "")}
        with pytest.raises(NameInUse):
            await adoption.adopt("g")

    assert run(story).kafka.requests(OffsetFetchRequest) == []


def test_offsets_of_an_open_transaction_are_waited_for() -> None:
    async def story(kafka: FakeCoordinator, adoption: Adoption) -> None:
        kafka.empty("g")
        group = kafka.groups["g"]
        group.offsets, group.unstable = {("orders", 0): (5, 2, "")}, {("orders", 0)}
        adopting = asyncio.create_task(adoption.adopt("g"))
        await asyncio.sleep(0.05)
        assert not adopting.done()
        group.offsets, group.unstable = {("orders", 0): (9, 2, "")}, set()
        assert (await adopting)["orders", 0].offset == 9

    run(story)


def test_a_first_offset_of_an_open_transaction_is_waited_for() -> None:
    async def story(kafka: FakeCoordinator, adoption: Adoption) -> None:
        kafka.empty("g")
        kafka.stable_ends = [3, 6]
        await adoption.adopt("g")

    kafka = run(story)
    order = [type(request) for _, request in kafka.kafka.asked]
    assert order.count(ListOffsetsRequest) == 4  # the end, and the stable end until they are equal
    assert order.count(OffsetFetchRequest) == 1


def test_a_group_of_a_newer_protocol_waits_for_transactions_too() -> None:
    async def story(kafka: FakeCoordinator, adoption: Adoption) -> None:
        kafka.empty("g")
        kafka.groups["g"].group_type = "consumer"
        kafka.groups["g"].offsets = {("orders", 0): (5, 2, "")}
        adopting = asyncio.create_task(adoption.adopt("g"))
        await asyncio.sleep(0.01)
        kafka.groups["g"].group_type = "classic"  # Kafka converts an empty one when a classic member joins
        assert (await adopting)["orders", 0].offset == 5

    kafka = run(story)
    order = [type(request) for _, request in kafka.kafka.asked]
    assert order.count(OffsetFetchRequest) == 2
    assert order.index(ListOffsetsRequest) < len(order) - 1 - order[::-1].index(OffsetFetchRequest)


@pytest.mark.parametrize("is_first_offset", [True, False])
def test_a_transaction_that_does_not_end_is_reported(monkeypatch: pytest.MonkeyPatch, is_first_offset: bool) -> None:
    monkeypatch.setattr(kafka_offsets, "TRANSACTION_PATIENCE_S", 0.05)

    async def story(kafka: FakeCoordinator, adoption: Adoption) -> None:
        kafka.empty("g")
        group = kafka.groups["g"]
        if is_first_offset:
            kafka.stable_ends = [3] * 1_000
        else:
            group.offsets, group.unstable = {("orders", 0): (5, 2, "")}, {("orders", 0)}
        with pytest.raises(KafkaUnreachable, match="transaction in Kafka may still commit offsets of group 'g'"):
            await adoption.adopt("g")

    run(story)


@pytest.mark.parametrize("refused", [ListOffsetsRequest, MetadataRequest])
def test_a_gateway_that_may_not_see_transactions_says_so_once(
    refused: type[Any], caplog: pytest.LogCaptureFixture
) -> None:
    async def story(kafka: FakeCoordinator, adoption: Adoption) -> None:
        for group_id in ("g", "h"):
            kafka.empty(group_id)
            kafka.errors[refused] = [ErrorCode.TOPIC_AUTHORIZATION_FAILED]
            kafka.groups[group_id].offsets = {("orders", 0): (5, 2, "")}
            assert len(await adoption.adopt(group_id)) == 1

    run(story)
    assert caplog.text.count("open transactions are not seen") == 1


def test_the_coordinator_is_followed() -> None:
    async def story(kafka: FakeCoordinator, adoption: Adoption) -> None:
        kafka.empty("g")
        kafka.groups["g"].offsets = {("orders", 0): (5, 2, "")}
        kafka.errors[OffsetFetchRequest] = [ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]
        assert len(await adoption.adopt("g")) == 1

    run(story)


def test_a_refusal_is_raised() -> None:
    async def story(kafka: FakeCoordinator, adoption: Adoption) -> None:
        kafka.errors[OffsetFetchRequest] = [ErrorCode.GROUP_AUTHORIZATION_FAILED]
        with pytest.raises(KafkaRefused, match="OffsetFetch of group 'g' is answered with GROUP_AUTHORIZATION_FAILED"):
            await adoption.adopt("g")

    run(story)
