"""Producer ids. Each is assigned only once, also across crashes.

A file contains the limit up to which the broker may assign ids. The broker advances it by a block before it assigns the
first id of that block, so after any restart it starts above every id that a producer can have. The rest of the block is
lost then; there are 2^63 ids.
"""

from __future__ import annotations

import asyncio
import json
import logging
from pathlib import Path
from typing import Final

from holdfast.log import DataDirectoryError, StorageError, disk

logger = logging.getLogger(__name__)

PRODUCER_IDS_FILE: Final = "producer-ids.json"
BLOCK_SIZE: Final = 1000
"""Ids reserved at a time, as in Kafka: one write to the disk for a thousand producers."""


class ProducerIds:
    def __init__(self, directory: Path) -> None:
        """Reads the file in `directory`, if there is one."""
        self._path = directory / PRODUCER_IDS_FILE
        self._next = self._reserved_until = self._read()
        self._reserving: asyncio.Task[None] | None = None

    def _read(self) -> int:
        try:
            reserved_until = json.loads(self._path.read_text())["reserved_until"]
        except FileNotFoundError:
            return 0
        except (ValueError, KeyError, TypeError):
            reserved_until = None
        if type(reserved_until) is not int or reserved_until < 0:
            raise DataDirectoryError(
                f"{self._path} is damaged; restore it, or write "
                '{"reserved_until": N} with an N above every producer id that was ever used'
            )
        return reserved_until

    async def next(self) -> int:
        """An id that no producer has had. StorageError if the reservation cannot be stored."""
        while self._next == self._reserved_until:
            if self._reserving is None:
                self._reserving = asyncio.create_task(self._reserve())
            # Shielded: the reservation is shared, and a client that disconnects must not cancel it.
            await asyncio.shield(self._reserving)
        producer_id = self._next
        self._next += 1
        return producer_id

    async def _reserve(self) -> None:
        reserved_until = self._reserved_until + BLOCK_SIZE
        content = json.dumps({"version": 1, "reserved_until": reserved_until}).encode()
        try:
            await asyncio.to_thread(disk.replace_file, self._path, content)
        except OSError as error:
            raise StorageError("reserve producer ids in", self._path, error) from error
        finally:
            self._reserving = None
        self._reserved_until = reserved_until
