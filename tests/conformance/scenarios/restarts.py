"""The state of a group after its server was killed and restarted. Every scenario kills it once."""

from __future__ import annotations

from functools import partial

from tests.conformance.member import BOTH, Member, pair, stable
from tests.conformance.recorder import Recorder
from tests.conformance.scenario import Environment, Listed
from tests.conformance.scenario import scenario as any_scenario
from tests.conformance.versions import HANDS_OUT_IDS, STATIC

SESSION_MS = 6000
"""Long enough for all to come back, which the first heartbeats must."""

scenario = partial(any_scenario, environment=Environment.RESTARTED)


@scenario(210)
def silent_member_after_a_restart(recorder: Recorder) -> None:
    """The server is down for longer than their sessions, which then start again."""
    beating, silent = Member(recorder, "A", session_ms=SESSION_MS), Member(recorder, "B", session_ms=SESSION_MS)
    stable(recorder, beating, silent)
    recorder.kills_the_server(down_s=SESSION_MS / 1000 + 0.5)
    recorder.describes()
    beating.beats()
    recorder.waits(SESSION_MS / 2000)
    beating.beats()
    recorder.awaits_state("PreparingRebalance", within_s=SESSION_MS / 1000)
    beating.beats()
    silent.beats()
    beating.joins()


@scenario(210, since=STATIC)
def static_members_after_a_restart(recorder: Recorder) -> None:
    leader, follower = pair(recorder, session_ms=SESSION_MS)
    recorder.kills_the_server()
    leader.beats()
    again = Member(recorder, "F2", "F", protocols=BOTH, session_ms=SESSION_MS)
    again.joins()
    again.syncs()
    follower.beats()
    leader.beats()
    leader.syncs()
    leader.commits()
    recorder.describes()


@scenario(212)
def follower_offers_two_protocols_after_a_restart(recorder: Recorder) -> None:
    leader = Member(recorder, "A", protocols=BOTH, session_ms=SESSION_MS)
    follower = Member(recorder, "B", protocols=BOTH, session_ms=SESSION_MS)
    stable(recorder, leader, follower)
    follower.joins()
    recorder.kills_the_server()
    follower.sends_join()
    follower.is_pending()
    leader.beats()
    leader.joins()
    follower.receives()


@scenario(212)
def follower_offers_the_chosen_protocol_after_a_restart(recorder: Recorder) -> None:
    leader = Member(recorder, "A", protocols=BOTH, session_ms=SESSION_MS)
    follower = Member(recorder, "B", protocols=BOTH, session_ms=SESSION_MS)
    stable(recorder, leader, follower)
    recorder.kills_the_server()
    follower.joins(protocols=BOTH[:1])
    leader.beats()
    follower.syncs()


@scenario(213)
def empty_group_after_a_restart(recorder: Recorder) -> None:
    member = Member(recorder, "A")
    stable(recorder, member)
    member.joins()
    member.commits(3)
    member.leaves()
    recorder.kills_the_server()
    recorder.describes()
    recorder.lists()
    other = Member(recorder, "B")
    other.joins()
    other.syncs({other: b"\x01"})
    recorder.fetches_offsets({"orders": [0]})


@scenario(214, 215)
def simple_group_after_a_restart(recorder: Recorder) -> None:
    consumer = Member(recorder, "A")
    consumer.commits(3, "orders", "payments", epoch=2, metadata="m")
    recorder.deletes_offsets({"payments": [0]})
    recorder.kills_the_server()
    recorder.describes()
    recorder.fetches_offsets({"orders": [0], "payments": [0]})
    recorder.lists()
    consumer.joins()
    recorder.describes()


@scenario(218, since=HANDS_OUT_IDS)
def newcomers_id_after_a_restart(recorder: Recorder) -> None:
    member, newcomer = Member(recorder, "A", session_ms=SESSION_MS), Member(recorder, "B", session_ms=SESSION_MS)
    stable(recorder, member)
    newcomer.takes_id()
    recorder.kills_the_server()
    newcomer.sends_join_request()
    newcomer.receives()
    member.beats()
    recorder.describes()


@scenario(218)
def parked_join_after_a_restart(recorder: Recorder) -> None:
    """The rebalance that was under way is forgotten, and so is the newcomer who began it."""
    member, newcomer = Member(recorder, "A", session_ms=SESSION_MS), Member(recorder, "B", session_ms=SESSION_MS)
    stable(recorder, member)
    newcomer.sends_join()
    newcomer.is_pending()
    member.beats()
    recorder.kills_the_server()
    member.beats()
    recorder.describes()
    newcomer.sends_join()
    newcomer.is_pending()


@scenario(
    listed=[
        Listed(22, "A receives Heartbeat: {error_code=22}", "A receives Heartbeat: {error_code=0}"),
        Listed(22, "…group_state='Stable'…", "…group_state='CompletingRebalance'…"),
        Listed(22, "A receives SyncGroup: {error_code=22, …", "A receives SyncGroup: {error_code=0, …"),
        Listed(22, "A receives JoinGroup: {error_code=0, generation_id=2, …", "…{error_code=0, generation_id=3, …"),
    ]
)
def crash_between_join_and_sync(recorder: Recorder) -> None:
    member = Member(recorder, "A", session_ms=SESSION_MS)
    stable(recorder, member)
    member.joins()
    recorder.kills_the_server()
    member.beats()
    recorder.describes()
    member.syncs({member: b"\x02"})
    member.joins()


@scenario(220)
def group_larger_than_a_new_limit(recorder: Recorder) -> None:
    members = [Member(recorder, name, session_ms=SESSION_MS, rebalance_ms=SESSION_MS) for name in "ABC"]
    stable(recorder, *members)
    recorder.kills_the_server(group_max_size="2")
    recorder.describes()
    first, second, third = members
    first.beats()
    first.sends_join()
    first.is_pending()
    second.sends_join()
    second.is_pending()
    third.joins()
    third.beats()
    first.receives(within_s=2 * SESSION_MS / 1000)
    second.receives()
    recorder.describes()


@scenario(214, after_deletions=True)
def deleted_group_after_a_restart(recorder: Recorder) -> None:
    member = Member(recorder, "A")
    stable(recorder, member)
    member.leaves()
    Member(recorder, "S").commits(3)
    recorder.deletes()
    recorder.kills_the_server()
    recorder.describes()
    recorder.lists()
    recorder.fetches_offsets({"orders": [0]})
