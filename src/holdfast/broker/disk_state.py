"""Whether the disk takes what is written, told when that changes and not with every refusal.

A disk without room refuses each produce with KAFKA_STORAGE_ERROR, which producers repeat: hundreds of times a second,
until somebody makes room. The log says once that writes are refused, and once that they are taken again.
"""

from __future__ import annotations

import errno
import logging
import time
from typing import Final

from holdfast.broker.log_lines import say
from holdfast.log import LogError, StorageError

logger = logging.getLogger(__name__)

SETTLED_SECONDS: Final = 1.0
"""On a disk that is nearly full small writes succeed between large ones that fail: there is room again when none has
failed for this long."""

_NO_ROOM: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


class DiskState:
    def __init__(self) -> None:
        self.is_full = False
        self.refused = 0
        """Writes since the disk was full."""
        self._since = self._last_refusal = 0.0

    def failed(self, error: LogError) -> None:
        """A write failed; the one that failed is answered by whoever wrote."""
        if not isinstance(error, StorageError) or error.errno not in _NO_ROOM:
            say(logger, "write failed", logging.ERROR, error=str(error))
            return
        self.refused += 1
        self._last_refusal = time.monotonic()
        if not self.is_full:
            self.is_full, self._since = True, self._last_refusal
            say(logger, "disk full; writes are refused until there is room", logging.ERROR, error=str(error))

    def worked(self) -> None:
        """A write succeeded while `is_full`."""
        now = time.monotonic()
        if now - self._last_refusal < SETTLED_SECONDS:
            return
        seconds = now - self._since
        say(logger, "disk has room again; writes are taken", refused_writes=self.refused, seconds=round(seconds, 1))
        self.is_full, self.refused = False, 0
