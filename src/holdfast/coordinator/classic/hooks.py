"""Where extensions attach to Kafka's protocol.

With the hooks as they are here, which do nothing, the modules of this package are Kafka's classic group protocol and
nothing else. `holdfast.coordinator.extensions` replaces them. The modules of this package do not import that one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from holdfast.coordinator.classic.commands import Join, Sync
from holdfast.coordinator.classic.group import Group
from holdfast.coordinator.classic.member import Client, Member
from holdfast.coordinator.runtime import context
from holdfast.coordinator.runtime.context import GroupConfig
from holdfast.coordinator.runtime.effects import Record
from holdfast.coordinator.runtime.topic_metadata import PartitionCountOf
from holdfast.wire.apis.heartbeat import HeartbeatRequest
from holdfast.wire.error_codes import ErrorCode
from holdfast.wire.group_records import MemberMetadata


class Context(context.Context):
    """The runtime's context, with the hooks and the end of a session."""

    def __init__(
        self,
        config: GroupConfig,
        partition_count: PartitionCountOf,
        hooks: Hooks,
        session_expired: Callable[[Context, Group, Member, int], None],
    ) -> None:
        super().__init__(config, partition_count)
        self.hooks = hooks
        self.session_expired = session_expired


def _no(*_: Any) -> bool:
    return False


def _yes(*_: Any) -> bool:
    return True


def _nothing(*_: Any) -> None:
    pass


def _none(*_: Any) -> tuple[()]:
    return ()


def _impossible(*_: Any) -> Any:
    raise AssertionError("there is no extension that this could be for")


@dataclass(frozen=True, slots=True, kw_only=True)
class Hooks:
    """The last argument is the time, in milliseconds."""

    # -- admit: a JoinGroup whose sender is known ----------------------------------------------------------------------

    admit: Callable[[Context, Group, Join, Member, int], bool] = _no
    """A new member joins, and is not in the group yet. True if the join is taken care of."""
    satisfies_rejoin: Callable[[Context, Group, Join, Member], bool] = _no
    """Whether this is the join that the member was asked for (`Member.rejoin`)."""
    requested_join: Callable[[Context, Group, Join, Member, int], None] = _impossible
    """That join."""
    restart_needs_rebalance: Callable[[Context, Group, Member], bool] = _no
    """Whether a stable group rebalances for a static member that restarts with the same protocols and topics."""
    after_replaced: Callable[[Context, Group, Member, int], None] = _nothing
    """A static member was replaced without a rebalance."""

    # -- the requests of standbys, for which `Member.role` is STANDBY --------------------------------------------------

    standby_join: Callable[[Context, Group, Join, Member, int], None] = _impossible
    standby_sync: Callable[[Context, Group, Sync, Member, int], None] = _impossible
    standby_heartbeat: Callable[[Context, Group, HeartbeatRequest, Client, Member, int], ErrorCode] = _impossible
    standby_returned: Callable[[Context, Group, int], None] = _nothing
    """A standby that was disconnected has sent a valid OffsetCommit."""
    standby_removed: Callable[[Context, Group, int], None] = _nothing
    """A standby may have left or expired."""

    # -- before_complete: the join phase -------------------------------------------------------------------------------

    rebalance_started: Callable[[Context, Group], None] = _nothing
    """Called in the old state: what was to happen within the generation happens with the next one."""
    first_rebalance: Callable[[Context, Group, Member | None], bool] = _no
    """An empty group starts its first rebalance. True if it waits for something else than the initial delay."""
    joined_rebalance: Callable[[Context, Group, Member | None, int], None] = _nothing
    """A member joined, or the group is to rebalance, and a rebalance is in progress already."""
    join_awaited: Callable[[Context, Group, Member, int], None] = _nothing
    """The member's join is answered when the join phase completes."""
    may_complete: Callable[[Group], bool] = _yes
    """Whether the join phase may complete, now that all members have joined."""
    before_complete: Callable[[Context, Group, int], Sequence[Member] | None] = _none
    """The join phase completes. Returns the members that the new generation leaves out; None to go on waiting."""
    without_leader: Callable[[Context, Group, int], Sequence[Member] | None] = _nothing
    """No member can lead: none has joined, or those that have are left out. Returns the members to leave out instead;
    None to go on waiting."""
    generation_records: Callable[[Group, Sequence[Member]], Sequence[Record]] = _none
    """Records to store with the new generation, which leaves these members out."""
    generation_formed: Callable[[Context, Group, Sequence[Member], int], None] = _nothing
    """The new generation, which leaves these members out, is stored; no join is answered yet."""

    # -- after_stable: the assignment ----------------------------------------------------------------------------------

    on_sync: Callable[[Context, Group, Sync, Member, int], bool] = _no
    """A SyncGroup with Holdfast's tagged fields. True if it is taken care of."""
    synced: Callable[[Context, Group, Member], None] = _nothing
    """The member gets its assignment, and was asked to rejoin for it."""
    assignment_records: Callable[[Context, Group, Member, Sequence[MemberMetadata]], Sequence[Record]] = _none
    """Records to store with the leader's assignment."""
    after_stable: Callable[[Context, Group, int], None] = _nothing
    """The assignment is stored and delivered."""
    heartbeat_after_reload: Callable[[Context, Group, int], None] = _nothing
    """The first heartbeat after the group was reloaded with a static leader."""

    # -- after_removed -------------------------------------------------------------------------------------------------

    member_removed: Callable[[Context, Group, Member], None] = _nothing
    """The member is being removed."""
    after_removed: Callable[[Context, Group, Sequence[Member], bool, int], bool] = _no
    """Members of a generation were removed, perhaps because a session expired. True if there is no rebalance for it."""
    keeps_session: Callable[[Group, Member], bool] = _no
    """Whether a member lives on although it was silent for longer than its session."""

    # -- on_disconnect -------------------------------------------------------------------------------------------------

    on_disconnect: Callable[[Context, Group, Member, int], None] = _nothing
    """The connection that the member was last seen on is closed."""
    on_reconnect: Callable[[Context, Group, Member], None] = _nothing
    """The member is seen on another connection."""
