"""The topics of the Kafka cluster: their names, ids and numbers of partitions.

The mirror lists all topics every few seconds, after requests that change topics, and on demand. New topics and new
partitions are added at once.

Deletions need more care, because the coordinator deletes the offsets of a deleted topic. A topic that exists can be
missing in a listing: if the broker that answers is behind the others, or if the gateway may no longer describe the
topic. Therefore the mirror looks up a topic that is missing, or that has another id, by its id at every live broker.
The topic is deleted if all of them answer UNKNOWN_TOPIC_ID. After any other answer, or none, the topic stays in the
mirror, and the next refresh asks again. This is safe because ids are not reused, and because the broker that listed the
topic first knows it until it has learned of the deletion.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from holdfast.broker.storage.topics import INTERNAL_TOPICS
from holdfast.broker.structured_log import log_event
from holdfast.broker.util.slices import SliceScheduler
from holdfast.gateway.kafka.errors import KafkaRefused, KafkaUnreachable
from holdfast.gateway.state.topic import GROUPS_TOPIC
from holdfast.gateway.topic_listing import LISTING_VERSION, ListedTopic, TopicListing, listing_request
from holdfast.gateway.upstream import Upstream
from holdfast.wire.apis.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from holdfast.wire.error_codes import ErrorCode
from holdfast.wire.fields import ZERO_UUID

logger = logging.getLogger(__name__)

REFRESH_INTERVAL_S: Final = 5.0
STATE_TOPICS: Final = INTERNAL_TOPICS | {GROUPS_TOPIC}
"""They have no committed offsets, and their deletion is no event for groups."""

_CONFIRMATION_PAUSES_S: Final = (0.05, 0.2, 0.5, 1.0)
"""Between questions while not all brokers agree on a deletion. They usually do within milliseconds."""
_SOON_S: Final = 0.05
"""Several topics that change at the same time are listed once, and brokers have time to learn of the change."""
_PATIENCE_S: Final = 1.0
"""How long a refresh waits for the brokers that have to confirm deletions."""
_BUSY: Final = 4
"""A refresh begins no sooner than this many times the duration of the last one after its end. Clients that commit
offsets of unknown topics can therefore use at most a fifth of the event loop's time for listings."""
_MAX_PAUSE_S: Final = 5.0
_RETRY_S: Final = 1.0
_ASKED_AT_ONCE: Final = 500
"""The number of topics in one request for confirmation."""


@dataclass(frozen=True, slots=True)
class MirroredTopic:
    name: str
    id: bytes
    partitions: range


class TopicMirror:
    """All topics by name and by id. Callbacks run on the event loop; see `holdfast.broker.storage.topics.Topics`."""

    def __init__(
        self,
        cluster: Upstream,
        slices: SliceScheduler | None = None,
        *,
        interval_s: float = REFRESH_INTERVAL_S,
    ) -> None:
        self._cluster = cluster
        self._slices = slices or SliceScheduler()
        self._interval_s = interval_s
        self._names: dict[str, MirroredTopic] = {}
        self._ids: dict[bytes, MirroredTopic] = {}
        self._is_full = False
        self._unsettled: dict[str, str] = {}
        """Topics that are missing without a confirmation, and why."""
        self._current: asyncio.Task[None] | None = None
        self._following: asyncio.Task[None] | None = None
        self._settling: asyncio.Task[None] | None = None
        self._periodic: asyncio.Task[None] | None = None
        self._soon: asyncio.TimerHandle | None = None
        self._begun_soon: set[asyncio.Task[None]] = set()
        self._next_begin = 0.0
        self._is_failing = False
        self.on_deleted: Callable[[str], None] = lambda _name: None
        self.on_grown: Callable[[str, int], None] = lambda _name, _before: None
        """Also called for a new topic, which had no partitions before, but not for the topics of the first listing."""

    # -- queries -------------------------------------------------------------------------------------------------------

    def get(self, name: str) -> MirroredTopic | None:
        return self._names.get(name)

    def by_id(self, topic_id: bytes) -> MirroredTopic | None:
        return self._ids.get(topic_id)

    def partition_count(self, name: str) -> int:
        """0 if there is no such topic."""
        topic = self._names.get(name)
        return 0 if topic is None else len(topic.partitions)

    def __len__(self) -> int:
        return len(self._names)

    async def confirmed_missing(self, names: Iterable[str]) -> list[str]:
        """Those of the names that no topic has, as every live broker confirms.

        For offsets that were stored before the mirror was filled: their topics may have been deleted since. Returns
        fewer names, or none, if a broker is not reachable.
        """
        missing = [name for name in names if name not in self._names and name not in STATE_TOPICS]
        topics = {name: MetadataRequestTopic(name=name) for name in missing}
        doubts = await self._doubts(topics, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, self._cluster.brokers.node_ids)
        return [name for name in missing if name not in doubts and name not in self._names]

    # -- starting and stopping -----------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Returns when all topics have been listed. Waits for Kafka if it is not reachable."""
        while not self._is_full:
            try:
                await self.refresh()
            except KafkaUnreachable as failure:
                self._failed(failure)
                await asyncio.sleep(_RETRY_S)
        self._periodic = asyncio.create_task(self._refresh_forever())

    async def stop(self) -> None:
        if self._soon is not None:
            self._soon.cancel()
        own = self._periodic, self._following, self._current, self._settling
        tasks = [*self._begun_soon, *(task for task in own if task is not None)]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _refresh_forever(self) -> None:
        while True:
            await asyncio.sleep(self._interval_s)
            await self._try_refresh()

    async def _try_refresh(self) -> None:
        try:
            await self.refresh()
        except (KafkaUnreachable, KafkaRefused) as failure:
            self._failed(failure)
        except Exception:  # the next refresh may succeed
            logger.exception("the topics of Kafka could not be listed")

    def _failed(self, failure: Exception) -> None:
        if not self._is_failing:
            self._is_failing = True
            log_event(logger, "topics of Kafka not listed, will retry", logging.WARNING, error=failure)

    # -- refreshing ----------------------------------------------------------------------------------------------------

    async def refresh(self) -> None:
        """Lists all topics. Concurrent calls share one request, which is sent after the last of them.

        A request that was sent earlier may have been answered before a topic existed that the caller is looking for.
        Raises KafkaUnreachable or KafkaRefused.
        """
        task = self._following
        if task is None:
            task = self._following = asyncio.create_task(self._refresh_after(self._current))
            task.add_done_callback(_look_at_failure)
        await asyncio.wait((task,))  # unlike `await task`, does not pass a cancellation on
        if task.cancelled():
            raise KafkaUnreachable("the topics of Kafka are not listed any more: the gateway is being stopped")
        task.result()

    def refresh_soon(self) -> None:
        """After a request that changes topics. Several calls within a moment cause one refresh."""
        if self._soon is None:
            self._soon = asyncio.get_running_loop().call_later(_SOON_S, self._begin_soon)

    def _begin_soon(self) -> None:
        self._soon = None
        task = asyncio.create_task(self._try_refresh())
        self._begun_soon.add(task)  # the loop itself holds tasks weakly
        task.add_done_callback(self._begun_soon.discard)

    async def _refresh_after(self, current: asyncio.Task[None] | None) -> None:
        if current is not None:
            await asyncio.wait((current,))
        await asyncio.sleep(self._next_begin - time.monotonic())
        self._current, self._following = self._following, None
        begun = time.monotonic()
        try:
            await self._refresh()
        finally:
            ended = time.monotonic()
            self._next_begin = ended + min((ended - begun) * _BUSY, _MAX_PAUSE_S)
            self._current = None

    async def _refresh(self) -> None:
        listing: TopicListing = await self._cluster.ask_any(listing_request(), version=LISTING_VERSION)
        self._require_same_cluster(listing.cluster_id)
        if not listing.broker_ids:
            raise KafkaUnreachable("Kafka's Metadata lists no live broker: the broker that answered is still starting")
        suspects = await self._apply(listing)
        if self._is_failing:
            self._is_failing = False
            log_event(logger, "topics of Kafka listed again", topics=len(self._names))
        self._is_full = True
        for name in self._unsettled.keys() - suspects.keys():
            del self._unsettled[name]
        if suspects and self._settling is None:
            brokers = {*listing.broker_ids, *self._cluster.brokers.node_ids}
            self._settling = asyncio.create_task(self._settle(suspects, brokers))
        if self._settling is not None:
            await asyncio.wait((self._settling,), timeout=_PATIENCE_S)

    def _require_same_cluster(self, cluster_id: str | None) -> None:
        if cluster_id != self._cluster.cluster_id:
            raise KafkaUnreachable(
                f"a broker answered for cluster {cluster_id}, but the gateway works with {self._cluster.cluster_id}: "
                "do all addresses of --kafka belong to one cluster?"
            )

    async def _apply(self, listing: TopicListing) -> dict[str, ListedTopic | None]:
        """Adds what is new. Returns the topics that seem to be deleted, with the topic that has their name now."""
        suspects: dict[str, ListedTopic | None] = {}
        listed: set[str] = set()
        async for topic in self._slices.iterate(listing.topics):
            listed.add(topic.name)
            if topic.error_code != ErrorCode.NONE or topic.id == ZERO_UUID:
                continue  # it exists, and nothing else is known about it
            known = self._names.get(topic.name)
            if known is None:
                self._add(topic, 0)
            elif known.id != topic.id:
                suspects[topic.name] = topic
            elif len(known.partitions) < topic.partition_count:  # never fewer, except at a broker that is behind
                self._add(topic, len(known.partitions))
        async for name in self._slices.iterate(list(self._names)):
            if name not in listed:
                suspects[name] = None
        return suspects

    def _add(self, topic: ListedTopic, before: int) -> None:
        added = MirroredTopic(topic.name, topic.id, range(topic.partition_count))
        self._names[topic.name] = self._ids[topic.id] = added
        if self._is_full:
            _call(self.on_grown, topic.name, before)

    # -- deletions -----------------------------------------------------------------------------------------------------

    async def _settle(self, suspects: Mapping[str, ListedTopic | None], brokers: Collection[int]) -> None:
        """Deletes the topics whose deletion every broker confirms."""
        try:
            known = {name: topic for name in suspects if (topic := self._names.get(name)) is not None}
            doubts = await self._doubts_by_id(known, brokers)
            async for name, topic in self._slices.iterate(known.items()):
                if name in doubts:
                    self._leave_unsettled(name, doubts[name])
                elif self._names.get(name) is topic:
                    self._delete(topic, suspects[name])
        except Exception:  # the topics stay in the mirror, and the next refresh asks again
            logger.exception("it is not known whether topics of Kafka were deleted")
        finally:
            self._settling = None

    async def _doubts_by_id(self, known: Mapping[str, MirroredTopic], brokers: Collection[int]) -> dict[str, str]:
        """A few more questions about topics that are missing for the first time: a broker may be a moment behind."""
        wanted = {name: MetadataRequestTopic(topic_id=topic.id, name=None) for name, topic in known.items()}
        doubts = await self._doubts(wanted, ErrorCode.UNKNOWN_TOPIC_ID, brokers)
        for pause_s in _CONFIRMATION_PAUSES_S:
            again = {name: wanted[name] for name in doubts if name not in self._unsettled}
            if not again:
                break
            await asyncio.sleep(pause_s)
            settled = again.keys() - (await self._doubts(again, ErrorCode.UNKNOWN_TOPIC_ID, brokers)).keys()
            doubts = {name: reason for name, reason in doubts.items() if name not in settled}
        return doubts

    def _leave_unsettled(self, name: str, reason: str) -> None:
        if name not in self._unsettled:
            log_event(logger, "topic is not listed by Kafka, and not deleted", topic=name, reason=reason)
        self._unsettled[name] = reason

    def _delete(self, topic: MirroredTopic, successor: ListedTopic | None) -> None:
        del self._names[topic.name], self._ids[topic.id]
        self._unsettled.pop(topic.name, None)
        log_event(logger, "topic was deleted in Kafka", topic=topic.name, created_again=successor is not None)
        if topic.name not in STATE_TOPICS:
            _call(self.on_deleted, topic.name)
        if successor is not None:
            self._add(successor, 0)

    async def _doubts(
        self, topics: Mapping[str, MetadataRequestTopic], confirming: ErrorCode, brokers: Collection[int]
    ) -> dict[str, str]:
        """The topics that may exist, and why. Of the others, every broker says that it does not know them."""
        doubts: dict[str, str] = {}
        names = list(topics)
        for start in range(0, len(names), _ASKED_AT_ONCE):
            some = {name: topics[name] for name in names[start : start + _ASKED_AT_ONCE]}
            answers = await asyncio.gather(*(self._doubts_of(broker, some, confirming) for broker in brokers))
            for answer in answers:
                doubts.update(answer)
        return doubts if brokers else dict.fromkeys(names, "no broker is known")

    async def _doubts_of(
        self, broker: int, topics: Mapping[str, MetadataRequestTopic], confirming: ErrorCode
    ) -> dict[str, str]:
        request = MetadataRequest(topics=list(topics.values()), allow_auto_topic_creation=False)
        try:
            response: MetadataResponse = await self._cluster.ask(broker, request, version=LISTING_VERSION)
            self._require_same_cluster(response.cluster_id)
        except (KafkaUnreachable, KafkaRefused) as failure:
            return dict.fromkeys(topics, f"broker {broker} cannot confirm it: {failure}")
        if all(one.node_id != broker for one in response.brokers):
            return dict.fromkeys(topics, f"broker {broker} does not list itself: it is still starting")
        unknown = [one for one in response.topics if one.error_code == confirming]
        names, ids = {one.name for one in unknown}, {one.topic_id for one in unknown}
        return {
            name: f"broker {broker} does not answer {confirming.name}"
            for name, topic in topics.items()
            if (topic.topic_id not in ids if topic.name is None else topic.name not in names)
        }


def _call(callback: Callable[..., None], *arguments: object) -> None:
    try:
        callback(*arguments)
    except Exception:  # the topics are followed further
        logger.exception("a change of topics in Kafka could not be applied to the groups")


def _look_at_failure(task: asyncio.Task[Any]) -> None:
    """Every caller may have been cancelled, and asyncio would log that nobody saw the failure."""
    if not task.cancelled():
        task.exception()
