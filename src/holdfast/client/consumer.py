"""`Consumer`: a member of a consumer group, with the calls of `confluent_kafka.Consumer`.

    from holdfast import Consumer

    with Consumer({"bootstrap.servers": "localhost:9092", "group.id": "billing"}) as consumer:
        consumer.subscribe(["orders"])
        while True:
            message = consumer.poll(1.0)
            if message is not None and message.error() is None:
                handle(message.value())

Holdfast implements membership, generations and commits; confluent-kafka fetches the records. Callbacks and assignors
run within a poll, in the thread that polls. Only one thread may use a consumer.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Collection, Iterable, Mapping
from types import TracebackType
from typing import Any, Final, Self

from confluent_kafka import OFFSET_INVALID, TopicPartition

from holdfast import types
from holdfast.client.commit_sender import CommitSender
from holdfast.client.confluent_types import (
    commit_results,
    confluent_partition,
    given_offsets,
    topic_partition,
    unknown_topic_message,
)
from holdfast.client.consumer_config import ConsumerConfig, claim, release
from holdfast.client.consumer_membership import ConsumerMembership
from holdfast.client.consumer_progress import ConsumerProgress
from holdfast.client.errors import CallbackError, ConfigError, HoldfastError
from holdfast.client.fetcher import RecordFetcher
from holdfast.client.join_batcher import JoinBatcher
from holdfast.client.offset_resolver import OffsetResolver
from holdfast.client.rebalance_callbacks import RebalanceCallbacks
from holdfast.client.record_reader import RecordReader
from holdfast.client.runtime import SYSTEM, Runtime
from holdfast.client.subscription import Subscription
from holdfast.membership.requests import OffsetAndMetadata

PartitionsCallback = Callable[["Consumer", list[TopicPartition]], None]

MAX_RECORD_WAIT_S: Final = 0.05
"""The longest wait for records without polling the group. A rebalance may be delayed by this time."""
GROUP_POLL_INTERVAL_S: Final = 0.01
"""How long the group is not polled again after a poll without events, because polling it costs more than a record."""
CLOSE_TIMEOUT_S: Final = 10.0

logger = logging.getLogger("holdfast.client")


class Consumer:
    """Settings are a mapping of Kafka's names, or keywords with underscores for the dots."""

    def __init__(
        self, config: Mapping[str, Any] | None = None, /, *, _runtime: Runtime = SYSTEM, **settings: Any
    ) -> None:
        self._config = ConsumerConfig.read(config, settings)
        self._clock = _runtime.clock
        claim(self._config.assignors)
        try:
            self._fetcher = RecordFetcher(self._config.librdkafka, self._clock)
        except ConfigError:
            release(self._config.assignors)
            raise
        _warn_of_shared_offsets(self._config)
        self._reader = RecordReader(self._fetcher, self._clock)
        self._progress = ConsumerProgress(self._reader, auto_store=self._config.auto_offset_store)
        self._callbacks = RebalanceCallbacks(self, self._fetcher, self._progress, self._commit_before_revoke)
        self._group = ConsumerMembership(self._config, self._callbacks, runtime=_runtime)
        self._commits = CommitSender(self._group.membership_thread)
        self._offsets = OffsetResolver(
            self._group.cluster, self._group.starting_offsets, read_committed=self._config.read_committed
        )
        self._auto_commit_at = 0
        self._missing: set[str] = set()
        self._next_group_poll = 0.0
        self._closed = False
        self._process = os.getpid()
        self._may_commit = True

    # -- the group -----------------------------------------------------------------------------------------------------

    def use_batcher(self, batcher: JoinBatcher) -> None:
        """Join together with the consumers of this process that use the same batcher, if the broker supports it. Call
        it before the first `subscribe`. A `Pool` does this."""
        self._group.use_batcher(batcher)

    def subscribe(
        self,
        topics: Iterable[str],
        on_assign: PartitionsCallback | None = None,
        on_revoke: PartitionsCallback | None = None,
        on_lost: PartitionsCallback | None = None,
    ) -> None:
        """Join the group and subscribe to these topics. A topic that begins with "^" is a regular expression.

        The callbacks get this consumer and a list of partitions. Without `on_lost`, `on_revoke` is also called for lost
        partitions, as in confluent-kafka.
        """
        self._check_open()
        subscription = Subscription.parse(topics)
        callbacks = self._callbacks
        callbacks.on_assign, callbacks.on_revoke, callbacks.on_lost = on_assign, on_revoke, on_lost
        if not self._group.is_subscribed:
            self._fetcher.remove(list(self._fetcher.assigned))
        self._missing.clear()
        self._auto_commit_at = self._clock.now_ms() + self._config.auto_commit_interval_ms
        self._group.subscribe(subscription)

    def unsubscribe(self, *, leave: bool = False) -> None:
        """Give up the partitions. A dynamic member leaves the group. A static member stays in the group unless
        `leave=True` (KIP-345)."""
        self._check_open()
        self._leave("the consumer unsubscribed from all topics", leave=leave, timeout_s=CLOSE_TIMEOUT_S)

    def close(self, timeout: float = CLOSE_TIMEOUT_S) -> None:
        """Commit (if auto-commit is enabled), give up the partitions, and end the membership's thread. A dynamic member
        leaves the group at once. A static member stays in the group until its session expires."""
        if self._closed or os.getpid() != self._process:
            return  # in a forked child: it has no threads, and its parent is the member
        try:
            self._leave("the consumer is being closed", leave=False, timeout_s=timeout)
        finally:
            self._closed = True
            self._next_group_poll = 0.0
            self._group.close()
            self._fetcher.close()
            release(self._config.assignors)

    def _leave(self, reason: str, *, leave: bool, timeout_s: float) -> None:
        deadline = self._clock.now() + timeout_s
        self._reader.rewind_after_interrupt()
        self._commits.flush(deadline)
        self._group.leave(reason, deadline, even_if_static=leave)
        self._fetcher.remove(list(self._fetcher.assigned))
        self._progress.clear()
        self._commits.run_callbacks()
        self._group.raise_callback_error()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is not None:
            # The application may not have processed the last records, so they must not be committed.
            self._may_commit = False
        self.close()

    def assignment(self) -> list[TopicPartition]:
        """The partitions that this consumer reads."""
        return [TopicPartition(*where) for where in sorted(self._fetcher.assigned)]

    def memberid(self) -> str:
        """The id that the coordinator gave this member; empty while it is not in the group."""
        return self._group.member_id

    def generation(self) -> int:
        """The generation of the current assignment; -1 before the first one."""
        return self._group.generation_id

    @property
    def assignment_epoch(self) -> int | None:
        """The fencing token of the current assignment. It increases with every change of ownership, also within a
        generation. It stays the same if another process joins with the same `group.instance.id`; the member id
        distinguishes these processes. None if the broker has no assignment epochs, as with Apache Kafka."""
        return self._group.epoch

    # -- partitions without a group ------------------------------------------------------------------------------------

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Without a subscription, read exactly these partitions without being a member. Within `on_assign`, start at
        other offsets than the committed ones."""
        self._assign("assign", partitions, keep=False)

    def incremental_assign(self, partitions: Iterable[TopicPartition]) -> None:
        """As assign(), but keep the partitions that are already assigned."""
        self._assign("incremental_assign", partitions, keep=True)

    def _assign(self, call: str, partitions: Iterable[TopicPartition], *, keep: bool) -> None:
        self._check_open()
        wanted = {topic_partition(one): one.offset for one in partitions}
        if self._callbacks.start_offsets is not None:
            self._override_start_offsets(self._callbacks.start_offsets, wanted)
            return
        if self._group.is_subscribed:
            raise HoldfastError(f"{call}() is for consumers without a subscription; unsubscribe() first")
        offsets = self._offsets.resolve(wanted, self._api_deadline(None))
        if not keep:
            self._fetcher.remove(list(self._fetcher.assigned))
        self._fetcher.add(offsets)

    def _override_start_offsets(
        self, start_offsets: Mapping[types.TopicPartition, int], wanted: Mapping[types.TopicPartition, int]
    ) -> None:
        foreign = sorted(where for where in wanted if where not in start_offsets)
        if foreign:
            names = ", ".join(f"{topic}-{partition}" for topic, partition in foreign)
            raise HoldfastError(f"within on_assign, assign() takes the partitions that were assigned; not {names}")
        changed = {where: offset for where, offset in wanted.items() if offset != start_offsets[where]}
        for where, offset in self._offsets.resolve(changed, self._api_deadline(None)).items():
            self._fetcher.seek(where, offset)

    def unassign(self) -> None:
        """End a manual assignment. Not needed within `on_revoke`, where it has no effect."""
        self._check_open()
        if not self._group.is_subscribed:
            self._fetcher.remove(list(self._fetcher.assigned))

    def incremental_unassign(self, partitions: Iterable[TopicPartition]) -> None:
        self._check_open()
        if not self._group.is_subscribed:
            self._fetcher.remove([topic_partition(one) for one in partitions])

    # -- records -------------------------------------------------------------------------------------------------------

    def poll(self, timeout: float | None = None) -> Any:
        """The next record, or None if none arrives in time. A message may have an `error()` instead of a value."""
        if self._polled_recently():
            message = self._reader.poll(0)
            if message is not None:
                return message
        deadline = self._poll_deadline(timeout)
        while True:
            error = self._poll_group()
            if error is not None or self._closed:
                return error
            left = deadline - self._clock.now()
            message = self._reader.poll(min(MAX_RECORD_WAIT_S, max(0.0, left)))
            if message is not None or left <= MAX_RECORD_WAIT_S:
                return message

    def consume(self, num_messages: int = 1, timeout: float | None = None) -> list[Any]:
        """Up to `num_messages` records, as many as arrive in time."""
        deadline = self._poll_deadline(timeout)
        messages: list[Any] = []
        while True:
            # Polling the group may commit all records that were taken from librdkafka, so it must wait until the
            # application has them.
            if not messages:
                error = self._poll_group()
                if error is not None or self._closed:
                    return [] if error is None else [error]
            try:
                left = deadline - self._clock.now()
                messages += self._reader.consume(num_messages - len(messages), min(MAX_RECORD_WAIT_S, max(0.0, left)))
                if len(messages) >= num_messages or left <= MAX_RECORD_WAIT_S or (messages and self._group.has_events):
                    return messages
                self._group.membership_thread.touch_poll()  # waiting for records must not end the membership
            except BaseException:
                self._reader.interrupted = True
                raise

    def _polled_recently(self) -> bool:
        """Whether the group was polled recently and has had no events since."""
        return self._clock.now() < self._next_group_poll and not self._reader.interrupted and not self._group.has_events

    def _poll_group(self) -> Any:
        """Handle the group's events; returns a message if there is an error to report."""
        self._check_open()
        self._next_group_poll = 0.0
        self._reader.rewind_after_interrupt()
        self._reader.checkpoint_if_due()
        if self._config.auto_commit and self._group.is_subscribed:
            self._auto_commit()
        missing = self._group.poll()
        self._commits.run_callbacks()
        for topic in missing:
            if topic not in self._missing:
                self._missing.add(topic)
                return unknown_topic_message(topic)
        if not self._closed:  # by a callback
            self._next_group_poll = self._clock.now() + GROUP_POLL_INTERVAL_S
        return None

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        self._check_open()
        self._fetcher.pause([topic_partition(one) for one in partitions])

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        self._check_open()
        self._fetcher.resume([topic_partition(one) for one in partitions])

    def seek(self, partition: TopicPartition) -> None:
        """Continue at another offset (or OFFSET_BEGINNING, OFFSET_END, OFFSET_STORED)."""
        self._check_open()
        where = topic_partition(partition)
        if where not in self._fetcher.assigned:
            raise HoldfastError(f"seek() needs an assigned partition; {where[0]}-{where[1]} is not")
        offsets = self._offsets.resolve({where: partition.offset}, self._api_deadline(None))
        self._fetcher.seek(where, offsets[where])
        self._progress.seek(where)

    def position(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        """The offset of the next record of each partition; OFFSET_INVALID for partitions that are not assigned."""
        self._check_open()
        wanted = [topic_partition(one) for one in partitions]
        found = self._reader.positions(wanted)
        return [TopicPartition(*where, found.get(where, OFFSET_INVALID)) for where in wanted]

    def get_watermark_offsets(self, partition: TopicPartition, timeout: float | None = None) -> tuple[int, int]:
        """The start and end offsets of the partition, from its leader and not from librdkafka."""
        self._check_open()
        return self._offsets.watermarks(topic_partition(partition), self._api_deadline(timeout))

    def offsets_for_times(
        self, partitions: Iterable[TopicPartition], timeout: float | None = None
    ) -> list[TopicPartition]:
        """For each partition, whose offset is a time in milliseconds, the first offset at or after that time, or the
        end."""
        self._check_open()
        times_ms = {topic_partition(one): one.offset for one in partitions}
        found = self._offsets.at_times(times_ms, self._api_deadline(timeout))
        return [TopicPartition(*where, offset) for where, offset in found.items()]

    # -- offsets -------------------------------------------------------------------------------------------------------

    def commit(
        self,
        message: Any = None,
        offsets: Iterable[TopicPartition] | None = None,
        asynchronous: bool = True,
    ) -> list[TopicPartition] | None:
        """Commit the offsets of all records that were returned, of one message, or the given offsets.

        If asynchronous, `on_commit` (a setting) is called within a later poll. Otherwise the call waits, raises an
        exception if the commit fails, and returns the partitions. A partition whose commit failed has an `error`.
        """
        self._check_open()
        if self._group.failure is not None:
            raise self._group.failure
        if message is None and offsets is None:
            wanted = self._progress.processed(self._fetcher.assigned)
        else:
            wanted = given_offsets(message, offsets)
        if not wanted:
            return None if asynchronous else []
        self._group.start()
        if asynchronous:
            self._commits.commit_async(wanted, self._config.api_timeout_ms, self._committed)
            return None
        return commit_results(wanted, self._commits.commit_sync(wanted, self._config.api_timeout_ms))

    def committed(self, partitions: Iterable[TopicPartition], timeout: float | None = None) -> list[TopicPartition]:
        """The committed offsets; OFFSET_INVALID for partitions without one."""
        self._check_open()
        wanted = [topic_partition(one) for one in partitions]
        found = self._group.coordinator.fetch_offsets(wanted, self._api_deadline(timeout))
        results = []
        for where in wanted:
            offset = found.get(where)
            results.append(
                confluent_partition(where, OFFSET_INVALID)
                if offset is None
                else confluent_partition(where, offset.offset, offset.metadata)
            )
        return results

    def store_offsets(self, message: Any = None, offsets: Iterable[TopicPartition] | None = None) -> None:
        """With enable.auto.offset.store=false, marks these as processed. The next commit includes them."""
        self._check_open()
        if self._config.auto_offset_store:
            raise ConfigError("store_offsets() needs enable.auto.offset.store=false")
        for where, offset in given_offsets(message, offsets).items():
            if where not in self._fetcher.assigned:
                raise HoldfastError(f"store_offsets() needs an assigned partition; {where[0]}-{where[1]} is not")
            self._progress.store(where, offset)

    def _auto_commit(self) -> None:
        now = self._clock.now_ms()
        if now < self._auto_commit_at:
            return
        self._auto_commit_at = now + self._config.auto_commit_interval_ms
        offsets = self._progress.uncommitted(self._fetcher.assigned)
        if offsets:
            self._commits.commit_async(offsets, self._config.api_timeout_ms, self._committed)
            self._progress.commit_sent(offsets)

    def _commit_before_revoke(self, partitions: Collection[types.TopicPartition], within_ms: int) -> None:
        if not self._config.auto_commit or not self._may_commit:
            return
        offsets = self._progress.uncommitted(partitions)
        if not offsets:
            return
        try:
            self._commits.commit_sync(offsets, within_ms)
        except HoldfastError as error:
            # The next owner starts at the last commit. Some records are processed twice, none is lost.
            logger.warning("offsets were not committed before the partitions were revoked: %s", error)

    def _committed(
        self,
        failure: HoldfastError | None,
        offsets: Mapping[types.TopicPartition, OffsetAndMetadata],
        errors: Mapping[types.TopicPartition, HoldfastError],
    ) -> None:
        self._progress.commit_failed(offsets if failure is not None else errors)
        if self._config.on_commit is not None:
            try:
                self._config.on_commit(failure, commit_results(offsets, errors))
            except Exception as error:
                raise CallbackError(f"on_commit raised {type(error).__name__}: {error}") from error
        elif failure is not None:
            logger.warning("offsets were not committed: %s", failure)

    # -- deadlines -----------------------------------------------------------------------------------------------------

    def _poll_deadline(self, timeout: float | None) -> float:
        return float("inf") if timeout is None or timeout < 0 else self._clock.now() + timeout

    def _api_deadline(self, timeout: float | None) -> float:
        endless = timeout is None or timeout < 0  # as in confluent-kafka, but with a limit
        return self._clock.now() + (self._config.api_timeout_ms / 1000 if endless else timeout or 0.0)

    def _check_open(self) -> None:
        if self._closed:
            raise HoldfastError("the consumer is closed")


def _warn_of_shared_offsets(config: ConsumerConfig) -> None:
    for one in config.assignors:
        if config.auto_commit and one.allows_multiple_owners:
            logger.warning(
                "enable.auto.commit is on, and the assignor %r gives a partition to several members: the group %r has "
                "one offset for all of them, the last commit counts, and a restart may skip or repeat records. Set "
                "enable.auto.commit=false",
                one.name,
                config.membership.group_id,
            )
