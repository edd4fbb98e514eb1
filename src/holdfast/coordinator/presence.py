"""Over which connection each member was last heard of.

A process that ends closes its connections at once, long before its session ends; one that is only slow does not. So a
closed connection tells what silence cannot. What follows from it is the business of others: `heard` and `lost` are told
to whoever is interested.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.coordinator.group import Group
    from holdfast.coordinator.members import Client, Member


class Presence:
    """One connection, as far as members of groups have been heard over it."""

    __slots__ = ("is_closed", "members")

    def __init__(self) -> None:
        self.is_closed = False
        self.members: dict[Member, Group] = {}


def heard(group: Group, member: Member, client: Client) -> bool:
    """Takes down over which connection the member spoke. Returns whether it had been given up."""
    presence = client.presence
    if presence is not None and presence.is_closed:
        # It was closed while what came over it waited for the disk. A clock that runs for an earlier one runs on.
        _leave(member)
        member.is_away = True
        return False
    if presence is not member.presence:
        _leave(member)
        _stop_clock(member)
        member.presence = presence
        if presence is not None:
            presence.members[member] = group
    was_away, member.is_away = member.is_away, False
    if was_away:
        _stop_clock(member)
    return was_away


def forget(member: Member) -> None:
    """The member is gone."""
    _leave(member)
    _stop_clock(member)


def _leave(member: Member) -> None:
    if member.presence is not None:
        member.presence.members.pop(member, None)
        member.presence = None


def _stop_clock(member: Member) -> None:
    if member.takeover_timer is not None:
        member.takeover_timer.cancel()
        member.takeover_timer = None


def lost(presence: Presence) -> list[tuple[Group, Member]]:
    """The connection is closed: whoever was last heard over it is away."""
    presence.is_closed = True
    gone = [(group, member) for member, group in presence.members.items()]
    presence.members.clear()
    for _, member in gone:
        member.presence = None
        member.is_away = True
    return gone
