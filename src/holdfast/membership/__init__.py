"""The client half of the group protocol, without a socket, a clock or a thread.

`membership.Membership` is the machine: it says what to send and what the application must do, and is told what was
answered and what the time is. What the members of type "consumer" do besides (who gives up what, who gets what) is in
`share`, `leading`, `watching` and `coverage`.
"""

from holdfast.membership.membership import Membership
from holdfast.membership.settings import MembershipSettings

__all__ = ["Membership", "MembershipSettings"]
