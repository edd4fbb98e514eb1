"""6.B and 6.C: what a JoinGroup must be, and the ids that newcomers are sent away with."""

from __future__ import annotations

from tests.conformance.member import BOTH, RANGE, ROUND_ROBIN, Member, joined, stable
from tests.conformance.scenario import Listed, scenario
from tests.conformance.scene import Scene
from tests.conformance.versions import HANDS_OUT_IDS, STATIC

UNSUPPORTED = (("nothing-in-common", b"\x09"),)


@scenario(11, 12, 21)
def session_time_out_outside_the_limits(scene: Scene) -> None:
    member = Member(scene, "A")
    for session_ms in (99, 0, -1, 1_800_001):
        member.says_join(session_timeout_ms=session_ms)
        member.hears()
    scene.describes()


@scenario(14, 21)
def unknown_id_in_an_unknown_group(scene: Scene) -> None:
    member = Member(scene, "A")
    member.joins(member_id="x")
    scene.describes()


@scenario(14, since=STATIC)
def unknown_id_with_an_instance_id_in_an_unknown_group(scene: Scene) -> None:
    member = Member(scene, "A", "I")
    member.joins(member_id="x")
    scene.describes()


@scenario()
def empty_group_id(scene: Scene) -> None:
    member = Member(scene, "A")
    member.says_join(group_id="")
    member.hears()
    member.syncs(group_id="")
    member.beats(group_id="")


NO_GROUP_LEFT = Listed(28, "…group_state='Empty', protocol_type='', …", "…group_state='Dead', protocol_type='', …")


@scenario(16, 17, 21, listed=[NO_GROUP_LEFT])
def no_protocols_in_a_new_group(scene: Scene) -> None:
    member = Member(scene, "A")
    for wrong in ({"protocol_type": ""}, {"protocols": ()}, {"protocol_type": "", "protocols": ()}):
        member.says_join(**wrong)
        member.hears()
    scene.describes()


@scenario(16, since=STATIC, listed=[NO_GROUP_LEFT])
def static_member_without_a_protocol_type(scene: Scene) -> None:
    member = Member(scene, "A", "I")
    member.joins(protocol_type="")
    member.joins(protocols=())
    scene.describes()


@scenario(19, 47)
def newcomer_with_nothing_in_common(scene: Scene) -> None:
    first = Member(scene, "A", protocols=RANGE)
    second = Member(scene, "B", protocols=ROUND_ROBIN)
    first.sends_join()
    scene.awaits_members(1)
    second.says_join()
    second.hears()
    first.is_parked()
    first.hears()
    first.syncs({first: b"\x01"})
    second.says_join()
    second.hears()
    second.says_join(protocol_type="connect", protocols=RANGE)
    second.hears()
    scene.describes()


@scenario(22, 25)
def fifth_member_of_a_full_group(scene: Scene) -> None:
    members = [Member(scene, name, protocols=((name, b"\x01"), *RANGE)) for name in "ABCD"]
    fifth = Member(scene, "E")
    joined(scene, *members)
    fifth.joins()
    fifth.beats()
    scene.describes()


@scenario(24, since=STATIC)
def fifth_static_member_of_a_full_group(scene: Scene) -> None:
    members = [Member(scene, name, name) for name in "ABCD"]
    fifth = Member(scene, "E", "E")
    for count, member in enumerate(members, start=1):
        member.sends_join()
        scene.awaits_members(count)
    fifth.joins()
    for member in members:
        member.hears()
    scene.describes()


@scenario(28, until=0)
def first_version_takes_the_session_for_the_rebalance_time_out(scene: Scene) -> None:
    first = Member(scene, "A", session_ms=400)
    stable(scene, first)
    second = Member(scene, "B")
    second.sends_join(session_timeout_ms=1000)
    second.is_parked()
    first.beats()
    second.hears()


@scenario(29, 31, 47, since=HANDS_OUT_IDS)
def newcomer_is_sent_away_with_its_id(scene: Scene) -> None:
    member = Member(scene, "A", client_id="my client/id")
    member.takes_id()
    scene.describes()
    scene.lists()
    member.says_join()
    member.is_parked()
    scene.describes()
    member.hears()
    scene.describes()


@scenario(29, until=HANDS_OUT_IDS - 1)
def newcomer_of_an_old_version_joins_at_once(scene: Scene) -> None:
    member = Member(scene, "A")
    member.says_join()
    member.is_parked()
    member.hears()


@scenario(33, since=HANDS_OUT_IDS)
def newcomer_who_never_returns(scene: Scene) -> None:
    member = Member(scene, "A")
    stable(scene, member)
    other = Member(scene, "B", session_ms=300)
    other.takes_id()
    scene.describes()
    scene.waits(0.6)
    member.beats()
    other.says_join()
    other.hears()
    scene.describes()


@scenario(35, since=HANDS_OUT_IDS)
def join_phase_does_not_wait_for_an_expired_newcomer(scene: Scene) -> None:
    member = Member(scene, "A", rebalance_ms=1500)
    stable(scene, member)
    other = Member(scene, "B", session_ms=400)
    other.takes_id()
    member.sends_join()
    member.is_parked()
    scene.describes()
    member.hears()
    scene.describes()


@scenario(since=HANDS_OUT_IDS)
def first_join_phase_does_not_wait_for_an_unused_id(scene: Scene) -> None:
    """Unlike those that follow it: the initial delay ends it, whoever is still to come."""
    member, newcomer = Member(scene, "A"), Member(scene, "B")
    newcomer.takes_id()
    member.joins()
    scene.describes()
    newcomer.says_join()
    newcomer.is_parked()
    member.joins()
    newcomer.hears()


@scenario(37, since=HANDS_OUT_IDS)
def id_that_has_not_joined_is_unknown_elsewhere(scene: Scene) -> None:
    member = Member(scene, "A")
    member.takes_id()
    member.beats(generation_id=0)
    member.beats(generation_id=-1)
    member.syncs(generation_id=0)
    member.commits(generation_id_or_member_epoch=0)
    member.commits(generation_id_or_member_epoch=-1)
    scene.describes()


@scenario(38, since=STATIC)
def newcomers_id_with_an_instance_id(scene: Scene) -> None:
    member = Member(scene, "A")
    member.takes_id()
    member.says_join(group_instance_id="I")
    member.hears()
    scene.describes()


@scenario(39, since=HANDS_OUT_IDS)
def newcomers_id_with_nothing_in_common_may_try_again(scene: Scene) -> None:
    first = Member(scene, "A", protocols=RANGE)
    stable(scene, first)
    second = Member(scene, "B", protocols=BOTH)
    second.takes_id()
    second.says_join(protocols=UNSUPPORTED)
    second.hears()
    second.says_join()
    second.is_parked()
    first.beats()
    first.sends_join()
    first.hears()
    second.hears()
