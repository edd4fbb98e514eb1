"""Static members (KIP-345, KIP-814): they return, stay away, and are fenced."""

from __future__ import annotations

from tests.conformance.member import BOTH, RANGE, ROUND_ROBIN, Member, joined, pair, stable
from tests.conformance.recorder import Recorder
from tests.conformance.scenario import Listed, scenario
from tests.conformance.versions import STATIC


@scenario(65, 67, 85, 86, since=STATIC)
def known_instance_with_an_unknown_id(recorder: Recorder) -> None:
    leader, follower = pair(recorder)
    follower.sends_join_request(member_id="unknown_member")
    follower.receives()
    leader.joins(member_id=follower.member_id)
    follower.joins(member_id=leader.member_id)
    unknown = Member(recorder, "X", "X")
    unknown.joins(member_id=follower.member_id)
    recorder.describes()


@scenario(70, 72, 97, since=STATIC)
def leader_restarts(recorder: Recorder) -> None:
    leader, follower = pair(recorder)
    again = Member(recorder, "L2", "L", protocols=BOTH)
    again.joins()
    again.syncs()
    follower.beats()
    recorder.describes()
    leader.beats()
    leader.joins()
    leader.syncs()
    leader.syncs(group_instance_id=None)
    leader.beats(group_instance_id=None)
    leader.commits()


@scenario(72, 78, 97, since=STATIC)
def follower_restarts_with_fewer_protocols(recorder: Recorder) -> None:
    leader, follower = pair(recorder)
    again = Member(recorder, "F2", "F", protocols=RANGE)
    again.joins()
    again.syncs()
    leader.beats()
    again.beats()
    follower.beats()
    recorder.describes()


@scenario(76, since=STATIC)
def follower_restarts_without_the_chosen_protocol(recorder: Recorder) -> None:
    leader, _ = pair(recorder)
    again = Member(recorder, "F2", "F", protocols=ROUND_ROBIN)
    again.sends_join()
    again.is_pending()
    leader.beats()
    recorder.describes()
    leader.joins()
    again.receives()
    recorder.describes()


@scenario(since=STATIC, listed=[Listed(21, "client_id='first'", "client_id='second'")])
def member_restarts_under_another_client_id(recorder: Recorder) -> None:
    member = Member(recorder, "A", "I", client_id="first")
    stable(recorder, member)
    again = Member(recorder, "A2", "I", client_id="second")
    again.joins()
    recorder.describes()


@scenario(73, since=STATIC)
def member_restarts_five_times(recorder: Recorder) -> None:
    stable(recorder, Member(recorder, "A", "my.instance"))
    for number in range(5):
        again = Member(recorder, f"again{number}", "my.instance")
        again.joins()
        again.syncs()
    recorder.describes()


@scenario(75, since=STATIC)
def follower_rejoins_with_its_id(recorder: Recorder) -> None:
    leader, follower = pair(recorder)
    follower.joins()
    leader.beats()
    follower.syncs()
    follower.joins(group_instance_id=None)
    recorder.describes()


@scenario(76, since=STATIC)
def leader_is_silent_while_the_follower_drops_a_protocol(recorder: Recorder) -> None:
    leader, follower = pair(recorder, rebalance_ms=400)
    follower.sends_join(protocols=ROUND_ROBIN)
    follower.is_pending()
    follower.receives()
    recorder.describes()
    leader.beats(generation_id=2)


@scenario(80, since=STATIC)
def restart_brings_new_time_outs(recorder: Recorder) -> None:
    member = Member(recorder, "A", "I", session_ms=500)
    stable(recorder, member)
    again = Member(recorder, "A2", "I", session_ms=3000)
    again.joins()
    again.beats()
    recorder.waits(0.8)
    again.beats()
    member.beats()
    recorder.describes()


@scenario(
    80,
    since=STATIC,
    listed=[
        Listed(29, "A2 receives Heartbeat: {error_code=25}", "A2 receives Heartbeat: {error_code=0}"),
        Listed(29, "…group_state='Empty', …", "…group_state='Stable', …"),
    ],
)
def restarted_member_is_silent_for_its_old_session(recorder: Recorder) -> None:
    stable(recorder, Member(recorder, "A", "I", session_ms=500))
    again = Member(recorder, "A2", "I", session_ms=3000)
    again.joins()
    recorder.waits(0.8)
    again.beats()
    recorder.describes()


@scenario(84, since=STATIC)
def member_restarts_while_its_join_is_parked(recorder: Recorder) -> None:
    leader, follower = pair(recorder)
    follower.sends_join(protocols=RANGE)
    recorder.awaits_state("PreparingRebalance")
    again = Member(recorder, "F2", "F", protocols=RANGE)
    again.sends_join()
    follower.receives()
    again.is_pending()
    follower.joins()
    leader.joins()
    again.receives()


@scenario(88, since=STATIC)
def static_and_dynamic_members_rebalance_together(recorder: Recorder) -> None:
    static, dynamic = Member(recorder, "S", "I"), Member(recorder, "D")
    stable(recorder, static, dynamic)
    static.sends_join()
    static.is_pending()
    dynamic.beats()
    dynamic.joins()
    static.receives()
    dynamic.sends_sync()
    dynamic.is_pending()
    static.syncs({static: b"\x03", dynamic: b"\x04"})
    dynamic.receives()
    recorder.describes()


@scenario(since=STATIC)
def member_restarts_while_its_sync_is_parked(recorder: Recorder) -> None:
    leader, follower = Member(recorder, "L", "L"), Member(recorder, "F", "F")
    joined(recorder, leader, follower)
    follower.sends_sync()
    follower.is_pending()
    again = Member(recorder, "F2", "F")
    again.sends_join()
    follower.receives()
    again.is_pending()
    leader.beats()
    leader.joins()
    again.receives()
    recorder.describes()


@scenario(
    since=STATIC,
    listed=[Listed(18, "receives Heartbeat: {error_code=27}", "receives Heartbeat: {error_code=0}")],
)
def member_restarts_before_it_synced(recorder: Recorder) -> None:
    leader, follower = Member(recorder, "L", "L", rebalance_ms=400), Member(recorder, "F", "F", rebalance_ms=400)
    joined(recorder, leader, follower)
    leader.syncs({leader: b"\x01", follower: b"\x02"})
    again = Member(recorder, "F2", "F", rebalance_ms=400)
    again.joins()
    again.syncs()
    recorder.waits(0.7)
    leader.beats()
    again.beats()


@scenario(91, since=STATIC)
def newcomer_while_the_leader_is_silent(recorder: Recorder) -> None:
    _, follower = pair(recorder, rebalance_ms=400, session_ms=1900)
    third = Member(recorder, "N", "N", protocols=BOTH)
    third.sends_join(rebalance_timeout_ms=400)
    third.is_pending()
    follower.beats()
    follower.sends_join()
    follower.is_pending()
    recorder.describes()


@scenario(93, since=STATIC)
def session_of_a_lonely_static_member_ends(recorder: Recorder) -> None:
    member = Member(recorder, "A", "I", session_ms=400)
    stable(recorder, member)
    recorder.awaits_state("Empty")
    member.beats()
    member.joins(member_id="")
    member.syncs({member: b"\x05"})


@scenario(
    96,
    since=STATIC,
    listed=[
        Listed(17, "L receives Heartbeat: {error_code=27}", "L receives Heartbeat: {error_code=0}"),
        Listed(17, "F receives Heartbeat: {error_code=25}", "F receives Heartbeat: {error_code=0}"),
        Listed(17, "…group_state='PreparingRebalance'…", "…group_state='Stable'…group_instance_id='F'…"),
    ],
)
def absent_static_member_and_the_sync_timer(recorder: Recorder) -> None:
    leader, follower = pair(recorder, rebalance_ms=400, session_ms=3000)
    leader.sends_join()
    leader.is_pending()
    leader.receives()
    leader.syncs({leader: b"\x01"})
    recorder.waits(0.7)
    leader.beats()
    follower.beats(generation_id=leader.generation)
    recorder.describes()


@scenario(87, 98, 100, 103, since=STATIC)
def wrong_id_for_an_instance(recorder: Recorder) -> None:
    leader, follower = pair(recorder)
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
def dynamic_members_id_with_somebodys_instance(recorder: Recorder) -> None:
    static, dynamic = Member(recorder, "S", "I"), Member(recorder, "D")
    stable(recorder, static, dynamic)
    dynamic.beats(group_instance_id="I")
    dynamic.beats(group_instance_id="J")
    dynamic.commits(group_instance_id="I")
    dynamic.joins(group_instance_id="I")


@scenario(
    since=STATIC,
    listed=[
        Listed(
            19, "B2 receives JoinGroup: {error_code=81, …", "B2 receives JoinGroup: {error_code=0, generation_id=1, …"
        ),
        Listed(19, "B receives Heartbeat: {error_code=0}", "B receives Heartbeat: {error_code=82}"),
    ],
)
def static_member_restarts_in_a_full_group(recorder: Recorder) -> None:
    members = [Member(recorder, name, name) for name in "ABCD"]
    stable(recorder, *members)
    again = Member(recorder, "B2", "B")
    again.joins()
    members[0].beats()
    members[1].beats()
