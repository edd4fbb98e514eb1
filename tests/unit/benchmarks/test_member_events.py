"""What the members of the extensions' measurements tell is counted as it happened."""

import json

import pytest

from benchmarks.member_events import MemberEvent, are_assigned, consumed_again, owned, parsed, revocations


def event(at: float, member: str, kind: str, *partitions: int) -> MemberEvent:
    return MemberEvent(at, member, kind, partitions)


def test_a_line_becomes_an_event() -> None:
    line = json.dumps({"at": 1.5, "member": "a", "event": "assigned", "partitions": [0, 2]})

    assert parsed(line) == event(1.5, "a", "assigned", 0, 2)


def test_a_member_that_failed_fails_the_measurement() -> None:
    line = json.dumps({"at": 1.5, "member": "a", "event": "failed", "partitions": [], "error": "no broker"})

    with pytest.raises(RuntimeError, match="a failed: no broker"):
        parsed(line)


def test_assignments_follow_assigned_and_revoked_events() -> None:
    events = [
        event(1, "a", "assigned", 0, 1),
        event(2, "a", "revoked", 0, 1),
        event(3, "a", "assigned", 0),
        event(3, "b", "assigned", 1),
        event(4, "b", "consumed", 1),
    ]

    assert owned(events) == {"a": {0}, "b": {1}}
    assert are_assigned(events, ["a", "b"], 2)


@pytest.mark.parametrize(
    ("events", "why"),
    [
        ([event(1, "a", "assigned", 0, 1)], "one has nothing"),
        ([event(1, "a", "assigned", 0), event(1, "b", "assigned", 0)], "two own one partition"),
        ([event(1, "a", "assigned", 0), event(1, "b", "assigned", 2)], "one is nobody's"),
        ([event(1, "a", "assigned", 0), event(1, "b", "assigned", 1), event(1, "c", "assigned")], "there are others"),
    ],
)
def test_partitions_are_shared_only_if_each_has_one_owner(events: list[MemberEvent], why: str) -> None:
    members = ["a", "b", "c"] if why == "there are others" else ["a", "b"]

    assert not are_assigned(events, members, 2 if why != "one is nobody's" else 3), why


def test_revocations_are_counted_since_a_moment_and_only_if_something_was_taken() -> None:
    events = [
        event(1, "a", "revoked", 0),
        event(2, "a", "revoked"),
        event(3, "a", "revoked", 0),
        event(3, "other", "revoked", 1),
        event(4, "a", "revoked", 0),
    ]

    assert revocations(events, ["a", "b"], since=2) == {"a": 2, "b": 0}


def test_partitions_count_as_consumed_again_when_another_member_has_consumed_all() -> None:
    events = [
        event(1, "gone", "consumed", 0, 1),
        event(2, "standby", "consumed", 0),
        event(3, "gone", "consumed", 1),
        event(5, "standby", "consumed", 1),
        event(6, "standby", "consumed", 0),
    ]

    assert consumed_again(events[:3], [0, 1], since=1.5, besides="gone") is None
    assert consumed_again(events, [0, 1], since=1.5, besides="gone") == 5
