"""The partitions of a query with the option `assign`: it is not a member of a group and never rebalances. If a group is
named, the query starts at the group's offsets and commits there, as any consumer without membership may while the group
has no members."""

from __future__ import annotations

import logging
import time
from collections.abc import Collection
from typing import Final

from holdfast.client.cluster_client import ClusterClient
from holdfast.client.commit_sender import CommitSender
from holdfast.client.consumer_config import ConsumerConfig
from holdfast.client.coordinator_client import CoordinatorClient
from holdfast.client.errors import HoldfastError
from holdfast.client.membership_thread import MembershipThread
from holdfast.client.runtime import SYSTEM
from holdfast.spark.group_members import COMMIT_TIMEOUT_MS, StartOffsets
from holdfast.spark.partition_state import PartitionState
from holdfast.types import TopicPartition

_MEMBER: Final = 0

logger = logging.getLogger("holdfast.spark")


class ManualAssignment:
    def __init__(
        self,
        partitions: Collection[TopicPartition],
        config: ConsumerConfig | None,
        network: ClusterClient,
        group_network: ClusterClient,
        holdings: PartitionState,
        begin: StartOffsets,
        timeout_s: float,
    ) -> None:
        """Without a `config` no group is used."""
        self._partitions = sorted(partitions)
        self._network = network
        self._group_network = group_network
        self._state = holdings
        self._start_offsets = begin
        self._timeout_s = timeout_s
        self._group_id = None if config is None else config.membership.group_id
        self._driver = (
            None
            if config is None
            else MembershipThread(
                config.membership, ClusterClient(config.group_network, runtime=SYSTEM), "holdfast-commits"
            )
        )

    def join(self) -> None:
        deadline = time.monotonic() + self._timeout_s
        offsets: dict[TopicPartition, int] = {}
        if self._driver is not None and self._group_id is not None:
            self._driver.start()
            found = CoordinatorClient(self._group_network, self._group_id).fetch_offsets(self._partitions, deadline)
            offsets = {where: committed.offset for where, committed in found.items()}
        unknown = [where for where in self._partitions if where not in offsets]
        if unknown:
            offsets |= self._start_offsets(self._network, unknown, deadline)
        self._state.assigned(_MEMBER, offsets, unknown)

    def touch_poll(self) -> None:
        """There is no poll interval without membership."""

    def wait_until_settled(self, _timeout_s: float) -> bool:
        return True

    def commit(self) -> None:
        offsets = self._state.uncommitted().get(_MEMBER, {})
        if not offsets:
            return
        if self._driver is not None:
            try:
                refused = CommitSender(self._driver).commit_sync(
                    {where: (offset, None, -1) for where, offset in offsets.items()}, COMMIT_TIMEOUT_MS
                )
            except HoldfastError as error:
                logger.warning("could not commit the offsets of a batch: %s", error)
                return
            for where, why in refused.items():
                logger.warning("could not commit the offset of %s-%s: %s", *where, why)
            offsets = {where: offset for where, offset in offsets.items() if where not in refused}
        self._state.committed(offsets)

    def close(self, *, leave: bool = False) -> None:  # noqa: ARG002 - there is no membership to end
        if self._driver is not None:
            self._driver.stop()
