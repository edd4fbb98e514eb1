"""The join phase: when it ends, which member leads, and which protocol is chosen."""

from __future__ import annotations

from holdfast.wire.apis.describe_groups import DescribeGroupsRequest
from tests.conformance.member import BOTH, RANGE, ROUND_ROBIN, Member, joined, stable
from tests.conformance.recorder import Recorder
from tests.conformance.scenario import Listed, scenario
from tests.conformance.versions import STATIC

BOTH_REVERSED = (*ROUND_ROBIN, *RANGE)
CHANGED = (("range", b"\x77"),)


@scenario(40, 44, 47)
def first_join_waits_for_the_initial_delay(recorder: Recorder) -> None:
    first, second = Member(recorder, "A"), Member(recorder, "B")
    first.sends_join()
    recorder.awaits_members(1)
    second.sends_join()
    first.is_pending()
    recorder.awaits_members(2)
    first.receives()
    second.receives()


@scenario(46)
def newcomer_to_a_stable_group_waits_only_for_its_members(recorder: Recorder) -> None:
    first, second = Member(recorder, "A"), Member(recorder, "B")
    stable(recorder, first)
    second.sends_join()
    second.is_pending()
    recorder.describes()
    first.beats()
    first.sends_join()
    first.receives()
    second.receives()
    recorder.describes()


@scenario(49)
def leader_rejoins_unchanged(recorder: Recorder) -> None:
    leader, follower = Member(recorder, "A"), Member(recorder, "B")
    stable(recorder, leader, follower)
    leader.sends_join()
    leader.is_pending()
    follower.beats()
    follower.joins()
    leader.receives()
    recorder.describes()


@scenario(51)
def follower_rejoins_unchanged_and_then_changed(recorder: Recorder) -> None:
    leader, follower = Member(recorder, "A"), Member(recorder, "B")
    stable(recorder, leader, follower)
    follower.joins()
    recorder.describes()
    follower.sends_join(protocols=CHANGED)
    follower.is_pending()
    leader.beats()
    recorder.describes()
    leader.joins()
    follower.receives()


@scenario(52)
def members_rejoin_unchanged_before_the_assignment(recorder: Recorder) -> None:
    leader, follower = Member(recorder, "A"), Member(recorder, "B")
    joined(recorder, leader, follower)
    follower.joins()
    leader.joins()
    recorder.describes()
    leader.syncs({leader: b"\x01", follower: b"\x02"})
    follower.syncs()


@scenario(52)
def follower_rejoins_changed_before_the_assignment(recorder: Recorder) -> None:
    leader, follower = Member(recorder, "A"), Member(recorder, "B")
    joined(recorder, leader, follower)
    follower.sends_join(protocols=CHANGED)
    follower.is_pending()
    leader.beats()
    leader.syncs({leader: b"\x01"})
    leader.joins()
    follower.receives()


@scenario(54)
def member_that_does_not_rejoin_in_time(recorder: Recorder) -> None:
    absent = Member(recorder, "A", rebalance_ms=400, session_ms=1900)
    present = Member(recorder, "B", rebalance_ms=400, session_ms=1900)
    stable(recorder, absent, present)
    present.sends_join(protocols=CHANGED)
    present.is_pending()
    present.receives() if recorder.row.number else present.is_pending()
    absent.beats()
    absent.joins()


@scenario(56, since=STATIC)
def no_static_member_rejoins_in_time(recorder: Recorder) -> None:
    members = [Member(recorder, name, name, rebalance_ms=400) for name in "ABC"]
    stable(recorder, *members)
    members[2].leaves()
    recorder.describes()
    recorder.waits(0.45)
    recorder.describes()
    members[0].beats()
    members[0].sends_join()
    members[0].is_pending()
    members[1].joins()
    members[0].receives()


@scenario(57, 59)
def protocol_with_the_most_votes(recorder: Recorder) -> None:
    first = Member(recorder, "A", protocols=BOTH)
    second = Member(recorder, "B", protocols=BOTH_REVERSED)
    third = Member(recorder, "C", protocols=BOTH_REVERSED)
    stable(recorder, first, second, third)
    recorder.describes()


@scenario(57)
def protocol_that_all_have(recorder: Recorder) -> None:
    first = Member(recorder, "A", protocols=BOTH)
    second = Member(recorder, "B", protocols=ROUND_ROBIN)
    stable(recorder, first, second)
    recorder.describes()
    second.joins(protocols=RANGE)
    recorder.describes()


@scenario(62)
def only_the_leader_gets_the_list(recorder: Recorder) -> None:
    members = [Member(recorder, name, protocols=(("range", name.encode()),)) for name in "ABC"]
    stable(recorder, *members)
    recorder.describes()


@scenario()
def group_that_came_back_from_empty(recorder: Recorder) -> None:
    member = Member(recorder, "A")
    stable(recorder, member)
    member.leaves()
    recorder.describes()
    other = Member(recorder, "B")
    other.sends_join(protocol_type="connect")
    other.is_pending()
    other.receives()
    recorder.describes()


@scenario(42)
def late_newcomer_prolongs_the_initial_delay(recorder: Recorder) -> None:
    first, second = Member(recorder, "A", session_ms=1500), Member(recorder, "B", session_ms=1500)
    if recorder.row.hands_out_ids:
        first.takes_id()
        second.takes_id()
    first.sends_join()
    recorder.awaits_members(1)
    recorder.waits(0.1)
    second.sends_join()
    recorder.waits(0.12)
    first.is_pending()
    first.receives()
    second.receives()


@scenario()
def requests_behind_a_parked_join_wait(recorder: Recorder) -> None:
    member = Member(recorder, "A")
    member.sends_join()
    member.sends(DescribeGroupsRequest([recorder.group]))
    member.is_pending()
    member.receives()
    member.receives()


@scenario(listed=[Listed(20, "B receives nothing", "B receives JoinGroup: {error_code=27, …")])
def join_is_superseded_by_another_of_the_same_member(recorder: Recorder) -> None:
    leader, follower = Member(recorder, "A"), Member(recorder, "B")
    stable(recorder, leader, follower)
    follower.sends_join(protocols=CHANGED)
    follower.is_pending()
    again = Member(recorder, "B2", protocols=CHANGED)
    again.member_id = follower.member_id
    again.sends_join()
    again.is_pending()
    leader.joins()
    again.receives()
    follower.receives()


@scenario(
    listed=[
        Listed(
            30,
            "A receives JoinGroup: …protocol_name='roundrobin'…metadata=x03…",
            "A receives JoinGroup: …protocol_name='range'…metadata=x01…",
        ),
        Listed(30, "protocol_name='roundrobin', assignment=x01", "protocol_name='range', assignment=x01"),
    ]
)
def protocol_offered_twice(recorder: Recorder) -> None:
    stable(recorder, Member(recorder, "A", protocols=(("range", b"\x01"), ("range", b"\x02"), ("roundrobin", b"\x03"))))


@scenario(
    listed=[
        Listed(30, "protocol_name=None, leader=A.1", "protocol_name='', leader=A.1"),
        Listed(30, "A receives SyncGroup: {error_code=23, …", "A receives SyncGroup: {error_code=0, …"),
    ]
)
def protocol_without_a_name(recorder: Recorder) -> None:
    stable(recorder, Member(recorder, "A", protocols=(("", b"\x01"),)))


@scenario()
def member_rejoins_with_another_protocol_type(recorder: Recorder) -> None:
    leader, follower = Member(recorder, "A"), Member(recorder, "B")
    stable(recorder, leader, follower)
    follower.joins(protocol_type="connect")
    follower.joins(protocols=())
    leader.beats()
    follower.beats()


@scenario()
def assignment_of_a_generation_that_ended_before_its_own(recorder: Recorder) -> None:
    leader, follower = Member(recorder, "A"), Member(recorder, "B")
    stable(recorder, leader, follower)
    leader.sends_join()
    leader.is_pending()
    follower.joins()
    leader.receives()
    recorder.describes()
    follower.sends_join(protocols=CHANGED)
    recorder.awaits_state("PreparingRebalance")
    leader.joins()
    follower.receives()
    recorder.describes()
