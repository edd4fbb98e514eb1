"""Records of topics: produce, fetch, delete, and queries of offsets."""

from __future__ import annotations

from typing import Any

from holdfast.broker.api.checks.base import TOPIC_DENIED, AuthorizedRequest, check, map_reply, split
from holdfast.broker.api.handlers import fetch as fetch_handler
from holdfast.broker.api.handlers import produce as produce_handler
from holdfast.broker.api.replies import NO_REPLY, Disconnect
from holdfast.broker.authorization.acls import Operation
from holdfast.broker.util.slices import Work
from holdfast.wire.apis.delete_records import (
    DELETE_RECORDS,
    DeleteRecordsPartitionResult,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from holdfast.wire.apis.fetch import FETCH, FetchablePartitionResponse, FetchableTopicResponse, FetchResponse
from holdfast.wire.apis.list_offsets import (
    LIST_OFFSETS,
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from holdfast.wire.apis.offset_for_leader_epoch import (
    OFFSET_FOR_LEADER_EPOCH,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartitionResult,
    OffsetForLeaderTopicResult,
)
from holdfast.wire.apis.produce import PRODUCE, PartitionProduceResponse, ProduceResponse, TopicProduceResponse


def may_by_name_or_id(
    authorized: AuthorizedRequest, operation: Operation, name: str, topic_id: bytes, *, by_id: bool
) -> bool:
    """An unknown id is allowed: the handler answers that it does not exist."""
    if by_id:
        topic = authorized.services.topics.by_id(topic_id)
        if topic is None:
            return True
        name = topic.name
    return authorized.permissions.topic(operation, name)


@check(PRODUCE)
def produce(authorized: AuthorizedRequest) -> Any:
    by_id = authorized.version >= produce_handler.FIRST_WITH_TOPIC_IDS
    allowed, denied = yield from split(
        authorized.request.topic_data,
        lambda topic: may_by_name_or_id(authorized, Operation.WRITE, topic.name, topic.topic_id, by_id=by_id),
    )
    if not denied:
        return authorized.proceed()

    def with_denials(response: ProduceResponse) -> Work[ProduceResponse]:
        if response is NO_REPLY:  # type: ignore[comparison-overlap]  # with acks=0
            raise Disconnect("a produce with acks=0 failed")
        for topic in denied:
            yield
            answers = [PartitionProduceResponse(data.index, TOPIC_DENIED, -1) for data in topic.partition_data]
            response.responses.append(TopicProduceResponse(topic.name, topic.topic_id, answers))
        return response

    return (yield from map_reply(authorized, authorized.proceed(topic_data=allowed), with_denials))


@check(FETCH)
def fetch(authorized: AuthorizedRequest) -> Any:
    by_id = authorized.version >= fetch_handler.FIRST_WITH_TOPIC_IDS
    allowed, denied = yield from split(
        authorized.request.topics,
        lambda topic: may_by_name_or_id(authorized, Operation.READ, topic.topic, topic.topic_id, by_id=by_id),
    )
    if not denied:
        return authorized.proceed()

    def with_denials(response: FetchResponse) -> Work[FetchResponse]:
        for topic in denied if not response.error_code else ():
            yield
            answers = [
                FetchablePartitionResponse(
                    wanted.partition, TOPIC_DENIED, -1, -1, -1, aborted_transactions=[], records=b""
                )
                for wanted in topic.partitions
            ]
            response.responses.append(FetchableTopicResponse(topic.topic, topic.topic_id, answers))
        return response

    return (yield from map_reply(authorized, authorized.proceed(topics=allowed), with_denials))


@check(LIST_OFFSETS)
def list_offsets(authorized: AuthorizedRequest) -> Any:
    allowed, denied = yield from split(
        authorized.request.topics, lambda topic: authorized.permissions.topic(Operation.DESCRIBE, topic.name)
    )

    def with_denials(response: ListOffsetsResponse) -> Work[ListOffsetsResponse]:
        for topic in denied:
            yield
            answers = [
                ListOffsetsPartitionResponse(wanted.partition_index, TOPIC_DENIED) for wanted in topic.partitions
            ]
            response.topics.append(ListOffsetsTopicResponse(topic.name, answers))
        return response

    return (yield from map_reply(authorized, authorized.proceed(topics=allowed), with_denials))


@check(OFFSET_FOR_LEADER_EPOCH)
def offset_for_leader_epoch(authorized: AuthorizedRequest) -> Any:
    allowed, denied = yield from split(
        authorized.request.topics, lambda topic: authorized.permissions.topic(Operation.DESCRIBE, topic.topic)
    )

    def with_denials(response: OffsetForLeaderEpochResponse) -> Work[OffsetForLeaderEpochResponse]:
        for topic in denied:
            yield
            answers = [OffsetForLeaderPartitionResult(TOPIC_DENIED, wanted.partition) for wanted in topic.partitions]
            response.topics.append(OffsetForLeaderTopicResult(topic.topic, answers))
        return response

    return (yield from map_reply(authorized, authorized.proceed(topics=allowed), with_denials))


@check(DELETE_RECORDS)
def delete_records(authorized: AuthorizedRequest) -> Any:
    allowed, denied = yield from split(
        authorized.request.topics, lambda topic: authorized.permissions.topic(Operation.DELETE, topic.name)
    )

    def with_denials(response: DeleteRecordsResponse) -> Work[DeleteRecordsResponse]:
        for topic in denied:
            yield
            answers = [
                DeleteRecordsPartitionResult(wanted.partition_index, -1, TOPIC_DENIED) for wanted in topic.partitions
            ]
            response.topics.append(DeleteRecordsTopicResult(topic.name, answers))
        return response

    return (yield from map_reply(authorized, authorized.proceed(topics=allowed), with_denials))
