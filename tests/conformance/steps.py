"""A random run as data: who runs, and what each says in turn.

Ids and generations cannot be known before the run. A step names them: `@B` is the id that B has by then, `#2` that of
the third member whom DescribeGroups shows, a generation is a distance from the one that the sender got.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Self

from tests.conformance.member import BOTH, RANGE, ROUND_ROBIN, Protocols

OFFERS: dict[str, Protocols] = {
    "range": RANGE,
    "range changed": (("range", b"\x77"),),
    "both": BOTH,
    "both changed": (("range", b"\x78"), ("roundrobin", b"\x79")),
    "roundrobin": ROUND_ROBIN,
    "neither": (("nothing-in-common", b"\x09"),),
}
"""Any member that offers two protocols offers them in the same order: each server decides a tie of votes in its own
way."""
NOBODY = "nobody"
Said = tuple[tuple[str, object], ...]


class Verb(StrEnum):
    JOIN = "join"
    SYNC = "sync"
    BEAT = "beat"
    LEAVE = "leave"
    COMMIT = "commit"
    FETCH = "fetch"
    DESCRIBE = "describe"


CHANGES_THE_GROUP = frozenset((Verb.JOIN, Verb.SYNC, Verb.LEAVE))
"""The answers of others can come with the answer to one of these."""


@dataclass(frozen=True, slots=True)
class Role:
    name: str
    row: int
    instance_id: str | None = None
    offer: str = "range"


@dataclass(frozen=True, slots=True)
class Step:
    verb: Verb
    who: str
    said: Said = ()
    """What differs from what a member would rightly say."""
    at_once: bool = False
    """The next step follows before any timeout can end."""

    def without(self, key: str) -> Self:
        return replace(self, said=tuple(pair for pair in self.said if pair[0] != key))

    def named(self) -> set[str]:
        """The roles that this step names."""
        refs = (part for _, value in self.said for part in _flat(value))
        return {self.who} | {ref[1:] for ref in refs if isinstance(ref, str) and ref.startswith("@")}


def _flat(value: object) -> list[object]:
    return [part for element in value for part in _flat(element)] if isinstance(value, tuple) else [value]


@dataclass(frozen=True, slots=True)
class Run:
    seed: int
    roles: tuple[Role, ...]
    steps: tuple[Step, ...]
    hasty: bool = False
    """Rebalance timeouts are short, and each is awaited before the next burst of steps."""
    admin_row: int = 9
