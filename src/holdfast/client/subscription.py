"""The subscription of a consumer: topics, or patterns that begin with "^" and are resolved before each join."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from holdfast.client.errors import ConfigError
from holdfast.client.metadata import Metadata, topic_pattern


@dataclass(frozen=True, slots=True)
class Subscription:
    names: frozenset[str]
    patterns: tuple[re.Pattern[str], ...] = ()

    @classmethod
    def parse(cls, topics: Iterable[str]) -> Subscription:
        if isinstance(topics, str):
            raise ConfigError(f"subscribe() takes a list of topics, not a string: subscribe([{topics!r}])")
        wanted = list(topics)
        for one in wanted:
            if not isinstance(one, str) or not one:
                raise ConfigError(f"subscribe() takes names of topics and patterns that begin with '^', not {one!r}")
        if not wanted:
            raise ConfigError("subscribe() needs at least one topic; unsubscribe() ends a subscription")
        patterns = tuple(topic_pattern(one) for one in wanted if one.startswith("^"))
        return cls(frozenset(one for one in wanted if not one.startswith("^")), patterns)

    def resolve(self, metadata: Metadata) -> frozenset[str]:
        """The topics to subscribe to, given all topics of the cluster."""
        return self.names.union(*(metadata.matching(pattern) for pattern in self.patterns))
