"""SyncGroup: the leader sends the assignment, the others wait for it."""

from __future__ import annotations

from tests.conformance.member import BOTH, RANGE, Member, joined, stable
from tests.conformance.recorder import Recorder
from tests.conformance.scenario import Listed, scenario
from tests.conformance.versions import NAMES_PROTOCOL

CHANGED = (("range", b"\x77"),)


@scenario(104)
def sync_in_an_unknown_group(recorder: Recorder) -> None:
    member = Member(recorder, "A")
    member.protocol = "range"
    member.syncs(generation_id=1, member_id="x")
    member.syncs(generation_id=-1, member_id="")
    recorder.describes()


@scenario(108, since=NAMES_PROTOCOL)
def sync_with_the_wrong_protocol(recorder: Recorder) -> None:
    member = Member(recorder, "A", protocols=BOTH)
    joined(recorder, member)
    for wrong in (
        {"protocol_type": "connect"},
        {"protocol_name": "roundrobin"},
        {"protocol_type": None},
        {"protocol_name": None},
        {"protocol_type": ""},
        {"protocol_type": None, "group_id": "no-such-group"},
        {"protocol_type": None, "group_id": ""},
    ):
        member.syncs(**wrong)
    member.syncs({member: b"\x01"})
    member.syncs(protocol_name="roundrobin")


@scenario(110, until=NAMES_PROTOCOL - 1)
def sync_without_a_protocol(recorder: Recorder) -> None:
    member = Member(recorder, "A")
    joined(recorder, member)
    member.syncs({member: b"\x01"})


@scenario(113)
def follower_waits_for_the_leader(recorder: Recorder) -> None:
    leader, follower = Member(recorder, "A"), Member(recorder, "B")
    joined(recorder, leader, follower)
    recorder.describes()
    follower.sends_sync()
    follower.is_pending()
    leader.syncs({leader: b"\x01", follower: b"\x02"})
    follower.receives()
    recorder.describes()


@scenario(
    114,
    listed=[Listed(23, "assignment=x}", "assignment=x000000000000ffffffff}")],
)
def leader_forgets_a_member(recorder: Recorder) -> None:
    leader, follower = Member(recorder, "A"), Member(recorder, "B")
    joined(recorder, leader, follower)
    follower.sends_sync()
    leader.syncs({leader: b"\x01"})
    follower.receives()
    recorder.describes()


@scenario(114)
def leader_assigns_to_an_unknown_member(recorder: Recorder) -> None:
    leader, unknown = Member(recorder, "A"), Member(recorder, "X")
    joined(recorder, leader)
    unknown.member_id = "nobody"
    leader.syncs({leader: b"\x01", unknown: b"\x02"})
    recorder.describes()


@scenario()
def assignment_of_a_follower_is_ignored(recorder: Recorder) -> None:
    leader, follower = Member(recorder, "A"), Member(recorder, "B")
    joined(recorder, leader, follower)
    follower.sends_sync({leader: b"\x08", follower: b"\x09"})
    follower.is_pending()
    leader.syncs({leader: b"\x01", follower: b"\x02"})
    follower.receives()


@scenario(116)
def sync_while_the_group_rebalances(recorder: Recorder) -> None:
    leader, follower = Member(recorder, "A"), Member(recorder, "B")
    stable(recorder, leader, follower)
    follower.sends_join(protocols=CHANGED)
    follower.is_pending()
    leader.syncs({leader: b"\x05"})
    leader.syncs(generation_id=leader.generation + 1)
    leader.syncs(member_id="x")


@scenario(113)
def wrong_generation_before_and_after_the_assignment(recorder: Recorder) -> None:
    member = Member(recorder, "A")
    joined(recorder, member)
    member.syncs(generation_id=2)
    member.syncs(generation_id=0)
    member.syncs(generation_id=-1)
    member.syncs(member_id="x")
    member.syncs({member: b"\x01"})
    member.syncs(generation_id=2)


@scenario(118)
def leader_dies_before_it_syncs(recorder: Recorder) -> None:
    leader = Member(recorder, "A", session_ms=500, rebalance_ms=1500)
    follower = Member(recorder, "B")
    joined(recorder, leader, follower)
    follower.sends_sync()
    follower.is_pending()
    follower.receives()
    recorder.describes()
    follower.joins()


@scenario(120)
def follower_never_syncs(recorder: Recorder) -> None:
    leader = Member(recorder, "A", rebalance_ms=500, session_ms=1000)
    follower = Member(recorder, "B", rebalance_ms=500, session_ms=1000)
    joined(recorder, leader, follower)
    leader.syncs({leader: b"\x01", follower: b"\x02"})
    follower.beats()
    leader.beats()
    recorder.waits(0.7 if recorder.row.number else 0)
    follower.beats()
    leader.beats()


@scenario(122, 124)
def all_synced_and_nothing_more_happens(recorder: Recorder) -> None:
    leader = Member(recorder, "A", rebalance_ms=400)
    follower = Member(recorder, "B", rebalance_ms=400)
    stable(recorder, leader, follower)
    recorder.waits(0.6)
    leader.beats()
    follower.beats()
    leader.syncs({leader: b"\x08", follower: b"\x09"})
    follower.syncs()
    recorder.describes()


@scenario(
    listed=[
        Listed(
            20,
            "B receives nothing",
            "B receives SyncGroup: {error_code=25, protocol_type=None, protocol_name=None, assignment=x}",
        )
    ]
)
def member_is_removed_while_its_sync_is_parked(recorder: Recorder) -> None:
    leader, follower = Member(recorder, "A", protocols=RANGE), Member(recorder, "B", protocols=RANGE)
    joined(recorder, leader, follower)
    follower.sends_sync()
    follower.is_pending()
    leader.leaves(member_id=follower.member_id)
    follower.receives()


@scenario(
    listed=[
        Listed(
            20,
            "B receives nothing",
            "B receives SyncGroup: {error_code=27, protocol_type=None, protocol_name=None, assignment=x}",
        )
    ]
)
def sync_is_superseded_by_another_of_the_same_member(recorder: Recorder) -> None:
    leader, follower = Member(recorder, "A"), Member(recorder, "B")
    joined(recorder, leader, follower)
    follower.sends_sync()
    follower.is_pending()
    again = Member(recorder, "B2")
    again.member_id, again.generation, again.protocol = follower.member_id, follower.generation, follower.protocol
    again.sends_sync()
    again.is_pending()
    leader.syncs({leader: b"\x01", follower: b"\x02"})
    again.receives()
    follower.receives()
