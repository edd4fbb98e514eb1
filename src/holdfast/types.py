"""Types that several packages share."""

from __future__ import annotations

TopicPartition = tuple[str, int]
"""A topic's name and the number of a partition."""
