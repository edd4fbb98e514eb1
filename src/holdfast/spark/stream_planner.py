"""The planner of a running query: joins the group on Spark's first call, plans batches from its assignment, and commits
their offsets when they are done.

Spark reports that a batch is done by asking for the next one: `latest_offset` is called with the end offsets of the
last finished batch, also when there is nothing to read.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Mapping
from typing import Any, Final

from holdfast.client.cluster_client import ClusterClient
from holdfast.client.consumer_config import ConsumerConfig
from holdfast.client.coordinator_client import CoordinatorClient
from holdfast.client.errors import RequestTimedOut
from holdfast.client.metadata import Metadata
from holdfast.client.offsets import EARLIEST, LATEST
from holdfast.client.runtime import SYSTEM
from holdfast.client.settings import NetworkSettings
from holdfast.spark import new_checkpoint, restart_warning
from holdfast.spark.batch_offsets import BatchOffsets, OffsetRange
from holdfast.spark.first_contact import reach_a_broker
from holdfast.spark.group_members import QueryMembers
from holdfast.spark.manual_assignment import ManualAssignment
from holdfast.spark.offsets_option import list_ends
from holdfast.spark.options import NewCheckpoint, ReadOptions
from holdfast.spark.partition_state import PartitionState, Restart
from holdfast.spark.planning import limited, waits_for_more
from holdfast.spark.replay import skip_before, write_decision
from holdfast.spark.runner_process import driver_age_s
from holdfast.spark.watermarks import Watermarks
from holdfast.types import TopicPartition

API_TIMEOUT_MS: Final = 60_000
HANDOVER_TIMEOUT_S: Final = 5.0
"""How long a query with Trigger.AvailableNow waits for its first partitions: with the cooperative protocol, the earlier
members revoke theirs one rebalance later."""

RETRY_S: Final = 0.1

logger = logging.getLogger("holdfast.spark")


class StreamPlanner:
    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        network = NetworkSettings.from_config(options.kafka)
        self._network = ClusterClient(network, runtime=SYSTEM)
        self._group_network = self._network.for_groups(NetworkSettings.of_groups(options.kafka, network))
        self._timeout_s = int(options.kafka.get("default.api.timeout.ms", API_TIMEOUT_MS)) / 1000
        self._read_committed = options.kafka.get("isolation.level", "read_committed") == "read_committed"
        self._watermarks = Watermarks(
            self._network,
            self._timeout_s,
            read_committed=self._read_committed,
            fail_on_data_loss=options.fail_on_data_loss,
        )
        self._state = PartitionState()
        self._configs: list[ConsumerConfig] = options.consumer_configs() if options.group_id else []
        self._assignment = self._make_assignment()
        self._initial_partitions: Mapping[str, int] | None = None
        self._planned: dict[str, Any] | None = None
        """The end of the batch that Spark is processing, or is about to."""
        self._replayed: list[OffsetRange] | None = None
        """The ranges of that batch, if Spark repeats it."""
        self._targets: dict[TopicPartition, int] | None = None
        """The end offsets of a query with Trigger.AvailableNow."""
        self._had_assignment = False
        self.end_offsets: dict[TopicPartition, int] = {}
        """The last known end offsets of the assigned partitions."""
        for name, why in options.ignored.items():
            logger.warning("option %s has no effect: %s", name, why)

    def _make_assignment(self) -> QueryMembers | ManualAssignment:
        options = self._options
        if options.topics is None:
            config = self._configs[0] if self._configs else None
            return ManualAssignment(
                options.partitions,
                config,
                self._network,
                self._group_network,
                self._state,
                self._start_offsets,
                self._timeout_s,
            )
        return QueryMembers(self._configs, self._state, self._start_offsets, options.revoke_timeout_s)

    # -- called by Spark -----------------------------------------------------------------------------------------------

    def connect(self) -> None:
        """The first contact with the brokers, before all other calls."""
        reach_a_broker(self._network, self._options.kafka)
        if self._group_network is not self._network:
            reach_a_broker(self._group_network, self._options.kafka)

    def freeze_end_offsets(self) -> None:
        """The query ends at the current ends of the topics (Trigger.AvailableNow)."""
        self._targets = self._watermarks.fetch(self._all_partitions(), LATEST)

    def latest_offset(
        self, start: dict[str, Any], max_records: int | None, min_records: int | None = None
    ) -> dict[str, Any]:
        """The end of the next batch, of at most `max_records` records; `start` itself if there is nothing to read, or
        less than `min_records` before maxTriggerDelay has passed."""
        done = BatchOffsets.from_json(start)
        self._join_once(done, done.end)
        self._assignment.touch_poll()
        self._commit_finished(done.end)
        self._wait_for_assignment()
        self._commit_restarts()
        positions = self._state.positions()
        self.end_offsets = self._watermarks.fetch(positions, LATEST)
        ranges, went_back = self._readable_ranges(positions)
        # Commits offsets of the checkpoint that are ahead of the group's, for partitions that were assigned just now;
        # the logs reach that far. There may be no further call (Trigger.AvailableNow with nothing to read).
        self._assignment.commit()
        if not went_back and self._waits_for_more(ranges, min_records, done.planned_ms):
            return start
        kept = self._state.plan_batch(limited(ranges, max_records))
        needs_batch = went_back or any(one.start < one.end for one in kept)
        # Without the initial partitions in the checkpoint, the first batch is planned although it is empty.
        if not needs_batch and done.initial_partitions is not None:
            return start
        if done.initial_partitions is None:
            self._state.restart_only_after(self._committed(self._state.restarts()))
        self._planned = self._batch_of(kept).to_json()
        self._replayed = None
        return self._planned

    def _waits_for_more(self, ranges: list[OffsetRange], min_records: int | None, planned_ms: int | None) -> bool:
        """By the time in the checkpoint, so that a restart neither shortens nor extends the delay. A query with
        Trigger.AvailableNow would end without the remaining records."""
        if self._targets is not None:
            return False
        since_s = None if planned_ms is None else (_now_ms() - planned_ms) / 1000
        return waits_for_more(ranges, min_records, since_s, self._options.max_trigger_delay_s)

    def _batch_of(self, ranges: list[OffsetRange]) -> BatchOffsets:
        return BatchOffsets(
            {one.where: (one.start, one.end) for one in ranges},
            self._initial_partitions,
            _now_ms(),
            {
                where: (one.committed, one.offset)
                for where, one in self._state.restarts().items()
                if one.committed is not None
            },
        )

    def plan_batch(self, start: dict[str, Any], end: dict[str, Any]) -> list[OffsetRange]:
        """The ranges of the batch that ends there."""
        done, wanted = BatchOffsets.from_json(start), BatchOffsets.from_json(end)
        before = done.end | {where: begin for where, (begin, _) in wanted.ranges.items()}
        self._join_once(wanted, before)
        self._assignment.touch_poll()
        if end != self._planned:
            self._replayed = self._replay(before, wanted)
            self._planned = end
        ranges = wanted.offset_ranges if self._replayed is None else self._replayed
        return [one for one in ranges if one.start < one.end]

    def retry_commit(self) -> None:
        """Commits offsets that could not be committed before."""
        self._assignment.commit()

    def close(self, *, leave: bool = False) -> None:
        self._assignment.close(leave=leave)
        self._group_network.close()
        self._network.close()

    # -- the start -----------------------------------------------------------------------------------------------------

    def _join_once(self, progress: BatchOffsets, reached: Mapping[TopicPartition, int]) -> None:
        """Joins the group on the first call, when the checkpoint's offsets and initial partitions are known."""
        if self._initial_partitions is not None:
            return
        self._state.mark_processed(reached)
        found = self._metadata()
        initial = progress.initial_partitions
        if initial is None:
            initial = {name: found.topic(name).partitions for name in self._names(found)}
            self._begin_checkpoint(self._partitions_of(initial))
        else:
            self._continue_restarts(progress)
        self._initial_partitions = initial
        if isinstance(self._assignment, ManualAssignment):
            self._assignment.join()
        elif self._options.topics is not None:
            self._warn_of_short_session(progress.planned_ms)
            self._assignment.join(self._options.topics)

    def _begin_checkpoint(self, partitions: list[TopicPartition]) -> None:
        """Before the query joins, so that a query that fails here causes no rebalance."""
        if self._options.group_id is None:
            return
        deadline = time.monotonic() + self._timeout_s
        self._state.restart_at(
            new_checkpoint.restarts(
                self._options,
                lambda: self._options.starting.resolve(
                    self._network, partitions, deadline, read_committed=self._read_committed
                ),
                lambda: self._committed(partitions),
            )
        )

    def _continue_restarts(self, progress: BatchOffsets) -> None:
        """Partitions that were not assigned to the query yet when it ran before."""
        if self._options.new_checkpoint is NewCheckpoint.STARTING_OFFSETS:
            self._state.restart_at(
                {where: Restart(offset, committed) for where, (committed, offset) in progress.restarts.items()}
            )

    def _warn_of_short_session(self, planned_ms: int | None) -> None:
        """Before the query joins, because afterwards an expired static member cannot be detected."""
        ids, group_id = self._options.instance_ids, self._options.group_id
        if not ids or group_id is None:
            return
        session_s = self._configs[0].membership.session_timeout_ms / 1000
        if planned_ms is None:
            restart_warning.warn_before_first_start(session_s, driver_age_s())
            return
        was = restart_warning.downtime(planned_ms, _now_ms(), driver_age_s())
        if was is not None:
            restart_warning.warn_after_restart(
                was, session_s, lambda: restart_warning.any_expired(self._group_network, group_id, ids)
            )

    def _metadata(self) -> Metadata:
        topics = self._options.topics
        if topics is None:
            names = {topic for topic, _ in self._options.partitions}
            return self._network.metadata(names, time.monotonic() + self._timeout_s)
        return self._network.metadata(None if topics.patterns else topics.names, time.monotonic() + self._timeout_s)

    def _names(self, found: Metadata) -> set[str]:
        topics = self._options.topics
        return {topic for topic, _ in self._options.partitions} if topics is None else set(topics.resolve(found))

    def _all_partitions(self) -> list[TopicPartition]:
        if self._options.topics is None:
            return list(self._options.partitions)
        found = self._metadata()
        return self._partitions_of({name: found.topic(name).partitions for name in self._names(found)})

    def _partitions_of(self, counts: Mapping[str, int]) -> list[TopicPartition]:
        if self._options.topics is None:
            return list(self._options.partitions)
        return [(name, number) for name, count in counts.items() for number in range(count)]

    def _start_offsets(
        self, network: ClusterClient, unknown: list[TopicPartition], deadline: float
    ) -> Mapping[TopicPartition, int]:
        """Start offsets where the group has none. Called by the members' threads."""
        known = {where: offset for where in unknown if (offset := self._known_start(where)) is not None}
        first = [where for where in unknown if where not in known]
        starting = self._options.starting.resolve(network, first, deadline, read_committed=self._read_committed)
        return known | list_ends(network, known, deadline, read_committed=self._read_committed) | starting

    def _known_start(self, where: TopicPartition) -> int | None:
        """A partition that the query has read continues at its offset. Partitions that were added later are read from
        their beginning, because they have not been read. Otherwise None: startingOffsets applies."""
        finished = self._state.processed_offset(where)
        if finished is not None:
            return finished
        return None if where[1] < (self._initial_partitions or {}).get(where[0], 0) else EARLIEST

    def _wait_for_assignment(self) -> None:
        if self._had_assignment and self._targets is None:
            return
        timeout_s = self._timeout_s
        if self._targets is not None and self._configs:
            # By then the other members have joined, or were removed.
            timeout_s = max(config.membership.join_timeout_ms for config in self._configs) / 1000
        settled = self._assignment.wait_until_settled(timeout_s)
        if not settled:
            logger.warning("the group has not settled within %s s; continuing with the current assignment", timeout_s)
        deadline = time.monotonic() + HANDOVER_TIMEOUT_S
        while (
            self._targets
            and not self._had_assignment
            and not self._state.has_partitions()
            and time.monotonic() < deadline
        ):
            self._network.pause(RETRY_S)
            self._assignment.wait_until_settled(max(0.0, deadline - time.monotonic()))
        self._had_assignment = settled

    # -- batches -------------------------------------------------------------------------------------------------------

    def _commit_finished(self, reached: Mapping[TopicPartition, int]) -> None:
        self._state.mark_processed(reached)
        self._assignment.commit()
        self._state.batch_done()

    def _commit_restarts(self) -> None:
        """Commits the start offsets that are before the offsets of the group. Partitions without this commit are not
        planned. The next trigger tries again, but a query with Trigger.AvailableNow may have no other."""
        deadline = time.monotonic() + self._timeout_s
        while self._state.uncommitted_restarts():
            self._assignment.commit()
            left = self._state.uncommitted_restarts()
            if not left or self._targets is None:
                return
            if time.monotonic() > deadline:
                raise RequestTimedOut(
                    f"the start offsets of {len(left)} partitions could not be committed to the group "
                    f"{self._options.group_id!r} (newCheckpoint=startingOffsets); see the warnings in the driver's log"
                )
            self._network.pause(RETRY_S)
            self._assignment.wait_until_settled(max(0.0, deadline - time.monotonic()))

    def _readable_ranges(self, positions: Mapping[TopicPartition, int]) -> tuple[list[OffsetRange], bool]:
        """The available range of each partition, and whether one was rewound because its log was truncated."""
        behind = [where for where, end in self.end_offsets.items() if positions[where] < end]
        first = self._watermarks.fetch(behind, EARLIEST)
        # A member with read_uncommitted may have committed an offset beyond the last stable offset of this query.
        log_ends = self._watermarks.log_end_offsets(
            [where for where, end in self.end_offsets.items() if positions[where] > end]
        )
        ranges, went_back = [], False
        for where, end in sorted(self.end_offsets.items()):
            start = positions[where]
            if start > log_ends.get(where, start):
                self._watermarks.report_data_loss(
                    f"{where[0]}-{where[1]} ends at {log_ends[where]}, and the query had read up to {start}"
                )
                self._state.rewind(where, end)
                start, went_back = end, True
            elif start < first.get(where, start):
                self._watermarks.report_data_loss(
                    f"{where[0]}-{where[1]} begins at {first[where]}, and the query had read up to {start}"
                )
                start = first[where]
            stop = end if self._targets is None else min(end, self._targets.get(where, start))
            ranges.append(OffsetRange(*where, start, max(start, stop)))
        return ranges, went_back

    def _replay(self, before: Mapping[TopicPartition, int], batch: BatchOffsets) -> list[OffsetRange]:
        """A batch that was not finished before a restart: the remaining part of it, also of partitions that others own
        now, because Spark's checkpoint says that this batch has read them."""
        self._commit_finished(before)
        self._wait_for_assignment()
        ranges = skip_before(batch.offset_ranges, self._committed(batch.ranges))
        if not self._options.fail_on_data_loss:
            ranges = self._skip_deleted(ranges)
        self._state.replan_batch(one.where for one in ranges if one.start < one.end)
        if self._options.replay_directory is not None:
            write_decision(self._options.replay_directory, batch, ranges)
        return ranges

    def _committed(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """The offsets that the group has committed."""
        if self._options.group_id is None or not partitions:
            return {}
        with CoordinatorClient(self._group_network, self._options.group_id) as coordinator:
            found = coordinator.fetch_offsets(list(partitions), time.monotonic() + self._timeout_s)
        return {where: committed.offset for where, committed in found.items()}

    def _skip_deleted(self, ranges: list[OffsetRange]) -> list[OffsetRange]:
        first = self._watermarks.fetch([one.where for one in ranges if one.start < one.end], EARLIEST)
        for one in ranges:
            if one.start < min(one.end, first.get(one.where, one.start)):
                self._watermarks.report_data_loss(
                    f"{one.topic}-{one.partition} begins at {first[one.where]}, and the batch at {one.start}"
                )
        return skip_before(ranges, first)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
