"""Static members by the dozen, against a real broker: what the load on groups rests on."""

from collections.abc import Iterator

import pytest

from benchmarks.load import Load, send
from benchmarks.members import describe, join_all, join_alone, remove_all
from benchmarks.wire import Wire, expect_none, request_frame
from holdfast.wire.apis.heartbeat import HeartbeatRequest
from holdfast.wire.error_codes import ErrorCode
from tests.support.holdfast_broker import HoldfastBroker
from tests.unit.benchmarks.compiler import NEEDS_A_COMPILER

HEARTBEAT_VERSION = 4
HEARTBEAT_MS = 50

pytestmark = NEEDS_A_COMPILER


@pytest.fixture(scope="module")
def broker() -> Iterator[HoldfastBroker]:
    with HoldfastBroker() as running:
        yield running


def test_all_members_join_and_stay_until_they_are_removed(broker: HoldfastBroker) -> None:
    figures = join_all(broker, "joined", 30, HEARTBEAT_MS)
    described = describe(broker, "joined")
    remove_all(broker, "joined")

    # Then everybody has an assignment of its own, and took part in the last of the generations
    assert figures["members"] == 30
    assert figures["generations"] >= 1
    assert figures["requests"] >= 60
    assert len({member.member_assignment for member in described.members}) == 30
    assert describe(broker, "joined").group_state == "Empty"


def test_a_group_that_cannot_become_stable_is_an_error(broker: HoldfastBroker) -> None:
    # Given a member that will not take part in any rebalance
    with Wire(broker) as wire:
        wire.wait_for_group("stuck")
        join_alone(wire, "stuck")

    # Then five more are not the six that the group has, and the error says who waits for what
    with pytest.raises(
        RuntimeError, match="did not become stable in time; of 5 members 0 have an assignment"
    ) as failed:
        join_all(broker, "stuck", 5, HEARTBEAT_MS, patience_seconds=1)
    assert "5 for JoinGroup" in str(failed.value)
    assert "the server describes the group as PreparingRebalance with 6 members" in str(failed.value)


def test_heartbeats_of_members_are_answered_as_the_first_was(broker: HoldfastBroker) -> None:
    generation = int(join_all(broker, "beating", 10, HEARTBEAT_MS)["generations"])
    frames = [
        request_frame(
            HeartbeatRequest("beating", generation, member.member_id, member.group_instance_id), HEARTBEAT_VERSION
        )
        for member in describe(broker, "beating").members
    ]
    with Wire(broker) as wire:
        good = wire.reply_to(frames[0])

    figures = send(Load(10, 1, seconds=5, max_requests=100), broker, b"".join(frames), expected=good)
    remove_all(broker, "beating")

    assert figures["requests"] == 100
    # And the control: once the members are gone the same frames are an error, which has the same size
    with pytest.raises(RuntimeError, match="other than the one expected"):
        send(Load(10, 1, seconds=5, max_requests=100), broker, b"".join(frames), expected=good)


def test_an_error_is_reported_by_its_name() -> None:
    expect_none(ErrorCode.NONE, "Heartbeat")
    with pytest.raises(RuntimeError, match="Heartbeat was answered with UNKNOWN_MEMBER_ID"):
        expect_none(ErrorCode.UNKNOWN_MEMBER_ID, "Heartbeat")
