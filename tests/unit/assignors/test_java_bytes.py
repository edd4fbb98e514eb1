"""What our members write is, byte for byte, what Apache Kafka's own would write in their place.

Not for beauty: a coordinator takes different bytes for a change of mind, and a leader of Java's reads them its way.
"""

from __future__ import annotations

import pytest

from holdfast.assignors import assignor
from holdfast.membership.owned_partitions import OwnedPartitions
from holdfast.wire.consumer_protocol import (
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from tests.support.java_bytes import ASSIGNORS, NEVER_ASSIGNED, Written, stored

CASES = stored()
every_case = pytest.mark.parametrize("java", CASES, ids=lambda java: f"{java.assignor}-{java.generation}")


def owned_like(java: Written) -> OwnedPartitions:
    """One of ours that was given the same, in Java's bytes, and is about to join again."""
    owned = OwnedPartitions([assignor(java.assignor)], java.rack)
    owned.topics = frozenset(java.topics)
    if java.generation != NEVER_ASSIGNED:
        assert java.assignment is not None
        owned.on_assignment(java.assignor, java.generation, bytes.fromhex(java.assignment))
        assert owned.partitions == {(topic, number) for topic, given in java.given.items() for number in given}
        owned.revoke(lost=False)
    return owned


@every_case
def test_the_subscription_is_java_s(java: Written) -> None:
    ((name, subscription),) = owned_like(java).protocols()

    assert (name, subscription.hex()) == (java.assignor, java.subscription)


@every_case
def test_the_user_data_is_java_s(java: Written) -> None:
    user_data = owned_like(java).assignors[java.assignor].subscription_user_data(java.topics)

    assert (None if user_data is None else user_data.hex()) == java.user_data


@every_case
def test_what_java_wrote_is_read_and_written_again_without_a_change(java: Written) -> None:
    subscription = bytes.fromhex(java.subscription)
    assert encode_subscription(decode_subscription(subscription)) == subscription
    if java.assignment is not None and list(java.given) == sorted(java.given):
        # Java writes the topics of an assignment as its assignor named them; ours are always in order.
        assignment = bytes.fromhex(java.assignment)
        assert encode_assignment(decode_assignment(assignment)) == assignment


def test_the_cases_are_of_every_kind() -> None:
    assert {java.assignor for java in CASES} == set(ASSIGNORS)
    sticky = [java for java in CASES if java.assignor == "sticky"]
    assert [java.user_data for java in sticky if java.generation == NEVER_ASSIGNED] == [None]
    # Enough topics for Java's hash table to have grown, twice.
    assert max(len(java.given) for java in sticky) > 24
    unordered = [java for java in sticky if java.user_data and not _in_order(java)]
    assert unordered, "in some case the order of topics in user data is that of a hash table and no other"


def _in_order(java: Written) -> bool:
    places = [(java.user_data or "").find(f"{len(topic.encode()):04x}{topic.encode().hex()}") for topic in java.given]
    return places == sorted(places)
