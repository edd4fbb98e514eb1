"""What the machine wants done: requests to be sent, and things that only the application can do.

Whoever drives the machine takes the effects after each call, does them in order, and tells it what came of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from holdfast.membership.failures import Failure
from holdfast.membership.requests import Node
from holdfast.wire.apis.join_group import JoinGroupResponseMember
from holdfast.wire.message import Api


class Lane(Enum):
    """The connection on which a request goes out. A broker answers one connection in order, so a parked join would
    hold up the heartbeats and commits behind it: they have a lane of their own."""

    ANY_BROKER = "any broker"
    JOINS = "joins"
    SIDE = "side"


@dataclass(frozen=True, slots=True)
class Send:
    """Send a request. Its end is told by `answered` or `unanswered`, with the ticket."""

    ticket: int
    lane: Lane
    api: Api
    build: Callable[[int], Any]
    """The message, given the version that both sides speak."""
    timeout_ms: int
    highest: int
    """The highest version to use, even where both sides know a higher one."""


@dataclass(frozen=True, slots=True)
class Reach:
    """Connect to the coordinator, then call `reached` or `unreachable`."""

    coordinator: Node


@dataclass(frozen=True, slots=True)
class HangUp:
    """Close these lanes. What is outstanding on them is unanswered, and must be told as such."""

    lanes: tuple[Lane, ...]


@dataclass(frozen=True, slots=True)
class Prepare:
    """Give up what must be given up before a join, then call `prepared` with the number."""

    number: int
    lost: bool
    """The seat is gone, and others may have got what the application holds: there is nothing left to commit."""


@dataclass(frozen=True, slots=True)
class Lead:
    """Decide who gets what, then call `decided`."""

    generation: int
    protocol: str
    members: list[JoinGroupResponseMember] = field(repr=False)
    skip: bool
    """KIP-814: the assignment stands, decide nothing; but watch the topics of all members from now on."""


@dataclass(frozen=True, slots=True)
class Adopt:
    """This is your assignment in this generation."""

    generation: int
    member_id: str
    protocol: str
    is_leader: bool
    assignment: bytes = field(repr=False)
    epoch: int | None = None
    """The assignment epoch, from a coordinator that has one."""
    quiet: bool = False
    """The leader's own share after a resync: the group has not rebalanced, and whatever is in it comes in addition."""


@dataclass(frozen=True, slots=True)
class LeaderFailed:
    """The generation came to nothing because its leader could not assign; this member joins again."""

    generation: int
    code: int
    message: str


@dataclass(frozen=True, slots=True)
class CommitEnded:
    """A commit has ended. `errors` holds what failed; an empty mapping says that all of it is stored."""

    commit: int
    failure: Failure | None
    errors: dict[tuple[str, int], Failure]


@dataclass(frozen=True, slots=True)
class Left:
    """The coordinator knows that we left, or cannot be told. Nothing is outstanding any more."""


@dataclass(frozen=True, slots=True)
class Failed:
    """The membership is over."""

    failure: Failure


Effect = Send | Reach | HangUp | Prepare | Lead | Adopt | LeaderFailed | CommitEnded | Left | Failed
