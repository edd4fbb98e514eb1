"""6.F, 6.G and 6.H: members with an instance id come back, stay away, and are fenced."""

from __future__ import annotations

from tests.conformance.member import BOTH, RANGE, ROUND_ROBIN, Member, joined, pair, stable
from tests.conformance.scenario import Listed, scenario
from tests.conformance.scene import Scene
from tests.conformance.versions import STATIC


@scenario(65, 67, 85, 86, since=STATIC)
def known_instance_with_an_unknown_id(scene: Scene) -> None:
    leader, follower = pair(scene)
    follower.says_join(member_id="unknown_member")
    follower.hears()
    leader.joins(member_id=follower.member_id)
    follower.joins(member_id=leader.member_id)
    stranger = Member(scene, "X", "X")
    stranger.joins(member_id=follower.member_id)
    scene.describes()


@scenario(70, 72, 97, since=STATIC)
def leader_restarts(scene: Scene) -> None:
    leader, follower = pair(scene)
    again = Member(scene, "L2", "L", protocols=BOTH)
    again.joins()
    again.syncs()
    follower.beats()
    scene.describes()
    leader.beats()
    leader.joins()
    leader.syncs()
    leader.syncs(group_instance_id=None)
    leader.beats(group_instance_id=None)
    leader.commits()


@scenario(72, 78, 97, since=STATIC)
def follower_restarts_with_fewer_protocols(scene: Scene) -> None:
    leader, follower = pair(scene)
    again = Member(scene, "F2", "F", protocols=RANGE)
    again.joins()
    again.syncs()
    leader.beats()
    again.beats()
    follower.beats()
    scene.describes()


@scenario(76, since=STATIC)
def follower_restarts_without_the_chosen_protocol(scene: Scene) -> None:
    leader, _ = pair(scene)
    again = Member(scene, "F2", "F", protocols=ROUND_ROBIN)
    again.sends_join()
    again.is_parked()
    leader.beats()
    scene.describes()
    leader.joins()
    again.hears()
    scene.describes()


@scenario(since=STATIC, listed=[Listed(21, "client_id='first'", "client_id='second'")])
def member_restarts_under_another_client_id(scene: Scene) -> None:
    member = Member(scene, "A", "I", client_id="first")
    stable(scene, member)
    again = Member(scene, "A2", "I", client_id="second")
    again.joins()
    scene.describes()


@scenario(73, since=STATIC)
def member_restarts_five_times(scene: Scene) -> None:
    stable(scene, Member(scene, "A", "my.instance"))
    for number in range(5):
        again = Member(scene, f"again{number}", "my.instance")
        again.joins()
        again.syncs()
    scene.describes()


@scenario(75, since=STATIC)
def follower_rejoins_with_its_id(scene: Scene) -> None:
    leader, follower = pair(scene)
    follower.joins()
    leader.beats()
    follower.syncs()
    follower.joins(group_instance_id=None)
    scene.describes()


@scenario(76, since=STATIC)
def leader_is_silent_while_the_follower_drops_a_protocol(scene: Scene) -> None:
    leader, follower = pair(scene, rebalance_ms=400)
    follower.sends_join(protocols=ROUND_ROBIN)
    follower.is_parked()
    follower.hears()
    scene.describes()
    leader.beats(generation_id=2)


@scenario(80, since=STATIC)
def restart_brings_new_time_outs(scene: Scene) -> None:
    member = Member(scene, "A", "I", session_ms=500)
    stable(scene, member)
    again = Member(scene, "A2", "I", session_ms=3000)
    again.joins()
    again.beats()
    scene.waits(0.8)
    again.beats()
    member.beats()
    scene.describes()


@scenario(
    80,
    since=STATIC,
    listed=[
        Listed(29, "A2 hears Heartbeat: {error_code=25}", "A2 hears Heartbeat: {error_code=0}"),
        Listed(29, "…group_state='Empty', …", "…group_state='Stable', …"),
    ],
)
def restarted_member_is_silent_for_its_old_session(scene: Scene) -> None:
    stable(scene, Member(scene, "A", "I", session_ms=500))
    again = Member(scene, "A2", "I", session_ms=3000)
    again.joins()
    scene.waits(0.8)
    again.beats()
    scene.describes()


@scenario(84, since=STATIC)
def member_restarts_while_its_join_is_parked(scene: Scene) -> None:
    leader, follower = pair(scene)
    follower.sends_join(protocols=RANGE)
    scene.awaits_state("PreparingRebalance")
    again = Member(scene, "F2", "F", protocols=RANGE)
    again.sends_join()
    follower.hears()
    again.is_parked()
    follower.joins()
    leader.joins()
    again.hears()


@scenario(88, since=STATIC)
def static_and_dynamic_members_rebalance_together(scene: Scene) -> None:
    static, dynamic = Member(scene, "S", "I"), Member(scene, "D")
    stable(scene, static, dynamic)
    static.sends_join()
    static.is_parked()
    dynamic.beats()
    dynamic.joins()
    static.hears()
    dynamic.sends_sync()
    dynamic.is_parked()
    static.syncs({static: b"\x03", dynamic: b"\x04"})
    dynamic.hears()
    scene.describes()


@scenario(since=STATIC)
def member_restarts_while_its_sync_is_parked(scene: Scene) -> None:
    leader, follower = Member(scene, "L", "L"), Member(scene, "F", "F")
    joined(scene, leader, follower)
    follower.sends_sync()
    follower.is_parked()
    again = Member(scene, "F2", "F")
    again.sends_join()
    follower.hears()
    again.is_parked()
    leader.beats()
    leader.joins()
    again.hears()
    scene.describes()


@scenario(
    since=STATIC,
    listed=[Listed(18, "hears Heartbeat: {error_code=27}", "hears Heartbeat: {error_code=0}")],
)
def member_restarts_before_it_synced(scene: Scene) -> None:
    leader, follower = Member(scene, "L", "L", rebalance_ms=400), Member(scene, "F", "F", rebalance_ms=400)
    joined(scene, leader, follower)
    leader.syncs({leader: b"\x01", follower: b"\x02"})
    again = Member(scene, "F2", "F", rebalance_ms=400)
    again.joins()
    again.syncs()
    scene.waits(0.7)
    leader.beats()
    again.beats()


@scenario(91, since=STATIC)
def newcomer_while_the_leader_is_silent(scene: Scene) -> None:
    _, follower = pair(scene, rebalance_ms=400, session_ms=1900)
    third = Member(scene, "N", "N", protocols=BOTH)
    third.sends_join(rebalance_timeout_ms=400)
    third.is_parked()
    follower.beats()
    follower.sends_join()
    follower.is_parked()
    scene.describes()


@scenario(93, since=STATIC)
def session_of_a_lonely_static_member_ends(scene: Scene) -> None:
    member = Member(scene, "A", "I", session_ms=400)
    stable(scene, member)
    scene.awaits_state("Empty")
    member.beats()
    member.joins(member_id="")
    member.syncs({member: b"\x05"})


@scenario(
    96,
    since=STATIC,
    listed=[
        Listed(17, "L hears Heartbeat: {error_code=27}", "L hears Heartbeat: {error_code=0}"),
        Listed(17, "F hears Heartbeat: {error_code=25}", "F hears Heartbeat: {error_code=0}"),
        Listed(17, "…group_state='PreparingRebalance'…", "…group_state='Stable'…group_instance_id='F'…"),
    ],
)
def absent_static_member_and_the_sync_timer(scene: Scene) -> None:
    leader, follower = pair(scene, rebalance_ms=400, session_ms=3000)
    leader.sends_join()
    leader.is_parked()
    leader.hears()
    leader.syncs({leader: b"\x01"})
    scene.waits(0.7)
    leader.beats()
    follower.beats(generation_id=leader.generation)
    scene.describes()


@scenario(87, 98, 100, 103, since=STATIC)
def wrong_id_for_an_instance(scene: Scene) -> None:
    leader, follower = pair(scene)
    for wrong in ("invalid", follower.member_id):
        leader.syncs(member_id=wrong)
        leader.beats(member_id=wrong)
        leader.commits(member_id=wrong)
    for unknown in ({"group_instance_id": "nobody"}, {"group_instance_id": None, "member_id": "invalid"}):
        leader.syncs(**unknown)
        leader.beats(**unknown)
        leader.commits(**unknown)
    leader.beats(group_instance_id="")
    leader.beats(group_instance_id=None)
    leader.syncs(group_instance_id=None)
    leader.commits(group_instance_id=None)


@scenario(103, since=STATIC)
def dynamic_members_id_with_somebodys_instance(scene: Scene) -> None:
    static, dynamic = Member(scene, "S", "I"), Member(scene, "D")
    stable(scene, static, dynamic)
    dynamic.beats(group_instance_id="I")
    dynamic.beats(group_instance_id="J")
    dynamic.commits(group_instance_id="I")
    dynamic.joins(group_instance_id="I")


@scenario(
    since=STATIC,
    listed=[
        Listed(19, "B2 hears JoinGroup: {error_code=81, …", "B2 hears JoinGroup: {error_code=0, generation_id=1, …"),
        Listed(19, "B hears Heartbeat: {error_code=0}", "B hears Heartbeat: {error_code=82}"),
    ],
)
def static_member_restarts_in_a_full_group(scene: Scene) -> None:
    members = [Member(scene, name, name) for name in "ABCD"]
    stable(scene, *members)
    again = Member(scene, "B2", "B")
    again.joins()
    members[0].beats()
    members[1].beats()
