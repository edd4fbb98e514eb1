"""Heartbeats, sessions and LeaveGroup."""

from __future__ import annotations

from holdfast.wire.apis.leave_group import LeaveGroupRequest, MemberIdentity
from tests.conformance.member import Member, joined, pair, stable
from tests.conformance.recorder import Recorder
from tests.conformance.scenario import Listed, scenario
from tests.conformance.versions import HANDS_OUT_IDS, STATIC

CHANGED = (("range", b"\x77"),)


@scenario(126)
def heartbeat_of_an_unknown_member(recorder: Recorder) -> None:
    unknown = Member(recorder, "X")
    unknown.beats(member_id="x", generation_id=1)
    unknown.beats()
    recorder.describes()
    member = Member(recorder, "A")
    stable(recorder, member)
    unknown.beats(member_id="x", generation_id=1)
    member.leaves()
    member.beats()
    recorder.describes()


@scenario(130)
def heartbeat_in_the_wrong_generation(recorder: Recorder) -> None:
    member = Member(recorder, "A")
    joined(recorder, member)
    for generation in (1, 2, 0, -1):
        member.beats(generation_id=generation)
    member.syncs({member: b"\x01"})
    for generation in (1, 2, 0, -1):
        member.beats(generation_id=generation)


@scenario(131)
def silent_member_expires(recorder: Recorder) -> None:
    member = Member(recorder, "A", session_ms=400)
    stable(recorder, member)
    recorder.awaits_state("Empty")
    member.beats()
    member.sends_join_request()
    member.receives()
    member.commits()


@scenario(131, until=HANDS_OUT_IDS - 1)
def expired_member_of_an_old_version_returns_as_new(recorder: Recorder) -> None:
    member = Member(recorder, "A", session_ms=400)
    stable(recorder, member)
    recorder.awaits_state("Empty")
    member.joins(member_id="")
    member.syncs({member: b"\x02"})


@scenario(134, since=1)
def beating_member_survives_until_the_rebalance_time_out(recorder: Recorder) -> None:
    old = Member(recorder, "A", session_ms=500, rebalance_ms=1000)
    stable(recorder, old)
    new = Member(recorder, "B", rebalance_ms=1000)
    new.sends_join()
    new.is_pending()
    for _ in range(2):
        recorder.waits(0.3)
        old.beats()
    new.is_pending()
    new.receives()
    old.beats()


@scenario(135)
def silent_member_does_not_hold_up_the_join_phase(recorder: Recorder) -> None:
    stable(recorder, Member(recorder, "A", session_ms=500, rebalance_ms=3000))
    new = Member(recorder, "B", rebalance_ms=3000)
    new.sends_join()
    new.is_pending()
    new.receives()
    recorder.describes()


@scenario(136)
def parked_member_does_not_expire(recorder: Recorder) -> None:
    first = Member(recorder, "A", session_ms=300, rebalance_ms=3000)
    second = Member(recorder, "B", session_ms=1900, rebalance_ms=3000)
    stable(recorder, first, second)
    first.sends_join()
    first.is_pending()
    recorder.waits(0.6)
    first.is_pending()
    second.joins()
    first.receives()


@scenario(137)
def heartbeats_in_the_wrong_generation_do_not_count(recorder: Recorder) -> None:
    member = Member(recorder, "A", session_ms=500)
    stable(recorder, member)
    for _ in range(2):
        recorder.waits(0.15)
        member.beats(generation_id=7)
    recorder.awaits_state("Empty")
    member.beats()


@scenario(134)
def heartbeat_while_the_group_rebalances(recorder: Recorder) -> None:
    leader, follower = Member(recorder, "A"), Member(recorder, "B")
    stable(recorder, leader, follower)
    follower.sends_join(protocols=CHANGED)
    follower.is_pending()
    leader.beats()
    leader.beats(generation_id=9)
    leader.beats(member_id="x")
    leader.joins()
    follower.receives()
    leader.beats()


# -- leaving -----------------------------------------------------------------------------------------------------------


@scenario(140)
def leaving_an_unknown_group(recorder: Recorder) -> None:
    unknown = Member(recorder, "X")
    unknown.leaves(member_id="x")
    unknown.leaves(member_id="")
    recorder.describes()


@scenario(140, since=STATIC)
def several_leave_an_unknown_group(recorder: Recorder) -> None:
    unknown = Member(recorder, "X")
    unknown.leaves(MemberIdentity("x", None), MemberIdentity("", "I"), MemberIdentity("", None))


@scenario(142)
def leaving_the_group_without_a_name(recorder: Recorder) -> None:
    Member(recorder, "X").leaves(group_id="", member_id="x")


@scenario(144, 156)
def last_member_leaves(recorder: Recorder) -> None:
    member = Member(recorder, "A")
    stable(recorder, member)
    member.leaves()
    recorder.describes()
    member.leaves()
    member.sends_join_request()
    member.receives()


@scenario(144)
def leader_leaves(recorder: Recorder) -> None:
    leader, follower = Member(recorder, "A"), Member(recorder, "B")
    stable(recorder, leader, follower)
    leader.leaves()
    follower.beats()
    follower.joins()
    recorder.describes()


@scenario(144)
def member_leaves_before_the_assignment(recorder: Recorder) -> None:
    leader, follower = Member(recorder, "A"), Member(recorder, "B")
    joined(recorder, leader, follower)
    follower.sends_sync()
    follower.is_pending()
    leader.leaves()
    follower.receives()
    follower.joins()


@scenario(
    144,
    since=HANDS_OUT_IDS,
    listed=[Listed(28, "…group_state='Empty', protocol_type='', …", "…group_state='Dead', protocol_type='', …")],
)
def newcomer_leaves_before_it_joined(recorder: Recorder) -> None:
    member = Member(recorder, "A")
    member.takes_id()
    member.leaves()
    member.sends_join_request()
    member.receives()
    recorder.describes()


@scenario(147, 155, since=STATIC)
def leaving_in_anothers_name(recorder: Recorder) -> None:
    leader, follower = pair(recorder)
    admin = Member(recorder, "X")
    admin.leaves(MemberIdentity("some_member", "L"))
    admin.leaves(MemberIdentity(leader.member_id, "F"))
    admin.leaves(MemberIdentity(leader.member_id, "nobody"))
    admin.leaves(MemberIdentity("nobody", None))
    follower.beats()
    recorder.describes()


@scenario(149, since=STATIC)
def all_static_members_are_taken_out(recorder: Recorder) -> None:
    pair(recorder)
    Member(recorder, "X").leaves(MemberIdentity("", "L"), MemberIdentity("", "F"))
    recorder.describes()


@scenario(151, since=STATIC)
def one_known_and_one_unknown_are_taken_out(recorder: Recorder) -> None:
    leader, _ = pair(recorder)
    Member(recorder, "X").leaves(MemberIdentity("", "nobody"), MemberIdentity("", "F"), MemberIdentity("", "F"))
    leader.beats()
    recorder.describes()


@scenario(152, 154, since=STATIC)
def members_and_newcomers_leave_together(recorder: Recorder) -> None:
    member, newcomer = Member(recorder, "A"), Member(recorder, "B")
    stable(recorder, member)
    newcomer.takes_id()
    Member(recorder, "X").leaves(
        MemberIdentity("", "nobody"),
        MemberIdentity(newcomer.member_id, None),
        MemberIdentity(member.member_id, None),
        MemberIdentity("third", None),
    )
    recorder.describes()


@scenario(147, since=STATIC)
def static_member_leaves_by_its_id_alone(recorder: Recorder) -> None:
    leader, follower = pair(recorder)
    Member(recorder, "X").leaves(MemberIdentity(follower.member_id, None))
    leader.beats()
    recorder.describes()


@scenario(since=STATIC)
def nobody_leaves(recorder: Recorder) -> None:
    member = Member(recorder, "A")
    stable(recorder, member)
    member.requests(LeaveGroupRequest(recorder.group))
    recorder.describes()
