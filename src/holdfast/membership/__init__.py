"""The client half of the group protocol, without a socket, a clock or a thread.

`machine.Membership` is a member of any type. Its inputs are responses and the time; its effects are requests to send
and work for the application. `consumer_coordinator.ConsumerCoordinator` adds the tasks of a member of type "consumer":
it revokes partitions, assigns them as the leader (`assignment`, `resync`), and monitors the topics (`metadata_monitor`,
`unassigned`).
"""

from holdfast.membership.machine import Membership
from holdfast.membership.settings import MembershipSettings

__all__ = ["Membership", "MembershipSettings"]
