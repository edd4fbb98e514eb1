"""Differences that random runs found (see `random_runs`), shrunk and made readable."""

from __future__ import annotations

from tests.conformance.member import Member, stable
from tests.conformance.recorder import Recorder
from tests.conformance.scenario import Listed, scenario
from tests.conformance.versions import HANDS_OUT_IDS, STATIC


@scenario(
    since=HANDS_OUT_IDS,
    listed=[
        Listed(31, f"{name} is pending", f"{name} receives JoinGroup: {{error_code=0, generation_id=2, …")
        for name in ("A", "B", "C", "D")
    ],
)
def last_one_waited_for_finds_the_group_full(recorder: Recorder) -> None:
    """Four join again, and a fifth, who has its id already, is refused: nobody is waited for any more."""
    members = [Member(recorder, name) for name in ("A", "B", "C")]
    fourth, fifth = Member(recorder, "D"), Member(recorder, "E")
    stable(recorder, *members)
    fourth.takes_id()
    fifth.takes_id()
    for member in (fourth, *members):
        member.sends_join()
        member.is_pending()
    fifth.sends_join_request()
    fifth.receives()
    for member in (*members, fourth):
        member.is_pending()


@scenario(
    since=HANDS_OUT_IDS,
    listed=[
        Listed(32, "…group_state='PreparingRebalance'…", "…group_state='Stable'…"),
        Listed(32, "A receives Heartbeat: {error_code=27}", "A receives Heartbeat: {error_code=0}"),
    ],
)
def newcomer_leaves_a_group_that_it_never_joined(recorder: Recorder) -> None:
    member, newcomer = Member(recorder, "A"), Member(recorder, "B")
    stable(recorder, member)
    newcomer.takes_id()
    newcomer.leaves()
    recorder.describes()
    member.beats()


@scenario(
    listed=[
        Listed(29, "B receives Heartbeat: {error_code=25}", "B receives Heartbeat: {error_code=0}"),
        Listed(29, "…group_state='PreparingRebalance'…", "…group_state='Stable'…"),
    ],
)
def member_rejoins_and_is_silent_for_its_old_session(recorder: Recorder) -> None:
    """It is answered at once, and as one that is there. Kafka goes on counting the seconds of before."""
    leader, follower = Member(recorder, "A"), Member(recorder, "B", session_ms=700)
    stable(recorder, leader, follower)
    follower.joins(session_timeout_ms=3000, rebalance_timeout_ms=700)
    recorder.waits(1.1)
    follower.beats()
    recorder.describes()


@scenario(
    since=STATIC,
    listed=[
        Listed(19, "M is pending", "M receives JoinGroup: {error_code=81, …"),
        Listed(
            19, "D receives JoinGroup: {error_code=81, …", "D receives JoinGroup: {error_code=0, generation_id=2, …"
        ),
    ],
)
def newcomers_while_a_static_member_is_away(recorder: Recorder) -> None:
    """One of four left, two came back, one is new: the last place belongs to the one that is still absent."""
    members = [Member(recorder, name, name) for name in ("A", "B", "C", "D")]
    stable(recorder, *members)
    members[0].leaves()
    for member in (members[1], members[2], Member(recorder, "N", "N"), Member(recorder, "M", "M")):
        member.sends_join()
        member.is_pending()
    members[3].joins()
