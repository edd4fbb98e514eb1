"""The offset of the last record of each key, for compaction, within a memory limit."""

from __future__ import annotations

import hashlib

# The memory of an entry besides the key's bytes: the objects of key and offset, and a slot of the dictionary.
_ENTRY_BYTES = 180
_MAX_KEY_LENGTH = 32
# Longer than any key that is stored unhashed, so that no key can equal the digest of another.
_DIGEST_BYTES = _MAX_KEY_LENGTH + 1
# A growing dictionary is copied in one step, and no other thread runs meanwhile. With half a million keys, the event
# loop would be blocked for 40 ms. Many small dictionaries grow one at a time.
_SHARDS = 128
# A dictionary uses the lower bits of the hash, so these are not used to select one.
_SHARD_SHIFT = 40


class OffsetMap:
    """Covers only the records from `first_offset` up to `end_offset`."""

    def __init__(self, first_offset: int, limit_bytes: int) -> None:
        self.first_offset = first_offset
        self.end_offset = first_offset
        self._shards: list[dict[bytes, int]] = [{} for _ in range(_SHARDS)]
        self._room_bytes = limit_bytes

    @property
    def is_full(self) -> bool:
        return self._room_bytes <= 0

    def __len__(self) -> int:
        return sum(map(len, self._shards))

    def put(self, key: bytes, offset: int) -> None:
        if len(key) > _MAX_KEY_LENGTH:
            key = _digest(key)
        shard = self._shards[(hash(key) >> _SHARD_SHIFT) % _SHARDS]
        known = shard.get(key)
        if known is None:
            self._room_bytes -= len(key) + _ENTRY_BYTES
        elif known > offset:
            return
        shard[key] = offset

    def last_offset(self, key: bytes) -> int:
        """-1 for a key that is not among the records covered."""
        if len(key) > _MAX_KEY_LENGTH:
            key = _digest(key)
        return self._shards[(hash(key) >> _SHARD_SHIFT) % _SHARDS].get(key, -1)


def _digest(key: bytes) -> bytes:
    return hashlib.blake2b(key, digest_size=_DIGEST_BYTES).digest()
