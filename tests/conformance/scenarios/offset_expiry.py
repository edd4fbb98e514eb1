"""Offsets expire, a minute after the group became empty or when the commit says.

The control for "nothing expired" is an offset of another group that was to expire earlier, and did.
"""

from __future__ import annotations

from functools import partial

from holdfast.wire.consumer_protocol import Subscription, encode_subscription
from tests.conformance.member import Member, stable
from tests.conformance.recorder import Recorder
from tests.conformance.scenario import Environment, Listed
from tests.conformance.scenario import scenario as any_scenario
from tests.conformance.versions import HANDS_OUT_IDS

TELLS_EXPIRY_UNTIL = 2
"""The last row whose OffsetCommit says for how long (v2 to v4)."""
EXPIRY_S = 5.0
"""More than an explicit expiry and the time to the next sweep."""
RETENTION_S = 75.0
"""More than the minute of `offsets.retention.minutes` and the time to the next sweep."""
APART_S = 10.0
BOTH_TOPICS = {"orders": [0], "payments": [0]}
PATIENT_MS = 150_000

scenario = partial(any_scenario, environment=Environment.SHORT_RETENTION, after_deletions=True)


def subscribed(*topics: str) -> tuple[tuple[str, bytes], ...]:
    return (("range", encode_subscription(Subscription(list(topics)))),)


def keeps(recorder: Recorder) -> None:
    """An offset keeps the group from the sweep while its first members have only their ids."""
    Member(recorder, "X").commits(1, "payments")


@scenario(172, until=TELLS_EXPIRY_UNTIL)
def commit_that_says_for_how_long(recorder: Recorder) -> None:
    member = Member(recorder, "A", session_ms=20_000)
    stable(recorder, member)
    member.commits(3, retention_time_ms=1000)
    member.commits(4, "payments", retention_time_ms=3_600_000)
    recorder.fetches_offsets(BOTH_TOPICS)
    member.leaves()
    recorder.awaits_no_offset("orders", within_s=EXPIRY_S)
    recorder.fetches_offsets(BOTH_TOPICS)
    recorder.describes()


@scenario(172, until=TELLS_EXPIRY_UNTIL)
def simple_commit_that_says_for_how_long(recorder: Recorder) -> None:
    consumer = Member(recorder, "A")
    consumer.commits(3, retention_time_ms=1000)
    recorder.fetches_offsets(BOTH_TOPICS)
    recorder.awaits_state("Dead", within_s=EXPIRY_S)
    recorder.fetches_offsets(BOTH_TOPICS)


@scenario(207, until=TELLS_EXPIRY_UNTIL)
def expiry_waits_for_the_end_of_the_group(recorder: Recorder) -> None:
    member, other = Member(recorder, "A", protocols=subscribed("orders"), session_ms=20_000), f"{recorder.group}-other"
    stable(recorder, member)
    member.commits(3, "orders", "payments", retention_time_ms=1000)
    Member(recorder, "X").commits(3, group_id=other, retention_time_ms=1500)
    recorder.awaits_no_offset("orders", group=other, within_s=EXPIRY_S)
    recorder.fetches_offsets({"orders": [0]}, group=other)
    recorder.awaits_no_offset("payments", within_s=EXPIRY_S)
    recorder.fetches_offsets(BOTH_TOPICS)
    member.leaves()
    recorder.awaits_no_offset("orders", within_s=EXPIRY_S)
    recorder.fetches_offsets(BOTH_TOPICS)


@scenario(203)
def offsets_of_an_empty_group_go_a_minute_after_its_end(recorder: Recorder) -> None:
    member, other = Member(recorder, "A", session_ms=PATIENT_MS, rebalance_ms=PATIENT_MS), f"{recorder.group}-other"
    keeps(recorder)
    stable(recorder, member)
    member.commits(3, "orders", "payments")
    Member(recorder, "X").commits(3, group_id=other)
    recorder.waits(APART_S)
    member.leaves()
    recorder.awaits_no_offset("orders", group=other, within_s=RETENTION_S)
    recorder.fetches_offsets({"orders": [0]}, group=other)
    recorder.fetches_offsets(BOTH_TOPICS)
    recorder.describes()
    recorder.awaits_state("Dead", within_s=RETENTION_S)
    recorder.fetches_offsets(BOTH_TOPICS)
    recorder.lists()


@scenario(205)
def offsets_of_a_simple_group_go_one_by_one(recorder: Recorder) -> None:
    consumer = Member(recorder, "A")
    consumer.commits(3, "orders")
    recorder.waits(APART_S)
    consumer.commits(4, "payments")
    recorder.awaits_no_offset("orders", within_s=RETENTION_S)
    recorder.fetches_offsets(BOTH_TOPICS)
    recorder.describes()
    recorder.awaits_state("Dead", within_s=RETENTION_S)
    recorder.fetches_offsets(BOTH_TOPICS)


@scenario(206)
def nothing_goes_while_the_group_rebalances(recorder: Recorder) -> None:
    """Nobody subscribes to `orders`: its offset goes as soon as the group is stable again."""
    leader = Member(recorder, "A", protocols=subscribed("payments"), session_ms=PATIENT_MS, rebalance_ms=PATIENT_MS)
    follower = Member(recorder, "B", protocols=subscribed("payments"), session_ms=PATIENT_MS, rebalance_ms=PATIENT_MS)
    other = f"{recorder.group}-other"
    keeps(recorder)
    stable(recorder, leader, follower)
    leader.commits(3, "orders", "payments")
    Member(recorder, "X").commits(3, group_id=other)
    follower.sends_join(protocols=subscribed("payments", "no-such-topic"))
    follower.is_pending()
    recorder.awaits_no_offset("orders", group=other, within_s=RETENTION_S)
    recorder.fetches_offsets({"orders": [0]}, group=other)
    recorder.waits(2.0)
    recorder.fetches_offsets(BOTH_TOPICS)
    leader.joins()
    follower.receives()
    recorder.waits(2.0)
    recorder.fetches_offsets(BOTH_TOPICS)
    leader.syncs({leader: b"\x01", follower: b"\x02"})
    follower.syncs()
    recorder.awaits_no_offset("orders", within_s=EXPIRY_S)
    recorder.fetches_offsets(BOTH_TOPICS)


@scenario(
    since=HANDS_OUT_IDS,
    listed=[
        Listed(33, "…group_state='Dead'…", "…group_state='Empty'…"),
        Listed(33, "A receives JoinGroup: {error_code=25, …", "A receives JoinGroup: {error_code=0, …"),
    ],
)
def sweep_finds_a_group_of_unused_ids(recorder: Recorder) -> None:
    member = Member(recorder, "A", session_ms=20_000)
    member.takes_id()
    recorder.awaits_state("Dead", within_s=EXPIRY_S)
    member.sends_join_request()
    member.receives()
