"""6.J and 6.K: heartbeats, sessions, and goodbyes."""

from __future__ import annotations

from holdfast.wire.apis.leave_group import LeaveGroupRequest, MemberIdentity
from tests.conformance.member import Member, joined, pair, stable
from tests.conformance.scenario import Listed, scenario
from tests.conformance.scene import Scene
from tests.conformance.versions import HANDS_OUT_IDS, STATIC

CHANGED = (("range", b"\x77"),)


@scenario(126)
def heartbeat_of_a_stranger(scene: Scene) -> None:
    stranger = Member(scene, "X")
    stranger.beats(member_id="x", generation_id=1)
    stranger.beats()
    scene.describes()
    member = Member(scene, "A")
    stable(scene, member)
    stranger.beats(member_id="x", generation_id=1)
    member.leaves()
    member.beats()
    scene.describes()


@scenario(130)
def heartbeat_in_the_wrong_generation(scene: Scene) -> None:
    member = Member(scene, "A")
    joined(scene, member)
    for generation in (1, 2, 0, -1):
        member.beats(generation_id=generation)
    member.syncs({member: b"\x01"})
    for generation in (1, 2, 0, -1):
        member.beats(generation_id=generation)


@scenario(131)
def silent_member_expires(scene: Scene) -> None:
    member = Member(scene, "A", session_ms=400)
    stable(scene, member)
    scene.awaits_state("Empty")
    member.beats()
    member.says_join()
    member.hears()
    member.commits()


@scenario(131, until=HANDS_OUT_IDS - 1)
def expired_member_of_an_old_version_returns_as_new(scene: Scene) -> None:
    member = Member(scene, "A", session_ms=400)
    stable(scene, member)
    scene.awaits_state("Empty")
    member.joins(member_id="")
    member.syncs({member: b"\x02"})


@scenario(134, since=1)
def beating_member_survives_until_the_rebalance_time_out(scene: Scene) -> None:
    old = Member(scene, "A", session_ms=500, rebalance_ms=1000)
    stable(scene, old)
    new = Member(scene, "B", rebalance_ms=1000)
    new.sends_join()
    new.is_parked()
    for _ in range(2):
        scene.waits(0.3)
        old.beats()
    new.is_parked()
    new.hears()
    old.beats()


@scenario(135)
def silent_member_does_not_hold_up_the_join_phase(scene: Scene) -> None:
    stable(scene, Member(scene, "A", session_ms=500, rebalance_ms=3000))
    new = Member(scene, "B", rebalance_ms=3000)
    new.sends_join()
    new.is_parked()
    new.hears()
    scene.describes()


@scenario(136)
def parked_member_does_not_expire(scene: Scene) -> None:
    first = Member(scene, "A", session_ms=300, rebalance_ms=3000)
    second = Member(scene, "B", session_ms=1900, rebalance_ms=3000)
    stable(scene, first, second)
    first.sends_join()
    first.is_parked()
    scene.waits(0.6)
    first.is_parked()
    second.joins()
    first.hears()


@scenario(137)
def heartbeats_in_the_wrong_generation_do_not_count(scene: Scene) -> None:
    member = Member(scene, "A", session_ms=500)
    stable(scene, member)
    for _ in range(2):
        scene.waits(0.15)
        member.beats(generation_id=7)
    scene.awaits_state("Empty")
    member.beats()


@scenario(134)
def heartbeat_while_the_group_rebalances(scene: Scene) -> None:
    leader, follower = Member(scene, "A"), Member(scene, "B")
    stable(scene, leader, follower)
    follower.sends_join(protocols=CHANGED)
    follower.is_parked()
    leader.beats()
    leader.beats(generation_id=9)
    leader.beats(member_id="x")
    leader.joins()
    follower.hears()
    leader.beats()


# -- 6.K ---------------------------------------------------------------------------------------------------------------


@scenario(140)
def leaving_an_unknown_group(scene: Scene) -> None:
    stranger = Member(scene, "X")
    stranger.leaves(member_id="x")
    stranger.leaves(member_id="")
    scene.describes()


@scenario(140, since=STATIC)
def several_leave_an_unknown_group(scene: Scene) -> None:
    stranger = Member(scene, "X")
    stranger.leaves(MemberIdentity("x", None), MemberIdentity("", "I"), MemberIdentity("", None))


@scenario(142)
def leaving_the_group_without_a_name(scene: Scene) -> None:
    Member(scene, "X").leaves(group_id="", member_id="x")


@scenario(144, 156)
def last_member_leaves(scene: Scene) -> None:
    member = Member(scene, "A")
    stable(scene, member)
    member.leaves()
    scene.describes()
    member.leaves()
    member.says_join()
    member.hears()


@scenario(144)
def leader_leaves(scene: Scene) -> None:
    leader, follower = Member(scene, "A"), Member(scene, "B")
    stable(scene, leader, follower)
    leader.leaves()
    follower.beats()
    follower.joins()
    scene.describes()


@scenario(144)
def member_leaves_before_the_assignment(scene: Scene) -> None:
    leader, follower = Member(scene, "A"), Member(scene, "B")
    joined(scene, leader, follower)
    follower.sends_sync()
    follower.is_parked()
    leader.leaves()
    follower.hears()
    follower.joins()


@scenario(
    144,
    since=HANDS_OUT_IDS,
    listed=[Listed(28, "…group_state='Empty', protocol_type='', …", "…group_state='Dead', protocol_type='', …")],
)
def newcomer_leaves_before_it_joined(scene: Scene) -> None:
    member = Member(scene, "A")
    member.takes_id()
    member.leaves()
    member.says_join()
    member.hears()
    scene.describes()


@scenario(147, 155, since=STATIC)
def leaving_in_anothers_name(scene: Scene) -> None:
    leader, follower = pair(scene)
    admin = Member(scene, "X")
    admin.leaves(MemberIdentity("some_member", "L"))
    admin.leaves(MemberIdentity(leader.member_id, "F"))
    admin.leaves(MemberIdentity(leader.member_id, "nobody"))
    admin.leaves(MemberIdentity("nobody", None))
    follower.beats()
    scene.describes()


@scenario(149, since=STATIC)
def all_static_members_are_taken_out(scene: Scene) -> None:
    pair(scene)
    Member(scene, "X").leaves(MemberIdentity("", "L"), MemberIdentity("", "F"))
    scene.describes()


@scenario(151, since=STATIC)
def one_known_and_one_unknown_are_taken_out(scene: Scene) -> None:
    leader, _ = pair(scene)
    Member(scene, "X").leaves(MemberIdentity("", "nobody"), MemberIdentity("", "F"), MemberIdentity("", "F"))
    leader.beats()
    scene.describes()


@scenario(152, 154, since=STATIC)
def members_and_newcomers_leave_together(scene: Scene) -> None:
    member, newcomer = Member(scene, "A"), Member(scene, "B")
    stable(scene, member)
    newcomer.takes_id()
    Member(scene, "X").leaves(
        MemberIdentity("", "nobody"),
        MemberIdentity(newcomer.member_id, None),
        MemberIdentity(member.member_id, None),
        MemberIdentity("third", None),
    )
    scene.describes()


@scenario(147, since=STATIC)
def static_member_leaves_by_its_id_alone(scene: Scene) -> None:
    leader, follower = pair(scene)
    Member(scene, "X").leaves(MemberIdentity(follower.member_id, None))
    leader.beats()
    scene.describes()


@scenario(since=STATIC)
def nobody_leaves(scene: Scene) -> None:
    member = Member(scene, "A")
    stable(scene, member)
    member.asks(LeaveGroupRequest(scene.group))
    scene.describes()
