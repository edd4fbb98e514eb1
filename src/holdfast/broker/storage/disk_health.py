"""Logs when the disk becomes full and when it has room again, instead of every failed write.

While the disk is full, each produce fails with KAFKA_STORAGE_ERROR, and producers retry hundreds of times a second. The
broker logs once that writes fail, and once that they succeed again.
"""

from __future__ import annotations

import errno
import logging
import time
from typing import Final

from holdfast.broker.structured_log import log_event
from holdfast.log import LogError, StorageError

logger = logging.getLogger(__name__)

RECOVERED_AFTER_SECONDS: Final = 1.0
"""On a nearly full disk, small writes succeed between large ones that fail. The disk has room again when no write has
failed for this long."""

_NO_ROOM: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


class DiskHealth:
    def __init__(self) -> None:
        self.is_full = False
        self.failed_writes = 0
        """Failed writes since the disk became full."""
        self._since = self._last_failure = 0.0

    def write_failed(self, error: LogError) -> None:
        """A write failed; the caller answers the request."""
        if not isinstance(error, StorageError) or error.errno not in _NO_ROOM:
            log_event(logger, "write failed", logging.ERROR, error=str(error))
            return
        self.failed_writes += 1
        self._last_failure = time.monotonic()
        if not self.is_full:
            self.is_full, self._since = True, self._last_failure
            log_event(logger, "disk full; writes are refused until there is room", logging.ERROR, error=str(error))

    def write_ok(self) -> None:
        """A write succeeded while `is_full`."""
        now = time.monotonic()
        if now - self._last_failure < RECOVERED_AFTER_SECONDS:
            return
        seconds = now - self._since
        log_event(
            logger,
            "disk has room again; writes are taken",
            refused_writes=self.failed_writes,
            seconds=round(seconds, 1),
        )
        self.is_full, self.failed_writes = False, 0
