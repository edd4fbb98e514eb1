"""Where the last record of each key is: what compaction goes by, within a limit on memory."""

from __future__ import annotations

import hashlib

# What an entry costs beside the key's bytes: the key's object, the offset's, and a slot of the dictionary.
_ENTRY_BYTES = 180
_LONGEST_KEY = 32
# Longer than any key that is kept as it is, so that no key can be taken for another one's digest.
_DIGEST_BYTES = _LONGEST_KEY + 1
# A dictionary that grows is copied in one go, and no other thread runs meanwhile: with half a million keys the event
# loop would stand still for 40 ms. Many small ones grow one at a time.
_SHARDS = 128
# A dictionary goes by the lower bits of the hash; these are left to it.
_SHARD_SHIFT = 40


class KeyOffsets:
    """Covers the records from `first_offset` up to `end_offset`; about others it says nothing."""

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
        if len(key) > _LONGEST_KEY:
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
        if len(key) > _LONGEST_KEY:
            key = _digest(key)
        return self._shards[(hash(key) >> _SHARD_SHIFT) % _SHARDS].get(key, -1)


def _digest(key: bytes) -> bytes:
    return hashlib.blake2b(key, digest_size=_DIGEST_BYTES).digest()
