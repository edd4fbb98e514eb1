"""The members of a query in its group. Each has its own thread, which takes part in rebalances at once, however long
Spark's batches and triggers are."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final

from holdfast.client.cluster_client import ClusterClient
from holdfast.client.commit_sender import CommitSender
from holdfast.client.consumer_config import ConsumerConfig
from holdfast.client.consumer_membership import ConsumerMembership
from holdfast.client.errors import ConnectionFailed, HoldfastError
from holdfast.client.join_batcher import JoinBatcher
from holdfast.client.runtime import SYSTEM
from holdfast.client.subscription import Subscription
from holdfast.membership.effects import CommitCompleted
from holdfast.spark.partition_state import PartitionState
from holdfast.types import TopicPartition

POLL_INTERVAL_S: Final = 0.2
COMMIT_TIMEOUT_MS: Final = 5_000
LEAVE_TIMEOUT_S: Final = 2.0

StartOffsets = Callable[[ClusterClient, list[TopicPartition], float], Mapping[TopicPartition, int]]
"""The start offsets of partitions for which the group has no committed offset."""

logger = logging.getLogger("holdfast.spark")


class QueryMember:
    """One member. `settled` is changed under the condition that all members of a query use."""

    def __init__(
        self,
        number: int,
        config: ConsumerConfig,
        holdings: PartitionState,
        begin: StartOffsets,
        revoke_timeout_s: float,
        changed: threading.Condition,
    ) -> None:
        self.settled = False
        """Whether this member has its assignment, and no rebalance is in progress."""
        self.failure: HoldfastError | None = None
        self.last_error: HoldfastError | None = None
        """Why the coordinator has not been reached yet."""
        self._number = number
        self._state = holdings
        # At most half of the rebalance timeout.
        self._revoke_timeout_s = min(revoke_timeout_s, config.membership.max_poll_interval_ms / 2000)
        self._changed = changed
        self._commit_lock = threading.Lock()
        """Held while offsets are committed: a partition is not revoked between the check and the response."""
        self._uncommitted_starts: set[TopicPartition] = set()
        self._start_offsets = begin
        self._group = ConsumerMembership(
            config, self, initial_offsets=self._start_unknown, protocol_follows_group=True, runtime=SYSTEM
        )
        self._commits = CommitSender(self._group.membership_thread)
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name=f"holdfast-member-{number}", daemon=True)

    # -- called by Spark's thread --------------------------------------------------------------------------------------

    def use_batcher(self, batcher: JoinBatcher) -> None:
        """Before `join`: the members with this batcher join in one request, if the broker supports that."""
        self._group.use_batcher(batcher)

    def join(self, topics: Subscription) -> None:
        self._group.subscribe(topics)
        self._thread.start()

    def touch_poll(self) -> None:
        """Spark is still polling."""
        if self._group.membership_thread.poll_expired:  # it polled too late, so its partitions may have another owner
            self._unsettle()
            self._state.revoked(self._number)
        self._group.membership_thread.touch_poll()

    def _uncommitted(self) -> Mapping[TopicPartition, int]:
        return self._state.uncommitted().get(self._number, {})

    def commit(self, wanted: Callable[[], Mapping[TopicPartition, int]] | None = None) -> None:
        """Commits the offsets of this member's partitions, or those that `wanted` returns. Offsets that cannot be
        committed now are tried again later, if the partitions are still assigned then."""
        with self._commit_lock:
            offsets = (wanted or self._uncommitted)()
            if not offsets:
                return
            try:
                refused = self._commits.commit_sync(
                    {where: (offset, None, -1) for where, offset in offsets.items()}, COMMIT_TIMEOUT_MS
                )
            except HoldfastError as error:
                logger.warning("could not commit the offsets of a batch: %s", error)
                return
        for where, why in refused.items():
            logger.warning("could not commit the offset of %s-%s: %s", *where, why)
        self._state.committed({where: offset for where, offset in offsets.items() if where not in refused})

    def close(self, *, leave: bool) -> None:
        """A dynamic member leaves the group; a static one stays in it, unless `leave` is set."""
        self._stopping = True
        self._state.batch_done()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(LEAVE_TIMEOUT_S)
        if self.failure is None and not self._thread.is_alive():
            self._group.leave("the query has ended", time.monotonic() + LEAVE_TIMEOUT_S, even_if_static=leave)
        self._group.close()

    # -- the member's thread -------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._stopping:
            try:
                self._group.poll(polled=False)
            except HoldfastError as error:
                if not isinstance(error, ConnectionFailed) or error.fatal:
                    self._fail(error)
                    return
                logger.warning("%s", error)
                with self._changed:
                    self.last_error = error
                    self._changed.notify_all()
            except Exception as error:
                logger.exception("the thread of a group member failed")
                self._fail(HoldfastError(f"the group member failed: {type(error).__name__}: {error}"))
                return
            self._group.membership_thread.wait_for_event(POLL_INTERVAL_S)

    def _fail(self, error: HoldfastError) -> None:
        self._state.revoked(self._number)
        with self._changed:
            self.failure = error
            self._changed.notify_all()

    def _unsettle(self) -> None:
        with self._changed:
            self.settled = False

    # -- called by the consumer coordinator ----------------------------------------------------------------------------

    def before_rejoin(self, staying: Collection[TopicPartition], within_ms: int) -> None:  # noqa: ARG002 - nothing is revoked
        self._unsettle()

    def before_revoke(self, partitions: Collection[TopicPartition], within_ms: int) -> None:
        """Waits for the current batch; Spark's thread commits its offsets before it releases the partitions."""
        self._unsettle()
        self._wait_for_batch(partitions, within_ms)
        # Also the start offset, if it is not committed yet: the next owner must start at the same offset.
        self.commit(lambda: {where: at for where, at in self._uncommitted().items() if where in partitions})

    def _wait_for_batch(self, partitions: Collection[TopicPartition], within_ms: int) -> None:
        timeout_s = 0.0 if self._stopping else min(self._revoke_timeout_s, within_ms / 1000)
        if not self._state.wait_until_idle(partitions, time.monotonic() + timeout_s) and not self._stopping:
            logger.warning(
                "%d partitions are revoked while a batch still reads them, after %s s (revokeTimeout): their next "
                "owner reads the records of this batch again",
                len(partitions),
                timeout_s,
            )

    def revoked(self, partitions: list[TopicPartition]) -> None:
        with self._commit_lock:
            self._state.revoked(self._number, partitions)

    def lost(self, partitions: list[TopicPartition]) -> None:
        self._unsettle()
        with self._commit_lock:
            self._state.revoked(self._number, partitions)

    def assigned(self, offsets: Mapping[TopicPartition, int]) -> None:
        unstored = self._uncommitted_starts & offsets.keys()
        self._uncommitted_starts -= unstored
        self._state.assigned(self._number, offsets, unstored)
        if unstored:
            self._commit_starts({where: at for where, at in self._uncommitted().items() if where in unstored})
        with self._changed:
            self.settled, self.last_error = True, None
            self._changed.notify_all()

    def _start_unknown(self, unknown: list[TopicPartition], deadline: float) -> Mapping[TopicPartition, int]:
        beginnings = self._start_offsets(self._group.cluster, unknown, deadline)
        self._uncommitted_starts.update(beginnings)
        return beginnings

    def _commit_starts(self, offsets: Mapping[TopicPartition, int]) -> None:
        """The next owner starts there too: `latest` means the end of the topic when the query was started."""

        def ended(end: CommitCompleted) -> None:
            if end.failure is None:
                self._state.committed({where: offset for where, offset in offsets.items() if where not in end.errors})

        self._group.membership_thread.commit(
            {where: (offset, None, -1) for where, offset in offsets.items()}, COMMIT_TIMEOUT_MS, ended
        )


class QueryMembers:
    def __init__(
        self, configs: Sequence[ConsumerConfig], holdings: PartitionState, begin: StartOffsets, revoke_timeout_s: float
    ) -> None:
        self._changed = threading.Condition()
        self._members = [
            QueryMember(number, config, holdings, begin, revoke_timeout_s, self._changed)
            for number, config in enumerate(configs)
        ]
        if len(configs) > 1:
            batcher = JoinBatcher(len(configs), runtime=SYSTEM)
            for member in self._members:
                member.use_batcher(batcher)

    def join(self, topics: Subscription) -> None:
        for member in self._members:
            member.join(topics)

    def touch_poll(self) -> None:
        for member in self._members:
            member.touch_poll()
        self.check()

    def check(self) -> None:
        """Raises the error of a member that failed."""
        for member in self._members:
            if member.failure is not None:
                raise member.failure

    def wait_until_settled(self, timeout_s: float) -> bool:
        """Waits until every member has its assignment. Raises the error of a member, or why the group cannot be
        reached."""
        deadline = time.monotonic() + timeout_s
        with self._changed:
            while not all(member.settled for member in self._members):
                self.check()
                for member in self._members:
                    if member.last_error is not None:
                        raise member.last_error
                left = deadline - time.monotonic()
                if left <= 0:
                    return False
                self._changed.wait(min(left, POLL_INTERVAL_S))
        return True

    def commit(self) -> None:
        """Commits the offsets that the query has processed."""
        for member in self._members:
            member.commit()

    def close(self, *, leave: bool = False) -> None:
        closers = [
            threading.Thread(target=member.close, kwargs={"leave": leave}, daemon=True) for member in self._members
        ]
        for closer in closers:
            closer.start()
        for closer in closers:
            closer.join(2 * LEAVE_TIMEOUT_S)
