"""`Consumer`: a member of a consumer group, with the calls of `confluent_kafka.Consumer`.

    from holdfast import Consumer

    with Consumer({"bootstrap.servers": "localhost:9092", "group.id": "billing"}) as consumer:
        consumer.subscribe(["orders"])
        while True:
            message = consumer.poll(1.0)
            if message is not None and message.error() is None:
                handle(message.value())

Membership, generation and commits are Holdfast's; records come through confluent-kafka. Callbacks and assignors run in
the thread that polls, within a poll; one consumer is used by one thread.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from types import TracebackType
from typing import Any, Final, Self

import confluent_kafka
from confluent_kafka import TopicPartition

from holdfast.client.commits import Commits
from holdfast.client.consumer_config import ConsumerConfig, claim, release
from holdfast.client.driver import now_ms
from holdfast.client.errors import CallbackError, ConfigError, HoldfastError
from holdfast.client.join_desk import JoinDesk
from holdfast.client.offsets import EARLIEST, LATEST, list_offsets
from holdfast.client.participation import Participation
from holdfast.client.records import Records
from holdfast.client.topics import Topics
from holdfast.membership.requests import Offset

Where = tuple[str, int]
PartitionsCallback = Callable[["Consumer", list[TopicPartition]], None]

SLICE_S: Final = 0.05
"""The longest wait for records without a look at the group: by this much a rebalance may be late."""
QUIET_S: Final = 0.01
"""For how long a look at the group is good that found nothing: one before every record costs more than the record."""
CLOSE_TIMEOUT_S: Final = 10.0
NOTE_EVERY_MS: Final = 50
"""How often the positions are noted, so that an interrupted read can be taken back."""

logger = logging.getLogger("holdfast.client")


def _warn_of_shared_offsets(config: ConsumerConfig) -> None:
    for one in config.assignors:
        if config.auto_commit and one.several_owners:
            logger.warning(
                "enable.auto.commit is on, and the assignor %r gives a partition to several members: the group %r has "
                "one offset for all of them, the last commit counts, and a restart may skip or repeat records. Set "
                "enable.auto.commit=false",
                one.name,
                config.membership.group_id,
            )


class Consumer:
    """Settings are a mapping of Kafka's names, or keywords with underscores for the dots."""

    def __init__(self, config: Mapping[str, Any] | None = None, /, **settings: Any) -> None:
        self._config = ConsumerConfig.read(config, settings)
        claim(self._config.assignors)
        try:
            self._records = Records(self._config.data_plane)
        except ConfigError:
            release(self._config.assignors)
            raise
        _warn_of_shared_offsets(self._config)
        self._group = Participation(self._config, _Changes(self))
        self._commits = Commits(self._group.driver)
        self._stored: dict[Where, Offset] = {}
        self._sent: dict[Where, int] = {}
        self._auto_commit_at = 0
        self._missing: set[str] = set()
        self._quiet_until = 0.0
        self._note_at = 0
        self._interrupted = False
        self._closed = False
        self._process = os.getpid()
        self._may_commit = True
        self.on_assign: PartitionsCallback | None = None
        self.on_revoke: PartitionsCallback | None = None
        self.on_lost: PartitionsCallback | None = None
        self._starting: dict[Where, int] | None = None

    # -- the group -----------------------------------------------------------------------------------------------------

    def join_through(self, desk: JoinDesk) -> None:
        """Before the first `subscribe`, for consumers of one process: join together with those who have the same desk,
        where the broker can do that. A `Pool` does it."""
        self._group.join_through(desk)

    def subscribe(
        self,
        topics: Iterable[str],
        on_assign: PartitionsCallback | None = None,
        on_revoke: PartitionsCallback | None = None,
        on_lost: PartitionsCallback | None = None,
    ) -> None:
        """Join the group for these topics; one that begins with "^" is a regular expression.

        The callbacks get this consumer and a list of partitions. Without `on_lost`, `on_revoke` is called for lost
        partitions as well, as confluent-kafka does.
        """
        self._check_open()
        wanted = Topics.read(topics)
        self.on_assign, self.on_revoke, self.on_lost = on_assign, on_revoke, on_lost
        if not self._group.is_subscribed:
            self._records.remove(list(self._records.assigned))
        self._missing.clear()
        self._auto_commit_at = now_ms() + self._config.auto_commit_interval_ms
        self._group.subscribe(wanted)

    def unsubscribe(self, *, leave: bool = False) -> None:
        """Give up the partitions. A dynamic member leaves the group; a static one keeps its seat, unless it means it:
        `leave=True` (KIP-345)."""
        self._check_open()
        self._leave("the consumer unsubscribed from all topics", leave=leave, timeout_s=CLOSE_TIMEOUT_S)

    def close(self, timeout: float = CLOSE_TIMEOUT_S) -> None:
        """Commit (if that is automatic), give up the partitions, end the membership's thread. A dynamic member leaves
        the group at once; a static one's seat stays its own until its session ends."""
        if self._closed or os.getpid() != self._process:
            return  # a forked child has none of the threads, and the seat is its parent's
        try:
            self._leave("the consumer is being closed", leave=False, timeout_s=timeout)
        finally:
            self._closed = True
            self._quiet_until = 0.0
            self._group.close()
            self._records.close()
            release(self._config.assignors)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is not None:
            # What was handed out last may not have been processed: it must not be committed as if it were.
            self._may_commit = False
        self.close()

    def assignment(self) -> list[TopicPartition]:
        """The partitions that this consumer reads."""
        return [TopicPartition(*where) for where in sorted(self._records.assigned)]

    def memberid(self) -> str:
        """The id that the coordinator gave this member; empty while it has no seat."""
        return self._group.member_id

    def generation(self) -> int:
        """The generation of the group in which the present assignment was made; -1 before the first."""
        return self._group.generation

    @property
    def assignment_epoch(self) -> int | None:
        """The fencing token of the present assignment: it rises with every change of who owns what, also where the
        generation stays. A seat that changes hands within its `group.instance.id` keeps it: there the member id tells
        the processes apart. None where the broker has none, as Apache Kafka."""
        return self._group.epoch

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Without a subscription: read exactly these partitions, as a member of no group. Within `on_assign`: begin at
        other offsets than the group's."""
        self._check_open()
        wanted = {_where(one): one.offset for one in partitions}
        if self._starting is not None:
            self._begin_elsewhere(wanted)
            return
        if self._group.is_subscribed:
            raise HoldfastError("assign() is for consumers without a subscription; unsubscribe() first")
        deadline = time.monotonic() + self._config.api_timeout_ms / 1000
        offsets = self._resolved(wanted, deadline)
        self._records.remove(list(self._records.assigned))
        self._records.add(offsets)

    def incremental_assign(self, partitions: Iterable[TopicPartition]) -> None:
        """As assign(), without giving up what is assigned already."""
        self._check_open()
        wanted = {_where(one): one.offset for one in partitions}
        if self._starting is not None:
            self._begin_elsewhere(wanted)
            return
        if self._group.is_subscribed:
            raise HoldfastError("incremental_assign() is for consumers without a subscription; unsubscribe() first")
        self._records.add(self._resolved(wanted, time.monotonic() + self._config.api_timeout_ms / 1000))

    def unassign(self) -> None:
        """End a manual assignment. Within `on_revoke` it does nothing: the partitions go by themselves."""
        self._check_open()
        if not self._group.is_subscribed:
            self._records.remove(list(self._records.assigned))

    def incremental_unassign(self, partitions: Iterable[TopicPartition]) -> None:
        self._check_open()
        if not self._group.is_subscribed:
            self._records.remove([_where(one) for one in partitions])

    # -- records -------------------------------------------------------------------------------------------------------

    def poll(self, timeout: float | None = None) -> Any:
        """The next record, or None when none has come in time. A message may carry an `error()` instead of a value."""
        if self._is_quiet():
            message = self._read(0)
            if message is not None:
                return message
        deadline = _deadline(timeout)
        while True:
            complaint = self._attend()
            if complaint is not None or self._closed:
                return complaint
            left = deadline - time.monotonic()
            message = self._read(min(SLICE_S, max(0.0, left)))
            if message is not None or left <= SLICE_S:
                return message

    def consume(self, num_messages: int = 1, timeout: float | None = None) -> list[Any]:
        """Up to so many records, as many as have come in time."""
        deadline = _deadline(timeout)
        messages: list[Any] = []
        while True:
            # What has been taken from the data plane counts as processed when the group's work is done, which may
            # commit it: that work must wait until the application has it.
            if not messages:
                complaint = self._attend()
                if complaint is not None or self._closed:
                    return [] if complaint is None else [complaint]
            try:
                left = deadline - time.monotonic()
                messages += self._records.consume(num_messages - len(messages), min(SLICE_S, max(0.0, left)))
                if len(messages) >= num_messages or left <= SLICE_S or (messages and self._group.has_news):
                    return messages
                self._group.driver.polled()  # waiting for more is no reason to be taken for dead
            except BaseException:
                self._interrupted = True
                raise

    def _read(self, timeout_s: float) -> Any:
        try:
            return self._records.poll(timeout_s)
        except BaseException:
            self._interrupted = True
            raise

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        self._check_open()
        self._records.pause([_where(one) for one in partitions])

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        self._check_open()
        self._records.resume([_where(one) for one in partitions])

    def seek(self, partition: TopicPartition) -> None:
        """Go on at another offset (or OFFSET_BEGINNING, OFFSET_END, OFFSET_STORED)."""
        self._check_open()
        where = _where(partition)
        if where not in self._records.assigned:
            raise HoldfastError(f"seek() needs an assigned partition; {where[0]}-{where[1]} is not")
        deadline = time.monotonic() + self._config.api_timeout_ms / 1000
        self._records.seek(where, self._resolved({where: partition.offset}, deadline)[where])
        self._stored.pop(where, None)

    def position(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        """The offset of the next record of each; OFFSET_INVALID for what is not assigned."""
        self._check_open()
        self._take_back()
        asked = [_where(one) for one in partitions]
        found = self._records.positions(asked)
        return [TopicPartition(*where, found.get(where, confluent_kafka.OFFSET_INVALID)) for where in asked]

    def get_watermark_offsets(self, partition: TopicPartition, timeout: float | None = None) -> tuple[int, int]:
        """Where the partition begins and ends. Asked of its leader, apart from the data plane."""
        self._check_open()
        where, deadline = _where(partition), self._api_deadline(timeout)
        isolation = {"read_committed": self._config.read_committed}
        low = list_offsets(self._group.network, {where: EARLIEST}, deadline, **isolation)[where]
        return low, list_offsets(self._group.network, {where: LATEST}, deadline, **isolation)[where]

    def offsets_for_times(
        self, partitions: Iterable[TopicPartition], timeout: float | None = None
    ) -> list[TopicPartition]:
        """For each partition, whose offset is read as a time in milliseconds, the first offset at or after it; the end
        where there is none."""
        self._check_open()
        wanted = {_where(one): one.offset for one in partitions}
        deadline = self._api_deadline(timeout)
        found = list_offsets(self._group.network, wanted, deadline, read_committed=self._config.read_committed)
        end = confluent_kafka.OFFSET_END
        return [TopicPartition(*where, found[where] if found[where] >= 0 else end) for where in wanted]

    # -- offsets -------------------------------------------------------------------------------------------------------

    def commit(
        self,
        message: Any = None,
        offsets: Iterable[TopicPartition] | None = None,
        asynchronous: bool = True,
    ) -> list[TopicPartition] | None:
        """Store the offsets of what was handed out, of one message, or these.

        Asynchronous: `on_commit` (a setting) is told within a later poll. Otherwise it waits, raises what failed, and
        returns the partitions; one whose own commit failed has an `error`.
        """
        self._check_open()
        if self._group.failure is not None:
            raise self._group.failure
        wanted = self._to_commit(message, offsets)
        if not wanted:
            return None if asynchronous else []
        self._group.start()
        if asynchronous:
            self._commits.send(wanted, self._config.api_timeout_ms, self._committed)
            return None
        errors = self._commits.wait_for(wanted, self._config.api_timeout_ms)
        return _results(wanted, errors)

    def committed(self, partitions: Iterable[TopicPartition], timeout: float | None = None) -> list[TopicPartition]:
        """The group's offsets; OFFSET_INVALID where it has none."""
        self._check_open()
        asked = [_where(one) for one in partitions]
        found = self._group.coordinator.fetch_offsets(asked, self._api_deadline(timeout))
        results = []
        for where in asked:
            offset = found.get(where)
            at = confluent_kafka.OFFSET_INVALID if offset is None else offset.offset
            results.append(_partition(where, at, None if offset is None else offset.metadata))
        return results

    def store_offsets(self, message: Any = None, offsets: Iterable[TopicPartition] | None = None) -> None:
        """With enable.auto.offset.store=false: these are processed, and the next commit takes them."""
        self._check_open()
        if self._config.auto_offset_store:
            raise ConfigError("store_offsets() needs enable.auto.offset.store=false")
        for where, offset in _given(message, offsets).items():
            if where not in self._records.assigned:
                raise HoldfastError(f"store_offsets() needs an assigned partition; {where[0]}-{where[1]} is not")
            self._stored[where] = offset

    # -- within a poll -------------------------------------------------------------------------------------------------

    def _is_quiet(self) -> bool:
        """Whether the group was looked at a moment ago, and has wanted nothing since."""
        return time.monotonic() < self._quiet_until and not self._interrupted and not self._group.has_news

    def _attend(self) -> Any:
        """The group's work; a message if there is something to complain of."""
        self._check_open()
        self._quiet_until = 0.0
        self._take_back()
        now = now_ms()
        if now >= self._note_at:
            self._records.note()
            self._note_at = now + max(NOTE_EVERY_MS, 20 * (now_ms() - now))  # of ten thousand partitions less often
        if self._config.auto_commit and self._group.is_subscribed and now >= self._auto_commit_at:
            self._commit_automatically()
        missing = self._group.attend()
        self._commits.tell()
        for topic in missing:
            if topic not in self._missing:
                self._missing.add(topic)
                return _no_such_topic(topic)
        if not self._closed:  # by a callback
            self._quiet_until = time.monotonic() + QUIET_S
        return None

    def _take_back(self) -> None:
        """The exception of a signal (Ctrl-C) may end a read that had records in hand already: the data plane counts
        them as given out, but the application never saw them. Go back to where it has surely been: some may come twice,
        none is skipped."""
        if self._interrupted:
            self._records.go_back()
            self._interrupted = False

    def _commit_automatically(self) -> None:
        self._auto_commit_at = now_ms() + self._config.auto_commit_interval_ms
        news = self._news(self._records.assigned)
        if news:
            self._commits.send(news, self._config.api_timeout_ms, self._committed)
            self._sent.update({where: offset[0] for where, offset in news.items()})

    def _news(self, partitions: Collection[Where]) -> dict[Where, Offset]:
        """What the group does not know yet, of what was processed."""
        processed = self._processed(partitions)
        return {where: offset for where, offset in processed.items() if self._sent.get(where) != offset[0]}

    def _processed(self, partitions: Collection[Where]) -> dict[Where, Offset]:
        self._take_back()
        if not self._config.auto_offset_store:
            return {where: self._stored[where] for where in partitions if where in self._stored}
        return {
            where: (offset, None, -1) for where, offset in self._records.positions(partitions).items() if offset >= 0
        }

    def _to_commit(self, message: Any, offsets: Iterable[TopicPartition] | None) -> dict[Where, Offset]:
        if message is None and offsets is None:
            return self._processed(self._records.assigned)
        return _given(message, offsets)

    def _committed(
        self,
        failure: HoldfastError | None,
        offsets: Mapping[Where, Offset],
        errors: Mapping[Where, HoldfastError],
    ) -> None:
        if failure is not None or errors:
            for where in offsets if failure is not None else errors:
                self._sent.pop(where, None)
        if self._config.on_commit is not None:
            try:
                self._config.on_commit(failure, _results(offsets, errors))
            except Exception as error:
                raise CallbackError(f"on_commit raised {type(error).__name__}: {error}") from error
        elif failure is not None:
            logger.warning("offsets were not stored: %s", failure)

    def _leave(self, reason: str, *, leave: bool, timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        self._take_back()
        self._commits.settle(deadline)
        self._group.leave(reason, deadline, even_if_static=leave)
        self._records.remove(list(self._records.assigned))
        self._stored.clear()
        self._sent.clear()
        self._commits.tell()
        self._group.raise_callback_error()

    # -- where to begin ------------------------------------------------------------------------------------------------

    def _resolved(self, wanted: Mapping[Where, int], deadline: float) -> dict[Where, int]:
        """Offsets as numbers, whatever they were given as."""
        offsets = {where: offset for where, offset in wanted.items() if offset >= 0}
        stored = [where for where, offset in wanted.items() if offset < 0 and offset not in _ENDS]
        if stored:
            offsets |= self._group.starting_offsets(stored, deadline)
        ends = {where: _ENDS[offset] for where, offset in wanted.items() if offset in _ENDS}
        if ends:
            isolation = self._config.read_committed
            offsets |= list_offsets(self._group.network, ends, deadline, read_committed=isolation)
        return offsets

    def _begin_elsewhere(self, wanted: Mapping[Where, int]) -> None:
        assert self._starting is not None
        strange = sorted(where for where in wanted if where not in self._starting)
        if strange:
            names = ", ".join(f"{topic}-{partition}" for topic, partition in strange)
            raise HoldfastError(f"within on_assign, assign() takes the partitions that were assigned; not {names}")
        elsewhere = {where: offset for where, offset in wanted.items() if offset != self._starting[where]}
        deadline = time.monotonic() + self._config.api_timeout_ms / 1000
        for where, offset in self._resolved(elsewhere, deadline).items():
            self._records.seek(where, offset)

    def _api_deadline(self, timeout: float | None) -> float:
        endless = timeout is None or timeout < 0  # as confluent-kafka has it, but never for ever
        return time.monotonic() + (self._config.api_timeout_ms / 1000 if endless else timeout or 0.0)

    def _check_open(self) -> None:
        if self._closed:
            raise HoldfastError("the consumer is closed")


class _Changes:
    """What the consumer does when its partitions change; called by its participation, within a poll."""

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer

    def rejoining(self, staying: Collection[Where], within_ms: int) -> None:
        """As Java does: who keeps partitions through a rebalance commits them as well."""
        self.giving_up(staying, within_ms)

    def giving_up(self, partitions: Collection[Where], within_ms: int) -> None:
        consumer = self._consumer
        if not consumer._config.auto_commit or not consumer._may_commit:
            return
        news = consumer._news(partitions)
        if not news:
            return
        try:
            consumer._commits.wait_for(news, within_ms)
        except HoldfastError as error:
            # Then the next owner begins where the last commit was: some records are processed twice, none is lost.
            logger.warning("offsets were not stored before the partitions went: %s", error)

    def revoked(self, partitions: list[Where]) -> None:
        self._gone(partitions, self._consumer.on_revoke)

    def lost(self, partitions: list[Where]) -> None:
        self._gone(partitions, self._consumer.on_lost or self._consumer.on_revoke)

    def assigned(self, offsets: Mapping[Where, int]) -> None:
        consumer = self._consumer
        reads = consumer._records.assigned  # some of it already, if this was interrupted before
        consumer._records.add({where: offset for where, offset in offsets.items() if where not in reads})
        if consumer.on_assign is None:
            return
        consumer._starting = dict(offsets)
        try:
            consumer.on_assign(consumer, [TopicPartition(*where, offset) for where, offset in offsets.items()])
        finally:
            consumer._starting = None

    def _gone(self, partitions: list[Where], callback: PartitionsCallback | None) -> None:
        consumer = self._consumer
        try:
            if callback is not None:
                at = consumer._records.positions(partitions)
                callback(consumer, [TopicPartition(*where, at.get(where, -1001)) for where in partitions])
        finally:
            consumer._records.remove(partitions)
            for where in partitions:
                consumer._stored.pop(where, None)
                consumer._sent.pop(where, None)


_ENDS: Final = {confluent_kafka.OFFSET_BEGINNING: EARLIEST, confluent_kafka.OFFSET_END: LATEST}


def _where(partition: TopicPartition) -> Where:
    return partition.topic, partition.partition


def _partition(where: Where, offset: int, metadata: str | None) -> TopicPartition:
    return TopicPartition(*where, offset) if metadata is None else TopicPartition(*where, offset, metadata=metadata)


def _deadline(timeout: float | None) -> float:
    return float("inf") if timeout is None or timeout < 0 else time.monotonic() + timeout


def _given(message: Any, offsets: Iterable[TopicPartition] | None) -> dict[Where, Offset]:
    if (message is None) == (offsets is None):
        raise ConfigError("give either a message or offsets")
    if message is not None:
        if message.error() is not None:
            raise HoldfastError(f"a message with an error has no offset to commit: {message.error()}")
        epoch = message.leader_epoch()
        return {(message.topic(), message.partition()): (message.offset() + 1, None, -1 if epoch is None else epoch)}
    return {_where(one): (one.offset, one.metadata, _epoch(one)) for one in offsets or () if one.offset >= 0}


def _epoch(partition: TopicPartition) -> int:
    epoch = partition.leader_epoch
    return -1 if epoch is None else int(epoch)


def _results(offsets: Mapping[Where, Offset], errors: Mapping[Where, HoldfastError]) -> list[TopicPartition]:
    results = []
    for where, (offset, metadata, _) in offsets.items():
        result = _partition(where, offset, metadata)
        if where in errors:
            code = errors[where].code
            result.error = confluent_kafka.KafkaError(-1 if code is None else int(code), str(errors[where]))
        results.append(result)
    return results


def _no_such_topic(topic: str) -> Any:
    said = f"Subscribed topic not available: {topic}: create it, or see whether it was deleted or misspelt"
    error = confluent_kafka.KafkaError(confluent_kafka.KafkaError.UNKNOWN_TOPIC_OR_PART, said)
    return confluent_kafka.Message(topic=topic, error=error)
