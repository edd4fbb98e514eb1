"""6.O and 172: offsets that nobody needs any more go, a minute after it or when the commit said.

"Nothing went" is told beside an offset of another group, which was to go earlier and went.
"""

from __future__ import annotations

from functools import partial

from holdfast.wire.consumer_protocol import Subscription, encode_subscription
from tests.conformance.member import Member, stable
from tests.conformance.scenario import Listed, Theatre
from tests.conformance.scenario import scenario as any_scenario
from tests.conformance.scene import Scene
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

scenario = partial(any_scenario, theatre=Theatre.FORGETFUL, after_deletions=True)


def subscribed(*topics: str) -> tuple[tuple[str, bytes], ...]:
    return (("range", encode_subscription(Subscription(list(topics)))),)


def keeps(scene: Scene) -> None:
    """An offset keeps the group from the sweep while its first members have only their ids."""
    Member(scene, "X").commits(1, "payments")


@scenario(172, until=TELLS_EXPIRY_UNTIL)
def commit_that_says_for_how_long(scene: Scene) -> None:
    member = Member(scene, "A", session_ms=20_000)
    stable(scene, member)
    member.commits(3, retention_time_ms=1000)
    member.commits(4, "payments", retention_time_ms=3_600_000)
    scene.fetches_offsets(BOTH_TOPICS)
    member.leaves()
    scene.awaits_no_offset("orders", within_s=EXPIRY_S)
    scene.fetches_offsets(BOTH_TOPICS)
    scene.describes()


@scenario(172, until=TELLS_EXPIRY_UNTIL)
def simple_commit_that_says_for_how_long(scene: Scene) -> None:
    consumer = Member(scene, "A")
    consumer.commits(3, retention_time_ms=1000)
    scene.fetches_offsets(BOTH_TOPICS)
    scene.awaits_state("Dead", within_s=EXPIRY_S)
    scene.fetches_offsets(BOTH_TOPICS)


@scenario(207, until=TELLS_EXPIRY_UNTIL)
def expiry_waits_for_the_end_of_the_group(scene: Scene) -> None:
    member, other = Member(scene, "A", protocols=subscribed("orders"), session_ms=20_000), f"{scene.group}-other"
    stable(scene, member)
    member.commits(3, "orders", "payments", retention_time_ms=1000)
    Member(scene, "X").commits(3, group_id=other, retention_time_ms=1500)
    scene.awaits_no_offset("orders", group=other, within_s=EXPIRY_S)
    scene.fetches_offsets({"orders": [0]}, group=other)
    scene.awaits_no_offset("payments", within_s=EXPIRY_S)
    scene.fetches_offsets(BOTH_TOPICS)
    member.leaves()
    scene.awaits_no_offset("orders", within_s=EXPIRY_S)
    scene.fetches_offsets(BOTH_TOPICS)


@scenario(203)
def offsets_of_an_empty_group_go_a_minute_after_its_end(scene: Scene) -> None:
    member, other = Member(scene, "A", session_ms=PATIENT_MS, rebalance_ms=PATIENT_MS), f"{scene.group}-other"
    keeps(scene)
    stable(scene, member)
    member.commits(3, "orders", "payments")
    Member(scene, "X").commits(3, group_id=other)
    scene.waits(APART_S)
    member.leaves()
    scene.awaits_no_offset("orders", group=other, within_s=RETENTION_S)
    scene.fetches_offsets({"orders": [0]}, group=other)
    scene.fetches_offsets(BOTH_TOPICS)
    scene.describes()
    scene.awaits_state("Dead", within_s=RETENTION_S)
    scene.fetches_offsets(BOTH_TOPICS)
    scene.lists()


@scenario(205)
def offsets_of_a_simple_group_go_one_by_one(scene: Scene) -> None:
    consumer = Member(scene, "A")
    consumer.commits(3, "orders")
    scene.waits(APART_S)
    consumer.commits(4, "payments")
    scene.awaits_no_offset("orders", within_s=RETENTION_S)
    scene.fetches_offsets(BOTH_TOPICS)
    scene.describes()
    scene.awaits_state("Dead", within_s=RETENTION_S)
    scene.fetches_offsets(BOTH_TOPICS)


@scenario(206)
def nothing_goes_while_the_group_rebalances(scene: Scene) -> None:
    """Nobody subscribes to `orders`: its offset goes as soon as the group is stable again."""
    leader = Member(scene, "A", protocols=subscribed("payments"), session_ms=PATIENT_MS, rebalance_ms=PATIENT_MS)
    follower = Member(scene, "B", protocols=subscribed("payments"), session_ms=PATIENT_MS, rebalance_ms=PATIENT_MS)
    other = f"{scene.group}-other"
    keeps(scene)
    stable(scene, leader, follower)
    leader.commits(3, "orders", "payments")
    Member(scene, "X").commits(3, group_id=other)
    follower.sends_join(protocols=subscribed("payments", "no-such-topic"))
    follower.is_parked()
    scene.awaits_no_offset("orders", group=other, within_s=RETENTION_S)
    scene.fetches_offsets({"orders": [0]}, group=other)
    scene.waits(2.0)
    scene.fetches_offsets(BOTH_TOPICS)
    leader.joins()
    follower.hears()
    scene.waits(2.0)
    scene.fetches_offsets(BOTH_TOPICS)
    leader.syncs({leader: b"\x01", follower: b"\x02"})
    follower.syncs()
    scene.awaits_no_offset("orders", within_s=EXPIRY_S)
    scene.fetches_offsets(BOTH_TOPICS)


@scenario(
    since=HANDS_OUT_IDS,
    listed=[
        Listed(33, "…group_state='Dead'…", "…group_state='Empty'…"),
        Listed(33, "A hears JoinGroup: {error_code=25, …", "A hears JoinGroup: {error_code=0, …"),
    ],
)
def sweep_finds_a_group_of_unused_ids(scene: Scene) -> None:
    member = Member(scene, "A", session_ms=20_000)
    member.takes_id()
    scene.awaits_state("Dead", within_s=EXPIRY_S)
    member.says_join()
    member.hears()
