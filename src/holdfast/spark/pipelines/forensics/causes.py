"""Causes of rebalances without what differs from one to the next: names and numbers."""

from __future__ import annotations

import re
from typing import Final

UNKNOWN: Final = "the ledger does not tell"
CAME: Final = "a member came"
WENT: Final = "a member went"
CAME_AND_WENT: Final = "members came and went"
SAME: Final = "the same members"
FIRST_SEEN: Final = "history begins here"
EMPTIED: Final = "the last member went"

A_MEMBER_JOINED: Final = "a new member joined"

_LONGEST: Final = 80
_KINDS: Final = tuple(
    (re.compile(pattern), kind)
    for pattern, kind in (
        (r"the announced members are all there", "the announced members are all there"),
        (r"\d+ members left", "a member left"),
        (r"a static member restarted with other topics", "a static member restarted with other topics"),
        (r"a static member restarted", "a static member restarted"),
        (r"no standby took the place of ", "no standby took the place in time"),
        (r"members that waited may have a share", "members that waited may have a share"),
        (r"target\.group\.size is ", "target.group.size was set"),
        (r"topic .* grew", "a topic grew"),
    )
)


def kind_of(cause: str) -> str:
    for pattern, kind in _KINDS:
        if pattern.match(cause):
            return kind
    return cause[:_LONGEST] or UNKNOWN
