"""A static member that restarts with other topics makes the group rebalance (docs/differences.md, 55)."""

from __future__ import annotations

import pytest

from holdfast.coordinator.classic.static_member import MAX_TOPICS_COMPARED
from holdfast.coordinator.events.causes import CauseCode
from holdfast.coordinator.events.group_event import EventKind
from holdfast.wire.consumer_protocol import Subscription, TopicPartitions, encode_subscription
from holdfast.wire.error_codes import ErrorCode
from tests.unit.coordinator.harness import CoordinatorHarness
from tests.unit.coordinator.members import Consumer, pair, stable, subscription

OTHER_TOPICS = CauseCode.STATIC_MEMBER_CHANGED_TOPICS


def owning(*topics: str, owned: int = 1, user_data: bytes | None = None, version: int = 3) -> bytes:
    said = Subscription(list(topics), user_data, [TopicPartitions(topics[0], list(range(owned)))], generation_id=owned)
    return encode_subscription(said, version)


def causes(harness: CoordinatorHarness) -> list[CauseCode]:
    return [event.cause.code for event in harness.events_of(EventKind.REBALANCE_STARTED)]


@pytest.mark.parametrize("topics", [("t", "added"), (), ("other",)], ids=["added", "removed", "exchanged"])
@pytest.mark.parametrize("who", ["L", "F"])
@pytest.mark.parametrize("version", [5, 9])
def test_a_restart_with_other_topics_rebalances(topics: tuple[str, ...], who: str, version: int) -> None:
    harness = CoordinatorHarness()
    members = {member.instance: member for member in pair(harness, metadata=subscription("t"))}
    back = members.pop(who).restarted(metadata=subscription(*topics), version=version)
    (other,) = members.values()

    handle = back.join()

    assert handle.is_pending
    assert causes(harness)[-1] == OTHER_TOPICS
    assert other.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
    other.join()
    back.take()
    assert (back.generation, other.generation) == (2, 2)
    leader = back if back.leads else other
    offered = {entry.group_instance_id: entry.metadata for entry in leader.members}
    assert offered[who] == subscription(*topics), "the leader assigns by what the member reads now"


@pytest.mark.parametrize(
    "again",
    [
        owning("t", "u", owned=2),
        owning("t", "u", owned=0, user_data=b"sticky"),
        owning("t", "u", version=1),
        b"\x00\x00" + subscription("t", "u")[2:],
        encode_subscription(Subscription(["u", "t", "t"])),
    ],
    ids=["owns more", "owns nothing, has user data", "older version", "v0 by its number", "a topic twice"],
)
def test_control_the_same_topics_in_other_bytes_cause_no_rebalance(again: bytes) -> None:
    harness = CoordinatorHarness()
    leader, follower = pair(harness, metadata=owning("t", "u"))

    back = follower.restarted(metadata=again)

    assert back.join().generation == 1
    assert back.sync().reply.assignment == b"\x02"
    assert leader.heartbeat() == ErrorCode.NONE


def test_control_the_order_of_the_topics_is_no_change() -> None:
    harness = CoordinatorHarness()
    forwards, backwards = (
        bytes.fromhex(f"0000 00000002 {names} ffffffff") for names in ("000174000175", "000175000174")
    )
    leader, follower = pair(harness, metadata=forwards)

    assert follower.restarted(metadata=backwards).join().generation == 1
    assert leader.heartbeat() == ErrorCode.NONE


UNREADABLE = [b"", b"\x00", b"\x00\x03\x00", b"\xff" * 40, b"\x00\x00\x00\x00\x00\x02\x00\x01t", b"metadata"]


@pytest.mark.parametrize("bad", UNREADABLE, ids=bytes.hex)
@pytest.mark.parametrize("which", ["before", "after", "both"])
def test_what_is_no_subscription_is_not_compared(bad: bytes, which: str) -> None:
    harness = CoordinatorHarness()
    leader, follower = pair(harness, metadata=subscription("t") if which == "after" else bad)

    back = follower.restarted(
        metadata=subscription("t", "u") if which == "before" else bad + b"\x00" * (which == "both")
    )

    assert back.join().generation == 1
    assert leader.heartbeat() == ErrorCode.NONE


def test_other_protocol_types_are_not_looked_into() -> None:
    harness = CoordinatorHarness()

    def worker(metadata: bytes, member_id: str = "") -> int:
        handle = harness.join(member_id, instance="W", protocol_type="connect", metadata=metadata)
        harness.advance(500)
        if handle.generation and not harness.events_of(EventKind.ASSIGNED):
            harness.sync(handle.member_id, 1, {handle.member_id: b"\x01"}, instance="W", protocol_type="connect")
        return handle.generation

    assert worker(subscription("t")) == 1
    assert worker(subscription("t", "u")) == 1


def test_only_the_protocol_in_use_counts() -> None:
    harness = CoordinatorHarness()
    leader, follower = pair(harness, metadata=subscription("t"), protocols=["range"])
    offered = [("range", subscription("t")), ("roundrobin", subscription("t", "u"))]

    assert harness.join(instance="F", offered=offered).generation == 1
    assert leader.heartbeat() == ErrorCode.NONE
    assert follower.heartbeat() == ErrorCode.FENCED_INSTANCE_ID


@pytest.mark.parametrize(("more", "rebalances"), [(0, True), (1, False)])
def test_so_many_topics_that_reading_them_takes_long_are_not_compared(more: int, rebalances: bool) -> None:
    harness = CoordinatorHarness(checked=False)
    topics = [f"t{number}" for number in range(MAX_TOPICS_COMPARED + more)]
    _, follower = pair(harness, metadata=subscription(*topics))

    assert follower.restarted(metadata=subscription(*topics[1:])).join().is_pending is rebalances


# -- the broker is killed ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("topics", "rebalances"), [(("t",), False), (("t", "u"), True)])
def test_after_a_kill_the_stored_subscription_is_compared(topics: tuple[str, ...], rebalances: bool) -> None:
    harness = CoordinatorHarness()
    _, follower = pair(harness, metadata=owning("t"))
    harness.restart()

    handle = follower.restarted(metadata=subscription(*topics)).join()

    assert handle.is_pending is rebalances
    assert (causes(harness)[-1] == OTHER_TOPICS) is rebalances


def test_a_kill_before_the_others_have_joined_loses_nothing() -> None:
    harness = CoordinatorHarness()
    leader, follower = pair(harness, metadata=subscription("t"))
    follower.restarted(metadata=subscription("t", "u")).join()
    harness.restart()
    assert harness.state() == "Stable"

    # when its client, which was never answered, asks again
    back = follower.restarted(metadata=subscription("t", "u"))
    assert back.join().is_pending

    leader.join()
    back.take()
    assert back.generation == 2


def test_a_quiet_restart_is_what_the_next_one_is_compared_with() -> None:
    harness = CoordinatorHarness()
    leader, follower = pair(harness, metadata=owning("t", "u"))
    once = follower.restarted(metadata=subscription("t", "u"))
    once.join()
    harness.restart()

    assert once.restarted(metadata=owning("u", "t", owned=0)).join().generation == 1
    assert leader.heartbeat() == ErrorCode.NONE


def test_a_topic_that_was_seen_late_costs_one_more_rebalance_and_no_more() -> None:
    """A pattern is resolved by the client: one that restarts and does not see every topic yet joins twice."""
    harness = CoordinatorHarness()
    leader, follower = pair(harness, metadata=subscription("t", "u"))
    back = follower.restarted(metadata=subscription("t"))
    back.join()
    leader.join()
    back.take()
    back.sync()
    leader.sync(back)

    back.metadata = subscription("t", "u")
    back.join()
    leader.join()
    back.take()

    assert back.generation == leader.generation == 3
    assert back.restarted().join().is_pending, "nobody has synced"
    assert causes(harness)[-2:] == [CauseCode.SUBSCRIPTION_CHANGED, CauseCode.STATIC_MEMBER_RESTARTED]


def test_a_lone_member_that_restarts_with_another_topic_gets_it_at_once() -> None:
    harness = CoordinatorHarness()
    alone = Consumer(harness, instance="A", metadata=subscription("t"))
    stable(alone)

    back = alone.restarted(metadata=subscription("t", "u"))
    handle = back.join()

    assert (handle.generation, back.leads, handle.reply.skip_assignment) == (2, True, False)
