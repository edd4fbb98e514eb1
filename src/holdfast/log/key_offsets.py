"""Where the last record of each key is: what compaction goes by, within a limit on memory."""

from __future__ import annotations

import hashlib

# What an entry costs beside the key's bytes: the key's object, the offset's, and a slot of the dictionary.
_ENTRY_BYTES = 180
_LONGEST_KEY = 32
# Longer than any key that is kept as it is, so that no key can be taken for another one's digest.
_DIGEST_BYTES = _LONGEST_KEY + 1


class KeyOffsets:
    """Covers the records from `first_offset` up to `end_offset`; about others it says nothing."""

    def __init__(self, first_offset: int, limit_bytes: int) -> None:
        self.first_offset = first_offset
        self.end_offset = first_offset
        self._offsets: dict[bytes, int] = {}
        self._room_bytes = limit_bytes

    @property
    def is_full(self) -> bool:
        return self._room_bytes <= 0

    def __len__(self) -> int:
        return len(self._offsets)

    def put(self, key: bytes, offset: int) -> None:
        if len(key) > _LONGEST_KEY:
            key = _digest(key)
        known = self._offsets.get(key)
        if known is None:
            self._room_bytes -= len(key) + _ENTRY_BYTES
        elif known > offset:
            return
        self._offsets[key] = offset

    def last_offset(self, key: bytes) -> int:
        """-1 for a key that is not among the records covered."""
        return self._offsets.get(key if len(key) <= _LONGEST_KEY else _digest(key), -1)


def _digest(key: bytes) -> bytes:
    return hashlib.blake2b(key, digest_size=_DIGEST_BYTES).digest()
