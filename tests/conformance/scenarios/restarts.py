"""6.O: what a group is after its server was killed and started again. Every play kills it once."""

from __future__ import annotations

from functools import partial

from tests.conformance.member import BOTH, Member, pair, stable
from tests.conformance.scenario import Listed, Theatre
from tests.conformance.scenario import scenario as any_scenario
from tests.conformance.scene import Scene
from tests.conformance.versions import HANDS_OUT_IDS, STATIC

SESSION_MS = 6000
"""Long enough for all to come back, which the first heartbeats must."""

scenario = partial(any_scenario, theatre=Theatre.MORTAL)


@scenario(210)
def silent_member_after_a_restart(scene: Scene) -> None:
    """The server is away for longer than their sessions: those begin anew."""
    beating, silent = Member(scene, "A", session_ms=SESSION_MS), Member(scene, "B", session_ms=SESSION_MS)
    stable(scene, beating, silent)
    scene.kills_the_server(down_s=SESSION_MS / 1000 + 0.5)
    scene.describes()
    beating.beats()
    scene.waits(SESSION_MS / 2000)
    beating.beats()
    scene.awaits_state("PreparingRebalance", within_s=SESSION_MS / 1000)
    beating.beats()
    silent.beats()
    beating.joins()


@scenario(210, since=STATIC)
def static_members_after_a_restart(scene: Scene) -> None:
    leader, follower = pair(scene, session_ms=SESSION_MS)
    scene.kills_the_server()
    leader.beats()
    again = Member(scene, "F2", "F", protocols=BOTH, session_ms=SESSION_MS)
    again.joins()
    again.syncs()
    follower.beats()
    leader.beats()
    leader.syncs()
    leader.commits()
    scene.describes()


@scenario(212)
def follower_offers_two_protocols_after_a_restart(scene: Scene) -> None:
    leader = Member(scene, "A", protocols=BOTH, session_ms=SESSION_MS)
    follower = Member(scene, "B", protocols=BOTH, session_ms=SESSION_MS)
    stable(scene, leader, follower)
    follower.joins()
    scene.kills_the_server()
    follower.sends_join()
    follower.is_parked()
    leader.beats()
    leader.joins()
    follower.hears()


@scenario(212)
def follower_offers_the_chosen_protocol_after_a_restart(scene: Scene) -> None:
    leader = Member(scene, "A", protocols=BOTH, session_ms=SESSION_MS)
    follower = Member(scene, "B", protocols=BOTH, session_ms=SESSION_MS)
    stable(scene, leader, follower)
    scene.kills_the_server()
    follower.joins(protocols=BOTH[:1])
    leader.beats()
    follower.syncs()


@scenario(213)
def empty_group_after_a_restart(scene: Scene) -> None:
    member = Member(scene, "A")
    stable(scene, member)
    member.joins()
    member.commits(3)
    member.leaves()
    scene.kills_the_server()
    scene.describes()
    scene.lists()
    other = Member(scene, "B")
    other.joins()
    other.syncs({other: b"\x01"})
    scene.fetches_offsets({"orders": [0]})


@scenario(214, 215)
def simple_group_after_a_restart(scene: Scene) -> None:
    consumer = Member(scene, "A")
    consumer.commits(3, "orders", "payments", epoch=2, metadata="m")
    scene.deletes_offsets({"payments": [0]})
    scene.kills_the_server()
    scene.describes()
    scene.fetches_offsets({"orders": [0], "payments": [0]})
    scene.lists()
    consumer.joins()
    scene.describes()


@scenario(218, since=HANDS_OUT_IDS)
def newcomers_id_after_a_restart(scene: Scene) -> None:
    member, newcomer = Member(scene, "A", session_ms=SESSION_MS), Member(scene, "B", session_ms=SESSION_MS)
    stable(scene, member)
    newcomer.takes_id()
    scene.kills_the_server()
    newcomer.says_join()
    newcomer.hears()
    member.beats()
    scene.describes()


@scenario(218)
def parked_join_after_a_restart(scene: Scene) -> None:
    """The rebalance that was under way is forgotten, and so is the newcomer who began it."""
    member, newcomer = Member(scene, "A", session_ms=SESSION_MS), Member(scene, "B", session_ms=SESSION_MS)
    stable(scene, member)
    newcomer.sends_join()
    newcomer.is_parked()
    member.beats()
    scene.kills_the_server()
    member.beats()
    scene.describes()
    newcomer.sends_join()
    newcomer.is_parked()


@scenario(
    listed=[
        Listed(22, "A hears Heartbeat: {error_code=22}", "A hears Heartbeat: {error_code=0}"),
        Listed(22, "…group_state='Stable'…", "…group_state='CompletingRebalance'…"),
        Listed(22, "A hears SyncGroup: {error_code=22, …", "A hears SyncGroup: {error_code=0, …"),
        Listed(22, "A hears JoinGroup: {error_code=0, generation_id=2, …", "…{error_code=0, generation_id=3, …"),
    ]
)
def crash_between_join_and_sync(scene: Scene) -> None:
    member = Member(scene, "A", session_ms=SESSION_MS)
    stable(scene, member)
    member.joins()
    scene.kills_the_server()
    member.beats()
    scene.describes()
    member.syncs({member: b"\x02"})
    member.joins()


@scenario(220)
def group_larger_than_a_new_limit(scene: Scene) -> None:
    members = [Member(scene, name, session_ms=SESSION_MS, rebalance_ms=SESSION_MS) for name in "ABC"]
    stable(scene, *members)
    scene.kills_the_server(group_max_size="2")
    scene.describes()
    first, second, third = members
    first.beats()
    first.sends_join()
    first.is_parked()
    second.sends_join()
    second.is_parked()
    third.joins()
    third.beats()
    first.hears(within_s=2 * SESSION_MS / 1000)
    second.hears()
    scene.describes()


@scenario(214, after_deletions=True)
def deleted_group_after_a_restart(scene: Scene) -> None:
    member = Member(scene, "A")
    stable(scene, member)
    member.leaves()
    Member(scene, "S").commits(3)
    scene.deletes()
    scene.kills_the_server()
    scene.describes()
    scene.lists()
    scene.fetches_offsets({"orders": [0]})
