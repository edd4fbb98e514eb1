"""Two consumers in one process: what an assignor remembers is its consumer's own.

aiokafka#1175: there the sticky assignor keeps what it was given in its class. The consumers of one process then claim
the same partitions in the same generation, and each gets the other's assignment, or both lose everything they had.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from holdfast import Admin
from holdfast.assignors import MemberAssignment, StickyAssignor
from holdfast.assignors.sticky_user_data import Reader
from holdfast.client.descriptions import MemberDescription
from holdfast.wire.consumer_protocol import decode_subscription
from tests.client_compat.servers import Server
from tests.groups.topics import make_topic
from tests.holdfast_client.consumers import Watched, evenly_assigned, poll_until, watching
from tests.support.holdfast_broker import HoldfastBroker

PARTITIONS = 6


class ForgetfulOfWhoseItIs(StickyAssignor):
    """The mistake of aiokafka#1175: one memory for all."""

    _memory: tuple[Mapping[str, Sequence[int]] | None, int] = (None, -1)

    def __init__(self) -> None:
        pass

    @property
    def _previous(self) -> Mapping[str, Sequence[int]] | None:  # type: ignore[override]
        return ForgetfulOfWhoseItIs._memory[0]

    @property
    def _generation(self) -> int:  # type: ignore[override]
        return ForgetfulOfWhoseItIs._memory[1]

    def on_assignment(self, assignment: MemberAssignment, generation: int) -> None:
        ForgetfulOfWhoseItIs._memory = (assignment.partitions, generation)


def claimed(member: MemberDescription) -> set[int]:
    """What it said, when it joined last, that it had before."""
    said = Reader().read(decode_subscription(member.metadata).user_data)
    return set(said.partitions.tolist())


def claims_after_a_third_came(
    server: Server, topic: str, group: str, assignor: type[StickyAssignor]
) -> tuple[list[set[int]], list[set[int]], list[set[int]]]:
    """What two consumers of this process had, what they claimed when a third came, and what they had then."""
    make_topic(server, topic, PARTITIONS)
    members = [Watched(server, group, partition_assignment_strategy=[assignor()]) for _ in range(3)]
    pair = members[:2]
    with watching(*members), Admin({"bootstrap.servers": server.bootstrap}) as admin:
        for one in pair:
            one.subscribe(topic)
        poll_until(evenly_assigned(PARTITIONS, *pair), "both have three", *pair)
        had = [set(one.partitions) for one in pair]

        members[2].subscribe(topic)
        poll_until(evenly_assigned(PARTITIONS, *members), "all have two", *members)
        described = {one.member_id: one for one in admin.describe_group(group).members}
        claims = [claimed(described[one.consumer.memberid()]) for one in pair]
        return had, claims, [set(one.partitions) for one in pair]


def test_aiokafka_1175_two_sticky_consumers_of_one_process_have_separate_state(
    server: Server, topic: str, group: str
) -> None:
    had, claims, have = claims_after_a_third_came(server, topic, group, StickyAssignor)

    assert claims == had, "each claims what it had itself"
    for before, now in zip(had, have, strict=True):
        assert now < before, "and keeps of it what its assignment has"


def test_control_with_a_memory_for_all_they_claim_the_same(
    quick_holdfast: HoldfastBroker, topic: str, group: str
) -> None:
    had, claims, _ = claims_after_a_third_came(quick_holdfast, topic, group, ForgetfulOfWhoseItIs)

    assert claims[0] == claims[1]
    assert claims != had
