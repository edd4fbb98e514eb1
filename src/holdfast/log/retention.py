"""Selects the segments beyond retention.ms or retention.bytes, or before the log start offset
(cleanup.policy=delete)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from holdfast.log.config import UNLIMITED, LogConfig
from holdfast.log.segment import Segment


class DeletedSegment(NamedTuple):
    base_offset: int
    size: int
    reason: str


def segments_to_delete(
    segments: Sequence[Segment], start_offset: int, config: LogConfig, now_ms: int
) -> list[tuple[Segment, str]]:
    """The oldest segments that exceed a limit, and the limit. The active segment is deleted only by age."""
    size_bytes = sum(segment.size for segment in segments)
    excess = size_bytes - config.retention_bytes if config.retention_bytes != UNLIMITED else 0
    found: list[tuple[Segment, str]] = []
    for number, segment in enumerate(segments):
        is_active = number == len(segments) - 1
        excess -= segment.size
        if not is_active and segments[number + 1].base_offset <= start_offset:
            reason = "log start offset"
        elif not is_active and config.retention_bytes != UNLIMITED and excess >= 0:
            reason = "retention.bytes"
        elif config.retention_ms != UNLIMITED and segment.size and now_ms - _since(segment) > config.retention_ms:
            reason = "retention.ms"
        else:
            break
        found.append((segment, reason))
    return found


def _since(segment: Segment) -> int:
    latest = segment.indexes.max_timestamp[0]
    return latest if latest >= 0 else segment.created_ms
