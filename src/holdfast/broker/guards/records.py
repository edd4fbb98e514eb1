"""Who may write, read and cut the records of a topic, and ask where they are."""

from __future__ import annotations

from typing import Any

from holdfast.broker.dispatch import NO_REPLY, Disconnect
from holdfast.broker.guards._guarding import TOPIC_REFUSED, Asking, guards, parted, then
from holdfast.broker.handlers import fetch as fetch_handler
from holdfast.broker.handlers import produce as produce_handler
from holdfast.broker.security.acls import Operation
from holdfast.broker.slices import Work
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


def may_by_name_or_id(asking: Asking, operation: Operation, name: str, topic_id: bytes, *, by_id: bool) -> bool:
    """An id that nobody has goes on to the handler, which says so: there is nothing to protect."""
    if by_id:
        topic = asking.broker.topics.by_id(topic_id)
        if topic is None:
            return True
        name = topic.name
    return asking.access.topic(operation, name)


@guards(PRODUCE)
def produce(asking: Asking) -> Any:
    by_id = asking.version >= produce_handler.FIRST_WITH_TOPIC_IDS
    allowed, refused = yield from parted(
        asking.request.topic_data,
        lambda topic: may_by_name_or_id(asking, Operation.WRITE, topic.name, topic.topic_id, by_id=by_id),
    )
    if not refused:
        return asking.go_on()

    def with_refusals(response: ProduceResponse) -> Work[ProduceResponse]:
        if response is NO_REPLY:  # type: ignore[comparison-overlap]  # with acks=0
            raise Disconnect("a produce with acks=0 failed")
        for topic in refused:
            yield
            answers = [PartitionProduceResponse(data.index, TOPIC_REFUSED, -1) for data in topic.partition_data]
            response.responses.append(TopicProduceResponse(topic.name, topic.topic_id, answers))
        return response

    return (yield from then(asking, asking.go_on(topic_data=allowed), with_refusals))


@guards(FETCH)
def fetch(asking: Asking) -> Any:
    by_id = asking.version >= fetch_handler.FIRST_WITH_TOPIC_IDS
    allowed, refused = yield from parted(
        asking.request.topics,
        lambda topic: may_by_name_or_id(asking, Operation.READ, topic.topic, topic.topic_id, by_id=by_id),
    )
    if not refused:
        return asking.go_on()

    def with_refusals(response: FetchResponse) -> Work[FetchResponse]:
        for topic in refused if not response.error_code else ():
            yield
            answers = [
                FetchablePartitionResponse(
                    wanted.partition, TOPIC_REFUSED, -1, -1, -1, aborted_transactions=[], records=b""
                )
                for wanted in topic.partitions
            ]
            response.responses.append(FetchableTopicResponse(topic.topic, topic.topic_id, answers))
        return response

    return (yield from then(asking, asking.go_on(topics=allowed), with_refusals))


@guards(LIST_OFFSETS)
def list_offsets(asking: Asking) -> Any:
    allowed, refused = yield from parted(
        asking.request.topics, lambda topic: asking.access.topic(Operation.DESCRIBE, topic.name)
    )

    def with_refusals(response: ListOffsetsResponse) -> Work[ListOffsetsResponse]:
        for topic in refused:
            yield
            answers = [
                ListOffsetsPartitionResponse(wanted.partition_index, TOPIC_REFUSED) for wanted in topic.partitions
            ]
            response.topics.append(ListOffsetsTopicResponse(topic.name, answers))
        return response

    return (yield from then(asking, asking.go_on(topics=allowed), with_refusals))


@guards(OFFSET_FOR_LEADER_EPOCH)
def offset_for_leader_epoch(asking: Asking) -> Any:
    allowed, refused = yield from parted(
        asking.request.topics, lambda topic: asking.access.topic(Operation.DESCRIBE, topic.topic)
    )

    def with_refusals(response: OffsetForLeaderEpochResponse) -> Work[OffsetForLeaderEpochResponse]:
        for topic in refused:
            yield
            answers = [OffsetForLeaderPartitionResult(TOPIC_REFUSED, wanted.partition) for wanted in topic.partitions]
            response.topics.append(OffsetForLeaderTopicResult(topic.topic, answers))
        return response

    return (yield from then(asking, asking.go_on(topics=allowed), with_refusals))


@guards(DELETE_RECORDS)
def delete_records(asking: Asking) -> Any:
    allowed, refused = yield from parted(
        asking.request.topics, lambda topic: asking.access.topic(Operation.DELETE, topic.name)
    )

    def with_refusals(response: DeleteRecordsResponse) -> Work[DeleteRecordsResponse]:
        for topic in refused:
            yield
            answers = [
                DeleteRecordsPartitionResult(wanted.partition_index, -1, TOPIC_REFUSED) for wanted in topic.partitions
            ]
            response.topics.append(DeleteRecordsTopicResult(topic.name, answers))
        return response

    return (yield from then(asking, asking.go_on(topics=allowed), with_refusals))
