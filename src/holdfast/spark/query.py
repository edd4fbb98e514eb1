"""A running query: joins its group when Spark first asks for something, plans batches from its share, and tells the
group when they are done.

Spark says that a batch is done by asking for the next one: `latest` is called with the offsets that the last finished
batch has reached, also when there is nothing to read.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from typing import Any, Final

from holdfast.client.consumer_config import ConsumerConfig
from holdfast.client.coordinator import GroupCoordinator
from holdfast.client.metadata import Metadata
from holdfast.client.network import Network
from holdfast.client.offsets import EARLIEST, LATEST, list_offsets
from holdfast.client.settings import NetworkSettings
from holdfast.spark import restarts
from holdfast.spark.fixed import FixedShare
from holdfast.spark.holdings import Holdings
from holdfast.spark.lifetime import driver_age_s
from holdfast.spark.log_ends import LogEnds
from holdfast.spark.offsets import OffsetRange, Progress, Where
from holdfast.spark.options import ReadOptions
from holdfast.spark.planning import limited
from holdfast.spark.seats import Seats

API_TIMEOUT_MS: Final = 60_000
HAND_OVER_S: Final = 5.0
"""How long a query that reads what is there now waits for its share, if it has none yet: the members that were there
before give up theirs one rebalance later."""

logger = logging.getLogger("holdfast.spark")


class Query:
    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._network = Network(NetworkSettings.from_config(options.kafka))
        self._timeout_s = int(options.kafka.get("default.api.timeout.ms", API_TIMEOUT_MS)) / 1000
        self._read_committed = options.kafka.get("isolation.level", "read_committed") == "read_committed"
        self._ends = LogEnds(
            self._network,
            self._timeout_s,
            read_committed=self._read_committed,
            fail_on_data_loss=options.fail_on_data_loss,
        )
        self._holdings = Holdings()
        self._configs: list[ConsumerConfig] = options.consumer_configs() if options.group_id else []
        self._share = self._make_share()
        self._began_with: Mapping[str, int] | None = None
        self._planned: dict[str, Any] | None = None
        """The end of the batch that Spark works on, or is about to."""
        self._targets: dict[Where, int] | None = None
        """Where a query that reads what is there now is to stop."""
        self._had_share = False
        self.newest: dict[Where, int] = {}
        """Where the partitions of the share ended when it was last looked."""

    def _make_share(self) -> Seats | FixedShare:
        options = self._options
        if options.topics is None:
            config = self._configs[0] if self._configs else None
            return FixedShare(options.partitions, config, self._network, self._holdings, self._begin, self._timeout_s)
        return Seats(self._configs, self._holdings, self._begin, options.revoke_timeout_s)

    # -- what Spark calls ----------------------------------------------------------------------------------------------

    def read_what_is_there(self) -> None:
        """Stop where the topics end now (Trigger.AvailableNow)."""
        self._targets = self._ends.ask(self._all_partitions(), LATEST)

    def latest(self, start: dict[str, Any], most: int | None) -> dict[str, Any]:
        """The end of the next batch, of at most so many records; `start` itself if there is nothing to read."""
        done = Progress.from_json(start)
        self._begin_with(done, done.reached)
        self._share.polled()
        self._finish(done.reached)
        self._wait_for_share()
        positions = self._holdings.positions()
        self.newest = self._ends.ask(positions, LATEST)
        ranges, went_back = self._checked(positions)
        # What the checkpoint knows better than the group of partitions that came just now, since the logs do reach that
        # far: there may be no other call (Trigger.AvailableNow with nothing to read).
        self._share.store()
        kept = self._holdings.begin(limited(ranges, most))
        has_news = went_back or any(one.start < one.end for one in kept)
        if not has_news and done.began_with is not None:  # else the checkpoint does not know yet where the query began
            return start
        ranges_of = {one.where: (one.start, one.end) for one in kept}
        self._planned = Progress(ranges_of, self._began_with, _now_ms()).to_json()
        return self._planned

    def plan(self, start: dict[str, Any], end: dict[str, Any]) -> list[OffsetRange]:
        """What the batch that ends there has to read."""
        done, wanted = Progress.from_json(start), Progress.from_json(end)
        before = done.reached | {where: begin for where, (begin, _) in wanted.ranges.items()}
        self._begin_with(wanted, before)
        self._share.polled()
        ranges = [OffsetRange(*where, *of) for where, of in sorted(wanted.ranges.items())]
        if end != self._planned:
            ranges = self._replayed(before, ranges)
            self._planned = end
        return [one for one in ranges if one.start < one.end]

    def retry(self) -> None:
        """Store what could not be stored before."""
        self._share.store()

    def close(self, *, leave: bool = False) -> None:
        self._share.close(leave=leave)
        self._network.close()

    # -- the beginning -------------------------------------------------------------------------------------------------

    def _begin_with(self, progress: Progress, reached: Mapping[Where, int]) -> None:
        """Join, once it is known how far the query is, which partitions it began with and which came later."""
        if self._began_with is not None:
            return
        self._holdings.finish(reached)
        found = self._metadata()
        if progress.began_with is not None:
            self._began_with = progress.began_with
        else:
            self._began_with = {name: found.topic(name).partitions for name in self._names(found)}
        if isinstance(self._share, FixedShare):
            self._share.join()
        elif self._options.topics is not None:
            self._warn_of_short_session(progress.planned_ms)
            self._share.join(self._options.topics)

    def _warn_of_short_session(self, planned_ms: int | None) -> None:
        """Before the query joins: a seat that is gone can still be seen to be."""
        ids, group_id = self._options.instance_ids, self._options.group_id
        if not ids or group_id is None:
            return
        session_s = self._configs[0].membership.session_timeout_ms / 1000
        if planned_ms is None:
            restarts.warn_before_first_start(session_s, driver_age_s())
            return
        was = restarts.away(planned_ms, _now_ms(), driver_age_s())
        if was is not None:
            restarts.warn_after_restart(was, session_s, lambda: restarts.is_any_gone(self._network, group_id, ids))

    def _metadata(self) -> Metadata:
        topics = self._options.topics
        if topics is None:
            names = {topic for topic, _ in self._options.partitions}
            return self._network.metadata(names, time.monotonic() + self._timeout_s)
        return self._network.metadata(None if topics.patterns else topics.names, time.monotonic() + self._timeout_s)

    def _names(self, found: Metadata) -> set[str]:
        topics = self._options.topics
        return {topic for topic, _ in self._options.partitions} if topics is None else set(topics.matched(found))

    def _all_partitions(self) -> list[Where]:
        if self._options.topics is None:
            return list(self._options.partitions)
        found = self._metadata()
        return [(name, number) for name in self._names(found) for number in range(found.topic(name).partitions)]

    def _begin(self, network: Network, unknown: list[Where], deadline: float) -> Mapping[Where, int]:
        """Where the group has no offset. Called by the seats' threads."""
        wanted = {where: self._beginning(where) for where in unknown}
        ends = {where: offset for where, offset in wanted.items() if offset < 0}
        return wanted | list_offsets(network, ends, deadline, read_committed=self._read_committed)

    def _beginning(self, where: Where) -> int:
        """Where the query has been, it goes on. Otherwise startingOffsets says where it begins; but what has come since
        then is read from its beginning, because nobody has read it."""
        finished = self._holdings.finished(where)
        if finished is not None:
            return finished
        if where[1] < (self._began_with or {}).get(where[0], 0):
            return self._options.starting.of(where, "startingOffsets")
        return EARLIEST

    def _wait_for_share(self) -> None:
        if self._had_share and self._targets is None:
            return
        timeout_s = self._timeout_s
        if self._targets is not None and self._configs:
            # Until then the others have come, or are no longer waited for.
            timeout_s = max(config.membership.join_timeout_ms for config in self._configs) / 1000
        settled = self._share.wait_until_settled(timeout_s)
        if not settled:
            logger.warning("the group has not settled within %s s; going on with what there is", timeout_s)
        deadline = time.monotonic() + HAND_OVER_S
        while self._targets and not self._had_share and not self._holdings.positions() and time.monotonic() < deadline:
            self._network.pause(0.1)
            self._share.wait_until_settled(max(0.0, deadline - time.monotonic()))
        self._had_share = settled

    # -- batches -------------------------------------------------------------------------------------------------------

    def _finish(self, reached: Mapping[Where, int]) -> None:
        self._holdings.finish(reached)
        self._share.store()
        self._holdings.free()

    def _checked(self, positions: Mapping[Where, int]) -> tuple[list[OffsetRange], bool]:
        """What there is to read of each partition, and whether one had to go back because its log did."""
        behind = [where for where, end in self.newest.items() if positions[where] < end]
        first = self._ends.ask(behind, EARLIEST)
        # A member of the group that also reads what is not committed may have gone further than this query can read.
        log_ends = self._ends.of_logs([where for where, end in self.newest.items() if positions[where] > end])
        ranges, went_back = [], False
        for where, end in sorted(self.newest.items()):
            start = positions[where]
            if start > log_ends.get(where, start):
                self._ends.lost(f"{where[0]}-{where[1]} ends at {log_ends[where]}, and the query had got to {start}")
                self._holdings.go_back(where, end)
                start, went_back = end, True
            elif start < first.get(where, start):
                self._ends.lost(f"{where[0]}-{where[1]} begins at {first[where]}, and the query had got to {start}")
                start = first[where]
            stop = end if self._targets is None else min(end, self._targets.get(where, start))
            ranges.append(OffsetRange(*where, start, max(start, stop)))
        return ranges, went_back

    def _replayed(self, before: Mapping[Where, int], ranges: list[OffsetRange]) -> list[OffsetRange]:
        """A batch that was not finished before a restart. What the group has processed since is not read again; the
        rest is, also of partitions that others have now: Spark's checkpoint says that this batch has read them."""
        self._finish(before)
        self._wait_for_share()
        if self._options.group_id is not None:
            coordinator = GroupCoordinator(self._network, self._options.group_id)
            deadline = time.monotonic() + self._timeout_s
            stored = coordinator.fetch_offsets([one.where for one in ranges], deadline)
            coordinator.hang_up()
            ranges = [
                one._replace(start=min(one.end, max(one.start, stored[one.where].offset)))
                if one.where in stored
                else one
                for one in ranges
            ]
        self._holdings.begin_again(one.where for one in ranges if one.start < one.end)
        return ranges


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
