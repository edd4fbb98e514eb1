"""The share of a query that was told its partitions (`assign`): no seat, no rebalance. If a group is named, the query
begins at the group's offsets and stores its own there, as any consumer without membership may while the group has no
members."""

from __future__ import annotations

import logging
import time
from collections.abc import Collection
from typing import Final

from holdfast.client.commits import Commits
from holdfast.client.consumer_config import ConsumerConfig
from holdfast.client.coordinator import GroupCoordinator
from holdfast.client.driver import Driver
from holdfast.client.errors import HoldfastError
from holdfast.client.network import Network
from holdfast.spark.holdings import Holdings
from holdfast.spark.offsets import Where
from holdfast.spark.seats import COMMIT_TIMEOUT_MS, Begin

_NUMBER: Final = 0

logger = logging.getLogger("holdfast.spark")


class FixedShare:
    def __init__(
        self,
        partitions: Collection[Where],
        config: ConsumerConfig | None,
        network: Network,
        holdings: Holdings,
        begin: Begin,
        timeout_s: float,
    ) -> None:
        """Without a `config` there is no group."""
        self._partitions = sorted(partitions)
        self._network = network
        self._holdings = holdings
        self._begin = begin
        self._timeout_s = timeout_s
        self._group_id = None if config is None else config.membership.group_id
        self._driver = (
            None if config is None else Driver(config.membership, Network(config.network), "holdfast-commits")
        )

    def join(self) -> None:
        deadline = time.monotonic() + self._timeout_s
        offsets: dict[Where, int] = {}
        if self._driver is not None and self._group_id is not None:
            self._driver.start()
            found = GroupCoordinator(self._network, self._group_id).fetch_offsets(self._partitions, deadline)
            offsets = {where: committed.offset for where, committed in found.items()}
        unknown = [where for where in self._partitions if where not in offsets]
        if unknown:
            offsets |= self._begin(self._network, unknown, deadline)
        self._holdings.gain(_NUMBER, offsets, unknown)

    def polled(self) -> None:
        """Nobody waits for this query."""

    def wait_until_settled(self, _timeout_s: float) -> bool:
        return True

    def store(self) -> None:
        offsets = self._holdings.to_store().get(_NUMBER, {})
        if not offsets:
            return
        if self._driver is not None:
            try:
                refused = Commits(self._driver).wait_for(
                    {where: (offset, None, -1) for where, offset in offsets.items()}, COMMIT_TIMEOUT_MS
                )
            except HoldfastError as error:
                logger.warning("the offsets of a batch were not stored: %s", error)
                return
            offsets = {where: offset for where, offset in offsets.items() if where not in refused}
        self._holdings.store(offsets)

    def close(self, *, leave: bool = False) -> None:  # noqa: ARG002 - there is no seat to leave
        if self._driver is not None:
            self._driver.stop()
