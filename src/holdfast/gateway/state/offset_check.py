"""An alarm: nobody else may write to a partition of the group log, so the offsets of its writer have no gaps."""

from __future__ import annotations

import logging

from holdfast.broker.structured_log import log_event

logger = logging.getLogger(__name__)

UNKNOWN = -1


class OffsetCheck:
    def __init__(self, partition: str) -> None:
        self._partition = partition
        self._next = UNKNOWN
        self._is_logged = False

    def stored(self, offset: int, count: int) -> None:
        """So many records, in the order of the log."""
        expected = self._next
        self._next = UNKNOWN if offset == UNKNOWN else offset + count
        if UNKNOWN not in (expected, offset) and offset != expected and not self._is_logged:
            self._is_logged = True
            log_event(
                logger,
                "the group log has records that this gateway did not write",
                logging.ERROR,
                partition=self._partition,
                expected_offset=expected,
                offset=offset,
            )

    def expect_others(self) -> None:
        """The next gap is on purpose."""
        self._next = UNKNOWN
