"""Groups whose members are clients of different ages, as during an upgrade: each is answered in its own version.

The row of the play is that of the younger ones; the older member's is named in the play.
"""

from __future__ import annotations

from holdfast.wire.apis.leave_group import MemberIdentity
from tests.conformance.member import BOTH, RANGE, ROUND_ROBIN, Member, joined, pair, stable
from tests.conformance.scenario import scenario
from tests.conformance.scene import Scene
from tests.conformance.versions import HANDS_OUT_IDS, NAMES_PROTOCOL, NEWEST, ROWS, STATIC

LAST_WITHOUT_INSTANCES = STATIC - 1
LAST_WITHOUT_SKIP = NEWEST - 1


@scenario(63, since=STATIC)
def leader_of_an_old_version_with_a_static_follower(scene: Scene) -> None:
    """The list that the leader gets has no room for instance ids."""
    leader = Member(scene, "A", row=ROWS[LAST_WITHOUT_INSTANCES])
    follower = Member(scene, "B", "I")
    stable(scene, leader, follower)
    scene.describes()


@scenario(63)
def leaders_of_each_old_version_with_younger_followers(scene: Scene) -> None:
    """The row is the leader's; the followers are of the newest."""
    leader = Member(scene, "A", protocols=BOTH)
    static = Member(scene, "B", "I", protocols=BOTH, row=ROWS[NEWEST])
    dynamic = Member(scene, "C", protocols=RANGE, row=ROWS[NEWEST])
    stable(scene, leader, static, dynamic)
    for member in (leader, static, dynamic):
        member.beats()
        member.commits(3)
    scene.describes()


@scenario()
def followers_of_each_old_version_with_a_younger_leader(scene: Scene) -> None:
    leader = Member(scene, "A", "I", protocols=BOTH, row=ROWS[NEWEST])
    follower = Member(scene, "B", protocols=BOTH)
    stable(scene, leader, follower)
    follower.sends_join(protocols=ROUND_ROBIN)
    follower.is_parked()
    leader.beats()
    leader.joins()
    follower.hears()
    leader.syncs({leader: b"\x03", follower: b"\x04"})
    follower.syncs()
    follower.leaves()
    leader.beats()
    scene.describes()


@scenario(since=STATIC)
def static_follower_restarts_under_a_leader_of_an_old_version(scene: Scene) -> None:
    leader = Member(scene, "A", row=ROWS[2])
    follower = Member(scene, "B", "I")
    stable(scene, leader, follower)
    again = Member(scene, "B2", "I")
    again.joins()
    again.syncs()
    leader.beats()
    follower.beats()
    leader.sends_join()
    leader.is_parked()
    again.beats()
    again.joins()
    leader.hears()


@scenario(97, since=STATIC, until=LAST_WITHOUT_SKIP)
def static_leader_comes_back_upgraded(scene: Scene) -> None:
    """From v9 on it is told that it leads, and that it need not assign."""
    _, follower = pair(scene)
    again = Member(scene, "L2", "L", protocols=BOTH, row=ROWS[NEWEST])
    again.joins()
    again.syncs()
    follower.beats()
    scene.describes()


@scenario(97, since=STATIC, until=LAST_WITHOUT_SKIP)
def static_leader_comes_back_downgraded(scene: Scene) -> None:
    """Below v9 it is told the id that it had: taking itself for the leader, it would assign for nothing."""
    leader = Member(scene, "L", "L", row=ROWS[NEWEST])
    follower = Member(scene, "F", "F", row=ROWS[NEWEST])
    stable(scene, leader, follower)
    again = Member(scene, "L2", "L")
    again.joins()
    again.syncs()
    follower.beats()
    follower.syncs()
    scene.describes()


@scenario(since=STATIC)
def static_member_comes_back_from_before_instances(scene: Scene) -> None:
    """A client too old for instance ids is a newcomer; the seat of its instance stays."""
    static = Member(scene, "A", "I")
    stable(scene, static)
    again = Member(scene, "A2", row=ROWS[LAST_WITHOUT_INSTANCES])
    again.sends_join()
    again.is_parked()
    static.beats()
    static.joins()
    again.hears()
    scene.describes()


@scenario(since=NAMES_PROTOCOL)
def sync_without_a_protocol_beside_one_that_names_it(scene: Scene) -> None:
    old = Member(scene, "A", protocols=BOTH, row=ROWS[NAMES_PROTOCOL - 1])
    young = Member(scene, "B", protocols=BOTH)
    joined(scene, old, young)
    young.syncs(protocol_name="roundrobin")
    young.sends_sync()
    young.is_parked()
    old.syncs({old: b"\x01", young: b"\x02"})
    young.hears()


@scenario(since=HANDS_OUT_IDS)
def newcomers_with_and_without_the_detour(scene: Scene) -> None:
    """An id that was handed out to a younger client holds up the join phase of the older, until it is used."""
    old = Member(scene, "A", row=ROWS[HANDS_OUT_IDS - 1])
    young = Member(scene, "B")
    stable(scene, old)
    young.takes_id()
    old.sends_join()
    old.is_parked()
    young.says_join()
    old.hears()
    young.hears()
    scene.describes()


@scenario(since=STATIC)
def old_client_takes_a_static_member_out(scene: Scene) -> None:
    """Before row 5 LeaveGroup names a member id only, and that suffices."""
    leader, follower = pair(scene)
    old = Member(scene, "X", row=ROWS[LAST_WITHOUT_INSTANCES])
    old.leaves(member_id="nobody")
    old.leaves(member_id=follower.member_id)
    leader.beats()
    leader.leaves(MemberIdentity("", "F"))
    scene.describes()


@scenario()
def id_of_one_version_is_used_in_another(scene: Scene) -> None:
    """The same member speaks, from request to request, as clients of two ages."""
    member = Member(scene, "A", protocols=BOTH)
    stable(scene, member)
    younger = Member(scene, "A", protocols=BOTH, row=ROWS[NEWEST])
    younger.member_id, younger.generation, younger.protocol = member.member_id, member.generation, "range"
    younger.beats()
    younger.commits(3)
    younger.syncs()
    younger.joins()
    younger.syncs({younger: b"\x07"})
    member.generation = younger.generation
    member.beats()
    member.syncs()
    scene.describes()
