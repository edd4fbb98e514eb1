"""Every broker of these tests has topics of its own, as of the time up to which it knows the cluster."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

import pytest

from holdfast.gateway import topic_mirror
from holdfast.gateway.kafka.errors import KafkaUnreachable
from holdfast.gateway.topic_listing import ListedTopic, TopicListing, TopicListingRequest
from holdfast.gateway.topic_mirror import MirroredTopic, TopicMirror
from holdfast.wire.apis.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponseTopic,
)
from holdfast.wire.error_codes import ErrorCode
from tests.unit.gateway.fake_upstream import FakeUpstream

ID, OTHER_ID = b"1" * 16, b"2" * 16
Topics = dict[str, tuple[bytes, int]]


@dataclass
class World:
    """`known[n]` is what broker n knows; `lister` is the one that lists."""

    known: dict[int, Topics] = field(default_factory=lambda: {1: {}, 2: {}, 3: {}})
    lister: int = 1
    codes: dict[str, ErrorCode] = field(default_factory=dict)
    hidden: set[str] = field(default_factory=set)
    events: list[tuple[str, str, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.kafka = FakeUpstream(tuple(self.known))
        self.kafka.any_broker = iter(lambda: self.lister, None)  # type: ignore[assignment]
        self.kafka.handlers = {TopicListingRequest: self._list, MetadataRequest: self._look_up}
        self.live = list(self.known)
        self.mirror = TopicMirror(self.kafka, interval_s=3600)
        self.mirror.on_deleted = lambda name: self.events.append(("deleted", name, 0))
        self.mirror.on_grown = lambda name, before: self.events.append(("grown", name, before))

    def everywhere(self, **topics: tuple[bytes, int]) -> None:
        for known in self.known.values():
            known.clear()
            known.update(topics)

    def _list(self, node_id: int, _request: Any) -> TopicListing:
        listed = [
            ListedTopic(name, topic_id, size, self.codes.get(name, ErrorCode.NONE))
            for name, (topic_id, size) in self.known[node_id].items()
            if name not in self.hidden
        ]
        return TopicListing(self.kafka.cluster_id, list(self.live), listed)

    def _look_up(self, node_id: int, request: MetadataRequest) -> MetadataResponse:
        ids = {topic_id: name for name, (topic_id, _) in self.known[node_id].items()}
        answers = []
        for wanted in request.topics or ():
            by_id = wanted.name is None
            name = ids.get(wanted.topic_id) if by_id else wanted.name
            if name is None or name not in self.known[node_id]:
                code = ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            else:
                code = ErrorCode.TOPIC_AUTHORIZATION_FAILED if name in self.hidden else ErrorCode.NONE
            answers.append(MetadataResponseTopic(code, None if by_id else name, wanted.topic_id))
        brokers = [MetadataResponseBroker(one, "a-host", 9092) for one in self.live]
        return MetadataResponse(brokers=brokers, cluster_id=self.kafka.cluster_id, topics=answers)


def run(story: Callable[[World], Coroutine[Any, Any, None]], **topics: tuple[bytes, int]) -> World:
    """Runs the story on a mirror that has these topics."""

    async def whole() -> World:
        world = World()
        world.everywhere(**topics)
        await world.mirror.start()
        try:
            await story(world)
        finally:
            await world.mirror.stop()
        return world

    return asyncio.run(asyncio.wait_for(whole(), 30))


async def until(look: Callable[[], bool]) -> None:
    while not look():  # noqa: ASYNC110  # there is no event to wait for
        await asyncio.sleep(0.01)


# -- growth ------------------------------------------------------------------------------------------------------------


def test_the_first_listing_fills_the_mirror_and_is_no_event() -> None:
    async def story(world: World) -> None:
        expected = MirroredTopic("orders", ID, range(3))
        assert world.mirror.get("orders") == world.mirror.by_id(ID) == expected
        assert world.mirror.partition_count("orders") == 3
        assert world.mirror.get("none") is world.mirror.by_id(OTHER_ID) is None
        assert world.mirror.partition_count("none") == 0
        assert len(world.mirror) == 1

    assert run(story, orders=(ID, 3)).events == []


def test_new_topics_and_new_partitions_are_reported() -> None:
    async def story(world: World) -> None:
        world.everywhere(orders=(ID, 5), users=(OTHER_ID, 2))
        await world.mirror.refresh()
        assert world.mirror.partition_count("orders") == 5
        assert world.mirror.by_id(OTHER_ID) == MirroredTopic("users", OTHER_ID, range(2))

    assert run(story, orders=(ID, 3)).events == [("grown", "orders", 3), ("grown", "users", 0)]


def test_fewer_partitions_are_an_old_view() -> None:
    async def story(world: World) -> None:
        world.known[1]["orders"] = (ID, 1)
        await world.mirror.refresh()
        assert world.mirror.partition_count("orders") == 3

    assert run(story, orders=(ID, 3)).events == []


def test_a_topic_with_an_error_is_left_as_it_is() -> None:
    async def story(world: World) -> None:
        world.everywhere(orders=(OTHER_ID, 9), new=(b"3" * 16, 1))
        world.codes = {"orders": ErrorCode.LEADER_NOT_AVAILABLE, "new": ErrorCode.LEADER_NOT_AVAILABLE}
        await world.mirror.refresh()
        assert world.mirror.get("orders") == MirroredTopic("orders", ID, range(3))
        assert world.mirror.get("new") is None

    assert run(story, orders=(ID, 3)).events == []


# -- deletion ----------------------------------------------------------------------------------------------------------


def test_a_deletion_that_every_broker_confirms_is_reported() -> None:
    async def story(world: World) -> None:
        world.everywhere()
        await world.mirror.refresh()
        assert world.mirror.get("orders") is world.mirror.by_id(ID) is None

    assert run(story, orders=(ID, 3)).events == [("deleted", "orders", 0)]


def test_a_topic_that_was_created_again_is_deleted_first() -> None:
    async def story(world: World) -> None:
        world.everywhere(orders=(OTHER_ID, 2))
        await world.mirror.refresh()
        assert world.mirror.by_id(ID) is None
        assert world.mirror.get("orders") == world.mirror.by_id(OTHER_ID) == MirroredTopic("orders", OTHER_ID, range(2))

    assert run(story, orders=(ID, 3)).events == [("deleted", "orders", 0), ("grown", "orders", 0)]


def test_a_broker_that_is_behind_deletes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_mirror, "_CONFIRMATION_PAUSES_S", (0.001,))

    async def story(world: World) -> None:
        world.known[1].clear()  # it has not yet learned of the topic, however often it is asked
        for _ in range(5):
            await world.mirror.refresh()
        assert world.mirror.get("orders") is not None

    assert run(story, orders=(ID, 3)).events == []


def test_an_older_topic_of_the_same_name_at_a_broker_that_is_behind_deletes_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(topic_mirror, "_CONFIRMATION_PAUSES_S", (0.001,))

    async def story(world: World) -> None:
        world.known[1]["orders"] = (OTHER_ID, 8)
        for _ in range(5):
            await world.mirror.refresh()
        assert world.mirror.get("orders") == MirroredTopic("orders", ID, range(3))

    assert run(story, orders=(ID, 3)).events == []


def test_a_deletion_is_believed_when_the_last_broker_has_learned_of_it() -> None:
    async def story(world: World) -> None:
        del world.known[1]["orders"], world.known[2]["orders"]
        asyncio.get_running_loop().call_later(0.1, world.known[3].clear)
        await world.mirror.refresh()
        assert world.mirror.get("orders") is None

    assert run(story, orders=(ID, 3)).events == [("deleted", "orders", 0)]


def test_a_broker_that_does_not_answer_deletes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_mirror, "_CONFIRMATION_PAUSES_S", (0.001,))

    async def story(world: World) -> None:
        world.kafka.unreachable = {2}
        world.everywhere()
        await world.mirror.refresh()
        assert world.mirror.get("orders") is not None
        assert world.events == []

        world.kafka.unreachable = set()
        await world.mirror.refresh()
        assert world.mirror.get("orders") is None

    assert run(story, orders=(ID, 3)).events == [("deleted", "orders", 0)]


def test_a_live_broker_that_the_gateway_does_not_know_deletes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_mirror, "_CONFIRMATION_PAUSES_S", ())

    async def story(world: World) -> None:
        world.kafka.brokers.node_ids = [1, 2]
        world.kafka.unreachable = {3}
        world.everywhere()
        await world.mirror.refresh()

    assert run(story, orders=(ID, 3)).events == []


def test_a_topic_that_the_gateway_may_not_describe_is_not_deleted(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(topic_mirror, "_CONFIRMATION_PAUSES_S", ())
    caplog.set_level(logging.INFO)

    async def story(world: World) -> None:
        world.hidden = {"orders"}
        for _ in range(3):
            await world.mirror.refresh()
        assert world.mirror.get("orders") is not None

    assert run(story, orders=(ID, 3)).events == []
    assert [record.message for record in caplog.records].count("topic is not listed by Kafka, and not deleted") == 1


def test_a_starting_broker_that_lists_no_broker_deletes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_mirror, "_CONFIRMATION_PAUSES_S", ())

    async def story(world: World) -> None:
        world.everywhere()
        world.live = []
        with pytest.raises(KafkaUnreachable, match="lists no live broker"):
            await world.mirror.refresh()
        world.live = [1, 2]  # broker 3 is asked, and does not list itself
        await world.mirror.refresh()

    assert run(story, orders=(ID, 3)).events == []


def test_another_cluster_deletes_nothing() -> None:
    async def story(world: World) -> None:
        world.everywhere()
        mine, world.kafka.cluster_id = world.kafka.cluster_id, "another-cluster"
        handler = world.kafka.handlers[TopicListingRequest]
        answer = handler(1, None)
        world.kafka.handlers[TopicListingRequest] = lambda *_: answer
        world.kafka.cluster_id = mine
        with pytest.raises(KafkaUnreachable, match="another-cluster"):
            await world.mirror.refresh()

    assert run(story, orders=(ID, 3)).events == []


def test_an_unreachable_kafka_deletes_nothing() -> None:
    async def story(world: World) -> None:
        world.kafka.unreachable = {1, 2, 3}
        with pytest.raises(KafkaUnreachable):
            await world.mirror.refresh()
        assert world.mirror.get("orders") is not None

    assert run(story, orders=(ID, 3)).events == []


@pytest.mark.parametrize("name", ["__holdfast_groups", "__group_ledger", "__consumer_offsets", "__transaction_state"])
def test_the_deletion_of_a_state_topic_is_no_event_for_groups(name: str) -> None:
    async def story(world: World) -> None:
        world.everywhere()
        await world.mirror.refresh()
        assert world.mirror.get(name) is None

    assert run(story, **{name: (ID, 3)}).events == []


def test_many_deletions_are_confirmed_with_few_requests() -> None:
    async def story(world: World) -> None:
        world.everywhere()
        await world.mirror.refresh()

    many = {f"topic-{number}": (number.to_bytes(16, "big"), 1) for number in range(1, 1_201)}
    world = run(story, **many)

    assert len(world.events) == 1_200
    assert len(world.kafka.requests(MetadataRequest)) == 3 * 3  # three brokers, at most 500 topics in a request


def test_topics_without_offsets_to_delete_can_be_confirmed_as_missing() -> None:
    async def story(world: World) -> None:
        world.known[3]["behind"] = (OTHER_ID, 1)
        assert await world.mirror.confirmed_missing(["orders", "gone", "behind"]) == ["gone"]
        world.kafka.unreachable = {2}
        assert await world.mirror.confirmed_missing(["orders", "gone"]) == []

    run(story, orders=(ID, 3))


# -- refreshes ---------------------------------------------------------------------------------------------------------


def test_concurrent_refreshes_share_a_request() -> None:
    async def story(world: World) -> None:
        before = len(world.kafka.requests(TopicListingRequest))
        await asyncio.gather(*(world.mirror.refresh() for _ in range(20)))
        assert len(world.kafka.requests(TopicListingRequest)) == before + 1

    run(story)


def test_a_refresh_does_not_use_a_request_that_was_sent_before_it() -> None:
    async def story(world: World) -> None:
        sent: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        listing = world.kafka.handlers[TopicListingRequest]
        world.kafka.handlers[TopicListingRequest] = lambda *_: sent
        before = len(world.kafka.requests(TopicListingRequest))
        earlier = asyncio.create_task(world.mirror.refresh())
        await until(lambda: len(world.kafka.requests(TopicListingRequest)) > before)
        old_answer = listing(1, None)

        world.everywhere(new=(ID, 1))
        world.kafka.handlers[TopicListingRequest] = listing
        later = asyncio.create_task(world.mirror.refresh())
        await asyncio.sleep(0.01)
        sent.set_result(old_answer)
        await earlier
        assert world.mirror.get("new") is None
        await later
        assert world.mirror.get("new") is not None

    run(story)


def test_a_cancelled_caller_does_not_cancel_the_others() -> None:
    async def story(world: World) -> None:
        first = asyncio.create_task(world.mirror.refresh())
        second = asyncio.create_task(world.mirror.refresh())
        await asyncio.sleep(0)
        first.cancel()
        await second
        assert first.cancelled()

    run(story)


def test_refreshing_soon_waits_for_more_changes() -> None:
    async def story(world: World) -> None:
        before = len(world.kafka.requests(TopicListingRequest))
        world.everywhere(new=(ID, 1))
        for _ in range(20):
            world.mirror.refresh_soon()
        await until(lambda: world.mirror.get("new") is not None)
        assert len(world.kafka.requests(TopicListingRequest)) == before + 1

    run(story)


def test_topics_are_listed_at_intervals_also_after_failures(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)

    async def story() -> None:
        world = World()
        world.mirror = TopicMirror(world.kafka, interval_s=0.01)
        await world.mirror.start()
        world.kafka.unreachable = {1, 2, 3}
        await asyncio.sleep(0.1)
        world.everywhere(new=(ID, 1))
        world.kafka.unreachable = set()
        await until(lambda: world.mirror.get("new") is not None)
        await world.mirror.stop()

    asyncio.run(asyncio.wait_for(story(), 30))
    messages = [record.message for record in caplog.records]
    assert messages.count("topics of Kafka not listed, will retry") == 1
    assert messages.count("topics of Kafka listed again") == 1


def test_the_start_waits_for_kafka(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_mirror, "_RETRY_S", 0.01)

    async def story() -> None:
        world = World()
        world.everywhere(orders=(ID, 3))
        world.kafka.unreachable = {1}
        starting = asyncio.create_task(world.mirror.start())
        await asyncio.sleep(0.05)
        assert not starting.done()
        world.kafka.unreachable = set()
        await starting
        assert world.mirror.get("orders") is not None
        await world.mirror.stop()

    asyncio.run(asyncio.wait_for(story(), 30))


def test_a_failing_callback_does_not_end_the_mirror() -> None:
    async def story(world: World) -> None:
        def fail(*_: object) -> None:
            raise RuntimeError("a test")

        world.mirror.on_deleted = world.mirror.on_grown = fail
        world.everywhere(new=(OTHER_ID, 1))
        await world.mirror.refresh()
        assert world.mirror.get("orders") is None
        assert world.mirror.get("new") is not None

    run(story, orders=(ID, 3))


def test_other_work_runs_while_thousands_of_topics_are_compared() -> None:
    async def story(world: World) -> None:
        turns = 0

        async def other() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        task = asyncio.create_task(other())
        world.everywhere(**{f"topic-{number}": (number.to_bytes(16, "big"), 2) for number in range(1, 20_001)})
        before = turns
        await world.mirror.refresh()
        task.cancel()
        assert turns > before + 10
        assert len(world.events) == 20_000

    run(story, **{f"topic-{number}": (number.to_bytes(16, "big"), 1) for number in range(1, 20_001)})
