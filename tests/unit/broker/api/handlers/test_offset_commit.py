"""OffsetCommit: which partitions reach the coordinator, and what the response says of each."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from holdfast.broker.api.handlers.offset_commit import (
    FIRST_WITH_TOPIC_IDS,
    KEPT_PARTITIONS,
    KEPT_TOPICS,
    OFFSETS_PER_STEP,
)
from holdfast.broker.api.replies import PreEncoded
from holdfast.types import TopicPartition
from holdfast.wire.apis.offset_commit import (
    OFFSET_COMMIT,
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from holdfast.wire.error_codes import ErrorCode
from holdfast.wire.group_records import OffsetCommitValue
from holdfast.wire.message import encode
from tests.support.handler_broker import HandlerBroker

PARTITIONS = 3
UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
TOO_LARGE = ErrorCode.OFFSET_METADATA_TOO_LARGE
VERSIONS = range(OFFSET_COMMIT.versions[0], OFFSET_COMMIT.versions[1] + 1)


class Groups:
    """Stores every offset, but answers for some partitions with an error."""

    def __init__(self, errors: Mapping[TopicPartition, ErrorCode], is_late: bool = False) -> None:
        self.coordinator = self
        self.stored: dict[TopicPartition, OffsetCommitValue] = {}
        self._errors, self._is_late = errors, is_late

    @staticmethod
    def client_of(_context: Any) -> None:
        return None

    def submit(self, command: Any) -> Any:
        outcome = command(None, 0)
        return self._later(outcome) if self._is_late else outcome

    @staticmethod
    async def _later(outcome: dict[TopicPartition, ErrorCode]) -> dict[TopicPartition, ErrorCode]:
        await asyncio.sleep(0)
        return outcome

    def commit_offsets(self, command: Any, _version: int, _now_ms: int) -> dict[TopicPartition, ErrorCode]:
        self.stored.update(command.offsets)
        return {key: self._errors.get(key, ErrorCode.NONE) for key in command.offsets}


@pytest.fixture(params=[False, True], ids=["at-once", "later"])
def is_late(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


def commit(
    broker: HandlerBroker, asked: list[tuple[str, list[int]]], version: int, groups: Groups
) -> OffsetCommitResponse:
    broker.groups = groups  # type: ignore[attr-defined]
    response: OffsetCommitResponse = broker.ask(request_of(broker, asked), version)
    return response


def request_of(broker: HandlerBroker, asked: list[tuple[str, list[int]]]) -> OffsetCommitRequest:
    topics = []
    for name, indexes in asked:
        partitions = [OffsetCommitRequestPartition(index, 100 + index, committed_metadata="") for index in indexes]
        topics.append(OffsetCommitRequestTopic(name, id_of(broker, name), partitions))
    return OffsetCommitRequest("group", topics=topics)


def id_of(broker: HandlerBroker, name: str) -> bytes:
    topic = broker.topics.get(name)
    return b"?" * 16 if topic is None else topic.id


def codes(response: OffsetCommitResponse) -> list[list[tuple[int, int]]]:
    return [[(one.partition_index, one.error_code) for one in topic.partitions] for topic in response.topics]


@pytest.mark.parametrize("version", VERSIONS)
def test_every_partition_is_answered_in_the_order_of_the_request(
    broker: HandlerBroker, version: int, is_late: bool
) -> None:
    for name in ("orders", "events"):
        broker.topic(name, PARTITIONS)
    groups = Groups({("events", 0): TOO_LARGE}, is_late)
    asked = [("orders", [2, 0, 7, -1, 2]), ("nope", [0, 5]), ("events", [1, 0]), ("orders", [])]

    response = commit(broker, asked, version, groups)

    nope = ErrorCode.UNKNOWN_TOPIC_ID if version >= FIRST_WITH_TOPIC_IDS else UNKNOWN
    assert codes(response) == [
        [(2, 0), (0, 0), (7, UNKNOWN), (-1, UNKNOWN), (2, 0)],
        [(0, nope), (5, nope)],
        [(1, 0), (0, TOO_LARGE)],
        [],
    ]
    if version >= FIRST_WITH_TOPIC_IDS:
        assert [topic.topic_id for topic in response.topics] == [id_of(broker, name) for name, _ in asked]
    else:
        assert [topic.name for topic in response.topics] == [name for name, _ in asked]
    assert set(groups.stored) == {("orders", 2), ("orders", 0), ("events", 1), ("events", 0)}


@pytest.mark.parametrize("version", VERSIONS)
def test_a_kept_response_has_the_bytes_of_a_new_one(broker: HandlerBroker, version: int, is_late: bool) -> None:
    topic = broker.topic("orders", PARTITIONS)
    broker.groups = Groups({}, is_late)  # type: ignore[attr-defined]
    by_id = version >= FIRST_WITH_TOPIC_IDS
    for indexes in ([0, 1, 2], [2], [0, 1, 2]):
        kept = asyncio.run(broker.handle(request_of(broker, [("orders", indexes)]), version))

        partitions = [OffsetCommitResponsePartition(index, ErrorCode.NONE) for index in indexes]
        topic_id = topic.id if by_id else bytes(16)
        new = OffsetCommitResponse(topics=[OffsetCommitResponseTopic("orders", topic_id, partitions)])
        assert type(kept) is PreEncoded
        assert kept.body == encode(new, version)


@pytest.mark.parametrize(
    ("topics", "partitions"),
    [(1, KEPT_PARTITIONS + 1), (KEPT_TOPICS + 1, 1), (1, OFFSETS_PER_STEP + 1)],
    ids=["partitions", "topics", "several-steps"],
)
def test_long_responses_are_not_kept(broker: HandlerBroker, topics: int, partitions: int, is_late: bool) -> None:
    names = [f"topic-{number}" for number in range(topics)]
    for name in names:
        broker.topic(name, partitions)
    broker.groups = Groups({}, is_late)  # type: ignore[attr-defined]

    response = asyncio.run(broker.handle(request_of(broker, [(name, list(range(partitions))) for name in names]), 9))

    assert type(response) is OffsetCommitResponse
    assert codes(response) == [[(index, 0) for index in range(partitions)]] * topics


def test_a_commit_of_unknown_partitions_only_does_not_reach_the_group(broker: HandlerBroker) -> None:
    groups = Groups({})

    assert codes(commit(broker, [("nope", [0])], 9, groups)) == [[(0, UNKNOWN)]]
    assert groups.stored == {}


def test_a_response_that_names_an_unknown_topic_is_not_kept(broker: HandlerBroker) -> None:
    """Its name may have 32 kB, and a thousand responses are kept."""
    broker.topic("orders", PARTITIONS)
    broker.groups = Groups({})  # type: ignore[attr-defined]

    response = asyncio.run(broker.handle(request_of(broker, [("orders", [0]), ("x" * 32_000, [])]), 9))

    assert type(response) is OffsetCommitResponse
    assert codes(response) == [[(0, 0)], []]
