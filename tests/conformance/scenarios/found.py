"""What random runs found (see `random_runs`), shrunk, and told so that a person can read it."""

from __future__ import annotations

from tests.conformance.member import Member, stable
from tests.conformance.scenario import Listed, scenario
from tests.conformance.scene import Scene
from tests.conformance.versions import HANDS_OUT_IDS, STATIC


@scenario(
    since=HANDS_OUT_IDS,
    listed=[
        Listed(31, f"{name} is parked", f"{name} hears JoinGroup: {{error_code=0, generation_id=2, …")
        for name in ("A", "B", "C", "D")
    ],
)
def last_one_waited_for_finds_the_group_full(scene: Scene) -> None:
    """Four join again, and a fifth, who has its id already, is refused: nobody is waited for any more."""
    members = [Member(scene, name) for name in ("A", "B", "C")]
    fourth, fifth = Member(scene, "D"), Member(scene, "E")
    stable(scene, *members)
    fourth.takes_id()
    fifth.takes_id()
    for member in (fourth, *members):
        member.sends_join()
        member.is_parked()
    fifth.says_join()
    fifth.hears()
    for member in (*members, fourth):
        member.is_parked()


@scenario(
    since=HANDS_OUT_IDS,
    listed=[
        Listed(32, "…group_state='PreparingRebalance'…", "…group_state='Stable'…"),
        Listed(32, "A hears Heartbeat: {error_code=27}", "A hears Heartbeat: {error_code=0}"),
    ],
)
def newcomer_leaves_a_group_that_it_never_joined(scene: Scene) -> None:
    member, newcomer = Member(scene, "A"), Member(scene, "B")
    stable(scene, member)
    newcomer.takes_id()
    newcomer.leaves()
    scene.describes()
    member.beats()


@scenario(
    listed=[
        Listed(29, "B hears Heartbeat: {error_code=25}", "B hears Heartbeat: {error_code=0}"),
        Listed(29, "…group_state='PreparingRebalance'…", "…group_state='Stable'…"),
    ],
)
def member_rejoins_and_is_silent_for_its_old_session(scene: Scene) -> None:
    """It is answered at once, and as one that is there. Kafka goes on counting the seconds of before."""
    leader, follower = Member(scene, "A"), Member(scene, "B", session_ms=700)
    stable(scene, leader, follower)
    follower.joins(session_timeout_ms=3000, rebalance_timeout_ms=700)
    scene.waits(1.1)
    follower.beats()
    scene.describes()


@scenario(
    since=STATIC,
    listed=[
        Listed(19, "M is parked", "M hears JoinGroup: {error_code=81, …"),
        Listed(19, "D hears JoinGroup: {error_code=81, …", "D hears JoinGroup: {error_code=0, generation_id=2, …"),
    ],
)
def newcomers_while_a_static_member_is_away(scene: Scene) -> None:
    """One of four left, two came back, one is new: the last seat belongs to the one that is still away."""
    members = [Member(scene, name, name) for name in ("A", "B", "C", "D")]
    stable(scene, *members)
    members[0].leaves()
    for member in (members[1], members[2], Member(scene, "N", "N"), Member(scene, "M", "M")):
        member.sends_join()
        member.is_parked()
    members[3].joins()
