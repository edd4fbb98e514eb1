"""The first and last offsets of partitions, and the reporting of offsets outside of them."""

from __future__ import annotations

import logging
import time
from collections.abc import Collection
from typing import Final

from holdfast.client.cluster_client import ClusterClient
from holdfast.client.errors import HoldfastError, TopicError
from holdfast.client.offsets import LATEST, list_offsets
from holdfast.types import TopicPartition
from holdfast.wire.error_codes import ErrorCode

DELETED_AFTER_S: Final = 5.0
"""A broker that has just started does not know its topics at once; a topic that stays unknown was deleted."""
_PAUSE_S: Final = 0.2

logger = logging.getLogger("holdfast.spark")


class DataLoss(HoldfastError):
    """Records that the query has not read were deleted."""

    FATAL = True


class Watermarks:
    def __init__(
        self, network: ClusterClient, timeout_s: float, *, read_committed: bool, fail_on_data_loss: bool
    ) -> None:
        self._network = network
        self._timeout_s = timeout_s
        self._read_committed = read_committed
        self._fail_on_data_loss = fail_on_data_loss

    def fetch(self, partitions: Collection[TopicPartition], when: int) -> dict[TopicPartition, int]:
        """EARLIEST or LATEST of each partition. A deleted partition is reported as data loss and omitted."""
        return self._fetch(partitions, when, self._read_committed)

    def log_end_offsets(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """The ends of the logs, including uncommitted transactions."""
        return self._fetch(partitions, LATEST, False)

    def _fetch(
        self, partitions: Collection[TopicPartition], when: int, read_committed: bool
    ) -> dict[TopicPartition, int]:
        wanted = set(partitions)
        deadline = time.monotonic() + self._timeout_s
        gone_at = time.monotonic() + DELETED_AFTER_S
        while wanted:
            try:
                return list_offsets(self._network, dict.fromkeys(wanted, when), deadline, read_committed=read_committed)
            except TopicError as error:
                if not _is_missing(error) or time.monotonic() >= deadline:
                    raise
                if time.monotonic() >= gone_at:
                    wanted -= self._missing(wanted, deadline)
                else:
                    self._network.pause(_PAUSE_S)
        return {}

    def _missing(self, wanted: Collection[TopicPartition], deadline: float) -> set[TopicPartition]:
        found = self._network.metadata({topic for topic, _ in wanted}, deadline)
        missing = {
            (topic, partition)
            for topic, partition in wanted
            if topic not in found.topics or partition >= found.topics[topic].partitions
        }
        for topic, partition in sorted(missing)[:1]:
            self.report_data_loss(
                f"{topic}-{partition} and {len(missing) - 1} other partitions do not exist any more"
                if len(missing) > 1
                else f"{topic}-{partition} does not exist any more"
            )
        return missing

    def report_data_loss(self, what: str) -> None:
        """Raises DataLoss, or logs a warning with failOnDataLoss=false."""
        if self._fail_on_data_loss:
            raise DataLoss(
                f"{what}: records may be lost. Find out why (retention, or a topic that was deleted or created again); "
                "then continue with the available records by the option failOnDataLoss=false"
            )
        logger.warning("%s: continuing with the available records (failOnDataLoss=false)", what)


def _is_missing(error: TopicError) -> bool:
    return error.code is None or error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
