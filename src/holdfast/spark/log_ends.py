"""Where partitions begin and end now, and what to do about offsets that lie outside."""

from __future__ import annotations

import logging
import time
from collections.abc import Collection
from typing import Final

from holdfast.client.errors import HoldfastError, TopicError
from holdfast.client.network import Network
from holdfast.client.offsets import LATEST, list_offsets
from holdfast.spark.offsets import Where
from holdfast.wire.error_codes import ErrorCode

GONE_AFTER_S: Final = 5.0
"""A broker that has just started does not know its topics at once; only one that stays unknown was deleted."""
_PAUSE_S: Final = 0.2

logger = logging.getLogger("holdfast.spark")


class DataLoss(HoldfastError):
    """Records that the query has not read are no longer there."""

    FATAL = True


class LogEnds:
    def __init__(self, network: Network, timeout_s: float, *, read_committed: bool, fail_on_data_loss: bool) -> None:
        self._network = network
        self._timeout_s = timeout_s
        self._read_committed = read_committed
        self._fail_on_data_loss = fail_on_data_loss

    def ask(self, partitions: Collection[Where], when: int) -> dict[Where, int]:
        """EARLIEST or LATEST of each. What does not exist any more is data loss, and left out."""
        return self._ask(partitions, when, self._read_committed)

    def of_logs(self, partitions: Collection[Where]) -> dict[Where, int]:
        """Where the logs end, with what is not committed yet."""
        return self._ask(partitions, LATEST, False)

    def _ask(self, partitions: Collection[Where], when: int, read_committed: bool) -> dict[Where, int]:
        wanted = set(partitions)
        deadline = time.monotonic() + self._timeout_s
        gone_at = time.monotonic() + GONE_AFTER_S
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

    def _missing(self, wanted: Collection[Where], deadline: float) -> set[Where]:
        found = self._network.metadata({topic for topic, _ in wanted}, deadline)
        missing = {
            (topic, partition)
            for topic, partition in wanted
            if topic not in found.topics or partition >= found.topics[topic].partitions
        }
        for topic, partition in sorted(missing)[:1]:
            self.lost(
                f"{topic}-{partition} and {len(missing) - 1} other partitions do not exist any more"
                if len(missing) > 1
                else f"{topic}-{partition} does not exist any more"
            )
        return missing

    def lost(self, what: str) -> None:
        """Raises, or is content to say so."""
        if self._fail_on_data_loss:
            raise DataLoss(
                f"{what}: records may be lost. See why (retention, or a topic that was deleted or made anew); then go "
                "on with what is there by the option failOnDataLoss=false"
            )
        logger.warning("%s: going on with what is there (failOnDataLoss=false)", what)


def _is_missing(error: TopicError) -> bool:
    return error.code is None or error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
